//! Joins on texts that have dictionaries, by the texts and by their codes: every kind against a nested loop, with NULLs, texts of one
//! side alone, dictionaries of a few entries and of more than a byte tells apart, several keys, a table joined with itself.

use crate::common::*;

/// Two texts and a number.
type Row = (Option<String>, Option<String>, i32);

const FORCED: [&str; 2] = ["texts", "codes"];

fn table(rows: &[Row]) -> Arc<dyn TableSource> {
    let columns: Vec<ArrayRef> = vec![
        maybe_texts(rows.iter().map(|row| row.0.clone())),
        maybe_texts(rows.iter().map(|row| row.1.clone())),
        ints(rows.iter().map(|row| row.2)),
    ];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 3] =
    [("a", DataType::Utf8, true), ("b", DataType::Utf8, true), ("v", DataType::Int32, false)];

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn column(index: usize) -> Expr {
    let (_, data_type, nullable) = COLUMNS[index % COLUMNS.len()].clone();
    Expr::column(index, data_type, nullable)
}

/// What rows have in common.
#[derive(Debug, Clone, Copy, Default)]
struct Condition {
    keys: &'static [usize],
    /// `build.v < probe.v`.
    residual: bool,
    null_equal: bool,
    null_aware: bool,
}

fn join(kind: JoinKind, (build, probe): (Plan, Plan), condition: Condition) -> Plan {
    let keys = condition.keys.iter().map(|key| (column(*key), column(*key))).collect();
    let residual = condition.residual.then(|| compare(CompareOp::Lt, column(2), column(5)));
    let Condition { null_equal, null_aware, .. } = condition;
    Plan::Join(Box::new(Join { residual, null_equal, null_aware, ..join_of(kind, build, probe, keys) }))
}

/// The rows that a nested loop gives, as text, sorted.
fn expected(kind: JoinKind, condition: Condition, build: &[Row], probe: &[Row]) -> Vec<String> {
    use JoinKind::*;
    let equal = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (None, None) => condition.null_equal,
        (a, b) => a == b,
    };
    let hit = |b: &Row, p: &Row| {
        let has_key = |key: &usize| match key {
            0 => equal(&b.0, &p.0),
            1 => equal(&b.1, &p.1),
            _ => b.2 == p.2,
        };
        condition.keys.iter().all(has_key) && (!condition.residual || b.2 < p.2)
    };
    let show = |row: Option<&Row>| match row {
        Some((a, b, v)) => {
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
            format!("{}|{}|{v}", text(a), text(b))
        }
        None => "-|-|-".into(),
    };
    let mut out = Vec::new();
    for b in build {
        let matches: Vec<&Row> = probe.iter().filter(|p| hit(b, p)).collect();
        let (own, matched) = (show(Some(b)), !matches.is_empty());
        match kind {
            Inner | ProbeOuter => {}
            BuildOuter | FullOuter if !matched => out.push(format!("{own}|{}", show(None))),
            BuildSemi if matched => out.push(own.clone()),
            BuildAnti if !matched && !condition.null_aware => out.push(own.clone()),
            BuildAnti if !matched => {
                let nulls = probe.iter().any(|p| p.0.is_none());
                if !nulls && (b.0.is_some() || probe.is_empty()) {
                    out.push(own.clone());
                }
            }
            BuildMark => out.push(format!("{own}|{matched}")),
            _ => {}
        }
        if let Inner | BuildOuter | ProbeOuter | FullOuter = kind {
            out.extend(matches.iter().map(|p| format!("{own}|{}", show(Some(p)))));
        }
    }
    for p in probe {
        let matched = build.iter().any(|b| hit(b, p));
        match kind {
            ProbeOuter | FullOuter if !matched => out.push(format!("{}|{}", show(None), show(Some(p)))),
            ProbeSemi if matched => out.push(show(Some(p))),
            ProbeAnti if !matched => out.push(show(Some(p))),
            ProbeMark => out.push(format!("{}|{matched}", show(Some(p)))),
            _ => {}
        }
    }
    out.sort();
    out
}

