//! Rows that go out batch by batch: their sizes, their order, and what holds once some went out.

use crate::common::*;
use arrow::compute::concat_batches;
use kelpie_engine::Batches;

/// Texts: empty, beyond ASCII, long, absent.
fn text(row: usize) -> Option<String> {
    match row % 5 {
        0 => Some(String::new()),
        1 => Some(format!("grün, 日本 and 🦀 number {row}")),
        2 => None,
        3 => Some("x".repeat(row % 97)),
        _ => Some(format!("{row}: some text that is as long as comments are, and no other has it")),
    }
}

/// `id`: unique; `s`: text; `d`: decimals, some NULL; `b`: booleans, some NULL; `small`: 0..100, but `last` in the last row.
fn table(rows: usize, last: i64) -> Arc<Table> {
    let decimal = |row: usize| match row % 4 {
        0 => None,
        1 => Some(10_i128.pow(37) + row as i128),
        2 => Some(-(10_i128.pow(37)) - row as i128),
        _ => Some(row as i128),
    };
    let small = |row: usize| if row + 1 == rows { last } else { (row % 100) as i64 };
    let columns: Vec<ArrayRef> = vec![
        longs(0..rows as i64),
        maybe_texts((0..rows).map(text)),
        decimals((0..rows).map(decimal), 38, 4),
        Arc::new((0..rows).map(|row| (row % 3 > 0).then_some(row % 2 == 0)).collect::<BooleanArray>()),
        Arc::new((0..rows).map(|row| (row % 7 > 0).then_some(row as f32 / 4.0)).collect::<Float32Array>()),
        longs((0..rows).map(small)),
    ];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 6] = [
    ("id", DataType::Int64, false),
    ("s", DataType::Utf8, true),
    ("d", DataType::Decimal128 { precision: 38, scale: 4 }, true),
    ("b", DataType::Boolean, true),
    ("f", DataType::Float32, true),
    ("small", DataType::Int64, false),
];

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

/// The rows whose id is less than `id`.
fn below(id: i128) -> Plan {
    keep(scan(), compare_with(CompareOp::Lt, column_of(&COLUMNS, 0), id))
}

/// As [`below`], with `small` as an `Int8`, which fails where it does not fit.
fn narrowed(id: i128) -> Plan {
    let mut exprs: Vec<Expr> = (0..6).map(|index| column_of(&COLUMNS, index)).collect();
    exprs[5] = cast(exprs[5].clone(), DataType::Int8);
    values_of(below(id), exprs)
}

fn sorted(input: Plan, key: usize, descending: bool) -> Plan {
    let keys = vec![sort_key(column(&input, key), descending, true)];
    crate::common::sorted(input, keys, None)
}

fn query(plan: Plan, source: &Arc<Table>, device: DeviceChoice) -> Query {
    query_of(plan, source, QueryOptions { host_sort_rows: Some(0), ..on(device, &[]) })
}

/// The batches that come, and how it ends.
fn stream(
    engine: &Engine,
    query: &Query,
    batches: Batches,
) -> (Vec<RecordBatch>, Result<QueryMetrics, EngineError>) {
    let mut got = Vec::new();
    let outcome = engine.stream(query, batches, &CancelToken::default(), &mut |batch| {
        got.push(batch);
        Ok(())
    });
    (got, outcome)
}

