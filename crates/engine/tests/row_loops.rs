//! Rows that go through a pipeline several at once give what single rows give: random conditions over columns of every type,
//! with NULLs, NaN and extremes, in tables of any size, before sums, groups, joins and results.

use crate::common::*;
use crate::plans;
use crate::plans::join;

const MONEY: DataType = DataType::Decimal128 { precision: 15, scale: 2 };

const COLUMNS: [Column; 12] = [
    ("row", DataType::Int32, false),
    ("flag", DataType::Boolean, true),
    ("byte", DataType::Int8, true),
    ("unsigned", DataType::UInt8, false),
    ("based", DataType::Int32, false),
    ("long", DataType::Int64, true),
    ("date", DataType::Date32, false),
    ("money", MONEY, true),
    ("single", DataType::Float32, false),
    ("double", DataType::Float64, true),
    ("text", DataType::Utf8, true),
    ("huge", DataType::UInt64, false),
];

/// A table of so many rows, its values scattered.
fn table(rows: usize) -> Arc<dyn TableSource> {
    let mut random = Random(rows as u64);
    let mut draw = |below: usize| -> Vec<usize> { (0..rows).map(|_| random.below(below)).collect() };
    let wide = [i64::MIN, i64::MAX, 0, -1, 7, 1 << 40];
    let reals = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5, -2.25, 1e300];
    let singles = [0.0f32, -0.0, f32::NAN, -1.5, 3.25, 1e30];
    let words = ["", "a", "b", "ab", "zß", "long text"];
    let columns: Vec<ArrayRef> = vec![
        ints(0..rows as i32),
        Arc::new(BooleanArray::from_iter(draw(5).into_iter().map(|v| (v > 0).then_some(v > 2)))),
        Arc::new(Int8Array::from_iter(draw(300).into_iter().map(|v| (v < 256).then_some(v as u8 as i8)))),
        Arc::new(UInt8Array::from_iter_values(draw(256).into_iter().map(|v| v as u8))),
        ints(draw(1000).into_iter().map(|v| v as i32 - 1_000_000)),
        maybe_longs(draw(9).into_iter().map(|v| wide.get(v).copied())),
        Arc::new(Date32Array::from_iter_values(draw(2500).into_iter().map(|v| v as i32 + 8000))),
        decimals(draw(1200).into_iter().map(|v| (v < 1100).then(|| v as i128 * 97 - 500)), 15, 2),
        Arc::new(Float32Array::from_iter_values(draw(6).into_iter().map(|v| singles[v]))),
        Arc::new(Float64Array::from_iter(draw(10).into_iter().map(|v| reals.get(v).copied()))),
        maybe_texts(draw(7).into_iter().map(|v| words.get(v).copied())),
        Arc::new(UInt64Array::from_iter_values(draw(4).into_iter().map(|v| [0, 1, u64::MAX, 1 << 63][v]))),
    ];
    table_of(&COLUMNS, columns)
}

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

fn boolean(kind: ExprKind) -> Expr {
    crate::common::boolean(kind, true)
}

/// A constant that is near to values of a column, or far.
fn constant(random: &mut Random, data_type: &DataType) -> Expr {
    if random.below(40) == 0 {
        return Expr::literal(Literal::Null, data_type.clone());
    }
    let literal = match data_type {
        DataType::Boolean => Literal::Boolean(random.below(2) == 0),
        DataType::Int8 => Literal::Int(random.pick(&[-128, -1, 0, 5, 100, 127])),
        DataType::UInt8 => Literal::Int(random.pick(&[0, 1, 100, 254, 255])),
        DataType::Int32 => Literal::Int(random.pick(&[-1_000_000, -999_500, -999_001, 0, 3, 17, 1 << 30])),
        DataType::Int64 => Literal::Int(random.pick(&[i64::MIN.into(), i64::MAX.into(), 0, 7, 100_000])),
        DataType::Date32 => Literal::Int(random.pick(&[7000, 8000, 8766, 9131, 10_499, 20_000])),
        DataType::Decimal128 { .. } => Literal::Int(random.pick(&[-500, 0, 9700, 50_000, 106_103, 1 << 50])),
        DataType::Float32 => Literal::Float(random.pick(&[0.0, -0.0, 3.25, -1.5, f64::NAN])),
        DataType::Float64 => Literal::Float(random.pick(&[0.0, -0.0, 1.5, f64::NAN, f64::INFINITY])),
        DataType::UInt64 => Literal::Int(random.pick(&[0, 1, u64::MAX.into()])),
        _ => Literal::Utf8(random.pick(&["", "a", "b", "ac"]).into()),
    };
    Expr::literal(literal, data_type.clone())
}