fn options(device: DeviceChoice, value: &str) -> QueryOptions {
    QueryOptions { micro_model: MicroModel::Resolution, ..on(device, &[("text_join", value)]) }
}

/// What joins compared texts as, and why.
fn chosen(output: &QueryOutput) -> Vec<(&'static str, String)> {
    let choices = output.metrics.choices().filter(|choice| choice.axis.name == "text_join");
    choices.map(|choice| (choice.value, choice.reason.clone())).collect()
}

/// Rows whose first text is one of `values` from `first` on, or NULL, and whose second is one of five.
fn rows(count: usize, (first, values): (usize, usize), nulls: bool) -> Vec<Row> {
    let row = |index: usize| {
        let number = first + index * 7 % values.max(1);
        let text = match number % 4 {
            0 => format!("{number}"),
            1 => format!("ключ {number} and a tail of more than a word"),
            2 => format!("é{number}"),
            _ => "z".repeat(number % 40),
        };
        let second = ["", "x", "xy", "日本", "xyz and more"][index % 5].to_string();
        let is_null = |of: usize| nulls && (index + of).is_multiple_of(6);
        (Some(text).filter(|_| !is_null(0)), Some(second).filter(|_| !is_null(3)), (index % 9) as i32)
    };
    (0..count).map(row).collect()
}

/// Rows of which each has a first text of its own, or NULL.
fn unique(count: usize, nulls: bool) -> Vec<Row> {
    let all = rows(count, (0, count), nulls);
    let row = |(index, (a, b, v)): (usize, Row)| {
        (a.map(|a| if index % 3 == 2 { format!("{a} {index}") } else { a }), b, v)
    };
    all.into_iter().enumerate().map(row).collect()
}

#[test]
fn every_kind_equals_a_nested_loop_by_texts_and_by_codes() {
    let engine = Engine::new();
    let sides: Vec<(Vec<Row>, Vec<Row>)> = vec![
        (rows(30, (0, 9), true), rows(40, (3, 11), true)),
        (rows(24, (3, 12), false), rows(40, (0, 5), false)),
        // No text in common.
        (rows(20, (0, 8), true), rows(20, (100, 8), false)),
        // One entry; nothing but NULLs; no rows.
        (rows(12, (2, 1), false), rows(30, (0, 6), true)),
        (rows(30, (0, 6), true), rows(12, (2, 1), false)),
        ((0..8).map(|v| (None, None, v)).collect(), rows(20, (0, 8), true)),
        (rows(20, (0, 8), true), (0..8).map(|v| (None, None, v)).collect()),
        (Vec::new(), rows(20, (0, 8), true)),
        (rows(20, (0, 8), true), Vec::new()),
        // Unique texts, which have no dictionary, of a build side.
        (unique(25, true), rows(40, (3, 11), true)),
        (unique(9, false), rows(20, (0, 5), false)),
        (unique(1, false), rows(12, (0, 1), true)),
        // Several rows of each of many texts, of which most are the build side's alone.
        ([unique(25, true), unique(21, true)].concat(), rows(60, (0, 11), true)),
    ];
    let (mut turn, mut cases) = (0, Vec::new());
    for side in 0..sides.len() {
        for keys in [&[0][..], &[0, 1], &[2, 0]] {
            for (residual, null_equal) in [(false, false), (true, false), (false, true)] {
                let condition = Condition { keys, residual, null_equal, null_aware: false };
                for kind in JoinKind::ALL {
                    turn += 1;
                    // A GPU compiles each kernel for a while.
                    let devices = devices()
                        .into_iter()
                        .filter(|device| *device != DeviceChoice::Cuda || turn % 37 == 0);
                    let ways = devices.flat_map(|device| FORCED.map(|value| (device, value)));
                    cases.extend(ways.map(|way| (side, condition, kind, way)));
                }
            }
        }
    }
    // Each kind of each pair of sides, by texts and by codes.
    let cases = covering("joins by texts", cases, 150, |(side, condition, kind, way)| {
        [format!("{side} {kind:?}"), format!("{condition:?} {way:?}"), format!("{kind:?} {way:?}")].into()
    });
    for (side, condition, kind, (device, value)) in cases {
        let (build, probe) = &sides[side];
        let plan = join(kind, (scan(0), scan(1)), condition);
        let output = run(&engine, &plan, &[table(build), table(probe)], options(device, value));
        let what = format!("{kind:?} {condition:?} {device:?} {value} {:?}", (build.len(), probe.len()));
        assert_eq!(rows_of(&output.batch, false), expected(kind, condition, build, probe), "{what}");
        assert_eq!(chosen(&output), [(value, "forced".into())], "{what}");
    }
}

