//! Keys of groups that follow from other keys: a column whose values are all different tells the others of its table, and through joins
//! whose build sides have unique keys those of further tables. The groups are those that all keys together tell apart.

use std::ops::Range;

use crate::common::*;
use crate::plans::{aggregate, filter, union};

use AggregateFunction::{Count, Max, Sum};

/// What the first column of a table is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Ascending,
    Descending,
    /// Ascending, of which one is there twice.
    Twice,
    /// Ascending, of which two are NULL.
    Nulls,
    /// All different, in no order: nobody knows.
    Mixed,
}

impl Keys {
    const ALL: [Keys; 5] = [Keys::Ascending, Keys::Descending, Keys::Twice, Keys::Nulls, Keys::Mixed];

    fn key(self, row: usize, rows: usize) -> Option<i64> {
        let row = row as i64;
        let rows = rows as i64;
        match self {
            Keys::Ascending => Some(3 * row - 5),
            Keys::Descending => Some(3 * (rows - 1 - row) - 5),
            Keys::Twice => Some(3 * (row - i64::from(row > rows / 2)) - 5),
            Keys::Nulls => (row != rows / 3 && row != rows / 2).then_some(3 * row - 5),
            Keys::Mixed => Some(3 * (row ^ 1) - 5),
        }
    }
}

/// Columns: key, another table's key, a text without a dictionary, one with, a decimal, a date, a double, an amount. Any but the first and the
/// last may be NULL.
const WIDTH: usize = 8;
const AMOUNT: usize = 7;

fn table(keys: Keys, rows: usize, batches: usize, random: &mut Random) -> Arc<dyn TableSource> {
    let batch = |own: Range<usize>| {
        let all = own.clone();
        let others: Vec<Option<i64>> =
            all.map(|_| (random.below(9) > 0).then(|| 3 * random.below(rows + 3) as i64 - 5)).collect();
        let text = |row: usize| match random.below(12) {
            0 => None,
            1 => Some(String::new()),
            _ => Some(format!("ein längerer Text, Nummer {}", (row * 7919) % (4 * rows / 5 + 1))),
        };
        let long: Vec<Option<String>> = own.clone().map(text).collect();
        let mut some = |absent: usize, of: usize| -> Vec<Option<usize>> {
            own.clone().map(|_| (random.below(absent) > 0).then(|| random.below(of))).collect()
        };
        let (kinds, prices, days, ratios) = (some(8, 4), some(7, 500), some(6, 40), some(6, 4));
        let day = |day: Option<usize>| day.map(|day| day as i32 + 9_000);
        let ratio = |ratio: Option<usize>| ratio.map(|ratio| [0.0, -0.0, 1.5, f64::NAN][ratio]);
        let columns: Vec<ArrayRef> = vec![
            maybe_longs(own.clone().map(|row| keys.key(row, rows))),
            maybe_longs(others),
            maybe_texts(long),
            maybe_texts(kinds.into_iter().map(|kind| kind.map(|kind| ["rot", "", "blau", "ö"][kind]))),
            decimals(prices.into_iter().map(|price| price.map(|price| price as i128 * 100_003 - 7)), 12, 2),
            Arc::new(Date32Array::from_iter(days.into_iter().map(day))),
            Arc::new(Float64Array::from_iter(ratios.into_iter().map(ratio))),
            longs(own.map(|row| row as i64 % 17)),
        ];
        batch_of(&COLUMNS, columns)
    };
    in_batches(rows, batches, batch)
}

const COLUMNS: [Column; 8] = [
    ("key", DataType::Int64, true),
    ("other", DataType::Int64, true),
    ("text", DataType::Utf8, true),
    ("kind", DataType::Utf8, true),
    ("price", DataType::Decimal128 { precision: 12, scale: 2 }, true),
    ("day", DataType::Date32, true),
    ("ratio", DataType::Float64, true),
    ("amount", DataType::Int64, false),
];

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

/// A join by one column of each side; with a residual condition, by the amounts too, of which one must be less.
fn join(kind: JoinKind, (build, own): (Plan, usize), (probe, other): (Plan, usize), residual: bool) -> Plan {
    let (left, right) = (build.fields(), probe.fields());
    let amount = |fields: &[Field], before: usize| {
        let place = fields.iter().position(|field| field.name == "amount")?;
        Some(Expr::column(before + place, DataType::Int64, fields[place].nullable))
    };
    let pair = amount(&left, 0).zip(amount(&right, left.len())).filter(|_| residual);
    let residual = pair.map(|(a, b)| crate::common::compare(CompareOp::Lt, a, b));
    let keys = vec![(column(&build, own), column(&probe, other))];
    Plan::Join(Box::new(Join { residual, ..join_of(kind, build, probe, keys) }))
}

