//! Grouping by sort stride by stride: the rows that other orders give, whatever strides, keys and aggregates are; and memory that is for
//! strides and groups, not for all rows.

use crate::common::*;
use crate::plans;

use AggregateFunction::*;

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };

/// Columns: groups, nearly as many groups as rows, texts of a dictionary, any integer, numbers with extremes, decimals beyond 64 bits,
/// doubles, flags, texts without a dictionary, any date of some years.
const COLUMNS: [Column; 10] = [
    ("k", DataType::Int32, true),
    ("many", DataType::Int64, false),
    ("t", DataType::Utf8, true),
    ("wide", DataType::Int64, false),
    ("n", DataType::Int64, true),
    ("d", DECIMAL, false),
    ("v", DataType::Float64, false),
    ("b", DataType::Boolean, true),
    ("u", DataType::Utf8, false),
    ("day", DataType::Date32, false),
];

/// `rows` rows in `groups` groups of `k`.
fn table(rows: usize, groups: u64) -> Arc<dyn TableSource> {
    let mut next = random(rows as u64 + groups);
    let picks: Vec<(u64, u64)> = (0..rows).map(|_| (next(), next())).collect();
    let each = || picks.iter().copied();
    let number = |value: u64| match value % 11 {
        0 => None,
        1 => Some(i64::MIN),
        2 => Some(i64::MAX),
        _ => Some(value as i64 % 50 - 20),
    };
    let decimal = |value: u64| match value % 5 {
        0 => 10_i128.pow(33),
        1 => -(10_i128.pow(33)),
        _ => i128::from(value) - 1_000_000,
    };
    let words = ["", "x", "zß", "a longer text", "日本"];
    let columns: Vec<ArrayRef> = vec![
        maybe_ints(each().map(|(pick, value)| (value % 13 > 0).then_some((pick % groups) as i32 - 3))),
        longs((0..rows).map(|row| (row * 7919 % rows.max(1)) as i64)),
        maybe_texts(each().map(|(pick, _)| words.get(pick as usize % 6).copied())),
        longs(each().map(|(pick, _)| ((pick % groups) as i64).wrapping_mul(0x5851_f42d_4c95_7f2d))),
        maybe_longs(each().map(|(_, value)| number(value))),
        decimals(each().map(|(_, value)| decimal(value)), 38, 2),
        doubles(each().map(|(_, value)| (value % 4096) as f64 / 4.0)),
        Arc::new(BooleanArray::from_iter(each().map(|(pick, _)| (pick % 3 > 0).then_some(pick % 2 == 0)))),
        texts((0..rows).map(|row| format!("text é {row}"))),
        Arc::new(Date32Array::from_iter_values(each().map(|(pick, _)| (pick % 900) as i32 - 300))),
    ];
    table_of(&COLUMNS, columns)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

/// Every aggregate that is admitted, of the columns of a scan.
const ALL: [(AggregateFunction, Option<usize>); 17] = [
    (Count, None),
    (Count, Some(4)),
    (Sum, Some(4)),
    (Min, Some(4)),
    (Max, Some(4)),
    (Avg, Some(6)),
    (Sum, Some(5)),
    (Avg, Some(5)),
    (Min, Some(5)),
    (Max, Some(5)),
    (Sum, Some(6)),
    (Min, Some(6)),
    (BitAnd, Some(4)),
    (BitOr, Some(4)),
    (BitXor, Some(4)),
    (VarSample, Some(6)),
    (StddevPopulation, Some(6)),
];

fn aggregate(input: Plan, keys: &[usize], aggregates: &[(AggregateFunction, Option<usize>)]) -> Plan {
    let aggregates = aggregates.iter().map(|&(function, argument)| {
        let argument = argument.map(|index| column(&input, index));
        let data_type = match (function, &argument) {
            (Count, _) | (_, None) => DataType::Int64,
            (Avg, Some(expr)) if expr.data_type == DECIMAL => DECIMAL,
            (Avg, _) => DataType::Float64,
            (_, Some(expr)) => expr.data_type.clone(),
        };
        of(function, argument, data_type)
    });
    let aggregates = aggregates.collect();
    let keys: Vec<Expr> = keys.iter().map(|key| column(&input, *key)).collect();
    groups_of(input, keys, aggregates)
}

fn strided(rows: &str) -> Forced {
    force([("group_order", "strided"), ("stride_rows", rows)])
}

/// A row: what is exact as text, and doubles, whose sums depend on their order.
type Cells = (Vec<String>, Vec<f64>);

/// The rows in an order that depends on what is exact.
fn rows_of(output: &QueryOutput) -> Vec<Cells> {
    let row = |row: usize| {
        let mut cells: Cells = (Vec::new(), Vec::new());
        for column in output.batch.columns() {
            match column.data_type() {
                _ if column.is_null(row) => cells.0.push("-".into()),
                ArrowType::Float64 => cells.1.push(column.as_primitive::<Float64Type>().value(row)),
                _ => cells.0.push(array_value_to_string(column, row).expect("prints")),
            }
        }
        cells
    };
    let mut rows: Vec<Cells> = (0..output.batch.num_rows()).map(row).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

fn expect(found: &[Cells], expected: &[Cells], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let are_close = found.1.len() == expected.1.len() && found.1.iter().zip(&expected.1).all(is_close);
        assert!(found.0 == expected.0 && are_close, "{what}: {found:?} instead of {expected:?}");
    }
}

/// Runs a plan in order of arrival, and stride by stride with each of these options twice: the second time it begins with what was
/// learned.
fn compare(plan: &Plan, sources: &[Arc<dyn TableSource>], all: &[QueryOptions]) {
    let engine = Engine::new();
    let device = DeviceChoice::Cpu;
    let variants = force([("group_order", "arrival")]);
    let plain = QueryOptions { device, variants, ..QueryOptions::default() };
    let expected = rows_of(&run(&engine, plan, sources, &plain));
    let name = format!(
        "{} fields, {:?}",
        plan.fields().len(),
        sources.iter().map(|source| source.name()).collect::<Vec<_>>()
    );
    for options in sample(&name, all, 2) {
        for _ in 0..2 {
            let output = run(&engine, plan, sources, options);
            expect(&rows_of(&output), &expected, &format!("{options:?}"));
            assert!(is_told(&output, "sorted stride → "), "{:?}", names_of(&output));
        }
    }
}

/// On a CPU with one worker and several, and on interpreters of several shapes.
fn options(stride: &str) -> Vec<QueryOptions> {
    let with = |device, threads, simt_lanes| QueryOptions {
        device,
        threads,
        simt_lanes,
        variants: strided(stride),
        ..QueryOptions::default()
    };
    let simt = DeviceChoice::Simt;
    let mut all = vec![
        with(DeviceChoice::Cpu, Some(1), 32),
        with(DeviceChoice::Cpu, Some(3), 32),
        with(simt, None, 32),
        with(simt, None, 8),
        with(simt, None, 4),
    ];
    all.extend(kelpie_engine::testing::has_cuda(&Engine::new()).then(|| with(DeviceChoice::Cuda, None, 32)));
    all
}

/// No row, one, less than a stride, as many, more, and many strides; in one group, few and many.
#[test]
fn strides_of_any_number() {
    for (rows, groups) in [(0, 1), (1, 1), (63, 5), (64, 1), (65, 3), (130, 200), (700, 1), (900, 70)] {
        let sources = [table(rows, groups)];
        compare(&aggregate(scan(0), &[0], &ALL), &sources, &options("64"));
    }
    compare(&aggregate(scan(0), &[0], &ALL), &[table(2_500, 900)], &options("1024"));
}

/// Single keys and several of all kinds that fit a word; none of them differs, or all do.
#[test]
fn keys_of_any_kind() {
    let sources = [table(500, 9)];
    for keys in [&[1][..], &[2], &[7], &[9], &[0, 2, 7], &[9, 1, 0], &[2, 2]] {
        compare(&aggregate(scan(0), keys, &ALL[..4]), &sources, &options("64"));
    }
    // Groups without a cell.
    compare(&aggregate(scan(0), &[0, 7], &[]), &sources, &options("64"));
}

/// Filters leave strides without a row, with few, and all of them empty; and one group.
#[test]
fn strides_that_are_not_full() {
    let sources = [table(640, 40)];
    let where_many = |op, value| plans::filter(scan(0), 1, op, value);
    for input in [
        where_many(CompareOp::Lt, 20),
        where_many(CompareOp::Lt, 0),
        where_many(CompareOp::Eq, 77),
        plans::filter(scan(0), 0, CompareOp::Eq, 5),
        plans::filter(scan(0), 9, CompareOp::Gt, 400),
    ] {
        compare(&aggregate(input, &[0, 2], &ALL[..6]), &sources, &options("64"));
    }
}

/// Rows of several tables, of joins that make several of one, and groups that go on to other operators.
#[test]
fn strides_of_other_sources() {
    let sources = [table(300, 12), table(150, 7)];
    let fields = scan(0).fields();
    let both = Plan::Union { inputs: vec![scan(0), plans::filter(scan(1), 1, CompareOp::Ge, 30)], fields };
    // Texts of two dictionaries have no word.
    compare(&aggregate(both, &[0, 9], &ALL), &sources, &options("64"));
    let pairs = plans::join(JoinKind::Inner, scan(1), scan(0), &[(0, 0)], false);
    compare(&aggregate(pairs, &[2, 10], &[(Count, None), (Sum, Some(14))]), &sources, &options("64"));
    let counts = aggregate(scan(0), &[0, 2], &[(Count, None), (Sum, Some(4))]);
    compare(&aggregate(counts.clone(), &[2], &[(Count, None)]), &sources, &options("64"));
    compare(&plans::filter(counts, 2, CompareOp::Gt, 3), &sources, &options("64"));
    // Where there is no group, nothing was written that a key could be decoded from.
    let none = plans::filter(scan(0), 1, CompareOp::Lt, 0);
    let none = plans::join(JoinKind::Inner, none, scan(1), &[(0, 0)], false);
    let counts = aggregate(none, &[2, 12], &[(Count, None), (Sum, Some(4))]);
    compare(&plans::filter(counts, 2, CompareOp::Gt, 3), &sources, &options("64"));
}

/// Under every micro and macro model: chains that are longer, places that are counted before, kernels one at a time.
#[test]
fn strides_under_every_model() {
    let sources = [table(400, 30)];
    let input = plans::filter(scan(0), 1, CompareOp::Lt, 350);
    let plan = aggregate(input, &[0], &ALL[..6]);
    for macro_model in [MacroModel::default(), MacroModel::KernelAtATime] {
        for micro_model in MicroModel::ALL {
            let with = |options| QueryOptions { micro_model, macro_model, ..options };
            let all: Vec<_> = options("64").into_iter().skip(1).take(3).map(with).collect();
            compare(&plan, &sources, &all);
        }
    }
}

/// Groups come to far fewer places than rows: runs are merged while strides come.
#[test]
fn room_for_groups_not_for_rows() {
    let engine = Engine::new();
    for (device, rows) in [(DeviceChoice::Cpu, 40_000), (DeviceChoice::Simt, 6_000)] {
        let sources = [table(rows, 400)];
        let variants = strided("1024");
        let options = QueryOptions { device, variants, ..QueryOptions::default() };
        let plan = aggregate(scan(0), &[0], &ALL[..3]);
        let output = run(&engine, &plan, &sources, &options);
        let merges = |name: &str| {
            let of = output.metrics.pipelines.iter().filter(|of| of.name.contains(name));
            of.map(|of| of.rows_in).collect::<Vec<_>>()
        };
        let merged = merges("merged cells");
        assert_eq!(merged.len(), 2, "{merged:?}");
        // In each merge are the groups of a few strides; about 400 of each are of all before.
        assert!(merged[0] > 400 && merged[0] < rows as u64, "{merged:?}");
        assert!(merged[1] <= 2 * (400 + 1024), "{merged:?}");
    }
}

/// What has no word, counts once, or is a text, is refused with the reason.
#[test]
fn what_strides_lack() {
    let engine = Engine::new();
    let sources = [table(100, 9)];
    let distinct = |mut plan: Plan| {
        if let Plan::Aggregate { aggregates, .. } = &mut plan {
            aggregates[0].distinct = true;
        }
        plan
    };
    for (plan, reason) in [
        (aggregate(scan(0), &[3], &ALL[..1]), "the keys do not fit a word"),
        (aggregate(scan(0), &[8], &ALL[..1]), "the keys do not fit a word"),
        (aggregate(scan(0), &[6], &ALL[..1]), "the keys do not fit a word"),
        (distinct(aggregate(scan(0), &[0], &ALL[1..2])), "counts equal values once"),
        (aggregate(scan(0), &[0], &[(Max, Some(8))]), "texts are not kept from stride to stride"),
    ] {
        let variants = force([("aggregate0.group_order", "strided")]);
        let options = QueryOptions { device: DeviceChoice::Cpu, variants, ..QueryOptions::default() };
        let error = try_run(&engine, &plan, &sources, &options).expect_err(reason).to_string();
        assert!(
            error.contains("group_order = strided is not possible: ") && error.contains(reason),
            "{error}"
        );
    }
}