/// A value of a column's type: the column, or arithmetic on it.
fn value(random: &mut Random, index: usize) -> Expr {
    let operand = column(index);
    let data_type = operand.data_type.clone();
    let has_arithmetic = data_type.is_integer() || data_type.is_float();
    if !has_arithmetic || random.below(3) > 0 {
        return operand;
    }
    use ArithmeticOp::*;
    let op = random.pick(&[Add, Subtract, Multiply, Add, Subtract, Multiply, Divide, Remainder]);
    let other = if random.below(2) == 0 { constant(random, &data_type) } else { operand.clone() };
    Expr { kind: ExprKind::Arithmetic(op, Box::new(operand), Box::new(other)), data_type, nullable: true }
}

fn condition(random: &mut Random, depth: usize) -> Expr {
    let index = random.below(COLUMNS.len());
    let data_type = COLUMNS[index].1.clone();
    let op = {
        use CompareOp::*;
        random.pick(&[Eq, Ne, Lt, Le, Gt, Ge])
    };
    let is_boolean = data_type == DataType::Boolean;
    match random.below(if depth == 0 { 7 } else { 13 }) {
        0 => boolean(ExprKind::IsNull(Box::new(column(index)))),
        1 => boolean(ExprKind::IsNotNull(Box::new(column(index)))),
        2 if is_boolean => column(index),
        2 | 3 if !is_boolean => {
            let list = (0..1 + random.below(4)).map(|_| constant(random, &data_type)).collect();
            let negated = random.below(2) == 0;
            boolean(ExprKind::InList { input: Box::new(value(random, index)), list, negated })
        }
        4 => {
            let other = constant(random, &data_type);
            let negated = random.below(2) == 0;
            boolean(ExprKind::Distinct(negated, Box::new(column(index)), Box::new(other)))
        }
        7 | 8 => {
            let operand = Box::new(condition(random, depth - 1));
            boolean(ExprKind::Not(operand))
        }
        9 | 10 => {
            let (a, b) = (condition(random, depth - 1), condition(random, depth - 1));
            boolean(ExprKind::Or(Box::new(a), Box::new(b)))
        }
        11 | 12 => {
            let (a, b) = (condition(random, depth - 1), condition(random, depth - 1));
            boolean(ExprKind::And(Box::new(a), Box::new(b)))
        }
        _ => {
            let (a, b) = (value(random, index), constant(random, &data_type));
            let (a, b) = if random.below(4) == 0 { (b, a) } else { (a, b) };
            boolean(ExprKind::Compare(op, Box::new(a), Box::new(b)))
        }
    }
}

/// The AND of some conditions.
fn filter(random: &mut Random) -> Plan {
    let count = 1 + random.below(3);
    let conditions: Vec<Expr> = (0..count).map(|_| condition(random, 2)).collect();
    let all = conditions.into_iter().reduce(|a, b| boolean(ExprKind::And(Box::new(a), Box::new(b))));
    keep(scan(), all.expect("a condition"))
}

