//! A stage that has run before is launched without a look at what its kernels count. It gives the same rows; and where
//! something else comes of it than before, it is noticed, and the rows are still right.

use crate::common::*;
use crate::plans::{aggregate, filter, join, some_plans, table};
use kelpie_compile::plan::AggregateFunction::{Count, Min, Sum};

fn cpu() -> QueryOptions {
    QueryOptions { threads: Some(1), ..on(DeviceChoice::Cpu, &[]) }
}

/// Devices that defer: the interpreter, and a GPU where there is one.
fn devices() -> Vec<QueryOptions> {
    devices_with_warps().into_iter().map(|device| on(device, &[])).collect()
}

#[test]
fn a_stage_that_ran_before_gives_the_same_rows() {
    let engine = Engine::new();
    let sources = [150, 60].map(table);
    for (name, plan, ordered) in some_plans("stages that ran before", 30) {
        let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, ordered);
        for options in devices() {
            let mut deferred = Vec::new();
            for _ in 0..5 {
                let output = run(&engine, &plan, &sources, &options);
                assert_eq!(rows_of(&output.batch, ordered), expected, "{name}: {options:?}");
                assert!(output.metrics.kernel_ns > 0, "{name}");
                let launched = output.metrics.pipelines.iter().filter(|pipeline| pipeline.run_ns > 0);
                assert!(launched.count() > 0, "{name}");
                deferred.push(output.metrics.deferred);
            }
            assert_eq!(deferred[0], 0, "{name}: nothing is foreseen yet");
            // How many rows a limit's kernel finds beyond those that are wanted differs from run to run.
            let is_foreseen = deferred[2..].iter().all(|launches| *launches > 0 && *launches == deferred[2]);
            // Text is made as there is room for it, step by step; and rows in the order of the input are counted before they are written.
            let counts = name.contains("in the order of rows");
            let may_wait = name.contains("limit") || name.contains("capitals") || counts;
            assert!(is_foreseen || may_wait, "{name}: {deferred:?}");
        }
    }
}

const COLUMNS: [Column; 3] =
    [("k", DataType::Int64, false), ("n", DataType::Int64, false), ("s", DataType::Utf8, false)];

