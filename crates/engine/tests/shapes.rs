//! Launch shapes: what is proven from a shape holds to the last row, and kernels are right in blocks of any size.

use crate::common::*;

/// `select k, count(*), sum(v) from t group by k`, over `rows` rows with the same two values.
fn sums(rows: usize, value: i64, options: QueryOptions) -> Query {
    let columns = [("k", DataType::Int32, false), ("v", DataType::Int64, false)];
    let table = table_of(&columns, vec![ints(vec![7; rows]), longs(vec![value; rows])]);
    let sum = of_longs(AggregateFunction::Sum, Some(column_of(&columns, 1)));
    let aggregates = vec![of_longs(AggregateFunction::Count, None), sum];
    let plan = groups_of(scan_of(0, &columns), vec![column_of(&columns, 0)], aggregates);
    query_of(plan, &table, options)
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
    let variants = force([("row_arrangement", "striped")]);
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