/// Every row as text, in the order of the ids where `by_id`.
fn rows_of(batches: &[RecordBatch], by_id: bool) -> Vec<String> {
    let mut rows: Vec<(i64, String)> = Vec::new();
    for batch in batches {
        let ids = batch.column(0).as_primitive::<Int64Type>().values().iter().copied();
        rows.extend(ids.zip(crate::common::rows_of(batch, true)));
    }
    if by_id {
        rows.sort();
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

const DEVICES: [DeviceChoice; 2] = [DeviceChoice::Cpu, DeviceChoice::Simt];

#[test]
fn batches_end_where_they_should() {
    let engine = Engine::new();
    for device in DEVICES {
        for count in [0, 1, 7, 8, 9, 16, 17, 100] {
            let source = table(count.max(1), 0);
            let whole = source.0[0].slice(0, count);
            for plan in [below(count as i128), sorted(below(count as i128), 0, false)] {
                let is_sorted = matches!(plan, Plan::Sort { .. });
                let limits = Batches { rows: 8, ..Batches::default() };
                let (got, outcome) = stream(&engine, &query(plan, &source, device), limits);
                outcome.expect("an answer");
                assert_eq!(got.len(), count.div_ceil(8), "{count} rows, {device:?}");
                assert!(got.iter().all(|batch| (1..=8).contains(&batch.num_rows())));
                assert_eq!(
                    rows_of(&got, !is_sorted),
                    rows_of(std::slice::from_ref(&whole), false),
                    "{device:?}"
                );
            }
        }
    }
}

#[test]
fn columns_and_no_columns() {
    let engine = Engine::new();
    let source = table(20, 0);
    let input = below(10);
    let plan = Plan::Project { input: Box::new(input), exprs: Vec::new(), names: Vec::new() };
    let limits = Batches { rows: 4, ..Batches::default() };
    let (got, outcome) = stream(&engine, &query(plan, &source, DeviceChoice::Cpu), limits);
    outcome.expect("an answer");
    assert_eq!(got.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [4, 4, 2]);
    assert!(got.iter().all(|batch| batch.num_columns() == 0));
}

#[test]
fn limits_leave_out_what_is_before_and_behind() {
    let engine = Engine::new();
    let source = table(1000, 0);
    let all = rows_of(&source.0, false);
    for device in DEVICES {
        for (skip, fetch) in
            [(0, Some(0)), (0, Some(5)), (8, Some(8)), (990, Some(50)), (1000, None), (3, None)]
        {
            let plan = limit(sorted(below(2000), 0, true), skip, fetch);
            let limits = Batches { rows: 8, ..Batches::default() };
            let (got, outcome) = stream(&engine, &query(plan, &source, device), limits);
            outcome.expect("an answer");
            let expected = all.iter().rev().skip(skip).take(fetch.unwrap_or(usize::MAX));
            assert_eq!(
                rows_of(&got, false),
                expected.cloned().collect::<Vec<_>>(),
                "{skip} {fetch:?} {device:?}"
            );
            let unordered = limit(below(2000), skip, fetch);
            let (got, outcome) = stream(&engine, &query(unordered, &source, device), limits);
            outcome.expect("an answer");
            let rows: usize = got.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, fetch.unwrap_or(usize::MAX).min(1000 - skip), "{skip} {fetch:?} {device:?}");
        }
    }
}

/// Where a column's text does not fit into one batch, it is cut into several: here at 100 bytes, in truth at 2 GiB.
#[test]
fn text_is_cut_into_several_batches() {
    let engine = Engine::new();
    let source = table(500, 0);
    for device in DEVICES {
        for plan in [below(500), sorted(below(500), 1, false), sorted(below(500), 0, false)] {
            let limits = Batches { rows: 100, text_bytes: 100, ..Batches::default() };
            let (got, outcome) = stream(&engine, &query(plan, &source, device), limits);
            outcome.expect("an answer");
            for batch in &got {
                let texts = batch.column(1).as_string::<i32>();
                let bytes: usize = texts.iter().flatten().map(str::len).sum();
                assert!(bytes <= 100 || batch.num_rows() == 1, "{bytes} bytes in {} rows", batch.num_rows());
            }
            assert_eq!(rows_of(&got, true), rows_of(&source.0, false));
        }
    }
}

/// A text that Arrow's order compares beyond the words that kernels sort by: the host puts them in order.
#[test]
fn long_texts_are_ordered_across_batches() {
    let engine = Engine::new();
    let long = |row| format!("{}{:03}", "the same beginning ".repeat(5), (row * 7) % 300);
    let rows: Vec<String> = (0..300).map(long).collect();
    let (source, scan) = scanned(vec![
        ("id", DataType::Int64, false, longs(0..300)),
        ("s", DataType::Utf8, false, texts(&rows)),
    ]);
    let limits = Batches { rows: 64, text_bytes: 1000, ..Batches::default() };
    let query = query(sorted(scan, 1, false), &source, DeviceChoice::Cpu);
    let (got, outcome) = stream(&engine, &query, limits);
    outcome.expect("an answer");
    let all = concat_batches(&source.schema(), &got).expect("one batch");
    let mut expected = rows;
    expected.sort();
    assert_eq!(all.column(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), expected);
}

#[test]
fn a_consumer_stops_the_query() {
    let engine = Engine::new();
    let source = table(5000, 0);
    for stop_at in [1, 2, 50] {
        let mut calls = 0;
        let limits = Batches { rows: 8, ..Batches::default() };
        let query = query(below(5000), &source, DeviceChoice::Cpu);
        let outcome = engine.stream(&query, limits, &CancelToken::default(), &mut |_| {
            calls += 1;
            match calls == stop_at {
                true => Err(EngineError::Source { table: "consumer".into(), message: "enough".into() }),
                false => Ok(()),
            }
        });
        assert!(matches!(outcome, Err(EngineError::Source { table, .. }) if table == "consumer"));
        assert_eq!(calls, stop_at);
    }
}

/// What a large result is made of: 20,000 rows in blocks of 4,096 or so, with room for some of them.
fn in_blocks(held_bytes: u64) -> Batches {
    Batches { rows: 1000, held_bytes, device_bytes: 64 << 10, ..Batches::default() }
}

#[test]
fn a_result_larger_than_its_memory_leaves_in_blocks() {
    let engine = Engine::new();
    let rows = 20_000;
    let source = table(rows, 7);
    let expected = rows_of(&source.0, false);
    for plan in [below(rows as i128), narrowed(rows as i128)] {
        // Held until the kernels are done, or out at once. Again, where it is known that the result is large.
        for held_bytes in [u64::MAX, 0, 300 << 10, 0] {
            let query = query(plan.clone(), &source, DeviceChoice::Cpu);
            let (got, outcome) = stream(&engine, &query, in_blocks(held_bytes));
            let metrics = outcome.expect("an answer");
            assert!(metrics.pipelines.iter().any(|pipeline| pipeline.blocks > 1), "{:?}", metrics.pipelines);
            assert_eq!(metrics.pipelines.last().and_then(|pipeline| pipeline.rows_out), Some(rows as u64));
            assert!(got.iter().all(|batch| batch.num_rows() <= 1000));
            assert_eq!(rows_of(&got, true), expected, "{held_bytes}");
        }
    }
}

/// As [`below`], with `s` twice as a text, and as a date, where kernels do not handle every form.
fn dated(id: i128) -> Plan {
    let mut exprs: Vec<Expr> = (0..6).map(|index| column_of(&COLUMNS, index)).collect();
    let text = exprs[1].clone();
    exprs[1] = call(Function::Concat, vec![text.clone(), text.clone()], DataType::Utf8);
    exprs[5] = cast(text, DataType::Date32);
    values_of(below(id), exprs)
}

/// The last rows fail, and by then the first ones have left the device. Where DataFusion's operators could take over, none of
/// them may have gone out; an error of the query itself may come after rows, but not twice and not as a reason to fall back.
#[test]
fn what_may_fall_back_has_run_before_rows_go_out() {
    let engine = Engine::new();
    let rows = 20_000;
    let source = table(rows, 1000);
    let date = |row: usize| if row + 1 == rows { "2020-01-01T02:03:04" } else { "2020-01-01" };
    let texts: StringArray = (0..rows).map(|row| Some(date(row))).collect();
    let mut columns = source.0[0].columns().to_vec();
    columns[1] = Arc::new(texts);
    let late = Arc::new(Table(vec![RecordBatch::try_new(source.0[0].schema(), columns).expect("a batch")]));
    for held_bytes in [u64::MAX, 0, 300 << 10] {
        for count in [rows, 19_990] {
            let query = query(dated(count as i128), &late, DeviceChoice::Cpu);
            let (got, outcome) = stream(&engine, &query, in_blocks(held_bytes));
            match count == rows {
                true => {
                    assert!(got.is_empty(), "{} batches", got.len());
                    assert!(matches!(outcome, Err(EngineError::Fallback(_))), "{outcome:?}");
                }
                false => {
                    outcome.expect("an answer");
                    assert_eq!(got.iter().map(RecordBatch::num_rows).sum::<usize>(), count);
                }
            }
        }
        let query = query(narrowed(rows as i128), &source, DeviceChoice::Cpu);
        let (got, outcome) = stream(&engine, &query, in_blocks(held_bytes));
        let sent: usize = got.iter().map(RecordBatch::num_rows).sum();
        match outcome {
            Err(EngineError::Query(QueryError::CastOutOfRange)) => assert_eq!(sent, 0),
            Err(EngineError::Interrupted { rows, cause }) => {
                assert!(matches!(*cause, EngineError::Query(QueryError::CastOutOfRange)), "{cause:?}");
                assert_eq!((rows, held_bytes < u64::MAX), (sent as u64, true));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn cancelling_between_batches_ends_it() {
    let engine = Engine::new();
    let source = table(20_000, 0);
    let query = query(below(20_000), &source, DeviceChoice::Cpu);
    let cancel = CancelToken::default();
    let mut calls = 0;
    let outcome = engine.stream(&query, in_blocks(0), &cancel, &mut |_| {
        calls += 1;
        cancel.cancel();
        Ok(())
    });
    assert!(matches!(outcome, Err(EngineError::Cancelled)), "{outcome:?}");
    assert!(calls <= 2, "{calls} batches after the query was cancelled");
}

/// A table of one stage that another one scans is several batches where its text is much.
#[test]
fn rows_of_an_inner_stage_may_be_many_batches() {
    let engine = Engine::new();
    let source = table(3000, 0);
    let inner = limit(sorted(below(3000), 0, false), 10, Some(2500));
    let predicate = compare_with(CompareOp::Lt, column(&inner, 0), 1000);
    let plan = keep(inner, predicate);
    let (got, outcome) = stream(&engine, &query(plan, &source, DeviceChoice::Cpu), Batches::default());
    outcome.expect("an answer");
    assert_eq!(rows_of(&got, true), rows_of(&[source.0[0].slice(10, 990)], false));
}
