//! Texts that the lanes of a warp hash and compare together as keys of groups and joins are the keys that each lane finds by itself: of all
//! lengths, equal, different in the last byte or in length, with common beginnings, NULL, beside other keys, in warps of several widths; and
//! lanes share the words of a long one.

use crate::common::*;
use crate::plans::{aggregate, filter, join, set_operation, union};

use AggregateFunction::{Count, Max, Sum};

/// A text of so many bytes, some of which are of a character of two.
fn base(number: usize, bytes: usize) -> String {
    let mut text = String::new();
    for place in 0.. {
        match (number + place) % 9 {
            4 if text.len() + 2 <= bytes => text.push('é'),
            other if text.len() < bytes => text.push(char::from(b'a' + (place * 7 + other) as u8 % 26)),
            _ => break,
        }
    }
    text
}

/// Texts of which six are nearly the same.
fn text(number: usize) -> String {
    let lengths = [0, 1, 5, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 255, 256, 257, 300];
    let text = base(number / 6, lengths[number / 6 % lengths.len()]);
    let without_last =
        |text: &str| text.chars().take(text.chars().count().saturating_sub(1)).collect::<String>();
    match number % 6 {
        0 => text,
        1 => format!("{}~", without_last(&text)),
        2 => format!("{text}x"),
        3 => format!("{text}\0"),
        4 => format!("~{}", text.chars().skip(1).collect::<String>()),
        _ => without_last(&text),
    }
}

/// `a`, `b`: texts; `n`: `0..rows`; `d`: few texts; `k`: few numbers.
fn table(rows: usize, text_of: &dyn Fn(usize) -> [Option<String>; 2]) -> Arc<dyn TableSource> {
    let own = |column: usize| (0..rows).map(move |row| text_of(row)[column].clone());
    let columns: Vec<ArrayRef> = vec![
        maybe_texts(own(0)),
        longs((0..rows).map(|row| row as i64)),
        maybe_texts(own(1)),
        texts((0..rows).map(|row| ["few", "texts"][row % 2])),
        longs((0..rows).map(|row| row as i64 % 3)),
    ];
    table_of(&COLUMNS, columns)
}

/// Two of three texts are others: that is too many for a dictionary.
fn mixed(rows: usize) -> Arc<dyn TableSource> {
    let id = |row: usize| row - usize::from(row % 3 == 2);
    table(rows, &|row| {
        let a = (row % 13 != 4).then(|| text(id(row)));
        let b = (row % 17 != 5).then(|| text(id(row) * 5 % 211));
        [a, b]
    })
}

const COLUMNS: [Column; 5] = [
    ("a", DataType::Utf8, true),
    ("n", DataType::Int64, false),
    ("b", DataType::Utf8, true),
    ("d", DataType::Utf8, false),
    ("k", DataType::Int64, false),
];

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

const SUMS: [(AggregateFunction, Option<usize>, bool); 3] =
    [(Count, None, false), (Sum, Some(1), false), (Max, Some(2), false)];

/// Groups by a text in capitals and a text.
fn by_capitals() -> Plan {
    let Plan::Aggregate { input, mut keys, aggregates, names } = aggregate(scan(0), &[0, 2], &SUMS[..2])
    else {
        panic!("no groups")
    };
    let kind = ExprKind::Function(Function::Upper, vec![keys[0].clone()]);
    keys[0] = Expr { kind, ..keys[0].clone() };
    Plan::Aggregate { input, keys, aggregates, names }
}

fn few(source: usize) -> Plan {
    filter(filter(scan(source), 1, CompareOp::Ge, 3), 4, CompareOp::Lt, 2)
}

