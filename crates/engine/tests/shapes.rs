//! Launch shapes: what is proven from a shape holds to the last row, and kernels are right in blocks of any size.

use std::sync::Arc;

use crate::common::Table;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Int64Type, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, ExplainStage, Forced, Query, QueryOptions, ShapeChoices,
};

/// `select k, count(*), sum(v) from t group by k`, over `rows` rows with the same two values.
fn sums(rows: usize, value: i64, options: QueryOptions) -> Query {
    let schema = Schema::new(vec![
        ArrowField::new("k", ArrowType::Int32, false),
        ArrowField::new("v", ArrowType::Int64, false),
    ]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int32Array::from(vec![7; rows])), Arc::new(Int64Array::from(vec![value; rows]))];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).expect("a batch");
    let field = |name: &str, data_type| Field { name: name.into(), data_type, nullable: false };
    let fields = vec![field("k", DataType::Int32), field("v", DataType::Int64)];
    let scan = Plan::Scan(Scan { source: 0, table: "t".into(), columns: vec![0, 1], fields });
    let aggregate = |function, argument| Aggregate {
        function,
        argument,
        distinct: false,
        field: Field { name: "a".into(), data_type: DataType::Int64, nullable: true },
    };
    let value = Expr::column(1, DataType::Int64, false);
    let plan = Plan::Aggregate {
        input: Box::new(scan),
        keys: vec![Expr::column(0, DataType::Int32, false)],
        aggregates: vec![
            aggregate(AggregateFunction::Count, None),
            aggregate(AggregateFunction::Sum, Some(value)),
        ],
        names: vec!["k".into()],
    };
    Query { plan, sources: vec![Arc::new(Table(vec![batch]))], options }
}

/// Rows of a group of `rows` rows, and their sum.
fn run(engine: &Engine, query: &Query) -> (i64, i64) {
    let batch = engine.execute(query, &CancelToken::default()).expect("it runs").batch;
    assert_eq!(batch.num_rows(), 1);
    let value = |column: usize| batch.column(column).as_primitive::<Int64Type>().value(0);
    assert!(!batch.column(2).is_null(0));
    (value(1), value(2))
}

fn options(device: DeviceChoice, simt_lanes: u32, block_threads: u32, blocks: u32) -> QueryOptions {
    let shape =
        ShapeChoices { block_threads: Some(block_threads), blocks: Some(blocks), ..Default::default() };
    // Where rows are loaded together, a thread may begin with some that are not there.
    let mut variants = Forced::default();
    variants.set("row_arrangement", "striped").expect("an axis and its value");
    QueryOptions { device, simt_lanes, shape, variants, ..QueryOptions::default() }
}

/// The interpreter with warps of some size, and a GPU where there is one.
fn devices(lanes: u32) -> Vec<DeviceChoice> {
    let has_cuda = lanes == 32 && kelpie_engine::testing::has_cuda(&Engine::new());
    [DeviceChoice::Simt].into_iter().chain(has_cuda.then_some(DeviceChoice::Cuda)).collect()
}

/// Each thread of a launch sees 64 rows of one group, and each row has the value that makes their sum the last one that
/// 4 bytes hold. With one row more a thread may see 68, and the sum takes 8 bytes.
#[test]
fn cells_of_four_bytes_are_exact_to_their_limit() {
    const SEEN: usize = 64;
    let engine = Engine::new();
    for (lanes, threads, blocks) in [(32, 32, 1), (32, 2, 1), (32, 64, 2), (4, 8, 2), (4, 2, 3), (3, 9, 1)] {
        let most = SEEN * (threads * blocks) as usize;
        for device in devices(lanes) {
            for value in [i64::from(u32::MAX) / SEEN as i64, i64::from(i32::MIN) / SEEN as i64] {
                for (rows, is_wide) in [(most - 1, false), (most, false), (most + 1, true)] {
                    let query = sums(rows, value, options(device, lanes, threads, blocks));
                    let what = format!("{device:?}, {lanes} lanes, {blocks}×{threads} threads, {rows} rows");
                    let code = engine.explain(&query, ExplainStage::Kir).expect("it compiles");
                    assert!(code.contains("thread_halves"), "{what}: {code}");
                    assert_eq!(code.contains("thread_words"), is_wide, "{what}: {code}");
                    assert_eq!(run(&engine, &query), (rows as i64, rows as i64 * value), "{what}");
                }
            }
        }
    }
}

#[test]
fn shapes_that_a_device_does_not_have_are_reasons() {
    let engine = Engine::new();
    for (device, threads) in [(DeviceChoice::Cpu, 8), (DeviceChoice::Simt, 1), (DeviceChoice::Simt, 48)] {
        let query = sums(100, 1, options(device, 32, threads, 1));
        match engine.execute(&query, &CancelToken::default()) {
            Err(EngineError::Unsupported(reason)) => {
                assert!(reason.to_string().contains(&format!("blocks of {threads} threads")), "{reason}");
            }
            other => panic!("{device:?}, {threads} threads: {other:?}"),
        }
    }
}