/// Keys and numbers in `-2..=17`, and text: both ends are there, whatever the seed, and so columns are stored alike.
fn numbers(rows: i64, seed: i64, zeros: bool) -> Arc<dyn TableSource> {
    let value = |row: i64, by: i64| match row {
        0 => -2,
        1 => 17,
        2 if zeros => 0,
        _ => match (row * row * by + row * seed * 7 + seed) % 20 - 2 {
            0 if !zeros => 1,
            value => value,
        },
    };
    let columns: Vec<ArrayRef> = vec![
        longs((0..rows).map(|row| value(row, 3))),
        longs((0..rows).map(|row| value(row, 11))),
        texts((0..rows).map(|row| format!("text number {:05}", (row * (seed + 3)) % 4001))),
    ];
    table_of(&COLUMNS, columns)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

/// Other data of the same layout under the same program: more rows, fewer, none at all.
#[test]
fn what_is_not_foreseen_is_noticed() {
    devices().iter().for_each(other_data);
}

/// The same of rows that come in parts: places for them are as many as they were the last time.
#[test]
fn what_is_not_foreseen_of_parts_is_noticed() {
    for options in devices() {
        let variants = force([("group_parts", "16"), ("join_parts", "16")]);
        other_data(&QueryOptions { variants, ..options.clone() });
    }
}

fn other_data(options: &QueryOptions) {
    let build = || filter(scan(0), 0, CompareOp::Gt, 8);
    let joined = || join(JoinKind::Inner, build(), filter(scan(1), 1, CompareOp::Lt, 9), &[(1, 0)], false);
    let plans = [
        ("rows", build()),
        ("groups", aggregate(build(), &[2], &[(Count, None, false), (Sum, Some(1), false)])),
        ("join", joined()),
        ("groups of a join", aggregate(joined(), &[2, 5], &[(Count, None, false)])),
        (
            "join of text",
            join(JoinKind::FullOuter, build(), filter(scan(1), 0, CompareOp::Eq, 3), &[(2, 2)], false),
        ),
        (
            "groups of groups",
            filter(
                aggregate(aggregate(joined(), &[2], &[(Count, None, false)]), &[1], &[(Count, None, false)]),
                1,
                CompareOp::Gt,
                1,
            ),
        ),
    ];
    let engine = Engine::new();
    let which = format!("{:?} {:?}", options.device, options.variants);
    for (name, plan) in sample(&which, &plans, 4) {
        let mut missed = false;
        for seed in [1, 1, 2, 2, 5, 5, 1, 9, 4, 4] {
            let sources = [numbers(700, seed, true), numbers(500, seed * seed, true)];
            let expected = rows_of(&run(&engine, plan, &sources, cpu()).batch, false);
            let output = run(&engine, plan, &sources, options);
            assert_eq!(rows_of(&output.batch, false), expected, "{name}, {seed}: {options:?}");
            missed |= seed != 1 && output.metrics.deferred == 0;
        }
        // Where no kernel works on what others have made, there is nothing to be wrong about.
        assert!(missed || !name.contains("join"), "{name}: all of it was foreseen");
    }
}

#[test]
fn errors_are_those_of_the_query() {
    let number = |index| Box::new(Expr::column(index, DataType::Int64, false));
    let kind = ExprKind::Arithmetic(ArithmeticOp::Divide, number(0), number(1));
    let exprs = vec![Expr { kind, data_type: DataType::Int64, nullable: false }];
    let input = Box::new(aggregate(scan(0), &[1, 0], &[(Count, None, false)]));
    let quotients = Plan::Project { input, exprs, names: vec!["q".into()] };
    let plan = aggregate(quotients, &[0], &[(Count, None, false)]);
    let (fine, failing) = ([numbers(300, 1, false)], [numbers(300, 1, true)]);
    for options in devices() {
        let engine = Engine::new();
        let expected = rows_of(&run(&engine, &plan, &fine, cpu()).batch, false);
        for _ in 0..2 {
            for _ in 0..2 {
                assert_eq!(rows_of(&run(&engine, &plan, &fine, &options).batch, false), expected);
            }
            let error = try_run(&engine, &plan, &failing, &options).expect_err("a number is zero");
            assert!(matches!(error, EngineError::Query(QueryError::DivideByZero)), "{error:?}");
        }
    }
}

#[test]
fn a_cancelled_query_stops() {
    let plan = aggregate(scan(0), &[0], &[(Count, None, false)]);
    let sources = vec![numbers(300, 1, true)];
    for options in devices() {
        let engine = Engine::new();
        let expected = rows_of(&run(&engine, &plan, &sources, &options).batch, false);
        let cancel = CancelToken::default();
        cancel.cancel();
        let query = query_of(&plan, &sources, &options);
        let error = engine.execute(&query, &cancel).expect_err("it is cancelled");
        assert!(matches!(error, EngineError::Cancelled), "{error:?}");
        let output = run(&engine, &plan, &sources, &options);
        assert_eq!(rows_of(&output.batch, false), expected);
        assert!(output.metrics.deferred > 0);
    }
}

/// A constant that is compared with text lies on the device as long as its program.
#[test]
fn constants_are_those_of_the_program() {
    let text = |value: &str| {
        let literal = text_literal(value);
        let column = Box::new(Expr::column(2, DataType::Utf8, false));
        let kind = ExprKind::Compare(CompareOp::Lt, column, Box::new(literal));
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
        aggregate(keep(scan(0), predicate), &[], &[(Count, None, false)])
    };
    let sources = [numbers(600, 3, true)];
    for options in devices() {
        let engine = Engine::new();
        for _ in 0..3 {
            for value in ["text number 01000", "text number 03", "", "u"] {
                let plan = text(value);
                let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, false);
                assert_eq!(rows_of(&run(&engine, &plan, &sources, &options).batch, false), expected);
            }
        }
    }
}

const CHOSEN: [Column; 4] = [
    ("k", DataType::Int64, false),
    ("n", DataType::Int64, false),
    ("w", DataType::Int64, false),
    ("v", DataType::Int64, false),
];