fn aggregate(input: Plan, keys: &[usize], aggregates: &[(AggregateFunction, Option<usize>)]) -> Plan {
    use AggregateFunction::*;
    let aggregates = aggregates.iter().map(|(function, argument)| {
        let argument = argument.map(column);
        let data_type = match (function, argument.as_ref().map(|argument| argument.data_type.clone())) {
            (Sum, Some(DataType::Decimal128 { scale, .. })) => DataType::Decimal128 { precision: 25, scale },
            (Sum, Some(DataType::UInt8)) => DataType::UInt64,
            (Sum | Count, _) | (_, None) => DataType::Int64,
            (_, Some(own)) => own,
        };
        let field = Field { name: format!("{function:?}"), data_type, nullable: true };
        Aggregate { function: *function, argument, distinct: false, field }
    });
    let aggregates = aggregates.collect();
    groups_of(input, keys.iter().map(|key| column(*key)).collect(), aggregates)
}

/// What follows a filter: sums, groups, a join, the rows.
fn behind(random: &mut Random, input: Plan) -> Plan {
    use AggregateFunction::*;
    let sums = [
        (Count, None),
        (Count, Some(9)),
        (Sum, Some(2)),
        (Sum, Some(3)),
        (Sum, Some(4)),
        (Sum, Some(5)),
        (Sum, Some(7)),
        (Min, Some(1)),
        (Min, Some(4)),
        (Max, Some(5)),
        (Max, Some(8)),
        (Min, Some(9)),
        (Max, Some(11)),
        (BitAnd, Some(3)),
        (BitXor, Some(4)),
    ];
    match random.below(8) {
        0..=3 => {
            let some: Vec<_> = (0..1 + random.below(5)).map(|_| random.pick(&sums)).collect();
            aggregate(input, &[], &some)
        }
        4 => aggregate(input, &[10], &sums[..5]),
        5 => aggregate(input, &[2], &sums[..3]),
        6 => aggregate(join(JoinKind::Inner, scan(), input, &[(0, 0)], false), &[], &sums[..1]),
        _ => input,
    }
}

/// What a query gives: its rows, or its error.
fn outcome(
    engine: &Engine,
    plan: &Plan,
    source: &Arc<dyn TableSource>,
    options: &QueryOptions,
) -> Vec<String> {
    match try_run(engine, plan, &[Arc::clone(source)], options) {
        Ok(output) => rows_of(&output.batch, false),
        Err(error) => vec![error.to_string()],
    }
}

fn forced(value: &str) -> Forced {
    force([("row_loop", value)])
}

/// Which of so many queries run: some of each table, which take turns.
fn queries(name: &str, count: usize, tables: usize, most: usize) -> HashSet<usize> {
    covering(name, 0..count, most, |query| vec![query % tables]).into_iter().collect()
}

/// Compares `count` random queries over tables of these sizes; how often each other form was possible.
fn compare(device: DeviceChoice, sizes: &[usize], count: usize, seed: u64) -> [usize; 2] {
    let engine = Engine::new();
    let sources: Vec<_> = sizes.iter().map(|rows| table(*rows)).collect();
    let mut random = Random(seed);
    let mut possible = [0; 2];
    let picked = queries(&format!("conditions on {device:?}"), count, sizes.len(), 45);
    for query in 0..count {
        let input = filter(&mut random);
        let plan = behind(&mut random, input);
        if !picked.contains(&query) {
            continue;
        }
        let source = &sources[query % sources.len()];
        let base = QueryOptions { device, threads: Some(2), ..QueryOptions::default() };
        let single = QueryOptions { variants: forced("single"), ..base.clone() };
        let expected = outcome(&engine, &plan, source, &single);
        for (index, value) in ["selected", "wide"].into_iter().enumerate() {
            let options = QueryOptions { variants: forced(value), ..base.clone() };
            assert_eq!(
                outcome(&engine, &plan, source, &options),
                expected,
                "query {query}, {value}: {plan:?}"
            );
            if let Ok(output) = try_run(&engine, &plan, &[Arc::clone(source)], &options) {
                let took =
                    |choice: &kelpie_engine::Choice| choice.axis.name == "row_loop" && choice.value == value;
                possible[index] += usize::from(output.metrics.choices().any(took));
            }
        }
    }
    possible
}

#[test]
fn several_rows_at_once_give_what_single_rows_give_on_cpu() {
    let [selected, wide] = compare(DeviceChoice::Cpu, &[1031, 0, 1, 7, 8, 9, 100, 5000], 400, 1);
    assert!(selected >= floor(150) && wide >= floor(50), "{selected} {wide}");
}