/// Groups, each with a name.
fn groups() -> Vec<(String, Plan)> {
    let both = || union(vec![scan(0), scan(1)]);
    [
        ("groups by text", aggregate(scan(0), &[0], &SUMS)),
        ("groups by two texts", aggregate(few(0), &[0, 2], &SUMS)),
        ("groups by a text and others", aggregate(scan(0), &[3, 0, 4], &SUMS[..2])),
        ("distinct texts", aggregate(few(0), &[0], &[])),
        ("distinct rows", aggregate(scan(0), &[2, 0, 3], &[])),
        ("values that count once", aggregate(scan(0), &[0], &[(Count, Some(2), true), SUMS[1]])),
        ("groups of both tables", aggregate(both(), &[0], &SUMS)),
        ("groups by two texts of both tables", aggregate(both(), &[2, 0], &SUMS[..1])),
        ("groups of groups", aggregate(aggregate(scan(0), &[0, 2], &SUMS[..2]), &[1], &[SUMS[0]])),
        ("groups by capitals", by_capitals()),
    ]
    .map(|(name, plan)| (name.to_string(), plan))
    .into()
}

fn joins() -> Vec<(String, Plan)> {
    use JoinKind::*;
    let kinds = [Inner, ProbeOuter, FullOuter, BuildSemi, BuildAnti, ProbeSemi, ProbeAnti, ProbeMark];
    let mut plans = Vec::new();
    for kind in kinds {
        for (keys, residual) in
            [(&[(0, 0)][..], false), (&[(0, 0), (2, 2)], false), (&[(0, 2)], true), (&[(4, 4), (2, 0)], true)]
        {
            if residual && matches!(kind, ProbeOuter | FullOuter) {
                continue;
            }
            plans.push((format!("{kind:?} on {keys:?}"), join(kind, scan(1), few(0), keys, residual)));
        }
    }
    let both = || union(vec![few(1), scan(1)]);
    let of_both = join(Inner, both(), union(vec![scan(0), few(0)]), &[(0, 0)], false);
    plans.push(("a join of unions".into(), aggregate(of_both, &[3, 8], &[SUMS[0], (Sum, Some(6), false)])));
    let twice = join(Inner, scan(1), join(ProbeSemi, scan(1), few(0), &[(2, 2)], false), &[(0, 0)], false);
    plans.push(("groups behind joins".into(), aggregate(twice, &[0, 7], &SUMS[..2])));
    let distinct = |source| aggregate(scan(source), &[0, 3], &[]);
    for kind in [ProbeSemi, BuildAnti] {
        plans.push((format!("{kind:?} of sets"), set_operation(kind, distinct(0), distinct(1))));
    }
    plans
}

fn on(device: DeviceChoice, (lanes, blocks): (u32, u32), variants: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { device, ..in_blocks(lanes, blocks, variants) }
}

fn has(output: &QueryOutput, value: &str) -> bool {
    crate::common::has(output, ("key_text_lanes", value))
}

/// What else is chosen, other values for each number.
fn others(number: usize) -> Vec<(&'static str, &'static str)> {
    vec![
        ("lane_refill", ["off", "last", "all"][number % 3]),
        ("refill_threshold", ["28", "8", "32", "16"][number % 4]),
        ("expansion", ["packed", "lane", "refill", "warp"][number % 4]),
        ("live_columns", ["places", "values"][number % 2]),
        ("index_rows", ["buckets", "chains"][number % 2]),
        ("hash_function", ["murmur3", "fnv1a", "multiply_shift"][number % 3]),
        ("text_join", "texts"),
        ("block_threads", ["32", "64", "8", "256"][number / 2 % 4]),
        ("distinct_values", ["set", "groups"][number / 2 % 2]),
        ("key_filter", ["off", "bloom"][number / 3 % 2]),
        ("hash_mapping", ["multiply_high", "modulo"][number / 3 % 2]),
        ("slot_layout", ["apart", "beside"][number / 2 % 2]),
        ("group_estimate", ["none", "sketch"][number % 2]),
        ("local_preaggregation", ["0", "256"][number / 2 % 2]),
        ("preaggregation_search", ["slot", "key"][number / 4 % 2]),
        ("segments", ["off", "warp", "block"][number / 5 % 3]),
        ("run_accumulator", ["off", "on"][number / 3 % 2]),
        // Rows that come in parts are in loops of their own, and are hashed alike.
        ("group_parts", ["1", "1", "4"][number / 4 % 3]),
        ("join_parts", ["1", "1", "16"][number / 3 % 3]),
    ]
}