/// Some columns of a plan, and the key of groups that an expression is.
fn project(input: Plan, exprs: Vec<Expr>) -> Plan {
    let fields = input.fields();
    let name = |expr: &Expr| match expr.kind {
        ExprKind::Column(index) => fields[index].name.clone(),
        _ => "computed".into(),
    };
    let names = exprs.iter().map(name).collect();
    Plan::Project { input: Box::new(input), exprs, names }
}

/// What became of keys that follow from others in the last aggregation, and why.
fn choice(output: &QueryOutput) -> (&'static str, String) {
    let choice = output.metrics.choices().filter(|choice| choice.axis.name == "dependent_keys").last();
    choice.map_or(("none", String::new()), |choice| (choice.value, choice.reason.clone()))
}

/// The groups of the rows of a plan by some columns, each with its number of rows and the sum of a column.
fn grouped(rows: &[String], keys: &[usize], sum: usize) -> Vec<String> {
    let mut groups: BTreeMap<Vec<&str>, (u64, Option<i64>)> = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let own: Vec<&str> =
            keys.iter().map(|key| if cells[*key] == "-0.0" { "0.0" } else { cells[*key] }).collect();
        let (count, total) = groups.entry(own).or_default();
        *count += 1;
        if let Ok(value) = cells[sum].parse::<i64>() {
            *total = Some(total.unwrap_or(0) + value);
        }
    }
    let line = |(keys, (count, total)): (&Vec<&str>, &(u64, Option<i64>))| {
        let total = total.map_or("-".into(), |total| total.to_string());
        [keys.join("|"), count.to_string(), total].join("|")
    };
    let mut lines: Vec<String> = groups.iter().map(line).collect();
    lines.sort();
    lines
}

/// The last column of integers.
fn summed(plan: &Plan) -> usize {
    let fields = plan.fields();
    fields.iter().rposition(|field| field.data_type == DataType::Int64).expect("integers")
}

/// The groups of a plan's rows by some columns.
fn groups(input: Plan, keys: &[usize]) -> Plan {
    let sum = summed(&input);
    aggregate(input, keys, &[(Count, None, false), (Sum, Some(sum), false)])
}

/// Compares groups with those of the rows, whatever becomes of keys that follow from others; what became of them by rule.
fn compare(
    engine: &Engine,
    (plan, keys): (&Plan, &[usize]),
    sources: &[Arc<dyn TableSource>],
    (device, forced): (DeviceChoice, &[(&str, &str)]),
) -> (&'static str, String) {
    let rows = run(engine, plan, sources, on(DeviceChoice::Cpu, &[]));
    let sum = summed(plan);
    let expected = grouped(&rows_of(&rows.batch, false), keys, sum);
    let plan = groups(plan.clone(), keys);
    let mut by_rule = ("none", String::new());
    for form in ["rule", "carried", "compared"] {
        let forced: Vec<(&str, &str)> = forced.iter().copied().chain([("dependent_keys", form)]).collect();
        let output = run(engine, &plan, sources, on(device, &forced));
        assert_eq!(rows_of(&output.batch, false), expected, "{forced:?} {plan:?}");
        if form == "rule" {
            by_rule = choice(&output);
        }
    }
    by_rule
}

#[test]
fn a_column_without_equal_values_tells_the_others_of_its_table() {
    let (engine, mut random) = (Engine::new(), Random(1));
    for device in devices() {
        for keys in Keys::ALL {
            for batches in [1, 5] {
                let sources = [table(keys, 120, batches, &mut random)];
                let (value, reason) = compare(&engine, (&scan(0), &[2, 0, 3, 4, 5]), &sources, (device, &[]));
                let is_known = matches!(keys, Keys::Ascending | Keys::Descending);
                assert_eq!(value == "carried", is_known, "{keys:?} {batches}: {reason}");
                if is_known {
                    assert_eq!(reason, "4 of 5 keys follow from the others");
                }
            }
        }
    }
}

