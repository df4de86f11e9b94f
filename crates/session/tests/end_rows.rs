//! Values of the first and last rows of groups: by numbers of 64 bits and of 128, with rows that have no rank, and by a sort.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::parquet::arrow::ArrowWriter;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

use crate::row_groups::text;

const ROWS: i64 = 20_000;

fn scattered(n: i64) -> i64 {
    n.wrapping_mul(0x5851_f42d_4c95_7f2d)
}

/// Orders of few bits, of 64 and of more, with NULLs, infinities and both zeros; no two rows are equal in all of them.
fn folder() -> TempDir {
    let all = || 0..ROWS;
    let float = |n: i64| match n % 1_000 {
        3 => f64::INFINITY,
        4 => f64::NEG_INFINITY,
        5 => -0.0,
        6 => 0.0,
        _ => (scattered(n) >> 11) as f64,
    };
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(all())), false),
        ("k", Arc::new(all().map(|n| (n % 11 != 3).then_some(n % 7)).collect::<Int64Array>()), true),
        (
            "small",
            Arc::new(all().map(|n| (n % 13 != 4).then_some(n / 3 % 1_000)).collect::<Int64Array>()),
            true,
        ),
        (
            "wide",
            Arc::new(all().map(|n| (n % 17 != 4).then_some(scattered(n))).collect::<Int64Array>()),
            true,
        ),
        ("f", Arc::new(all().map(|n| (n % 19 != 4).then_some(float(n))).collect::<Float64Array>()), true),
        (
            "s",
            Arc::new(all().map(|n| (n % 23 != 4).then(|| format!("tëxt {n}"))).collect::<StringArray>()),
            true,
        ),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let folder = TempDir::new().unwrap();
    let file = fs::File::create(folder.path().join("t.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    folder
}

async fn session(folder: &TempDir, settings: &[(&str, &str)]) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.min_rows", "0");
    let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    session.register_path("t", folder.path().join("t.parquet")).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_those_of_a_sort() {
    let folder = folder();
    let operators = session(&folder, &[("kelpie.enabled", "false")]).await;
    // What is asked, and whether groups keep numbers of rows.
    let cases = [
        ("max_by(n, small * 100000 + n), min_by(s, small * 100000 + n)", true),
        ("arg_max(s, wide)", true),
        ("arg_min(f, wide), first(s order by wide)", true),
        ("arg_max(n, f * 2 + n) filter (where abs(f) < 1e300)", true),
        ("first(n order by f desc, n), last(s order by f desc, n)", true),
        ("last(n order by f, wide, n)", false),
        ("first(n order by wide desc nulls last, n) filter (where small > 900)", true),
        ("last(n order by wide, n) filter (where small > 99999)", true),
        ("first(small order by s, n)", false),
        ("max_by(n, small * 100000 + n), count(*), sum(small), median(f)", true),
    ];
    for (asked, by_numbers) in cases {
        for groups in [
            "group by k order by k",
            "where n > 30000",
            "",
            "where k < 3 and small < 500 group by k order by k",
        ] {
            let key = if groups.contains("group") { "k, " } else { "" };
            let sql = format!("select {key}{asked} from t {groups}");
            let expected = text(&operators, &sql).await;
            for device in ["cpu", "simt"] {
                let compiled = session(&folder, &[("kelpie.device", device)]).await;
                assert_eq!(text(&compiled, &sql).await, expected, "{sql} on {device}");
                let shown = text(&compiled, &format!("explain analyze {sql}")).await;
                let has_numbers = shown.contains("ranked_rows=extremes");
                assert!(!by_numbers || has_numbers, "{sql} on {device}: {shown}");
                let options = [("kelpie.device", device), ("kelpie.variant.ranked_rows", "sorted")];
                let sorted = session(&folder, &options).await;
                assert_eq!(text(&sorted, &sql).await, expected, "{sql} on {device}, sorted");
            }
        }
    }
}