/// Runs plans in every way of looking at texts, and counts the runs in which lanes do it together.
fn compare(
    name: &str,
    plans: &[(String, Plan)],
    sources: &[Arc<dyn TableSource>],
    is_thorough: bool,
) -> usize {
    let mut cases = Vec::new();
    for plan in 0..plans.len() {
        for (index, lanes) in [4, 8, 32, 3].into_iter().enumerate() {
            for (turn, texts) in ["warp", "lane"].into_iter().enumerate() {
                let number = plan + index + turn;
                if !is_thorough && !number.is_multiple_of(3) || texts == "lane" && index > 0 {
                    continue;
                }
                let variants = [vec![("key_text_lanes", texts)], others(number)].concat();
                let mut options = on(DeviceChoice::Simt, (lanes, 1 + number as u32 % 2), &variants);
                if number % 5 == 4 {
                    options.micro_model = MicroModel::ALL[number / 5 % MicroModel::ALL.len()];
                }
                cases.push((plan, texts, options));
            }
        }
    }
    // Joins of a kind differ in their keys.
    let kind = |plan: &usize| plans[*plan].0.split(" on [").next();
    let cases =
        covering(name, cases, 50, |(plan, texts, options)| facets_and(options, &[&kind(plan), texts]));
    let (engine, mut together, mut expected) = (Engine::new(), 0, HashMap::new());
    for (number, texts, options) in cases {
        let (name, plan) = &plans[number];
        let expected = expected.entry(number).or_insert_with(|| rows(&engine, plan, sources, cpu()));
        let output = run(&engine, plan, sources, &options);
        together += usize::from(texts != "lane" && has(&output, texts));
        assert_eq!(rows_of(&output.batch, false), *expected, "{name}: {options:?}");
    }
    together
}

#[test]
fn groups_are_those_that_each_lane_finds() {
    let together = compare("groups", &groups(), &[300, 60].map(mixed), true);
    assert!(together >= floor(8 * 4), "{together}");
}

#[test]
fn matches_are_those_that_each_lane_finds() {
    let together = compare("joins", &joins(), &[200, 60].map(mixed), true);
    assert!(together >= floor(20 * 4), "{together}");
}

#[test]
fn tables_of_few_rows() {
    for sizes in [[0, 5], [1, 1], [33, 0]] {
        compare(&format!("groups of {sizes:?} rows"), &groups(), &sizes.map(mixed), false);
        compare(&format!("joins of {sizes:?} rows"), &joins(), &sizes.map(mixed), false);
    }
}

/// All lanes look for one key; keys that are all NULL, or empty.
#[test]
fn one_text_alone() {
    for only in [Some(base(1, 200)), Some("12345678".into()), Some(String::new()), None] {
        let one = |rows| table(rows, &|_| [only.clone(), only.clone()]);
        let mut plans = [groups(), joins()].concat();
        plans.retain(|(name, _)| name.contains("both") || name.contains("union"));
        let together = compare(&format!("{only:?} alone"), &plans, &[one(70), one(9)], true);
        assert!(together >= floor(1), "{only:?}");
    }
}