#[test]
fn several_rows_at_once_give_what_single_rows_give_on_simt() {
    let [selected, wide] = compare(DeviceChoice::Simt, &[1031, 0, 1, 7, 8, 9, 100], 150, 2);
    assert!(wide >= floor(15) && (selected >= 5 || !is_whole()), "{selected} {wide}");
}

#[test]
fn several_rows_at_once_give_what_single_rows_give_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        let [_, wide] = compare(DeviceChoice::Cuda, &[1031, 0, 1, 7, 8, 9, 100, 5000], 150, 3);
        assert!(wide >= floor(15), "{wide}");
    }
}

/// Rows whose columns are loaded several at once before they come to their groups one by one give what rows alone give: with and
/// without groups, in blocks of which the first or the last rows are not there, in batches that begin at any row. How often rows were
/// loaded so.
fn hold(device: DeviceChoice, count: usize, seed: u64) -> usize {
    use AggregateFunction::*;
    let engine = Engine::new();
    let sources = [1031, 0, 1, 7, 8, 9, 512, 2111].map(table);
    let functions =
        [(Count, None), (Sum, Some(2)), (Sum, Some(4)), (Sum, Some(7)), (Min, Some(1)), (Max, Some(8))];
    let (mut random, mut held) = (Random(seed), 0);
    let picked = queries(&format!("rows together on {device:?}"), count, sources.len(), 40);
    for query in 0..count {
        let input = if random.below(3) == 0 { scan() } else { filter(&mut random) };
        let keys: &[usize] = random.pick(&[&[][..], &[10], &[2], &[10, 2], &[9]]);
        let some: Vec<_> = (0..1 + random.below(5)).map(|_| random.pick(&functions)).collect();
        let plan = aggregate(input, keys, &some);
        let source = &sources[query % sources.len()];
        let sums = random.pick(&["words", "digits"]);
        let copies = random.pick(&["1", "4", "32"]);
        if !picked.contains(&query) {
            continue;
        }
        let with = |(arrangement, sums): (&str, &str)| {
            let mut variants = forced("single");
            let forced = [
                ("row_arrangement", arrangement),
                ("block_threads", "32"),
                ("block_sums", sums),
                ("table_copies", copies),
            ];
            for (name, value) in forced {
                variants.set(name, value).expect("an axis and its value");
            }
            let (macro_model, block_bytes) = match query % 3 {
                0 => (MacroModel::Batch, Some(9001)),
                _ => (MacroModel::Auto, None),
            };
            QueryOptions { device, variants, macro_model, block_bytes, ..QueryOptions::default() }
        };
        let (alone, together) = (with(("striped", "words")), with(("blocked", sums)));
        let expected = outcome(&engine, &plan, source, &alone);
        assert_eq!(outcome(&engine, &plan, source, &together), expected, "query {query}: {plan:?}");
        if let Ok(output) = try_run(&engine, &plan, &[Arc::clone(source)], &together) {
            let took = |choice: &kelpie_engine::Choice| {
                choice.axis.name == "row_arrangement" && choice.value == "blocked"
            };
            held += usize::from(output.metrics.choices().any(took));
        }
    }
    held
}

#[test]
fn rows_that_are_loaded_together_give_what_rows_alone_give_on_simt() {
    let held = hold(DeviceChoice::Simt, 160, 5);
    assert!(held >= floor(40), "{held}");
}

#[test]
fn rows_that_are_loaded_together_give_what_rows_alone_give_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        let held = hold(DeviceChoice::Cuda, 160, 6);
        assert!(held >= floor(40), "{held}");
    }
}