#[test]
fn all_keys_in_a_word_are_compared() {
    let (engine, mut random) = (Engine::new(), Random(2));
    let sources = [table(Keys::Ascending, 120, 1, &mut random)];
    let (value, reason) = compare(&engine, (&scan(0), &[0, 3, 5]), &sources, (DeviceChoice::Cpu, &[]));
    assert_eq!((value, reason.as_str()), ("compared", "all keys are told apart by one word"));
}

/// As TPC-H's query 10: groups by customer over orders, which are a build side, and by the customer's nation.
#[test]
fn keys_follow_through_joins() {
    let (engine, mut random) = (Engine::new(), Random(3));
    for device in devices() {
        let sources = [Keys::Ascending; 3].map(|keys| table(keys, 60, 2, &mut random));
        let (customers, orders, nations) = (scan(0), scan(1), scan(2));
        // Customers, then orders; then nations before both.
        let rows = join(JoinKind::Inner, (customers, 0), (orders, 1), false);
        let rows = join(JoinKind::Inner, (nations, 0), (rows, 1), false);
        // The customer's key is another table's as well: the order's.
        for (keys, followers) in [
            (&[2, 3, WIDTH, WIDTH + 2, WIDTH + 4][..], 4),
            (&[2, 2 * WIDTH + 1, WIDTH + 2], 2),
            (&[2, 2 * WIDTH, WIDTH + 2, WIDTH, 0], 4),
            (&[2, WIDTH + 1, 0], 2),
            (&[2 * WIDTH + 2, WIDTH + 2, WIDTH], 1),
        ] {
            let (value, reason) = compare(&engine, (&rows, keys), &sources, (device, &[]));
            assert_eq!(value, "carried", "{keys:?}: {reason}");
            assert_eq!(reason, format!("{followers} of {} keys follow from the others", keys.len()));
        }
        let (value, _) = compare(&engine, (&rows, &[2, WIDTH + 2]), &sources, (device, &[]));
        assert_eq!(value, "compared", "texts tell nothing");
    }
}

#[test]
fn a_wrong_assumption_tells_nothing() {
    let (engine, mut random) = (Engine::new(), Random(4));
    for device in devices() {
        let sources = [Keys::Twice, Keys::Mixed].map(|keys| table(keys, 60, 2, &mut random));
        // One key of the build side is there twice.
        let rows = join(JoinKind::Inner, (scan(0), 0), (scan(1), 1), false);
        let keys = [WIDTH + 1, 2, 4];
        assert_eq!(compare(&engine, (&rows, &keys), &sources, (device, &[])).0, "compared");
        // None is: the index tells.
        let rows = join(JoinKind::Inner, (scan(1), 0), (scan(0), 1), false);
        assert_eq!(compare(&engine, (&rows, &keys), &sources, (device, &[])).0, "carried");
        // A row that has no match for its amount has none of its keys.
        let rows = join(JoinKind::ProbeOuter, (scan(1), 0), (scan(0), 1), true);
        assert_eq!(compare(&engine, (&rows, &keys), &sources, (device, &[])).0, "compared");
        let rows = join(JoinKind::ProbeOuter, (scan(1), 0), (scan(0), 1), false);
        assert_eq!(compare(&engine, (&rows, &keys), &sources, (device, &[])).0, "carried");
    }
}

#[test]
fn expressions_follow_from_what_they_read() {
    let (engine, mut random) = (Engine::new(), Random(5));
    let sources = [table(Keys::Twice, 90, 2, &mut random)];
    let rows = scan(0);
    let upper = |text: usize| {
        let text = column(&rows, text);
        Expr { kind: ExprKind::Function(Function::Upper, vec![text.clone()]), ..text }
    };
    let plus = |a: usize| {
        let (a, one) = (column(&rows, a), int(1));
        Expr { kind: ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(a.clone()), Box::new(one)), ..a }
    };
    let inverse = || {
        let (ratio, one) = (column(&rows, 6), Expr::literal(Literal::Float(1.0), DataType::Float64));
        let kind = ExprKind::Arithmetic(ArithmeticOp::Divide, Box::new(one), Box::new(ratio.clone()));
        Expr { kind, ..ratio }
    };
    let amount = column(&rows, AMOUNT);
    for device in devices() {
        let exprs = vec![column(&rows, 2), upper(2), plus(0), column(&rows, 0), amount.clone()];
        let plan = project(rows.clone(), exprs);
        let (value, reason) = compare(&engine, (&plan, &[0, 1, 2, 3]), &sources, (device, &[]));
        assert_eq!((value, reason.as_str()), ("carried", "2 of 4 keys follow from the others"));
        // Of 0.0 and -0.0, which are one group's, it is not the same.
        let plan = project(rows.clone(), vec![column(&rows, 6), inverse(), column(&rows, 2), amount.clone()]);
        assert_eq!(compare(&engine, (&plan, &[0, 1, 2]), &sources, (device, &[])).0, "compared");
    }
}

