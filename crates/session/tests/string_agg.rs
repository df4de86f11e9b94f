//! `string_agg` through SQL: by keys and in orders of several types, over many rows, one row and none: compiled as a whole, with
//! DataFusion's answers, or left to DataFusion with a reason.

use kelpie_session::testing::{Check, check_all, configurations};

/// In this order no two rows of `t` are alike, so that the order of texts is nobody's choice.
const UNIQUE: &str = "tsn, i64, d15, u32";

const TABLES: [&str; 4] = ["t", "one", "none", "t WHERE nn < 0"];

#[tokio::test(flavor = "multi_thread")]
async fn orders_and_keys() {
    let mut statements = Vec::new();
    for table in TABLES {
        for order in [UNIQUE.to_string(), format!("s DESC NULLS LAST, {UNIQUE}"), format!("g, {UNIQUE} DESC")]
        {
            for keys in ["k", "g", "dt, k", "s"] {
                statements.push(format!(
                    "SELECT {keys}, string_agg(s, ', ' ORDER BY {order}) FROM {table} GROUP BY {keys}"
                ));
            }
            statements.push(format!("SELECT string_agg(s, '' ORDER BY {order}) FROM {table}"));
        }
    }
    check_all("string_agg in orders", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_once() {
    let mut statements = Vec::new();
    for table in TABLES {
        for direction in ["", "DESC", "DESC NULLS LAST", "NULLS FIRST"] {
            statements.push(format!(
                    "SELECT k, string_agg(DISTINCT s, ';' ORDER BY s {direction}), count(*) FROM {table} GROUP BY k"
                ));
            statements
                .push(format!("SELECT string_agg(DISTINCT g, ' – ' ORDER BY g {direction}) FROM {table}"));
        }
        // The order is open, the texts are not.
        statements.push(format!("SELECT k, length(string_agg(DISTINCT s, ',')) FROM {table} GROUP BY k"));
    }
    check_all("string_agg of texts once", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_around() {
    let mut statements = Vec::new();
    for table in TABLES {
        statements.extend([
            format!("SELECT k, string_agg(s, NULL ORDER BY {UNIQUE}) FROM {table} GROUP BY k"),
            format!(
                "SELECT k, string_agg(s, ',' ORDER BY {UNIQUE}) FILTER (WHERE nn > 20), count(*), sum(nn) FROM {table} GROUP BY k"
            ),
            format!(
                "SELECT k, string_agg(DISTINCT s, ',' ORDER BY s) FILTER (WHERE b) FROM {table} GROUP BY k"
            ),
            format!(
                "SELECT g, string_agg(s, ',' ORDER BY {UNIQUE}), string_agg(upper(g), '-' ORDER BY {UNIQUE}), median(f64), first_value(s ORDER BY {UNIQUE}) FROM {table} GROUP BY g"
            ),
            format!(
                "SELECT k FROM {table} GROUP BY k HAVING length(string_agg(s, ',' ORDER BY {UNIQUE})) > 12"
            ),
            format!(
                "SELECT a, count(*) FROM (SELECT k, string_agg(g, ',' ORDER BY {UNIQUE}) AS a FROM {table} GROUP BY k) GROUP BY a"
            ),
            format!(
                "SELECT k, string_agg(s || g, ',' ORDER BY {UNIQUE}) FROM {table} GROUP BY ROLLUP (k)"
            ),
            format!("SELECT string_agg('x', ',' ORDER BY {UNIQUE}) FROM {table}"),
            format!(
                "SELECT string_agg(arrow_cast(s, 'LargeUtf8'), arrow_cast('|', 'Utf8View') ORDER BY {UNIQUE}) FROM {table}"
            ),
            // The order is open, the texts are not.
            format!("SELECT k, length(string_agg(s, ', ')) FROM {table} GROUP BY k"),
            format!("SELECT length(string_agg(s, '')), count(s) FROM {table}"),
        ]);
    }
    check_all("around string_agg", configurations(), statements).await.unwrap();
}

/// Of one partition, and by one worker, the order is that of its rows; several workers take rows as they get at them.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_order() {
    let alone =
        [("kelpie.device", "cpu"), ("kelpie.threads", "1"), ("datafusion.execution.target_partitions", "1")];
    let mut check = Check::new(&alone).unwrap();
    for sql in [
        "SELECT string_agg(s, ',') FROM t",
        "SELECT k, string_agg(s, ',') FROM t GROUP BY k",
        "SELECT k, string_agg(s, ',') FILTER (WHERE b), max(nn) FROM t WHERE nn > 5 GROUP BY k",
    ] {
        check.in_row_order(sql).await;
    }
    check.finish();
}

/// What stays DataFusion's has its answers.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left() {
    let mut check =
        Check::new(&[("kelpie.device", "cpu"), ("datafusion.execution.target_partitions", "1")]).unwrap();
    check.in_part(&format!("SELECT k, array_agg(s ORDER BY {UNIQUE}) FROM t GROUP BY k"), "array_agg").await;
    check.finish();
}