/// Codes of one and of two bytes, on either side, and 65,536 entries on a CPU.
#[test]
fn dictionaries_of_many_entries() {
    let engine = Engine::new();
    let text = |number: usize| Some(format!("text {:x} é {number}", number.wrapping_mul(0x9E37_79B9) % 9973));
    let side = |count: usize, values: usize, step: usize| -> Vec<Row> {
        (0..count).map(|row| (text(row % values * step), None, (row % 3) as i32)).collect()
    };
    let condition = Condition { keys: &[0], ..Condition::default() };
    for (build, probe) in [
        (side(700, 300, 1), side(40, 20, 7)),
        (side(40, 20, 7), side(700, 300, 1)),
        (side(650, 300, 2), side(640, 310, 3)),
        // Texts without a dictionary on the build side.
        (side(900, 900, 1), side(640, 310, 3)),
        // 255 and 256 entries: the number behind the last code fits a byte, and does not.
        (side(510, 255, 1), side(100, 40, 9)),
        (side(512, 256, 1), side(100, 40, 9)),
        (side(514, 257, 1), side(100, 40, 9)),
    ] {
        let sources = [table(&build), table(&probe)];
        for kind in [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildSemi, JoinKind::ProbeAnti] {
            let expected = expected(kind, condition, &build, &probe);
            let plan = join(kind, (scan(0), scan(1)), condition);
            for (device, value) in devices().into_iter().flat_map(|d| FORCED.map(|value| (d, value))) {
                let output = run(&engine, &plan, &sources, options(device, value));
                assert_eq!(rows_of(&output.batch, false), expected, "{kind:?} {device:?} {value}");
                assert_eq!(chosen(&output)[0].0, value);
            }
        }
    }
    // Each twice in a row: of as many in turn the first ones are taken for the beginning of too many.
    let large: Vec<Row> = (0..131_072).map(|row| (text(row / 2), None, (row % 3) as i32)).collect();
    let small = side(400, 200, 500);
    for (build, probe) in [(&large, &small), (&small, &large)] {
        let plan = join(JoinKind::Inner, (scan(0), scan(1)), condition);
        let sources = [table(build), table(probe)];
        let outputs = FORCED.map(|value| run(&engine, &plan, &sources, options(DeviceChoice::Cpu, value)));
        let [texts, codes] = outputs.map(|output| (rows_of(&output.batch, false), chosen(&output)[0].0));
        assert_eq!((texts.1, codes.1), ("texts", "codes"));
        assert!(!texts.0.is_empty());
        assert_eq!(texts.0, codes.0);
    }
}

#[test]
fn not_in_knows_nulls() {
    let engine = Engine::new();
    let condition = Condition { keys: &[0], null_aware: true, ..Condition::default() };
    let others = rows(16, (50, 4), false);
    for outer in [rows(20, (0, 6), false), rows(20, (0, 6), true), unique(20, false), unique(20, true)] {
        for inner in [rows(20, (2, 3), false), rows(20, (2, 3), true), others.clone(), Vec::new()] {
            let expected = expected(JoinKind::BuildAnti, condition, &outer, &inner);
            let plan = join(JoinKind::BuildAnti, (scan(0), scan(1)), condition);
            let sources = [table(&outer), table(&inner)];
            for (device, value) in devices().into_iter().flat_map(|d| FORCED.map(|value| (d, value))) {
                let output = run(&engine, &plan, &sources, options(device, value));
                assert_eq!(rows_of(&output.batch, false), expected, "{device:?} {value} {}", inner.len());
            }
        }
    }
}

