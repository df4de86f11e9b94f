//! What a hash table has of keys that are texts without a dictionary: where they are, their first bytes beside that, or short ones
//! themselves. In each form the groups are those of a plain evaluation, whatever the texts are, and what reads the groups' keys
//! later finds the same texts.

use crate::common::*;
use crate::plans::{aggregate, filter, join, sort, union};

use AggregateFunction::{Count, Max, Min, Sum};

const FORMS: [&str; 3] = ["reference", "prefix", "inline"];
const LENGTHS: [usize; 12] = [0, 1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 1000];
const DEVICES: [(DeviceChoice, u32); 4] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32), (DeviceChoice::Simt, 3)];

/// Texts of all lengths: some differ in their last bytes alone, or in the first, or in those that another form does not look at; some in
/// the number of zeros at their end.
fn text(number: usize) -> String {
    let length = LENGTHS[number % LENGTHS.len()];
    let (kind, number) = (number / LENGTHS.len() % 6, number / LENGTHS.len() / 6);
    let digits: String = format!("{number:x}").chars().rev().collect();
    let fill = |text: &str, with: char| {
        let mut text = text.to_string();
        while text.len() + with.len_utf8() <= length {
            text.push(with);
        }
        while text.len() < length {
            text.push('.');
        }
        text
    };
    let text = match kind {
        0 => {
            let before = "p".repeat(length.saturating_sub(digits.len()));
            format!("{before}{digits}")
        }
        1 => fill(&digits, 'p'),
        2 => fill(&digits, '\0'),
        3 => fill(&format!("é{digits}"), 'é'),
        4 => fill(&format!("12345678{digits}"), '9'),
        _ => fill(&format!("1234{digits}"), '9'),
    };
    // Digits that are too many are cut off.
    let end = (0..=length.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_string()
}

/// `a`, `b`: texts, most of which are others; `n`: `0..rows`; `d`: few texts; `k`: few numbers.
fn table(rows: usize) -> Arc<Table> {
    let id = |row: usize| row - usize::from(row % 6 == 5);
    let a = (0..rows).map(|row| (row % 13 != 4).then(|| text(id(row))));
    let b = (0..rows).map(|row| text(id(row) * 5 + 1));
    let columns: Vec<ArrayRef> = vec![
        maybe_texts(a),
        longs((0..rows).map(|row| row as i64)),
        texts(b),
        texts((0..rows).map(|row| ["few", "texts"][row % 2])),
        maybe_longs((0..rows).map(|row| (row % 5 > 0).then_some(row as i64 % 3))),
    ];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 5] = [
    ("a", DataType::Utf8, true),
    ("n", DataType::Int64, false),
    ("b", DataType::Utf8, false),
    ("d", DataType::Utf8, false),
    ("k", DataType::Int64, true),
];

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

/// Groups with the count and the sum of `n`, and the number of different texts `b`, by a plain evaluation.
fn expected(batch: &RecordBatch, keys: &[usize], distinct: bool) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<Vec<String>, (usize, usize, BTreeSet<String>)> = BTreeMap::new();
    for row in 0..batch.num_rows() {
        let key = keys.iter().map(|key| cell(batch.column(*key), row)).collect();
        let (count, sum, texts) = groups.entry(key).or_default();
        (*count, *sum) = (*count + 1, *sum + row);
        texts.insert(cell(batch.column(2), row));
    }
    let rows = groups.into_iter().map(|(mut key, (count, sum, texts))| {
        key.extend([count.to_string(), sum.to_string()]);
        key.extend(distinct.then(|| texts.len().to_string()));
        key
    });
    rows.collect()
}

fn cells_of(batch: &RecordBatch) -> Vec<Vec<String>> {
    let mut rows = crate::common::cells_of(batch);
    rows.sort_unstable();
    rows
}

const WAYS: [&[(&str, &str)]; 8] = [
    &[],
    &[("near_groups", "256"), ("batch_rows", "0")],
    &[("batch_rows", "64"), ("near_groups", "0")],
    &[("segments", "warp"), ("key_text_lanes", "packed")],
    &[("last_group", "majority"), ("slot_fill", "75"), ("key_text_lanes", "warp")],
    &[("group_parts", "16")],
    &[("hash_function", "fnv1a"), ("hash_mapping", "modulo"), ("batch_rows", "256")],
    &[("key_text_lanes", "packed"), ("group_parts", "4"), ("group_estimate", "sketch")],
];

