//! Numbers of groups that are estimated by a sketch before their table is filled for the first time: keys of which nothing is known
//! fill it once, and a wrong estimate changes no answer.

use crate::common::*;
use kelpie_engine::PipelineMetrics;

/// Rows of a table that is sketched by rule.
const MANY: i64 = 1_200_000;
/// What keys are multiplied by: their values are far apart.
const FACTOR: i64 = 7_919_000_003;

type Row = (Option<i64>, i64, String);

/// Columns `a`, with NULLs, `b`, and `t`.
fn table(rows: impl Iterator<Item = Row>) -> Arc<Table> {
    let rows: Vec<Row> = rows.collect();
    let columns: Vec<ArrayRef> = vec![
        maybe_longs(rows.iter().map(|row| row.0)),
        longs(rows.iter().map(|row| row.1)),
        texts(rows.iter().map(|row| &row.2)),
    ];
    table_of(&COLUMNS, columns)
}

fn a() -> Expr {
    Expr::column(0, DataType::Int64, true)
}

fn b() -> Expr {
    Expr::column(1, DataType::Int64, false)
}

fn t() -> Expr {
    Expr::column(2, DataType::Utf8, false)
}

fn text(function: Function, arguments: Vec<Expr>) -> Expr {
    call(function, arguments, DataType::Utf8)
}

/// `a - b`, which may be any of twice as many values as there are rows, for all that is known of it.
fn difference() -> Expr {
    arithmetic(ArithmeticOp::Subtract, a(), b())
}

/// `a * FACTOR`.
fn product() -> Expr {
    arithmetic(ArithmeticOp::Multiply, a(), int(FACTOR))
}

const COLUMNS: [Column; 3] =
    [("a", DataType::Int64, true), ("b", DataType::Int64, false), ("t", DataType::Utf8, false)];

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn filter(input: Plan, op: CompareOp, value: i64) -> Plan {
    keep(input, compare_with(op, b(), value))
}

/// Rows by keys; of `distinct`, how many values there are too.
fn count(input: Plan, keys: Vec<Expr>, distinct: Option<Expr>) -> Plan {
    let counted = |argument: Option<Expr>| {
        let distinct = argument.is_some();
        Aggregate { distinct, ..of_longs(AggregateFunction::Count, argument) }
    };
    groups_of(input, keys, [None].into_iter().chain(distinct.map(Some)).map(counted).collect())
}

/// Options of a device under which keys are hashed.
fn options(device: DeviceChoice, variants: &[(&str, &str)]) -> QueryOptions {
    on(device, &[&[("group_table", "hash"), ("computed_keys", "rows")], variants].concat())
}

/// The first pipeline that brings rows to their groups.
fn filling(output: &QueryOutput) -> &PipelineMetrics {
    let fills = |pipeline: &&PipelineMetrics| pipeline.name.contains("→ aggregate");
    output.metrics.pipelines.iter().find(fills).expect("groups")
}

/// How often rows were brought to their groups.
fn fillings(output: &QueryOutput) -> u32 {
    filling(output).launches - filling(output).sketches
}

/// Number of groups, and rows in all of them; the counts are in column `column`.
fn totals(output: &QueryOutput, column: usize) -> (usize, i64) {
    let counts = output.batch.column(column).as_any().downcast_ref::<Int64Array>().expect("counts");
    (output.batch.num_rows(), counts.iter().flatten().sum())
}