/// The rule takes codes where the probe side has a dictionary and is not much smaller than what is looked up, and says why not elsewhere.
#[test]
fn the_choice_and_its_reason() {
    let engine = Engine::new();
    let few = rows(30, (0, 9), true);
    let own = |count: i32| -> Vec<Row> {
        (0..count).map(|index| (Some(format!("{index}")), None, index)).collect()
    };
    let (unique, more) = (own(30), own(200));
    // Forty entries, of which a search takes six steps.
    let some = rows(80, (0, 40), false);
    let condition = Condition { keys: &[0], ..Condition::default() };
    for (build, probe, value, reason) in [
        (&few, &few, "codes", "few texts on both sides are looked up once, not for each row"),
        (&unique, &few, "codes", "texts of the build side are looked up in the other's dictionary"),
        (
            &more,
            &some,
            "texts",
            "to look texts up in a dictionary takes longer than to compare those of so few rows",
        ),
        (&few, &unique, "texts", "texts of the probe side have no dictionary"),
        (&unique, &unique, "texts", "texts have no dictionaries"),
    ] {
        for device in devices() {
            let plan = join(JoinKind::Inner, (scan(0), scan(1)), condition);
            let options = options(device, "rule");
            let output = run(&engine, &plan, &[table(build), table(probe)], &options);
            assert_eq!(chosen(&output), [(value, reason.to_string())]);
            assert_eq!(rows_of(&output.batch, false), expected(JoinKind::Inner, condition, build, probe));
        }
    }
    // What is not possible everywhere is left to the rule; numbers leave no choice.
    let plan = join(JoinKind::Inner, (scan(0), scan(1)), condition);
    let output = run(&engine, &plan, &[table(&few), table(&unique)], options(DeviceChoice::Cpu, "codes"));
    let reason = "texts of the probe side have no dictionary; codes is not possible: texts of the probe side have \
                  no dictionary";
    assert_eq!(chosen(&output), [("texts", reason.to_string())]);
    let plan = join(JoinKind::Inner, (scan(0), scan(1)), Condition { keys: &[2], ..condition });
    let output = run(&engine, &plan, &[table(&few), table(&few)], options(DeviceChoice::Cpu, "rule"));
    assert_eq!(chosen(&output), []);
}

fn smaller(input: Plan, index: usize, limit: i128) -> Plan {
    keep(input, compare_with(CompareOp::Lt, column(index), limit))
}

/// The rows with their first text in capitals, which is computed.
fn capitals(input: Plan) -> Plan {
    values_of(input, vec![call(Function::Upper, vec![column(0)], DataType::Utf8), column(1), column(2)])
}

fn count(input: Plan) -> Plan {
    groups_of(input, Vec::new(), vec![of_longs(AggregateFunction::Count, None)])
}

/// Rows of a sort with a limit that leaves out none; where they stay on the device, they are codes of the table's dictionary.
fn first_rows(input: Plan, rows: usize) -> Plan {
    sorted(input, vec![sort_key(column(2), false, false)], Some(rows))
}