#[test]
fn groups_are_told_apart_by_what_tells_groups_below() {
    let (engine, mut random) = (Engine::new(), Random(6));
    let sources = [table(Keys::Mixed, 90, 2, &mut random)];
    for device in devices() {
        // Groups by texts have each text once.
        let below = aggregate(scan(0), &[2], &[(Max, Some(3), false), (Count, None, false)]);
        let plan = aggregate(below, &[0, 1, 2], &[(Count, None, false)]);
        let mut all = Vec::new();
        for form in ["rule", "compared"] {
            let output = run(&engine, &plan, &sources, on(device, &[("dependent_keys", form)]));
            all.push(rows_of(&output.batch, false));
            assert_eq!(choice(&output).0, if form == "rule" { "carried" } else { "compared" });
        }
        assert_eq!(all[0], all[1]);
    }
}

/// The group of NULLs is another than that of rows that have none.
#[test]
fn missing_rows_are_no_group() {
    let (engine, mut random) = (Engine::new(), Random(8));
    let sources = [Keys::Ascending; 2].map(|keys| table(keys, 50, 2, &mut random));
    let below =
        || aggregate(scan(0), &[1], &[(Count, None, false), (Max, Some(2), false), (Max, Some(5), false)]);
    for device in devices() {
        for kind in [JoinKind::FullOuter, JoinKind::BuildOuter, JoinKind::ProbeOuter, JoinKind::Inner] {
            for is_build in [true, false] {
                let (rows, first) = match is_build {
                    true => (join(kind, (below(), 0), (scan(1), 0), false), 0),
                    false => (join(kind, (scan(1), 0), (below(), 0), false), WIDTH),
                };
                let (value, reason) = compare(&engine, (&rows, &[first, first + 2]), &sources, (device, &[]));
                let may_be_missing = match kind {
                    JoinKind::FullOuter => true,
                    JoinKind::BuildOuter => !is_build,
                    JoinKind::ProbeOuter => is_build,
                    _ => false,
                };
                assert_eq!(value == "compared", may_be_missing, "{kind:?} {is_build}: {reason}");
            }
        }
    }
}

/// What tells the rows of one input tells nothing of another's.
#[test]
fn inputs_of_a_union_have_their_own_keys() {
    let (engine, mut random) = (Engine::new(), Random(9));
    let sources = [Keys::Ascending; 2].map(|keys| table(keys, 50, 2, &mut random));
    let rows = union(vec![scan(0), scan(1)]);
    for device in devices() {
        assert_eq!(compare(&engine, (&rows, &[0, 2, 4]), &sources, (device, &[])).0, "compared");
        let alone = union(vec![scan(1)]);
        assert_eq!(compare(&engine, (&alone, &[0, 2, 4]), &sources, (device, &[])).0, "carried");
    }
}

/// A table of slots that is too small is filled anew.
#[test]
fn tables_grow() {
    let (engine, mut random) = (Engine::new(), Random(7));
    let sources = [table(Keys::Ascending, 90_000, 11, &mut random)];
    for (layout, batch) in [("apart", "256"), ("beside", "0")] {
        let forced =
            [("group_estimate", "none"), ("slot_layout", layout), ("slot_fill", "75"), ("batch_rows", batch)];
        let (value, reason) =
            compare(&engine, (&scan(0), &[2, 0, 4]), &sources, (DeviceChoice::Cpu, &forced));
        assert_eq!(value, "carried", "{reason}");
    }
}

/// Everything else that may be chosen for an aggregation.
const FORCED: [(&str, &str); 15] = [
    ("slot_layout", "beside"),
    ("slot_layout", "apart"),
    ("group_order", "sorted"),
    ("group_parts", "4"),
    ("local_preaggregation", "256"),
    ("preaggregation_search", "key"),
    ("batch_rows", "256"),
    ("segments", "warp"),
    ("segments", "block"),
    ("run_accumulator", "on"),
    ("hash_mapping", "modulo"),
    ("distinct_values", "groups"),
    ("group_estimate", "sketch"),
    ("key_text_lanes", "warp"),
    ("join_parts", "16"),
];

