//! Texts that the lanes of a warp compare together are equal where a lane finds its own equal: of all lengths, equal, different in one
//! byte or in length, NULL, beside other conditions, in warps of several widths.

use crate::common::*;
use crate::plans::{aggregate, join};

const ROWS: usize = 300;

/// A text of a length, of which no two rows have the same.
fn text(row: usize, length: usize) -> String {
    let start = format!("{row:03}é ");
    (0..length)
        .map(|place| start.chars().nth(place).unwrap_or(char::from(b'a' + (place * 7 % 26) as u8)))
        .collect()
}

/// The text with one byte changed: the first, the last, or one between.
fn changed(text: &str, place: usize) -> String {
    let places: Vec<usize> = (0..text.len()).filter(|at| text.as_bytes()[*at].is_ascii()).collect();
    let Some(at) = places.get(place.min(places.len().saturating_sub(1))) else { return "x".into() };
    let mut bytes = text.as_bytes().to_vec();
    bytes[*at] ^= 1;
    String::from_utf8(bytes).expect("ASCII in place of ASCII")
}

/// `n`: `0..rows`; `a`: texts of up to 300 characters, some NULL; `b`: the same, or others; `d`: few texts.
fn table() -> Arc<dyn TableSource> {
    let left =
        |row: usize| text(row, [0, 1, 5, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 255, 256, 257, 300][row % 17]);
    let right = |row: usize| match row * 5 % 8 {
        0..4 => left(row),
        4 => changed(&left(row), 0),
        5 => changed(&left(row), usize::MAX),
        6 => changed(&left(row), row % 50),
        _ => format!("{}+", left(row)),
    };
    let all = 0..ROWS;
    let columns: Vec<ArrayRef> = vec![
        longs(all.clone().map(|row| row as i64)),
        maybe_texts(all.clone().map(|row| (row % 13 != 4).then(|| left(row)))),
        maybe_texts(all.clone().map(|row| (row % 17 != 5).then(|| right(row)))),
        texts(all.map(|row| ["few", "texts"][row % 2])),
    ];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 4] = [
    ("n", DataType::Int64, false),
    ("a", DataType::Utf8, true),
    ("b", DataType::Utf8, true),
    ("d", DataType::Utf8, false),
];

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn number(op: CompareOp, value: i128) -> Expr {
    compare_with(op, column_of(&COLUMNS, 0), value)
}

fn text_of(column: usize) -> Expr {
    column_of(&COLUMNS, column)
}

fn constant(row: usize, length: usize) -> Expr {
    text_literal(&text(row, length))
}

fn plans() -> Vec<(&'static str, Plan)> {
    use AggregateFunction::{Count, Max, Sum};
    let equal = || compare(CompareOp::Eq, text_of(1), text_of(2));
    let sums = [(Count, None, false), (Sum, Some(0), false), (Max, Some(2), false)];
    let few = || keep(scan(0), all(vec![number(CompareOp::Ge, 20), equal(), number(CompareOp::Lt, 250)]));
    let dictionary = compare(CompareOp::Eq, text_of(3), text_literal("few"));
    vec![
        ("equal texts", keep(scan(0), equal())),
        ("a long literal", keep(scan(0), compare(CompareOp::Eq, text_of(1), constant(33, 300)))),
        ("a short literal", keep(scan(0), compare(CompareOp::Eq, constant(2, 5), text_of(2)))),
        ("other conditions", few()),
        (
            "two equalities",
            keep(few(), all(vec![dictionary, compare(CompareOp::Eq, text_of(2), text_of(1))])),
        ),
        ("groups", aggregate(few(), &[3], &sums)),
        ("sums", aggregate(few(), &[], &sums)),
        ("behind a join", {
            let joined = join(JoinKind::Inner, scan(1), scan(0), &[(3, 3)], false);
            let sides = compare(CompareOp::Eq, column(&joined, 1), column(&joined, 6));
            let kept = keep(joined, and(number(CompareOp::Lt, 20), sides));
            aggregate(kept, &[], &[(Count, None, false), (Sum, Some(4), false)])
        }),
    ]
}

/// What is forced of who looks at texts, and of what else rows change lanes for.
fn variants(texts: &'static str, number: usize) -> [(&'static str, &'static str); 4] {
    [
        ("text_lanes", texts),
        ("lane_refill", ["off", "last", "all"][number % 3]),
        ("expansion", ["packed", "lane", "refill"][number / 3 % 3]),
        ("live_columns", ["places", "values"][(number + number / 3) % 2]),
    ]
}

#[test]
fn lanes_find_equal_what_one_lane_finds_equal() {
    let engine = Engine::new();
    let sources = [table(), table()];
    let (gpu, plans) = (gpu(), plans());
    let mut cases = Vec::new();
    for at in 0..plans.len() {
        let widths = [4, 8, 32, 3].into_iter().map(|lanes| (DeviceChoice::Simt, lanes));
        for (index, (device, lanes)) in widths.chain(gpu.map(|device| (device, 32))).enumerate() {
            for texts in ["lane", "warp"] {
                for number in 0..3 {
                    // A GPU compiles each kernel for a while.
                    if device == DeviceChoice::Cuda && number != at % 3 {
                        continue;
                    }
                    let options = in_blocks(lanes, 1, &variants(texts, 3 * index + number));
                    let options = QueryOptions { device, ..options };
                    cases.push((at, texts, options));
                }
            }
        }
    }
    let cases = covering("texts of lanes", cases, 60, |(at, texts, options)| {
        facets_and(options, &[&(at, texts), &(texts, options.simt_lanes)])
    });
    let (mut together, mut expected) = (0, HashMap::new());
    for (at, texts, options) in cases {
        let (name, plan) = &plans[at];
        let expected = expected.entry(at).or_insert_with(|| rows(&engine, plan, &sources, cpu()));
        assert!(!expected.is_empty(), "{name}");
        let output = run(&engine, plan, &sources, &options);
        together += usize::from(texts != "lane" && has(&output, ("text_lanes", texts)));
        assert_eq!(rows_of(&output.batch, false), *expected, "{name}: {options:?}");
    }
    assert!(together >= floor(6 * 4 * 3), "{together}");
}