#[test]
fn groups_by_texts() {
    let table = table(500);
    let sources = [Arc::clone(&table) as Arc<dyn TableSource>];
    let engine = Engine::new();
    let keys: [&[usize]; 7] = [&[0], &[2], &[0, 2], &[0, 4], &[4, 2, 3], &[3, 0, 2], &[2, 1]];
    let mut cases = Vec::new();
    for number in 0..keys.len() {
        for (turn, way) in WAYS.into_iter().enumerate() {
            for form in FORMS {
                let layout = ["apart", "beside"][(number + turn / 2) % 2];
                let device = DEVICES[(number + turn) % DEVICES.len()];
                let set = ["set", "groups"][(number / 2 + turn) % 2];
                let forced = [
                    ("group_table", "hash"),
                    ("text_form", form),
                    ("slot_layout", layout),
                    ("distinct_values", set),
                    ("dependent_keys", "compared"),
                ];
                let forced: Vec<_> = forced.into_iter().chain(way.iter().copied()).collect();
                let micro_model = MicroModel::ALL[(number + turn) % MicroModel::ALL.len()];
                cases.push((number, form, QueryOptions { micro_model, ..on_lanes(device, &forced) }));
            }
        }
    }
    // Each set of keys in each form.
    let cases = covering("groups by texts", cases, 40, |(number, form, options)| {
        facets_and(options, &[&(number, form), &(form, options.device)])
    });
    for (number, form, options) in cases {
        let (keys, distinct) = (keys[number], number % 2 == 0);
        let aggregates = [(Count, None, false), (Sum, Some(1), false), (Count, Some(2), true)];
        let plan = aggregate(scan(0), keys, &aggregates[..if distinct { 3 } else { 2 }]);
        let output = run(&engine, &plan, &sources, &options);
        assert!(cells_of(&output.batch) == expected(&table.0[0], keys, distinct), "{keys:?} {options:?}");
        let chosen = chosen(&output, "text_form");
        assert!(!chosen.is_empty() && chosen.iter().all(|own| *own == form), "{chosen:?}");
    }
}

fn by_capitals(keys: &[usize]) -> Plan {
    let Plan::Aggregate { input, mut keys, aggregates, names } =
        aggregate(scan(0), keys, &[(Count, None, false), (Sum, Some(1), false)])
    else {
        panic!("no groups")
    };
    let kind = ExprKind::Function(Function::Upper, vec![keys[0].clone()]);
    keys[0] = Expr { kind, ..keys[0].clone() };
    Plan::Aggregate { input, keys, aggregates, names }
}

/// What reads the keys of groups after they are made, or computes them before, and whether the order counts.
fn readers() -> Vec<(String, Plan, bool)> {
    let (count, sum) = ((Count, None, false), (Sum, Some(1), false));
    let few = |source| filter(scan(source), 1, CompareOp::Lt, 80);
    let groups = |source, keys: &[usize]| aggregate(scan(source), keys, &[count, sum]);
    let distinct = |source| aggregate(scan(source), &[0], &[]);
    let plans = vec![
        ("distinct texts", distinct(0), false),
        ("groups of groups", aggregate(groups(0, &[0, 2]), &[1], &[count, (Min, Some(0), false)]), false),
        (
            "extremes of groups",
            aggregate(groups(0, &[2]), &[], &[(Min, Some(0), false), (Max, Some(0), false), count]),
            false,
        ),
        ("sorted groups", sort(groups(0, &[0, 2]), &[0, 1], None), true),
        ("first groups", sort(groups(0, &[2]), &[0], Some(40)), true),
        (
            "groups that are looked for",
            join(JoinKind::Inner, groups(0, &[0]), few(1), &[(0, 0)], false),
            false,
        ),
        ("groups that look", join(JoinKind::ProbeOuter, few(1), groups(0, &[0]), &[(0, 0)], false), false),
        (
            "groups behind groups that are looked for",
            aggregate(
                join(JoinKind::Inner, groups(0, &[0]), scan(1), &[(0, 0)], false),
                &[0, 5],
                &[count, (Sum, Some(2), false)],
            ),
            false,
        ),
        ("both tables' groups", aggregate(union(vec![distinct(0), distinct(1)]), &[0], &[count]), false),
        ("capitals", by_capitals(&[0, 3]), false),
        ("capitals beside a text", by_capitals(&[2, 0]), false),
        ("groups of capitals", aggregate(by_capitals(&[0, 2]), &[0], &[count, (Max, Some(1), false)]), false),
    ];
    plans.into_iter().map(|(name, plan, ordered)| (name.to_string(), plan, ordered)).collect()
}