fn mixed(row: i64) -> i64 {
    let mixed = (row as u64 ^ (row as u64 >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8) as i64
}

/// Rows whose [`difference`] is a key.
fn numbers(rows: i64, key: impl Fn(i64) -> i64) -> Arc<Table> {
    table((0..rows).map(|row| (Some(row + key(row)), row, String::new())))
}

/// How many keys [`MANY`] rows have.
fn number_of_keys(key: impl Fn(i64) -> i64) -> usize {
    (0..MANY).map(key).collect::<HashSet<_>>().len()
}

/// Runs rows by their keys on the CPU for the first and for the second time; checks both, gives the first.
fn first_of_many(key: impl Fn(i64) -> i64 + Copy) -> QueryOutput {
    let groups = number_of_keys(key);
    let (engine, tables, plan) =
        (Engine::new(), [numbers(MANY, key)], count(scan(0), vec![difference()], None));
    let options = options(DeviceChoice::Cpu, &[]);
    let first = run(&engine, &plan, &tables, &options);
    assert_eq!(totals(&first, 1), (groups, MANY));
    assert!(filling(&first).sketches > 0, "{:?}", filling(&first));
    // What is known is not estimated again.
    let second = run(&engine, &plan, &tables, &options);
    assert_eq!(totals(&second, 1), (groups, MANY));
    assert_eq!((fillings(&second), filling(&second).sketches), (1, 0));
    assert_eq!(filling(&second).groups_estimated, None);
    first
}

fn assert_near(output: &QueryOutput, groups: u64) {
    let estimated = filling(output).groups_estimated.expect("an estimate");
    assert!(estimated.abs_diff(groups) * 3 <= groups, "{estimated} for {groups}");
    assert_eq!(filling(output).rows_foreseen, Some(estimated));
}

#[test]
fn a_first_run_fills_its_table_once() {
    for groups in [1, 100, 100_000, 400_000] {
        let output = first_of_many(|row| mixed(row) % groups);
        assert_eq!(fillings(&output), 1, "{groups}: {:?}", filling(&output));
        assert_near(&output, groups as u64);
    }
}

#[test]
fn without_a_sketch_the_table_grows() {
    let options = options(DeviceChoice::Cpu, &[("group_estimate", "none")]);
    let (tables, plan) =
        ([numbers(MANY, |row| mixed(row) % 100_000)], count(scan(0), vec![difference()], None));
    let output = run(&Engine::new(), &plan, &tables, &options);
    assert_eq!(totals(&output, 1), (number_of_keys(|row| mixed(row) % 100_000), MANY));
    assert!(fillings(&output) > 1 && filling(&output).sketches == 0, "{:?}", filling(&output));
}

#[test]
fn rows_in_the_order_of_their_keys_are_extrapolated() {
    let output = first_of_many(|row| row / 4);
    assert_eq!(fillings(&output), 1, "{:?}", filling(&output));
    assert_near(&output, MANY as u64 / 4);
}

#[test]
fn a_frequent_key_hides_no_others() {
    let key = |row| if mixed(row) % 2 == 0 { 7 } else { mixed(row + MANY) % 100_000 };
    let output = first_of_many(key);
    assert_eq!(fillings(&output), 1, "{:?}", filling(&output));
}

/// Keys that no sketch has seen: the estimate is too small, and the table grows as ever.
#[test]
fn a_wrong_estimate_changes_no_answer() {
    // Eight pieces of some 32,768 rows are looked at, from the first row to the last.
    let (piece, stride) = ((1 << 15) + 64, (MANY - (1 << 15)) / 7);
    let key = move |row: i64| if row % stride < piece { 0 } else { row };
    let output = first_of_many(key);
    let estimated = filling(&output).groups_estimated.expect("an estimate");
    assert!(
        estimated < output.batch.num_rows() as u64 / 2 && fillings(&output) > 1,
        "{:?}",
        filling(&output)
    );
}

#[test]
fn several_keys_and_values_of_sets_are_estimated() {
    let rows =
        (0..MANY).map(|row| (Some(mixed(row) % 300 * FACTOR), mixed(row + 7) % 300 * FACTOR, String::new()));
    let tables = [table(rows)];
    // Of two columns of a scan a sample of both tells.
    let (engine, options) = (Engine::new(), options(DeviceChoice::Cpu, &[("group_parts", "1")]));
    let output = run(&engine, count(scan(0), vec![a(), b()], None), &tables, &options);
    assert_eq!(totals(&output, 2), (90_000, MANY));
    assert_eq!(fillings(&output), 1, "{:?}", filling(&output));
    assert_near(&output, 90_000);
    // Few groups, of which the sets have many values.
    let by_few = arithmetic(ArithmeticOp::Remainder, b(), int(7));
    let output = run(
        &engine,
        count(scan(0), vec![by_few], Some(difference())),
        &[numbers(MANY, |row| row / 5)],
        &options,
    );
    assert_eq!(totals(&output, 1), (7, MANY));
    assert!(filling(&output).sketches > 0 && fillings(&output) == 1, "{:?}", filling(&output));
}

/// Rows that come in blocks: the first one is looked at.
#[test]
fn blocks_of_rows_fill_a_table_once() {
    let options = QueryOptions {
        macro_model: MacroModel::Batch,
        block_bytes: Some(1 << 20),
        ..options(DeviceChoice::Cpu, &[])
    };
    let (tables, plan) =
        ([numbers(MANY, |row| mixed(row) % 100_000)], count(scan(0), vec![difference()], None));
    let output = run(&Engine::new(), &plan, &tables, &options);
    assert_eq!(totals(&output, 1), (number_of_keys(|row| mixed(row) % 100_000), MANY));
    let filling = filling(&output);
    assert!(filling.blocks > 2 && filling.sketches > 0, "{filling:?}");
    assert_eq!(u64::from(fillings(&output)), filling.blocks, "{filling:?}");
}

// ---- few rows, sketched by force

fn few(rows: i64) -> Arc<Table> {
    let row = |row: i64| {
        let a = (row % 7 != 3).then_some(row % 40);
        (
            a,
            row % 90,
            ["kelp", "", "zß é", "long text of kelp"][row as usize % 4].to_string() + &(row % 9).to_string(),
        )
    };
    table((0..rows).map(row))
}

/// The rows of each group, by the keys as text.
type Counts = BTreeMap<Vec<String>, i64>;

fn counts(output: &QueryOutput, keys: usize) -> Counts {
    let row = |row| {
        let text = |column: &ArrayRef| match column.is_valid(row) {
            true => array_value_to_string(column, row).expect("text"),
            false => "NULL".into(),
        };
        let columns = output.batch.columns();
        let key = columns[..keys].iter().map(text).collect::<Vec<_>>();
        (key, text(&columns[keys]).parse().expect("a count"))
    };
    (0..output.batch.num_rows()).map(row).collect()
}

fn beginning(text: &str) -> String {
    text.chars().take(3).collect()
}

#[test]
fn keys_of_every_kind_are_sketched_on_every_device() {
    let engine = Engine::new();
    let start = text(Function::Substr, vec![t(), int(1), int(3)]);
    let made = text(Function::Upper, vec![text(Function::ConcatOperator, vec![t(), t()])]);
    let null = |a: Option<i64>| a.map_or("NULL".to_string(), |a| (a * FACTOR).to_string());
    type Key = (Vec<Expr>, Box<dyn Fn(&Row) -> Vec<String>>);
    let keys: Vec<Key> = vec![
        (vec![product()], Box::new(move |row| vec![null(row.0)])),
        (vec![product(), b()], Box::new(move |row| vec![null(row.0), row.1.to_string()])),
        (vec![start.clone()], Box::new(|row| vec![beginning(&row.2)])),
        (vec![start, product()], Box::new(move |row| vec![beginning(&row.2), null(row.0)])),
        (vec![made], Box::new(|row| vec![(row.2.clone() + &row.2).to_uppercase()])),
    ];
    for rows in [0, 1, 700] {
        let source = few(rows);
        let all: Vec<Row> = (0..rows)
            .map(|row| {
                let batch = &source.0[0];
                let number = |column: usize| {
                    let column = batch.column(column).as_any().downcast_ref::<Int64Array>().expect("numbers");
                    column.is_valid(row as usize).then(|| column.value(row as usize))
                };
                let texts = batch.column(2).as_any().downcast_ref::<StringArray>().expect("texts");
                (number(0), number(1).expect("not NULL"), texts.value(row as usize).to_string())
            })
            .collect();
        for device in devices() {
            let options = options(device, &[("group_estimate", "sketch")]);
            for (keys, evaluated) in &keys {
                for limit in [90, 30, 0] {
                    let mut expected = Counts::new();
                    let kept = all.iter().filter(|row| row.1 < limit);
                    kept.for_each(|row| *expected.entry(evaluated(row)).or_default() += 1);
                    let plan = count(filter(scan(0), CompareOp::Lt, limit), keys.clone(), None);
                    let output = run(&engine, &plan, &[Arc::clone(&source)], &options);
                    assert_eq!(counts(&output, keys.len()), expected, "{rows}, {options:?}, {keys:?}");
                }
            }
        }
    }
}

#[test]
fn an_estimate_by_all_rows_is_nearly_exact() {
    let engine = Engine::new();
    for device in devices() {
        let options = options(device, &[("group_estimate", "sketch")]);
        let output = run(&engine, count(scan(0), vec![product(), b()], None), &[few(700)], &options);
        let groups = output.batch.num_rows() as u64;
        let filling = filling(&output);
        assert!(filling.sketches > 0 && fillings(&output) == 1, "{filling:?}");
        let estimated = filling.groups_estimated.expect("an estimate");
        assert!(estimated.abs_diff(groups) <= groups / 20, "{estimated} for {groups}");
    }
}

#[test]
fn other_models_unions_and_joins_are_right() {
    let engine = Engine::new();
    let tables = [few(600), few(90)];
    let fields = scan(0).fields();
    let union = Plan::Union { inputs: vec![scan(1), scan(0)], fields };
    let join = |kind| {
        let (build, probe, keys) = (scan(1), scan(0), vec![(b(), b())]);
        Plan::Join(Box::new(join_of(kind, build, probe, keys)))
    };
    // Keys of a join's build side, whose columns stand first.
    let plans = [
        count(union, vec![product(), t()], Some(b())),
        count(join(JoinKind::Inner), vec![product(), b()], None),
        count(join(JoinKind::BuildSemi), vec![product(), t()], None),
        count(
            count(scan(0), vec![product(), b()], None),
            vec![arithmetic(ArithmeticOp::Multiply, b(), b())],
            None,
        ),
    ];
    for device in devices() {
        for micro_model in MicroModel::ALL {
            for (number, plan) in plans.iter().enumerate() {
                let run = |estimate| {
                    let options = options(device, &[("group_estimate", estimate)]);
                    let output = run(&engine, plan, &tables, &QueryOptions { micro_model, ..options });
                    let rows = (0..output.batch.num_rows()).map(|row| {
                        let text = |column: &ArrayRef| array_value_to_string(column, row).expect("text");
                        output.batch.columns().iter().map(text).collect::<Vec<_>>()
                    });
                    let mut rows: Vec<_> = rows.collect();
                    rows.sort();
                    rows
                };
                assert_eq!(run("sketch"), run("none"), "{number}, {device:?}, {micro_model:?}");
            }
        }
    }
}

/// What fails in a sketch would fail in the query; what a filter keeps away fails in neither.
#[test]
fn a_sketch_fails_where_the_query_does() {
    let engine = Engine::new();
    let quotient = arithmetic(ArithmeticOp::Divide, int(1i64 << 40), b());
    for device in devices() {
        for estimate in ["sketch", "none"] {
            let options = options(device, &[("group_estimate", estimate)]);
            let plan = count(scan(0), vec![quotient.clone()], None);
            let error = try_run(&engine, &plan, &[few(100)], &options).expect_err("a division by zero");
            assert!(error.to_string().contains("Divide by zero"), "{error}");
            let plan = count(filter(scan(0), CompareOp::Gt, 0), vec![quotient.clone()], None);
            let output = run(&engine, &plan, &[few(100)], &options);
            assert_eq!(totals(&output, 1).1, 98);
        }
    }
}

/// The threads of a GPU meet less in a table of more slots than few groups need.
#[test]
fn a_table_that_is_kept_has_some_slots_where_threads_share_it() {
    for (device, least, most) in [(DeviceChoice::Cpu, 64, 2_000), (DeviceChoice::Simt, 1 << 13, 1 << 13)] {
        let engine = Engine::new();
        let (tables, plan) = ([numbers(8_000, |row| row % 105)], count(scan(0), vec![difference()], None));
        let options = options(device, &[]);
        let slots = |output: &QueryOutput| output.metrics.pipelines.last().expect("a result").rows_in;
        let first = run(&engine, &plan, &tables, &options);
        assert!(slots(&first) >= 16_000, "{}", slots(&first));
        let second = run(&engine, &plan, &tables, &options);
        assert_eq!(totals(&second, 1), (105, 8_000));
        assert!((least..=most).contains(&slots(&second)), "{device:?}: {}", slots(&second));
    }
}