/// Blocks begin at rows of any number.
#[test]
fn blocks_begin_anywhere() {
    let engine = Engine::new();
    let (sources, mut random) = ([table(9000), table(2111)], Random(4));
    let picked = queries("blocks", 60, 3, 25);
    for query in 0..60 {
        let input = filter(&mut random);
        let plan = behind(&mut random, input);
        if !picked.contains(&query) {
            continue;
        }
        let (device, source) = match query % 3 {
            0 => (DeviceChoice::Simt, &sources[1]),
            _ => (DeviceChoice::Cpu, &sources[0]),
        };
        let base = QueryOptions { device, threads: Some(2), ..QueryOptions::default() };
        let single = QueryOptions { variants: forced("single"), ..base.clone() };
        let expected = outcome(&engine, &plan, source, &single);
        for value in ["selected", "wide"] {
            let (macro_model, block_bytes) = (MacroModel::Batch, Some(1031));
            let options = QueryOptions { variants: forced(value), macro_model, block_bytes, ..base.clone() };
            assert_eq!(outcome(&engine, &plan, source, &options), expected, "{value}: {plan:?}");
        }
    }
}

/// Rows whose key is beyond the bounds of a build side are not selected: what the join gives is the same. Build sides that
/// filters have narrowed to a few keys, to one, to none; keys of all types, signs and bases, with NULLs.
#[test]
fn windows_of_keys_give_what_looking_up_gives() {
    let (engine, mut random, mut windows) = (Engine::new(), Random(5), 0);
    let sources = [table(3001), table(77), table(8)];
    let picked = queries("windows of keys", 240, sources.len(), 40);
    for query in 0..240 {
        let key = random.pick(&[0, 2, 3, 4, 4, 5, 6, 6, 6, 7]);
        let narrow = |random: &mut Random| {
            let ops = [CompareOp::Lt, CompareOp::Ge, CompareOp::Eq];
            let op = random.pick(&ops);
            let limit = constant(random, &COLUMNS[key].1);
            boolean(ExprKind::Compare(op, Box::new(column(key)), Box::new(limit)))
        };
        let (a, b) = (narrow(&mut random), narrow(&mut random));
        let predicate = boolean(ExprKind::And(Box::new(a), Box::new(b)));
        let build = keep(scan(), predicate);
        let kind = random.pick(&[
            JoinKind::Inner,
            JoinKind::ProbeSemi,
            JoinKind::ProbeAnti,
            JoinKind::ProbeOuter,
            JoinKind::BuildSemi,
        ]);
        let probe = filter(&mut random);
        if !picked.contains(&query) {
            continue;
        }
        let joined = join(kind, build, probe, &[(key, key)], false);
        let plan =
            aggregate(joined, &[], &[(AggregateFunction::Count, None), (AggregateFunction::Sum, Some(4))]);
        let source = &sources[query % sources.len()];
        let (device, threads) = (DeviceChoice::Cpu, Some(2));
        let base = QueryOptions { device, threads, ..QueryOptions::default() };
        let with = |row_loop: &str, window: &str| {
            let mut variants = forced(row_loop);
            variants.set("key_windows", window).expect("an axis and its value");
            QueryOptions { variants, ..base.clone() }
        };
        let expected = outcome(&engine, &plan, source, &with("single", "off"));
        let options = with("selected", "on");
        assert_eq!(outcome(&engine, &plan, source, &options), expected, "query {query}: {plan:?}");
        if let Ok(output) = try_run(&engine, &plan, &[Arc::clone(source)], &options) {
            let took = |choice: &kelpie_engine::Choice| choice.axis.name == "key_windows";
            windows += usize::from(output.metrics.choices().any(took));
        }
    }
    assert!(windows >= floor(40), "{windows}");
}

