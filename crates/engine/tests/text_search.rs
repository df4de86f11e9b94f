//! Texts that are searched batch by batch (`text_search = batches`) give the rows that a search of each text gives, and those of a plain
//! evaluation: where needles go over the ends of texts, stand at the ends of all texts, overlap, or are the first of several pieces;
//! in batches and morsels of any size, by several workers, beside other conditions.

use crate::common::*;
use crate::plans::{aggregate, join, like};

type Texts = Vec<Option<String>>;

const COLUMNS: [Column; 2] = [("n", DataType::Int64, false), ("a", DataType::Utf8, true)];

/// `n`: `0..rows`; `a`: the texts.
fn table(texts: &Texts) -> Arc<Table> {
    let texts_or_none = maybe_texts(texts.iter().map(Option::as_deref));
    table_of(&COLUMNS, vec![longs(0..texts.len() as i64), texts_or_none])
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn matching(pattern: &str, negated: bool) -> Plan {
    keep(scan(0), like(&scan(0), 1, pattern, negated))
}

fn number(op: CompareOp, value: i128) -> Expr {
    compare_with(op, column_of(&COLUMNS, 0), value)
}

/// LIKE for patterns of `%` and other bytes, in which a `%` stands.
fn is_like(text: &str, pattern: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('%').collect();
    let [start, between @ .., end] = &pieces[..] else { panic!("no % in {pattern}") };
    let Some(rest) = text.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)) else { return false };
    let mut rest = Some(rest);
    for piece in between {
        rest = rest.and_then(|rest| Some(&rest[rest.find(piece)? + piece.len()..]));
    }
    rest.is_some()
}

/// Whether texts are too different for a dictionary.
fn are_raw(texts: &Texts) -> bool {
    let entries: BTreeSet<&String> = texts.iter().flatten().collect();
    entries.len() > (texts.len() / 2).max(1)
}

fn expected(texts: &Texts, pattern: &str, negated: bool) -> Vec<i64> {
    let passes = |text: &Option<String>| text.as_ref().is_some_and(|text| is_like(text, pattern) != negated);
    (0..).zip(texts).filter(|(_, text)| passes(text)).map(|(row, _)| row).collect()
}

fn forced(pairs: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { threads: Some(1), ..on(DeviceChoice::Cpu, pairs) }
}

fn is_searched(output: &QueryOutput) -> bool {
    has(output, ("text_search", "batches"))
}

/// The numbers of rows that a plan gives, ascending.
fn numbers(output: &QueryOutput) -> Vec<i64> {
    let column = output.batch.column(0).as_any().downcast_ref::<Int64Array>().expect("numbers");
    let mut numbers = column.values().to_vec();
    numbers.sort_unstable();
    numbers
}

/// Compares what patterns keep of texts with a plain evaluation, whoever searches.
fn check(texts: &Texts, patterns: &[&str], options: &[(&str, &str)]) {
    let (engine, sources) = (Engine::new(), [table(texts)]);
    for pattern in patterns {
        for negated in [false, true] {
            for search in ["rows", "batches"] {
                let options = forced(&[&[("text_search", search)], options].concat());
                let output = run(&engine, matching(pattern, negated), &sources, &options);
                let what = format!("{pattern} {negated} {search} of {} rows", texts.len());
                assert_eq!(numbers(&output), expected(texts, pattern, negated), "{what}");
                assert_eq!(is_searched(&output), are_raw(texts) && search == "batches", "{what}");
            }
        }
    }
}

fn some(texts: &[&str]) -> Texts {
    texts.iter().map(|text| Some(text.to_string())).collect()
}

/// Texts of few letters, so that needles stand everywhere, and over the ends of texts.
fn random(rows: usize, letters: &[&str], longest: usize) -> Texts {
    let mut random = Random(rows as u64);
    let mut text = |_| {
        let length = random.below(longest + 1);
        let letters = (0..length).map(|_| letters[random.below(letters.len())]).collect();
        (random.below(9) > 0).then_some(letters)
    };
    (0..rows).map(&mut text).collect()
}

#[test]
fn needles_at_the_ends_of_texts() {
    // The first and the last bytes of all are a needle; others go over the end of one, two and three texts.
    let texts = some(&["fox and more", "no f", "ox", "f", "", "o", "x", "", "f o x", "the fo", "x", "a fox"]);
    check(&texts, &["%fox%", "%ox%", "%fo%", "% fox%", "%fox and more%", "%no fox%"], &[]);
    check(&some(&["", "x"]), &["%fox%", "%xx%"], &[]);
    check(&some(&["aaaa", "aaaab", "aab", "aaab", "b"]), &["%aaab%", "%aab%", "%aaaab%", "%ab%b%"], &[]);
    let mut nulls = some(&["fox", "fo", "x", "foxes", "oxen"]);
    nulls.extend([None, Some("fox 2".into()), None]);
    check(&nulls, &["%fox%", "%es%", "%no%"], &[]);
}

#[test]
fn several_pieces_and_characters_of_several_bytes() {
    let texts = some(&[
        "special requests", "requests special", "special", " requests", "specialrequests", "special request",
        "s special special requests.", "special speciality reques", "ts", "é", "\u{e8}", "éé special", "ßéß",
        "requests special requests", "special requests special", "",
    ]);
    let patterns = [
        "%special%requests%", "%special%requests", "%special%special%requests%", "%special%s%s%s", "%éé%",
        "%é%", "%ßéß%", "%éß%ß", "%special%special", "%special%\u{e8}%",
    ];
    check(&texts, &patterns, &[]);
}