/// A GPU's lanes may come apart where the interpreter's do not.
#[test]
fn a_gpu_finds_the_same_keys() {
    let Some(device) = gpu() else { return };
    let engine = Engine::new();
    let sources = [3000, 600].map(mixed);
    for (number, (name, plan)) in [groups(), joins()].concat().into_iter().enumerate() {
        let expected = rows(&engine, &plan, &sources, cpu());
        for (turn, texts) in ["warp", "lane"].into_iter().enumerate() {
            let variants = [vec![("key_text_lanes", texts)], others(number + turn)].concat();
            let output = run(&engine, &plan, &sources, on(device, (32, 1 + turn as u32), &variants));
            assert_eq!(rows_of(&output.batch, false), expected, "{name}: {variants:?}");
        }
    }
}

/// Each lane has its own texts by rule, and it is said why; a CPU's worker is not asked.
#[test]
fn lanes_look_at_their_own_texts_by_rule() {
    let engine = Engine::new();
    let sources = [mixed(300), mixed(60)];
    let (_, plan) = groups().swap_remove(0);
    let output = run(&engine, &plan, &sources, on(DeviceChoice::Simt, (32, 1), &[]));
    let choice =
        output.metrics.choices().find(|choice| choice.axis.name == "key_text_lanes").expect("a choice");
    assert_eq!(choice.value, "lane");
    assert!(choice.reason.contains("not measured"), "{}", choice.reason);
    for output in [
        run(&engine, &plan, &sources, forcing(&cpu(), &[("key_text_lanes", "warp")])),
        run(&engine, aggregate(scan(0), &[3, 4], &SUMS), &sources, on(DeviceChoice::Simt, (32, 1), &[])),
    ] {
        assert!(output.metrics.choices().all(|choice| choice.axis.name != "key_text_lanes"));
    }
}

/// Lanes with a word of 32, over all turns of the loops of a name.
fn lanes_in(output: &QueryOutput, step: &str) -> f64 {
    let lanes = output.metrics.pipelines.iter().flat_map(|pipeline| &pipeline.lanes);
    let (mut rows, mut warps) = (0, 0);
    for lanes in lanes.filter(|lanes| lanes.step == step) {
        (rows, warps) = (rows + lanes.rows(), warps + lanes.warps());
    }
    rows as f64 / warps.max(1) as f64
}

/// Lanes of 32 that hash and that compare the words of texts of so many bytes, where a warp shares them: of groups by them, and of a join of
/// all of them.
fn check_lanes(bytes: &dyn Fn(usize) -> usize, least: f64) {
    let rows = 3000;
    let own = |row: usize| Some(format!("{row:04}{}", base(row, bytes(row).max(4) - 4)));
    let sources = [table(rows, &|row| [own(row), None]), table(rows, &|row| [own(row), None])];
    let joined = join(JoinKind::Inner, scan(1), scan(0), &[(0, 0)], false);
    for (name, plan) in
        [("groups", aggregate(scan(0), &[0], &[SUMS[0]])), ("a join", aggregate(joined, &[], &[SUMS[0]]))]
    {
        let variants = [
            ("key_text_lanes", "warp"),
            ("row_loop", "single"),
            ("block_threads", "32"),
            ("group_parts", "1"),
            ("key_filter", "off"),
        ];
        let output = run(&Engine::new(), &plan, &sources, on(DeviceChoice::Simt, (32, 1), &variants));
        assert!(has(&output, "warp"), "{name}");
        let [hashing, comparing] = ["hashing keys", "comparing keys"].map(|step| lanes_in(&output, step));
        println!("{name}: {hashing:.1} of 32 lanes hash, {comparing:.1} compare");
        assert!(hashing >= least, "{name}: {hashing}");
        assert!(name == "groups" || comparing >= least, "{name}: {comparing}");
    }
}

/// Texts of 5 to 200 bytes, as many of each length; then one of sixteen has 400 to 2,000 bytes, the others up to 75.
#[test]
fn lanes_share_the_words_of_texts() {
    check_lanes(&|row| 5 + row * 7919 % 196, 8.0);
    let skewed = |row: usize| match row * 7919 % 16 {
        3 => 400 + row * 31 % 1600,
        other => other * 5,
    };
    check_lanes(&skewed, 8.0);
}