/// Rows are selected by the bitmaps of one to three build sides, one after the other: what the joins give is the same. Keys that are
/// NULL, beyond what the build side has, of any width and sign; a filter before, with a form for several rows or without. Sums without
/// groups, in groups, or the rows. Whether that was so in `least` of `count` queries.
fn select_by_joins(base: &QueryOptions, sizes: &[usize], (count, least): (usize, usize)) {
    let (engine, mut random, mut sifted) = (Engine::new(), Random(6), 0);
    let sources: Vec<_> = sizes.iter().map(|rows| table(*rows)).collect();
    let picked = queries(&format!("filters at run time on {:?}", base.device), count, sizes.len(), 30);
    for query in 0..count {
        let mut plan = if random.below(2) == 0 { scan() } else { filter(&mut random) };
        // The columns of the table begin here.
        let mut first = 0;
        for _ in 0..1 + random.below(3) {
            let key = random.pick(&[0, 2, 3, 4, 4, 5, 6]);
            let op = random.pick(&[CompareOp::Lt, CompareOp::Ge, CompareOp::Ne]);
            let limit = constant(&mut random, &COLUMNS[key].1);
            let predicate = boolean(ExprKind::Compare(op, Box::new(column(key)), Box::new(limit)));
            let narrow = keep(scan(), predicate);
            // A row a key, so that there is a bitmap.
            let build = plans::aggregate(narrow, &[key], &[(AggregateFunction::Count, None, false)]);
            let kind = random.pick(&[JoinKind::Inner, JoinKind::Inner, JoinKind::ProbeSemi]);
            plan = join(kind, build, plan, &[(0, first + key)], false);
            first += if kind == JoinKind::Inner { 2 } else { 0 };
        }
        let sums =
            [(AggregateFunction::Count, None, false), (AggregateFunction::Sum, Some(first + 4), false)];
        let key = random.pick(&[0, 2, 4, 10]);
        let plan = match random.below(4) {
            0 => plans::aggregate(plan, &[first + key], &sums),
            1 => plan,
            _ => plans::aggregate(plan, &[], &sums),
        };
        let source = &sources[query % sources.len()];
        let rows = random.pick(&["rule", "1", "2", "4", "8"]);
        let mut with = |runtime_filters: &str| {
            let mut variants = force([("runtime_filters", runtime_filters)]);
            if base.device != DeviceChoice::Cpu {
                let row_loop = if runtime_filters == "on" { "selected" } else { "single" };
                variants.set("row_loop", row_loop).expect("an axis and its value");
                let arrangement = random.pick(&["striped", "blocked"]);
                variants.set("row_arrangement", arrangement).expect("an axis and its value");
                if rows != "rule" {
                    variants.set("thread_rows", rows).expect("an axis and its value");
                }
            }
            // Blocks begin at rows of any number.
            let (macro_model, block_bytes) = match query % 3 {
                0 if base.device != DeviceChoice::Cpu => (MacroModel::Batch, Some(1031)),
                _ => (base.macro_model, base.block_bytes),
            };
            QueryOptions { variants, macro_model, block_bytes, ..base.clone() }
        };
        let [off, on, again] = ["off", "on", "on"].map(&mut with);
        if !picked.contains(&query) {
            continue;
        }
        let expected = outcome(&engine, &plan, source, &off);
        assert_eq!(outcome(&engine, &plan, source, &on), expected, "query {query}: {plan:?}");
        if let Ok(output) = try_run(&engine, &plan, &[Arc::clone(source)], &again) {
            let took = |choice: &kelpie_engine::Choice| {
                choice.axis.name == "runtime_filters" && choice.value == "on"
            };
            sifted += usize::from(output.metrics.choices().any(took));
        }
    }
    assert!(sifted >= floor(least), "{sifted}");
}

#[test]
fn runtime_filters_select_what_looking_up_finds_on_cpu() {
    let base = QueryOptions { device: DeviceChoice::Cpu, threads: Some(2), ..QueryOptions::default() };
    select_by_joins(&base, &[3001, 1025, 8], (240, 40));
}

#[test]
fn runtime_filters_select_what_looking_up_finds_on_simt() {
    let base = QueryOptions { device: DeviceChoice::Simt, ..QueryOptions::default() };
    select_by_joins(&base, &[531, 77, 8, 1, 0], (160, 25));
}

#[test]
fn runtime_filters_select_what_looking_up_finds_on_cuda() {
    if !kelpie_engine::testing::has_cuda(&Engine::new()) {
        return;
    }
    let base = QueryOptions { device: DeviceChoice::Cuda, ..QueryOptions::default() };
    select_by_joins(&base, &[100_003, 1025, 8], (120, 20));
}