/// Joins of all kinds by texts.
fn joins() -> Vec<(String, Plan, bool)> {
    use JoinKind::*;
    let few = |source| filter(scan(source), 1, CompareOp::Ge, 3);
    let mut plans = Vec::new();
    for kind in
        [Inner, ProbeOuter, BuildOuter, FullOuter, BuildSemi, BuildAnti, ProbeSemi, ProbeAnti, ProbeMark]
    {
        for keys in [&[(0, 0)][..], &[(0, 2), (2, 0)], &[(4, 4), (2, 2)]] {
            plans.push((format!("{kind:?} on {keys:?}"), join(kind, scan(0), few(1), keys, false), false));
        }
    }
    let found = join(Inner, scan(0), few(1), &[(0, 0)], false);
    let sums = [(Count, None, false), (Sum, Some(1), false), (Max, Some(0), false)];
    plans.push(("groups behind a join".into(), aggregate(found.clone(), &[0, 7], &sums), false));
    plans.push(("sorted matches".into(), sort(found.clone(), &[0, 1, 6], Some(50)), true));
    plans.push(("matches of matches".into(), join(Inner, found, scan(1), &[(0, 0)], false), false));
    plans
}

/// Compares what is read with texts that stay where they are; how often another form was taken.
fn compare(plans: &[(String, Plan, bool)], rows: [usize; 2], lanes: &[(DeviceChoice, u32)]) -> usize {
    let mut cases = Vec::new();
    for plan in 0..plans.len() {
        for (turn, device) in lanes.iter().copied().enumerate() {
            for form in FORMS {
                let number = plan + turn;
                let forced = [
                    ("group_table", "hash"),
                    ("text_form", form),
                    ("slot_layout", ["apart", "beside"][number % 2]),
                    ("text_join", "texts"),
                    ("index_rows", ["buckets", "chains"][number % 2]),
                    ("bucket_entries", ["numbers", "rows"][number / 2 % 2]),
                    ("join_parts", ["1", "16"][number / 3 % 2]),
                    ("key_filter", ["off", "bloom"][number / 2 % 2]),
                    ("key_text_lanes", ["lane", "packed", "warp"][number % 3]),
                    ("group_parts", ["1", "4"][number % 2]),
                    ("carried", ["values", "places"][number / 2 % 2]),
                    ("lane_refill", ["off", "all"][number / 2 % 2]),
                    ("batch_rows", ["64", "0"][number / 2 % 2]),
                ];
                cases.push((plan, form, on_lanes(device, &forced)));
            }
        }
    }
    // Joins of a kind differ in their keys.
    let kind = |plan: &usize| plans[*plan].0.split(" on [").next();
    let cases = covering(&format!("{} of {rows:?} rows", plans[0].0), cases, 24, |(plan, form, options)| {
        facets_and(options, &[&kind(plan), form])
    });
    let sources = rows.map(|rows| table(rows) as Arc<dyn TableSource>);
    let (engine, mut others) = (Engine::new(), 0);
    for (number, form, options) in cases {
        let (name, plan, ordered) = &plans[number];
        let by_reference =
            on_lanes((DeviceChoice::Cpu, 1), &[("text_form", "reference"), ("group_table", "hash")]);
        let expected = rows_of(&run(&engine, plan, &sources, &by_reference).batch, *ordered);
        let output = run(&engine, plan, &sources, &options);
        assert!(rows_of(&output.batch, *ordered) == expected, "{name}: {options:?}");
        let chosen = chosen(&output, "text_form");
        assert!(chosen.iter().all(|own| *own == form), "{name}: {chosen:?}");
        others += usize::from(form != "reference" && !chosen.is_empty());
    }
    others
}