/// The columns of keys.
fn integers(plan: &Plan) -> Vec<usize> {
    let fields = plan.fields();
    let is_key =
        |column: &usize| fields[*column].data_type == DataType::Int64 && fields[*column].name != "amount";
    (0..fields.len()).filter(is_key).collect()
}

/// Rows of one to three tables, joined in any way.
fn any_rows(random: &mut Random) -> Plan {
    use JoinKind::*;
    let kinds = [
        Inner, BuildOuter, ProbeOuter, FullOuter, BuildSemi, BuildAnti, BuildMark, ProbeSemi, ProbeAnti,
        ProbeMark, Inner, ProbeOuter, Inner,
    ];
    let mut rows = scan(0);
    for source in 1..1 + random.below(3) {
        let mut other = scan(source);
        if random.below(6) == 0 {
            other = union(vec![other, scan(0)]);
        }
        if random.below(4) == 0 {
            other = filter(other, AMOUNT, CompareOp::Lt, 11);
        }
        let integers = integers(&rows);
        let (place, own) = (random.pick(&integers), random.below(2));
        let (kind, residual) = (random.pick(&kinds), random.below(4) == 0);
        rows = match random.below(2) {
            0 => join(kind, (rows, place), (other, own), residual),
            _ => join(kind, (other, own), (rows, place), residual),
        };
        if random.below(3) == 0 {
            let width = rows.fields().len();
            let all =
                (0..width).map(|_| column(&rows, random.below(width))).chain([column(&rows, summed(&rows))]);
            let all: Vec<Expr> =
                all.chain((0..width).map(|index| column(&rows, index)).take(AMOUNT)).collect();
            rows = project(rows, all);
        }
        if self::integers(&rows).is_empty() {
            break;
        }
    }
    rows
}

fn any_groups(device: DeviceChoice, seeds: std::ops::Range<u64>) {
    let engine = Engine::new();
    let mut carried = 0;
    for seed in sample("any groups", seeds, 18) {
        let random = &mut Random(seed);
        let rows = random.pick(&[0, 1, 2, 20, 45]);
        let sources = [0; 3].map(|_| {
            let keys =
                random.pick(&[Keys::Ascending, Keys::Ascending, Keys::Twice, Keys::Nulls, Keys::Mixed]);
            let batches = 1 + random.below(3);
            table(keys, rows, batches, random)
        });
        let plan = any_rows(random);
        let width = plan.fields().len();
        // Numbers are what rows are joined by.
        let integers = integers(&plan);
        let numbers = random.below(3).min(integers.len());
        let numbers: Vec<usize> = (0..numbers).map(|_| random.pick(&integers)).collect();
        let others = (0..1 + random.below(4)).map(|_| random.below(width));
        let keys: Vec<usize> = others.chain(numbers).collect();
        let forced: Vec<(&str, &str)> = (0..random.below(3)).map(|_| random.pick(&FORCED)).collect();
        let (value, _) = compare(&engine, (&plan, &keys), &sources, (device, &forced));
        carried += usize::from(value == "carried");
        // Values that count once are looked up beside the groups.
        let value = random.below(width);
        let plan = aggregate(plan, &keys, &[(Count, Some(value), true), (Max, Some(value), false)]);
        let mut all = Vec::new();
        for form in ["carried", "compared"] {
            let forced: Vec<(&str, &str)> =
                forced.iter().copied().chain([("dependent_keys", form)]).collect();
            all.push(rows_of(&run(&engine, &plan, &sources, on(device, &forced)).batch, false));
        }
        assert_eq!(all[0], all[1], "{seed} {plan:?}");
    }
    assert!(carried >= floor(1));
}

#[test]
fn any_groups_on_the_cpu() {
    any_groups(DeviceChoice::Cpu, 0..60);
}

#[test]
fn any_groups_on_the_interpreter() {
    any_groups(DeviceChoice::Simt, 1_000..1_050);
}

#[test]
fn any_groups_on_a_gpu() {
    gpu().into_iter().for_each(|device| any_groups(device, 2_000..2_025));
}
