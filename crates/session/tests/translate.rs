//! Physical plans of SQL as Kelpie's plans.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use kelpie_compile::expr::ExprKind;
use kelpie_compile::plan::{Join, JoinKind, Plan};
use kelpie_session::testing::translate;
use kelpie_session::{KelpieSession, SessionOptions};

/// `t(k, v, s)` with NULLs, `u(k, w, s)` and `n(i)`, whose column is never NULL.
fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let mut options = SessionOptions::default().with("kelpie.enabled", "false");
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let session = KelpieSession::new(options).unwrap();
    let longs = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let texts = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let tables = [
        (
            "t",
            vec![
                ("k", longs(vec![Some(1), None, Some(3)])),
                ("v", longs(vec![Some(1), None, Some(3)])),
                ("s", texts(vec![Some("a"), None, Some("c")])),
            ],
        ),
        (
            "u",
            vec![
                ("k", longs(vec![Some(1), None])),
                ("w", Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef),
                ("s", texts(vec![Some("a"), None])),
            ],
        ),
    ];
    for (name, columns) in tables {
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        session.context().register_table(name, Arc::new(table)).unwrap();
    }
    session
}

async fn physical(session: &KelpieSession, sql: &str) -> Arc<dyn ExecutionPlan> {
    session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

async fn translated(session: &KelpieSession, sql: &str) -> Plan {
    let plan = physical(session, sql).await;
    let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    let translated = translate(&plan).unwrap_or_else(|reasons| panic!("{sql}\n{shown}{reasons:#?}"));
    let types = |fields: Vec<kelpie_compile::types::Field>| fields.len();
    assert_eq!(types(translated.plan.fields()), plan.schema().fields().len(), "{sql}");
    for (field, arrow) in translated.plan.fields().iter().zip(plan.schema().fields()) {
        assert!(arrow.is_nullable() || !field.nullable, "{sql}: {}", field.name);
    }
    translated.plan
}

fn joins(plan: &Plan) -> Vec<Join> {
    let mut found = match plan {
        Plan::Join(join) => vec![(**join).clone()],
        _ => Vec::new(),
    };
    found.extend(plan.inputs().into_iter().flat_map(joins));
    found
}

#[tokio::test]
async fn every_kind_of_join_translates() {
    use JoinKind::*;
    let session = session(&[]);
    // SQL, kinds that DataFusion may choose (it swaps sides), number of keys, whether there is a residual.
    for (sql, kinds, keys, residual) in [
        ("SELECT * FROM t JOIN u ON t.k = u.k", vec![Inner], 1, false),
        ("SELECT * FROM t JOIN u ON t.k = u.k AND t.s = u.s", vec![Inner], 2, false),
        ("SELECT t.v FROM t JOIN u ON t.k = u.k AND t.v < u.w", vec![Inner], 1, true),
        ("SELECT * FROM t JOIN u ON t.k = u.w", vec![Inner], 1, false),
        ("SELECT * FROM t LEFT JOIN u ON t.k = u.k", vec![BuildOuter, ProbeOuter], 1, false),
        ("SELECT * FROM t LEFT JOIN u ON t.k = u.k AND t.v > u.w", vec![BuildOuter, ProbeOuter], 1, true),
        ("SELECT * FROM t RIGHT JOIN u ON t.k = u.k", vec![BuildOuter, ProbeOuter], 1, false),
        ("SELECT * FROM t FULL JOIN u ON t.k = u.k", vec![FullOuter], 1, false),
        ("SELECT * FROM t FULL JOIN u ON t.k = u.k AND t.v > u.w", vec![FullOuter], 1, true),
        ("SELECT * FROM t WHERE k IN (SELECT k FROM u)", vec![BuildSemi, ProbeSemi], 1, false),
        (
            "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w <> t.v)",
            vec![BuildSemi, ProbeSemi],
            1,
            true,
        ),
        (
            "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
            vec![BuildAnti, ProbeAnti],
            1,
            false,
        ),
        (
            "SELECT * FROM t WHERE v > 2 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
            vec![BuildMark, ProbeMark],
            1,
            false,
        ),
        ("SELECT * FROM t, u WHERE t.v < u.w", vec![Inner], 0, true),
        ("SELECT * FROM t LEFT JOIN u ON t.v < u.w", vec![BuildOuter, ProbeOuter], 0, true),
        ("SELECT * FROM t FULL JOIN u ON t.v < u.w", vec![FullOuter], 0, true),
        (
            "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.w > t.v)",
            vec![BuildSemi, ProbeSemi],
            0,
            true,
        ),
        ("SELECT * FROM t CROSS JOIN u", vec![Inner], 0, false),
    ] {
        let plan = translated(&session, sql).await;
        let found = joins(&plan);
        let [join] = found.as_slice() else { panic!("{sql}\n{plan:#?}") };
        assert!(kinds.contains(&join.kind), "{sql}: {:?}", join.kind);
        assert_eq!((join.keys.len(), join.residual.is_some()), (keys, residual), "{sql}");
        assert!(!join.null_equal && !join.null_aware, "{sql}");
        for (build, probe) in &join.keys {
            assert_eq!(build.data_type, probe.data_type, "{sql}");
        }
        // The residual reads columns of both sides, build first.
        if let Some(residual) = &join.residual {
            let columns = kelpie_compile::expr::columns_read(residual);
            let build = join.build.fields().len();
            assert!(columns.iter().any(|c| *c < build) && columns.iter().any(|c| *c >= build), "{sql}");
            assert!(columns.iter().all(|c| *c < build + join.probe.fields().len()), "{sql}");
        }
    }
}

#[tokio::test]
async fn equality_of_nulls_follows_the_statement() {
    let session = session(&[]);
    let join = |plan: Plan| joins(&plan).remove(0);
    let not_in = join(translated(&session, "SELECT * FROM t WHERE k NOT IN (SELECT k FROM u)").await);
    assert!(not_in.null_aware && not_in.kind == JoinKind::BuildAnti, "{not_in:#?}");
    let set = join(translated(&session, "SELECT k FROM t INTERSECT SELECT k FROM u").await);
    assert!(set.null_equal && !set.null_aware);
    assert!(matches!(set.kind, JoinKind::BuildSemi | JoinKind::ProbeSemi));
    let set = join(translated(&session, "SELECT k FROM t EXCEPT SELECT k FROM u").await);
    assert!(set.null_equal && matches!(set.kind, JoinKind::BuildAnti | JoinKind::ProbeAnti));
}

#[tokio::test]
async fn merge_joins_and_partitioned_joins_translate() {
    let merge = [
        ("datafusion.optimizer.prefer_hash_join", "false"),
        ("datafusion.execution.target_partitions", "4"),
        ("datafusion.optimizer.repartition_joins", "true"),
    ];
    let sql = "SELECT t.v, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.v < u.w";
    let session_of_merges = session(&merge);
    let physical = physical(&session_of_merges, sql).await;
    let shown = datafusion::physical_plan::displayable(physical.as_ref()).indent(false).to_string();
    assert!(shown.contains("SortMergeJoinExec"), "{shown}");
    let plan = translated(&session_of_merges, sql).await;
    assert_eq!(joins(&plan)[0].kind, JoinKind::BuildOuter);
    let partitioned =
        session(&[merge[1], merge[2], ("datafusion.optimizer.hash_join_single_partition_threshold", "0")]);
    assert_eq!(joins(&translated(&partitioned, sql).await).len(), 1);
}

#[tokio::test]
async fn unions_widen_nullability_and_constants_are_tables() {
    let session = session(&[]);
    let sql = "SELECT k, s FROM t UNION ALL SELECT w, 'x' FROM u UNION ALL SELECT 7, NULL";
    let plan = translated(&session, sql).await;
    let Plan::Union { inputs, fields } = &plan else { panic!("{plan:#?}") };
    assert_eq!(inputs.len(), 3);
    assert!(fields.iter().all(|field| field.nullable));
    let plan = translated(&session, "SELECT k FROM t UNION SELECT k FROM u").await;
    assert!(matches!(plan, Plan::Aggregate { ref aggregates, .. } if aggregates.is_empty()), "{plan:#?}");
    let plan = translated(&session, "SELECT k FROM t WHERE false").await;
    assert!(matches!(plan, Plan::Scan(_)), "{plan:#?}");
    let plan = translated(&session, "SELECT 1, 'x', NULL::int").await;
    let Plan::Project { input, .. } = &plan else { panic!("{plan:#?}") };
    assert!(input.fields().is_empty());
}

#[tokio::test]
async fn scalar_subqueries_stand_at_their_node_only() {
    let session = session(&[]);
    let sql = "SELECT v FROM t WHERE v > (SELECT max(w) FROM u) AND k < \
               (SELECT min(k) FROM u WHERE w > (SELECT avg(v) FROM t))";
    let physical = physical(&session, sql).await;
    let plan = translated(&session, sql).await;
    let Plan::Scalars { input, subqueries } = &plan else { panic!("{plan:#?}") };
    assert_eq!(subqueries.len(), 2);
    assert!(subqueries.iter().all(|subquery| subquery.fields().len() == 1));
    assert!(subqueries.iter().any(|subquery| matches!(subquery, Plan::Scalars { .. })), "nested");
    let shown = format!("{input:?}");
    for index in 0..2 {
        assert!(shown.contains(&format!("{:?}", ExprKind::Scalar(index))), "{shown}");
    }
    // Scans are numbered subqueries first, as `Plan::inputs` has them.
    fn sources(plan: &Plan, found: &mut Vec<usize>) {
        if let Plan::Scan(scan) = plan {
            found.push(scan.source);
        }
        plan.inputs().into_iter().for_each(|input| sources(input, found));
    }
    let mut found = Vec::new();
    sources(&plan, &mut found);
    assert_eq!(found, [0, 1, 2, 3]);

    let below = Arc::clone(physical.children()[0]);
    let reasons = translate(&below).unwrap_err().join("\n");
    assert!(reasons.contains("belongs to an operator above"), "{reasons}");
}