#[test]
fn texts_of_groups_are_read_later() {
    // All plans, in two forms.
    let compared = compare(&readers(), [400, 90], &DEVICES[..3]);
    assert_eq!(compared, if is_whole() { readers().len() * 3 * 2 } else { compared.max(1) });
}

#[test]
fn rows_are_found_by_texts() {
    let compared = compare(&joins(), [240, 90], &DEVICES[..2]);
    assert!(compared >= if is_whole() { joins().len() * 2 * 2 } else { 1 }, "{compared}");
}

#[test]
fn texts_of_few_groups() {
    for rows in [[0, 3], [1, 1], [40, 0]] {
        compare(&readers(), rows, &DEVICES[..2]);
        compare(&joins(), rows, &DEVICES[1..2]);
    }
}

/// Tables that are too small are filled anew, and texts of what was before are nowhere.
#[test]
fn tables_grow() {
    let table = table(40_000);
    let sources = [Arc::clone(&table) as Arc<dyn TableSource>];
    let plan = aggregate(scan(0), &[0, 2], &[(Count, None, false), (Sum, Some(1), false)]);
    let expected = expected(&table.0[0], &[0, 2], false);
    for form in FORMS {
        for layout in ["apart", "beside"] {
            let forced = [("text_form", form), ("slot_layout", layout), ("group_estimate", "none")];
            let output = run(&Engine::new(), &plan, &sources, on_lanes(DEVICES[0], &forced));
            assert!(cells_of(&output.batch) == expected, "{form} {layout}");
        }
    }
}

/// Where the rule has nothing to tell texts' lengths by, they stay where they are; and tables without such keys are not asked.
#[test]
fn texts_stay_where_they_are_by_rule() {
    let sources = [table(300) as Arc<dyn TableSource>];
    for device in DEVICES {
        let of = |keys: &[usize]| -> QueryOutput {
            let plan = aggregate(scan(0), keys, &[(Count, None, false)]);
            run(&Engine::new(), &plan, &sources, on_lanes(device, &[("group_table", "hash")]))
        };
        assert_eq!(chosen(&of(&[0, 4]), "text_form"), ["reference"]);
        assert!(chosen(&of(&[3, 4]), "text_form").is_empty());
    }
}

const ALONE: [Column; 1] = [("t", DataType::Utf8, false)];

/// So many texts of so many bytes, each of them so often, as the only column.
fn repeated(bytes: usize, (others, each): (usize, usize)) -> Arc<Table> {
    let name = |row: usize| {
        let digits: String = format!("{:08x}", row * 7 % others).chars().rev().collect();
        digits.chars().cycle().take(bytes).collect::<String>()
    };
    table_of(&ALONE, vec![texts((0..others * each).map(name))])
}

/// What a form is worth depends on how long texts are: those that are in a table cost no look at what is referred to, and longer ones cost
/// what is looked at before.
#[test]
fn short_texts_cost_no_look_at_what_is_referred_to() {
    let found = join(JoinKind::Inner, scan_of(0, &ALONE), scan_of(1, &ALONE), &[(0, 0)], false);
    let plan = aggregate(found, &[], &[(Count, None, false)]);
    for device in &DEVICES[..2] {
        for (bytes, fewer) in [(8, [true, true]), (12, [false, true]), (24, [false, false])] {
            let sources = [repeated(bytes, (500, 1)), repeated(bytes, (500, 16))];
            let read = FORMS.map(|form| {
                let forced =
                    [("text_form", form), ("text_join", "texts"), ("key_filter", "off"), ("join_parts", "1")];
                let options = QueryOptions { meter: true, ..on_lanes(*device, &forced) };
                let output = run(&Engine::new(), &plan, &sources, &options);
                assert_eq!(rows_of(&output.batch, false), ["8000"]);
                assert_eq!(chosen(&output, "text_form"), [form]);
                output.metrics.traffic.expect("counts").device().read
            });

            let [reference, others @ ..] = read;
            assert_eq!(others.map(|other| other < reference), fewer, "{device:?}, {bytes} bytes: {read:?}");
        }
    }
}
