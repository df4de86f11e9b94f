//! Plans that others have made. `plans/ibis.py` says how those of Ibis were; the others are written by hand as the specification says.

use kelpie_workloads::Workload;
use serde_json::{Value, json};

use crate::common::{add, answer, error, file, is_compiled, text, with_tables, with_workload};

#[tokio::test(flavor = "multi_thread")]
async fn plans_of_ibis_are_answered() {
    let (_folder, session) = with_workload(Workload::Tpch).await;
    let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plans/");
    for (name, sql) in [
        (
            "ibis_q1.bin",
            "SELECT l_returnflag, l_linestatus, sum(l_quantity) sum_qty, \
             sum(l_extendedprice * (1 - l_discount)) sum_disc_price, count(*) count_order \
             FROM lineitem WHERE l_shipdate <= date '1998-09-02' GROUP BY 1, 2 ORDER BY 1, 2",
        ),
        (
            "ibis_q3.bin",
            "SELECT l_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount)) revenue \
             FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON o_orderkey = l_orderkey \
             WHERE c_mktsegment = 'BUILDING' AND o_orderdate < date '1995-03-15' \
             AND l_shipdate > date '1995-03-15' GROUP BY 1, 2, 3 ORDER BY 4 DESC, 2, 1 LIMIT 10",
        ),
        (
            "ibis_q6.json",
            "SELECT sum(l_extendedprice * l_discount) revenue FROM lineitem \
             WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1995-01-01' \
             AND l_discount >= 0.05 AND l_discount <= 0.07 AND l_quantity < 24",
        ),
    ] {
        let added = add(&session, format!("{plans}{name}").as_ref()).await;
        assert!(is_compiled(&session, &added.statement()).await, "{name}");
        let found = session.sql(&added.statement()).await.unwrap();
        assert_eq!(text(&found), text(&session.sql(sql).await.unwrap()), "{name}");
        assert!(found.rows() > 0);
    }
}

fn column(place: usize) -> Value {
    json!({"selection": {"directReference": {"structField": {"field": place}}, "rootReference": {}}})
}

fn call(function: usize, arguments: &[Value]) -> Value {
    let arguments: Vec<Value> = arguments.iter().map(|argument| json!({"value": argument})).collect();
    json!({"scalarFunction": {"functionReference": function, "arguments": arguments}})
}

fn read(table: Value) -> Value {
    let nullable = json!({"nullability": "NULLABILITY_NULLABLE"});
    let mut read = json!({"baseSchema": {
        "names": ["k", "x", "name"],
        "struct": {"types": [{"i64": nullable}, {"fp64": nullable}, {"string": nullable}]},
    }});
    read.as_object_mut().unwrap().extend(table.as_object().unwrap().clone());
    read
}

fn plan(relation: Value, names: &[&str]) -> Vec<u8> {
    let functions = ["gt:any_any", "add:fp64_fp64", "xor:bool_bool", "is_null:any"];
    let functions = functions
        .iter()
        .enumerate()
        .map(|(anchor, name)| json!({"extensionFunction": {"functionAnchor": anchor, "name": name}}));
    let plan = json!({
        "version": {"minorNumber": 63, "producer": "a person"},
        "extensions": functions.collect::<Vec<_>>(),
        "relations": [{"root": {"input": relation, "names": names}}],
    });
    serde_json::to_vec(&plan).unwrap()
}

/// The name of `t.csv`, whose types are those of [`read`].
fn csv(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("t.csv");
    std::fs::write(&path, "k,x,name\n1,1.5,ä\n2,2.5,\n3,,b\n1,4.0,b\n,0.5,c\n").unwrap();
    path.to_str().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_filters_before_it_leaves_columns_out() {
    let session = with_tables().await;
    let two = json!({"literal": {"fp64": 2.0}});
    for table in [json!({"namedTable": {"names": ["t"]}}), json!({"namedTable": {"names": ["public", "t"]}})]
    {
        let mut read = read(table);
        read["filter"] = call(0, &[column(1), two.clone()]);
        read["projection"] = json!({"select": {"structItems": [{"field": 2}, {"field": 0}]}});
        let file = file("plan.json", &plan(json!({"read": read}), &["who", "key"]));
        let found = answer(&session, &file.path).await.unwrap();
        let expected = session.sql("SELECT name AS who, k AS key FROM t WHERE x > 2.0").await.unwrap();
        assert_eq!(found, text(&expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_tables() {
    let (folder, session) = (tempfile::tempdir().unwrap(), with_tables().await);
    let path = csv(&folder);
    for uri in [path.clone(), format!("file://{path}")] {
        let relation = json!({"read": read(json!({"localFiles": {"items": [{"uriFile": uri}]}}))});
        let file = file("plan.json", &plan(relation, &["k", "x", "name"]));
        let found = answer(&session, &file.path).await.unwrap();
        assert_eq!(found, text(&session.sql(&format!("SELECT * FROM '{path}'")).await.unwrap()));
    }
    let far = json!({"read": read(json!({"localFiles": {"items": [{"uriFile": "s3://b/t.csv"}]}}))});
    let file = file("plan.json", &plan(far, &["k", "x", "name"]));
    assert!(error(answer(&session, &file.path).await).contains("s3://b/t.csv, and only local files"));
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_and_outputs_are_as_the_specification_has_them() {
    let session = with_tables().await;
    let is_null = |place| call(3, &[column(place)]);
    // A projection's columns come after those of its input, and what is not emitted is left out.
    let project = json!({"project": {
        "common": {"emit": {"outputMapping": [3, 0, 4, 0]}},
        "input": {"read": read(json!({"namedTable": {"names": ["t"]}}))},
        "expressions": [call(1, &[column(1), column(1)]), call(2, &[is_null(0), is_null(1)])],
    }});
    let file = file("plan.json", &plan(project, &["twice", "k", "one", "again"]));
    let found = answer(&session, &file.path).await.unwrap();
    let sql = "SELECT x + x twice, k, (k IS NULL) <> (x IS NULL) one, k again FROM t";
    assert_eq!(found, text(&session.sql(sql).await.unwrap()));
}