/// Columns of one layout whatever is chosen: `k` is 17 in about so many rows of each ten thousand, else -2; `n` has few values, `w` and
/// `v` have all of 64 bits, and `v` none of them twice.
fn chosen(share: u64, seed: u64) -> Arc<dyn TableSource> {
    let rows = 6000u64;
    let mixed = |row: u64| {
        let mixed = (row + seed * rows + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    let key = |row: u64| match (row, mixed(row) % 10_000 < share) {
        (0, _) => -2,
        (1, _) | (_, true) => 17,
        _ => -2,
    };
    let wide = |row: u64| match row {
        0 => i64::MIN,
        1 => i64::MAX,
        // Every second one is one of few, so that later words decide.
        _ => mixed(row % 40 + row) as i64 >> (row % 2 * 61),
    };
    let column = |value: &dyn Fn(u64) -> i64| longs((0..rows).map(value));
    let columns = vec![
        column(&key),
        column(&|row| row as i64 % 3),
        column(&wide),
        column(&|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64),
    ];
    table_of(&CHOSEN, columns)
}

/// The rows of [`chosen`] with 17 in `k`, ordered by some columns, of which the host sorts none of its own accord.
fn ordered(keys: &[usize], fetch: Option<usize>) -> Plan {
    let key = |(number, index): (usize, &usize)| sort_key(column_of(&CHOSEN, *index), number % 2 == 1, false);
    let rows = filter(scan_of(0, &CHOSEN), 0, CompareOp::Gt, 8);
    sorted(rows, keys.iter().enumerate().map(key).collect(), fetch)
}

/// Few rows are sorted without anybody waiting for their number, which may then be another one than was foreseen, or too many for a
/// block.
#[test]
fn a_sort_of_few_rows_is_deferred() {
    let by = |input: Plan, index: usize| {
        let expr = Expr::column(index, DataType::Int64, false);
        let keys = vec![sort_key(expr, true, false)];
        sorted(input, keys, None)
    };
    let groups = |input: Plan| aggregate(input, &[1], &[(Count, None, false), (Min, Some(3), false)]);
    let all = ordered(&[1, 2, 3], None);
    let (skip, fetch) = (20, Some(30));
    // Launches where the sort is deferred too: rows are stored, sorted and delivered.
    let plans = [
        ("one word", ordered(&[3], None), Some(3)),
        ("two words", ordered(&[2, 3], None), Some(3)),
        ("three words", all.clone(), Some(3)),
        ("first rows", ordered(&[1, 2, 3], Some(25)), Some(3)),
        ("no rows", ordered(&[1, 2, 3], Some(0)), Some(3)),
        ("more than there are", ordered(&[2, 3], Some(5500)), Some(3)),
        // The sort is the host's.
        ("from a row on", limit(all, skip, fetch), Some(2)),
        ("groups", by(groups(ordered(&[3], None)), 2), None),
        ("rows that stay", by(groups(ordered(&[1, 2, 3], Some(40))), 0), None),
    ];
    for mut options in devices() {
        options.variants.set("sort_place", "device").expect("an axis and its value");
        let engine = Engine::new();
        for (name, plan, launches) in &plans {
            let mut deferred = Vec::new();
            // About 300 rows, somewhat more, far more, and more than a block sorts; then few, two, and as at first.
            for share in [500, 500, 500, 560, 1500, 1500, 9500, 9500, 9500, 100, 100, 0, 0, 500, 500] {
                let sources = [chosen(share, share)];
                let expected = rows_of(&run(&engine, plan, &sources, cpu()).batch, true);
                let output = run(&engine, plan, &sources, &options);
                assert_eq!(rows_of(&output.batch, true), expected, "{name}, {share}: {options:?}");
                deferred.push(output.metrics.deferred);
            }
            let foreseen = &deferred[1..4];
            match launches {
                Some(launches) => assert!(foreseen.iter().all(|all| all == launches), "{name}: {deferred:?}"),
                None => assert!(foreseen.iter().all(|all| *all > 0), "{name}: {deferred:?}"),
            }
        }
    }
}