/// Filtered build sides, joins of joins, the rows of an inner sort, and a table with itself; again and again, as a stage that has run
/// before does not wait for its kernels.
#[test]
fn plans_around_the_join() {
    let engine = Engine::new();
    let (a, b) = (rows(300, (0, 40), true), rows(280, (20, 50), true));
    let condition = Condition { keys: &[0], ..Condition::default() };
    let filtered = || smaller(scan(0), 2, 3);
    let inner = |build: Plan, probe: Plan| join(JoinKind::Inner, (build, probe), condition);
    let semi = |build: Plan, probe: Plan| join(JoinKind::ProbeSemi, (build, probe), condition);
    let plans = [
        ("a filtered build side", count(inner(filtered(), scan(1)))),
        ("a semi join by a filtered side", semi(filtered(), scan(1))),
        ("a semi join of filtered rows", semi(filtered(), smaller(scan(1), 2, 6))),
        ("a join of a join", count(inner(filtered(), semi(smaller(scan(1), 2, 5), scan(1))))),
        (
            "outer rows join again",
            count(inner(filtered(), join(JoinKind::FullOuter, (scan(1), scan(0)), condition))),
        ),
        ("unique texts of a filtered build side", semi(smaller(scan(2), 2, 5), scan(1))),
        ("unique texts", count(inner(scan(2), scan(1)))),
        ("capitals of the build side", count(inner(capitals(scan(0)), scan(1)))),
        ("capitals without a dictionary", semi(capitals(scan(2)), scan(1))),
        ("a table with itself", count(inner(scan(0), scan(0)))),
        ("rows of an inner sort", count(inner(first_rows(scan(0), 1000), scan(1)))),
        ("rows of an inner sort look", semi(scan(0), first_rows(scan(1), 1000))),
    ];
    let sources = [table(&a), table(&b), table(&unique(70, true))];
    for (name, plan) in &plans {
        let mut all = Vec::new();
        for (device, value) in devices().into_iter().flat_map(|d| FORCED.map(|value| (d, value))) {
            for _ in 0..3 {
                let output = run(&engine, plan, &sources, options(device, value));
                assert!(
                    chosen(&output).iter().all(|(chosen, _)| *chosen == value),
                    "{name} {:?}",
                    chosen(&output)
                );
                all.push(rows_of(&output.batch, false));
            }
        }
        assert!(!all[0].is_empty(), "{name}");
        assert!(all.iter().all(|rows| *rows == all[0]), "{name} {all:?}");
    }
}

/// However data moves and whatever the micro model, and for sources that differ from run to run under one plan.
#[test]
fn other_models_and_other_data() {
    let engine = Engine::new();
    let condition = Condition { keys: &[0], ..Condition::default() };
    let mut sides: Vec<[Vec<Row>; 2]> =
        (0..3).map(|salt| [rows(90, (salt * 5, 12), true), rows(120, (salt, 20), true)]).collect();
    sides.push([unique(50, true), rows(120, (4, 20), true)]);
    let micro = [MicroModel::Resolution, MicroModel::OperatorAtATime, MicroModel::MultiPass];
    let moves = [MacroModel::RunToFinish, MacroModel::Batch, MacroModel::KernelAtATime];
    let mut cases = Vec::new();
    for kind in [JoinKind::Inner, JoinKind::ProbeAnti, JoinKind::BuildMark] {
        for side in 0..sides.len() {
            for (device, micro_model) in devices().into_iter().flat_map(|d| micro.map(|model| (d, model))) {
                for macro_model in moves {
                    let base = options(device, "codes");
                    let options = QueryOptions { micro_model, macro_model, block_bytes: Some(64), ..base };
                    cases.push((kind, side, options));
                }
            }
        }
    }
    // The sides under one plan and one way come one after the other.
    for (kind, side, options) in covering("other models and data", cases, 50, |(kind, side, options)| {
        facets_and(options, &[&(kind, side), &(options.device, options.micro_model, options.macro_model)])
    }) {
        let [build, probe] = &sides[side];
        let plan = join(kind, (scan(0), scan(1)), condition);
        let output = run(&engine, &plan, &[table(build), table(probe)], &options);
        assert_eq!(
            rows_of(&output.batch, false),
            expected(kind, condition, build, probe),
            "{kind:?} {options:?}"
        );
        assert_eq!(chosen(&output)[0].0, "codes");
    }
}