#[test]
fn random_texts_in_batches_of_all_sizes() {
    let long = "%ababbaaab%";
    let patterns =
        ["%ab%", "%aaab%", "%ba%ab%", long, "%bab%a%b", "%ab%abba%aa%", "%aaaaaaaaa%", "%abababab%"];
    for rows in [2, 7, 8, 9, 255, 257, 1025] {
        let texts = random(rows, &["a", "b"], 24);
        check(&texts, &patterns, &[("selection_rows", "256")]);
    }
    let texts = random(5000, &["a", "b", "é", " "], 300);
    check(&texts, &["%ab%", "%é a%", "%ab%ba%éé%", long], &[("selection_rows", "1024")]);
}

#[test]
fn few_or_no_rows() {
    // So few texts have a dictionary, and are searched as ever.
    check(&some(&["a fox"]), &["%fox%", "%ox%no%"], &[]);
    check(&vec![], &["%fox%"], &[]);
    check(&vec![None, None], &["%fox%"], &[]);
}

#[test]
fn morsels_of_several_workers_beside_other_conditions() {
    let texts = random(9000, &["a", "b", "c"], 40);
    let (engine, sources) = (Engine::new(), [table(&texts), table(&texts)]);
    for negated in [false, true] {
        let pattern = "%abc%cb%";
        let found = || like(&scan(0), 1, pattern, negated);
        let (least, most) = (number(CompareOp::Ge, 1003), number(CompareOp::Lt, 8005));
        let other = || like(&scan(0), 1, "%ca%", true);
        let counts = |input| aggregate(input, &[1], &[(AggregateFunction::Count, None, false)]);
        let joined = join(JoinKind::ProbeSemi, scan(0), matching(pattern, negated), &[(0, 0)], false);
        let few = keep(scan(1), number(CompareOp::Lt, 500));
        let sifted = join(JoinKind::ProbeSemi, few, matching(pattern, negated), &[(0, 0)], false);
        let counted = aggregate(matching(pattern, negated), &[], &[(AggregateFunction::Count, None, false)]);
        let plans = [
            matching(pattern, negated),
            keep(scan(0), and(least.clone(), found())),
            keep(scan(0), and(found(), most.clone())),
            // The rest of a filter is left to single rows where no result is written.
            counts(keep(keep(scan(0), and(least, and(found(), other()))), most)),
            counts(keep(keep(scan(0), other()), found())),
            counts(matching(pattern, negated)),
            joined,
            sifted,
            counted,
        ];
        for (index, plan) in plans.iter().enumerate() {
            let rows =
                rows_of(&run(&engine, plan, &sources, forced(&[("text_search", "rows")])).batch, false);
            for (threads, macro_model) in
                [(1, MacroModel::Auto), (3, MacroModel::Auto), (3, MacroModel::Batch)]
            {
                let pairs = [("text_search", "batches"), ("morsel_rows", "4096"), ("selection_rows", "256")];
                // Blocks begin at rows of any number.
                let block_bytes = (macro_model == MacroModel::Batch).then_some(9001);
                let threads = Some(threads);
                let options = QueryOptions { threads, macro_model, block_bytes, ..forced(&pairs) };
                let output = run(&engine, plan, &sources, &options);
                assert!(is_searched(&output), "{index}");
                assert_eq!(rows_of(&output.batch, false), rows, "{index} {threads:?} {macro_model:?}");
            }
        }
        let whole = run(&engine, &plans[0], &sources, forced(&[]));
        assert_eq!(numbers(&whole), expected(&texts, pattern, negated));
    }
}

/// Rows of an inner sort stay as columns, whose texts lie in another order, and are searched as those of a table.
#[test]
fn texts_that_a_stage_left() {
    let texts = random(3000, &["a", "b", "c"], 40);
    let (engine, sources) = (Engine::new(), [table(&texts)]);
    let key = |index: usize, descending| {
        let field = scan(0).fields().swap_remove(index);
        let expr = Expr::column(index, field.data_type, field.nullable);
        sort_key(expr, descending, false)
    };
    let keys = vec![key(1, true), key(0, false)];
    let sorted = sorted(scan(0), keys, Some(2900));
    for negated in [false, true] {
        let plan = keep(sorted.clone(), like(&scan(0), 1, "%abc%b%", negated));
        let [rows, batches] = ["rows", "batches"].map(|search| {
            let output = run(&engine, &plan, &sources, forced(&[("text_search", search)]));
            assert_eq!(is_searched(&output), search == "batches");
            numbers(&output)
        });
        assert!(rows == batches && !rows.is_empty());
    }
}

#[test]
fn the_rule_searches_batches() {
    let (engine, sources) = (Engine::new(), [table(&random(300, &["a", "b", "c"], 60))]);
    assert!(is_searched(&run(&engine, matching("%abc%", false), &sources, forced(&[]))));
}

#[test]
fn what_has_no_needle_says_so() {
    let engine = Engine::new();
    let sources = [table(&random(100, &["a", "b", "c"], 20))];
    let cases = [
        ("%a_b%", "_ stands in the pattern"),
        ("abc%", "nothing between two %"),
        ("%abc", "nothing between two %"),
        ("%a%", "shorter than two bytes"),
        ("a%bc%", "does not begin with %"),
    ];
    for (pattern, lacks) in cases {
        let options = forced(&[("p0.text_search", "batches")]);
        let error = try_run(&engine, matching(pattern, false), &sources, &options).expect_err("no needle");
        assert!(error.to_string().contains(lacks), "{pattern}: {error}");
    }
}
