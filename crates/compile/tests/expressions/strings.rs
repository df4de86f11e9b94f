//! Text.

use kelpie_compile::context::Status::{Fallback, Grow, NegativeSubstringLength, Overflow};
use kelpie_compile::expr::CompareOp::*;
use kelpie_compile::expr::{Expr, ExprKind, Function, Regex, Search, Side};

use crate::build::*;
use crate::harness::{NULL, Value, check, check_one};

#[test]
fn order_is_by_bytes() {
    let words = ["", "a", "aa", "ab", "b", "z\u{e9}", "\u{e9}", "\u{1f600}"];
    for (op, test) in [
        (Lt, (|a, b| a < b) as fn(usize, usize) -> bool),
        (Le, |a, b| a <= b),
        (Eq, |a, b| a == b),
        (Ne, |a, b| a != b),
        (Gt, |a, b| a > b),
        (Ge, |a, b| a >= b),
    ] {
        let mut rows = vec![(vec![NULL, "a".into()], NULL), (vec!["a".into(), NULL], NULL)];
        for (i, a) in words.iter().enumerate() {
            for (j, b) in words.iter().enumerate() {
                rows.push((vec![(*a).into(), (*b).into()], test(i, j).into()));
            }
        }
        check(&compare(op, col(0, Utf8), col(1, Utf8)), &rows);
    }
    let literal = compare(Eq, col(0, Utf8), string("ab"));
    check_one(
        &literal,
        vec![("ab".into(), true.into()), ("a".into(), false.into()), ("".into(), false.into())],
    );
}

fn like(pattern: &str, negated: bool, case_insensitive: bool) -> Expr {
    let (input, pattern) = (Box::new(col(0, Utf8)), Box::new(string(pattern)));
    make(ExprKind::Like { input, pattern, negated, case_insensitive }, Boolean)
}

#[test]
fn like_patterns() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("abc", &["abc"], &["ab", "abcd", ""]),
        ("", &[""], &["a"]),
        ("%", &["", "a", "\u{e9}"], &[]),
        ("ab%", &["ab", "abc"], &["a", "xab", ""]),
        ("%ab", &["ab", "xab", "abab"], &["abx", "b", ""]),
        ("%ab%", &["ab", "xabx", "aab"], &["ba", "a", ""]),
        (
            "%special%requests%",
            &["special requests", "x specialrequests y"],
            &["requests special", "special"],
        ),
        ("a%b", &["ab", "axb", "abb"], &["a", "b", "abc", "ba"]),
        ("a%b%c", &["abc", "axbyc", "abcbc"], &["acb", "ab", "bc"]),
        ("_", &["a", "\u{e9}", "\u{1f600}"], &["", "ab", "\u{e9}\u{e9}"]),
        ("__", &["ab", "\u{e9}x"], &["a", "\u{1f600}"]),
        ("a_c", &["abc", "a\u{e9}c", "a\u{1f600}c"], &["ac", "abbc"]),
        ("%_", &["a", "ab", "\u{e9}"], &[""]),
        ("_%b_", &["aabc", "abb\u{e9}", "xbb"], &["ab", "abbxx", "bb"]),
        ("%\u{e9}_%", &["\u{e9}x", "a\u{e9}\u{1f600}b"], &["\u{e9}", "a\u{e9}"]),
        ("100\\%", &["100%"], &["1000", "100"]),
        ("a\\_b", &["a_b"], &["axb"]),
        ("a\\\\%", &["a\\", "a\\b"], &["a", "ab"]),
        ("%\\%%", &["50%", "%"], &["50"]),
        ("a\\", &["a\\"], &["a"]),
        ("%%%", &["", "x"], &[]),
    ];
    for (pattern, yes, no) in cases {
        let expected = |positive: bool| {
            let mut rows: Vec<(Value, Value)> = vec![(NULL, NULL)];
            rows.extend(yes.iter().map(|text| ((*text).into(), positive.into())));
            rows.extend(no.iter().map(|text| ((*text).into(), (!positive).into())));
            rows
        };
        check_one(&like(pattern, false, false), expected(true));
        check_one(&like(pattern, true, false), expected(false));
    }
    let ignoring_case = vec![
        ("ABC".into(), true.into()),
        ("xaBcx".into(), true.into()),
        ("ab".into(), false.into()),
        ("\u{e9}abc".into(), Fallback.into()),
        (NULL, NULL),
    ];
    check_one(&like("%aBc%", false, true), ignoring_case);
    let no_pattern = make(
        ExprKind::Like {
            input: Box::new(col(0, Utf8)),
            pattern: Box::new(null(Utf8)),
            negated: false,
            case_insensitive: false,
        },
        Boolean,
    );
    check_one(&no_pattern, vec![("a".into(), NULL)]);
}

#[test]
fn substrings() {
    let substring = call(Function::Substr, vec![col(0, Utf8), col(1, Int64), col(2, Int64)], Utf8);
    let row = |text: &str, start: i64, length: i64, expected: Value| {
        (vec![text.into(), start.into(), length.into()], expected)
    };
    check(
        &substring,
        &[
            row("alphabet", 1, 3, "alp".into()),
            row("alphabet", 3, 2, "ph".into()),
            row("alphabet", 0, 3, "al".into()),
            row("alphabet", -3, 5, "a".into()),
            row("alphabet", -10, 2, "".into()),
            row("alphabet", 9, 2, "".into()),
            row("alphabet", 8, 100, "t".into()),
            row("alphabet", 1, 0, "".into()),
            row("", 1, 5, "".into()),
            row("h\u{e9}llo \u{1f600}!", 2, 2, "\u{e9}l".into()),
            row("h\u{e9}llo \u{1f600}!", 7, 1, "\u{1f600}".into()),
            row("h\u{e9}llo \u{1f600}!", 8, 9, "!".into()),
            row("abc", 1, i64::MAX, "abc".into()),
            row("abc", i64::MAX, i64::MAX, "".into()),
            row("abc", i64::MIN + 1, i64::MAX, "".into()),
            row("abc", 1, -1, NegativeSubstringLength.into()),
            row("abc", i64::MIN, 1, Overflow.into()),
            (vec![NULL, 1.into(), (-1).into()], NULL),
            (vec!["abc".into(), NULL, 1.into()], NULL),
            (vec!["abc".into(), 1.into(), NULL], NULL),
        ],
    );
    let rest = call(Function::Substr, vec![col(0, Utf8), int(3, Int64)], Utf8);
    check_one(
        &rest,
        vec![("alphabet".into(), "phabet".into()), ("a\u{e9}b".into(), "b".into()), ("a".into(), "".into())],
    );
    let prefix = call(Function::Substr, vec![col(0, Utf8), int(1, Int64), int(2, Int64)], Utf8);
    let is_area = make(
        ExprKind::InList { input: Box::new(prefix), list: vec![string("13"), string("31")], negated: false },
        Boolean,
    );
    check_one(
        &is_area,
        vec![
            ("13-555".into(), true.into()),
            ("31".into(), true.into()),
            ("1".into(), false.into()),
            (NULL, NULL),
        ],
    );
}

#[test]
fn lengths_and_case() {
    let length = call(Function::CharacterLength, vec![col(0, Utf8)], Int32);
    check_one(
        &length,
        vec![
            ("".into(), 0.into()),
            ("abc".into(), 3.into()),
            ("a\u{e9}\u{1f600}".into(), 3.into()),
            (NULL, NULL),
        ],
    );
    let bytes = call(Function::OctetLength, vec![col(0, Utf8)], Int32);
    check_one(&bytes, vec![("".into(), 0.into()), ("a\u{e9}\u{1f600}".into(), 7.into())]);
    let upper = call(Function::Upper, vec![col(0, Utf8)], Utf8);
    let lower = call(Function::Lower, vec![col(0, Utf8)], Utf8);
    check_one(
        &upper,
        vec![("aBc@[`{z".into(), "ABC@[`{Z".into()), ("\u{e9}".into(), "\u{c9}".into()), (NULL, NULL)],
    );
    let both = call(Function::Lower, vec![upper.clone()], Utf8);
    check_one(&both, vec![("aBc".into(), "abc".into())]);
    check_one(
        &compare(Eq, upper.clone(), string("ABC@[`{Z")),
        vec![("aBc@[`{z".into(), true.into()), ("abc".into(), false.into())],
    );
    check_one(&compare(Lt, lower, string("b")), vec![("AB".into(), true.into()), ("C".into(), false.into())]);
    let shouted = make(
        ExprKind::Like {
            input: Box::new(upper),
            pattern: Box::new(string("A%C_")),
            negated: false,
            case_insensitive: false,
        },
        Boolean,
    );
    check_one(
        &shouted,
        vec![("axxcd".into(), true.into()), ("abcd".into(), true.into()), ("bcd".into(), false.into())],
    );
}

fn regex(input: Expr, pattern: &str, flags: &str, negated: bool) -> Expr {
    let regex = Regex::new(pattern, flags).unwrap_or_else(|error| panic!("{error}"));
    make(ExprKind::Regex { input: Box::new(input), regex, negated }, Boolean)
}

#[test]
fn regular_expressions() {
    let rows = |negated: bool| {
        vec![
            ("abc".into(), (!negated).into()),
            ("xx aBBBc".into(), (!negated).into()),
            ("ac".into(), negated.into()),
            ("".into(), negated.into()),
            ("a\u{e9}bc".into(), negated.into()),
            (NULL, NULL),
        ]
    };
    for negated in [false, true] {
        check_one(&regex(col(0, Utf8), "ab+c", "i", negated), rows(negated));
    }
    check_one(
        &regex(col(0, Utf8), "^.\u{e9}$", "", false),
        vec![
            ("\u{1f600}\u{e9}".into(), true.into()),
            ("a\u{e9}".into(), true.into()),
            ("\u{e9}".into(), false.into()),
            ("a\u{e9}b".into(), false.into()),
        ],
    );
    check_one(&regex(col(0, Utf8), "", "", false), vec![("".into(), true.into()), (NULL, NULL)]);
    // Case mappings are seen, and a word boundary beside text beyond ASCII is DataFusion's.
    let upper = call(Function::Upper, vec![col(0, Utf8)], Utf8);
    check_one(
        &regex(upper, "^A[B-D]", "", false),
        vec![("abx".into(), true.into()), ("ax".into(), false.into())],
    );
    check_one(
        &regex(col(0, Utf8), r"\bcat\b", "", false),
        vec![
            ("a cat".into(), true.into()),
            ("cats".into(), false.into()),
            ("\u{e9}cat".into(), Fallback.into()),
        ],
    );
}

#[test]
fn concatenation() {
    let columns = || vec![col(0, Utf8), col(1, Utf8)];
    let row = |a: Value, b: Value, expected: Value| (vec![a, b], expected);
    let operator = call(Function::ConcatOperator, columns(), Utf8);
    let long = "x".repeat(10_000);
    check(
        &operator,
        &[
            row("ab".into(), "c".into(), "abc".into()),
            row("".into(), "".into(), "".into()),
            row("\u{e9}".into(), "\u{1f600}".into(), "\u{e9}\u{1f600}".into()),
            row(NULL, "c".into(), NULL),
            row("a".into(), NULL, NULL),
            row(long.as_str().into(), long.as_str().into(), Grow.into()),
        ],
    );
    let function = call(Function::Concat, vec![col(0, Utf8), string("-"), col(1, Utf8)], Utf8);
    check(
        &function,
        &[
            row("ab".into(), "c".into(), "ab-c".into()),
            row(NULL, "c".into(), "-c".into()),
            row(NULL, NULL, "-".into()),
        ],
    );
    let upper = call(Function::Upper, vec![col(1, Utf8)], Utf8);
    let separated =
        call(Function::ConcatWithSeparator, vec![col(2, Utf8), col(0, Utf8), upper, string("z")], Utf8);
    let row = |separator: Value, a: Value, b: Value, expected: Value| (vec![a, b, separator], expected);
    check(
        &separated,
        &[
            row(", ".into(), "ab".into(), "c".into(), "ab, C, z".into()),
            row("".into(), "ab".into(), "c".into(), "abCz".into()),
            row(",".into(), NULL, "c".into(), "C,z".into()),
            row(",".into(), NULL, NULL, "z".into()),
            row(",".into(), "".into(), "".into(), ",,z".into()),
            row(NULL, "a".into(), "b".into(), NULL),
        ],
    );
    // What is made is read as any text.
    let twice = call(Function::ConcatOperator, vec![operator.clone(), operator.clone()], Utf8);
    check(&twice, &[(vec!["a".into(), "b".into()], "abab".into())]);
    let compared = compare(Eq, operator, string("abc"));
    check(
        &compared,
        &[(vec!["ab".into(), "c".into()], true.into()), (vec!["a".into(), "c".into()], false.into())],
    );
}

#[test]
fn trimming() {
    let default = |side| call(Function::Trim(side), vec![col(0, Utf8)], Utf8);
    for (side, expected) in [(Side::Both, "a b"), (Side::Left, "a b "), (Side::Right, "  a b")] {
        check_one(
            &default(side),
            vec![("  a b ".into(), expected.into()), ("   ".into(), "".into()), (NULL, NULL)],
        );
    }
    let row = |text: Value, set: Value, expected: Value| (vec![text, set], expected);
    let characters = |side| call(Function::Trim(side), vec![col(0, Utf8), col(1, Utf8)], Utf8);
    check(
        &characters(Side::Both),
        &[
            row("xyxtrimyyx".into(), "xyz".into(), "trim".into()),
            row("\u{e9}\u{1f600}a\u{e9}".into(), "\u{1f600}\u{e9}".into(), "a".into()),
            row("\u{e9}a".into(), "\u{e8}".into(), "\u{e9}a".into()),
            row("\u{e9}".into(), "\u{e9}".into(), "".into()),
            row("a".into(), "".into(), "a".into()),
            row("".into(), "a".into(), "".into()),
            row("a".into(), NULL, NULL),
        ],
    );
    check(&characters(Side::Left), &[row("\u{e9}\u{e9}a\u{e9}".into(), "\u{e9}".into(), "a\u{e9}".into())]);
    check(&characters(Side::Right), &[row("\u{e9}a\u{e9}\u{e9}".into(), "\u{e9}".into(), "\u{e9}a".into())]);
    let upper = call(Function::Upper, vec![col(0, Utf8)], Utf8);
    check_one(
        &call(Function::Trim(Side::Both), vec![upper, string("A")], Utf8),
        vec![("abca".into(), "BC".into())],
    );
}

#[test]
fn first_and_last_characters() {
    let text = "h\u{e9}llo \u{1f600}!";
    for (count, left, right) in [
        (0, "", ""),
        (2, "h\u{e9}", "\u{1f600}!"),
        (8, text, text),
        (99, text, text),
        (i64::MAX, text, text),
        (-1, "h\u{e9}llo \u{1f600}", "\u{e9}llo \u{1f600}!"),
        (-7, "h", "!"),
        (-8, "", ""),
        (-99, "", ""),
        (i64::MIN, "", ""),
    ] {
        for (function, expected) in [(Function::Left, left), (Function::Right, right)] {
            let call = call(function, vec![col(0, Utf8), col(1, Int64)], Utf8);
            check(
                &call,
                &[(vec![text.into(), count.into()], expected.into()), (vec![NULL, count.into()], NULL)],
            );
        }
    }
}

#[test]
fn searching() {
    let cases = [
        ("abcabc", "abc", [true, true, true], 1),
        ("abcabc", "bc", [false, true, true], 2),
        ("abcabc", "", [true, true, true], 1),
        ("", "", [true, true, true], 1),
        ("", "a", [false, false, false], 0),
        ("\u{e9}\u{1f600}ab", "ab", [false, true, true], 3),
        ("aab", "ab", [false, true, true], 2),
        ("abc", "abcd", [false, false, false], 0),
        ("abc", "ac", [false, false, false], 0),
    ];
    let searches = [Search::StartsWith, Search::EndsWith, Search::Contains];
    for (index, search) in searches.into_iter().enumerate() {
        let call = call(Function::Search(search), vec![col(0, Utf8), col(1, Utf8)], Boolean);
        let row = |(a, b, expected, _): (&str, &str, [bool; 3], i32)| {
            (vec![a.into(), b.into()], expected[index].into())
        };
        let mut rows: Vec<_> = cases.into_iter().map(row).collect();
        rows.push((vec![NULL, "a".into()], NULL));
        check(&call, &rows);
    }
    let position = call(Function::Search(Search::Position), vec![col(0, Utf8), col(1, Utf8)], Int32);
    let mut rows: Vec<_> =
        cases.into_iter().map(|(a, b, _, at)| (vec![a.into(), b.into()], at.into())).collect();
    rows.push((vec!["a".into(), NULL], NULL));
    check(&position, &rows);
}

#[test]
fn rewriting() {
    let replace = call(Function::Replace, vec![col(0, Utf8), col(1, Utf8), col(2, Utf8)], Utf8);
    let row = |text: &str, from: &str, to: &str, expected: &str| {
        (vec![text.into(), from.into(), to.into()], expected.into())
    };
    check(
        &replace,
        &[
            row("abcabc", "bc", "x", "axax"),
            row("aaa", "aa", "b", "ba"),
            row("abc", "", "x", "abc"),
            row("abc", "d", "x", "abc"),
            row("\u{e9}a\u{e9}", "\u{e9}", "", "a"),
            row("", "a", "b", ""),
            row("a", "a", "\u{1f600}\u{1f600}", "\u{1f600}\u{1f600}"),
            (vec!["a".into(), NULL, "b".into()], NULL),
        ],
    );
    let repeat = call(Function::Repeat, vec![col(0, Utf8), col(1, Int64)], Utf8);
    check(
        &repeat,
        &[
            (vec!["ab\u{e9}".into(), 3.into()], "ab\u{e9}ab\u{e9}ab\u{e9}".into()),
            (vec!["ab".into(), 0.into()], "".into()),
            (vec!["ab".into(), (-5).into()], "".into()),
            (vec!["".into(), i64::MAX.into()], "".into()),
            (vec!["ab".into(), i64::MAX.into()], Fallback.into()),
            (vec!["ab".into(), 100_000.into()], Grow.into()),
            (vec![NULL, 3.into()], NULL),
        ],
    );
    let reverse = call(Function::Reverse, vec![col(0, Utf8)], Utf8);
    check_one(
        &reverse,
        vec![
            ("abc".into(), "cba".into()),
            ("".into(), "".into()),
            ("a\u{e9}\u{1f600}".into(), "\u{1f600}\u{e9}a".into()),
            (NULL, NULL),
        ],
    );
}

/// Words end everywhere: texts of every length up to a few words, that differ or match at every place.
#[test]
fn every_place_of_a_word() {
    let letters = "abcdefghijklmnopqrstuvwxy";
    let mut rows: [Vec<(Vec<Value>, Value)>; 3] = Default::default();
    for length in [1, 7, 8, 9, 15, 16, 17, 25] {
        let text = &letters[..length];
        for place in 0..length {
            let (before, after) = (&text[..place], &text[place + 1..]);
            let other = format!("{before}\u{e9}{after}");
            rows[0].push((vec![text.into(), other.as_str().into()], true.into()));
            rows[0].push((vec![other.as_str().into(), text.into()], false.into()));
            rows[1].push((vec![text.into(), other.as_str().into()], false.into()));
            for width in [1, 2, 8, 9] {
                let pattern = &text[place..length.min(place + width)];
                rows[2].push((vec![text.into(), pattern.into()], (place as i32 + 1).into()));
                rows[2].push((
                    vec![other.as_str().into(), after.into()],
                    if after.is_empty() { 1 } else { place as i32 + 2 }.into(),
                ));
            }
        }
        rows[1].push((vec![text.into(), text.into()], true.into()));
        rows[0].push((vec![text[..length - 1].into(), text.into()], true.into()));
    }
    // First and last byte are found often, the pattern late or never.
    rows[2].push((vec!["axxb ayyb azzb axyb axzb aabb".into(), "axzb".into()], 21.into()));
    rows[2].push((vec!["abababababababababababababac".into(), "ababac".into()], 23.into()));
    rows[2].push((vec!["`a`a`a`a`a`a`a`a`aba`a`a".into(), "aab".into()], 0.into()));
    let columns = || (col(0, Utf8), col(1, Utf8));
    let (a, b) = columns();
    check(&compare(Lt, a, b), &rows[0]);
    let (a, b) = columns();
    check(&compare(Eq, a, b), &rows[1]);
    let (a, b) = columns();
    check(&call(Function::Search(Search::Position), vec![a, b], Int32), &rows[2]);
    let text = "a\u{e9}bcdefgh\u{1f600}ijklmno\u{e9}\u{e9}pqr";
    let characters: Vec<char> = text.chars().collect();
    let mut rows = Vec::new();
    for start in 0..characters.len() {
        let rest: String = characters[start..].iter().collect();
        rows.push((vec![text.into(), (start as i64 + 1).into()], rest.as_str().into()));
    }
    check(&call(Function::Substr, vec![col(0, Utf8), col(1, Int64)], Utf8), &rows);
}

#[test]
fn padding_and_fields() {
    let row = |text: &str, count: i64, fill: &str, expected: Value| {
        (vec![text.into(), count.into(), fill.into()], expected)
    };
    let arguments = || vec![col(0, Utf8), col(1, Int64), col(2, Utf8)];
    check(
        &call(Function::Pad(Side::Left), arguments(), Utf8),
        &[
            row("hi", 5, "xy", "xyxhi".into()),
            row("hello", 2, "x", "he".into()),
            row("\u{e9}", 3, "\u{1f600}a", "\u{1f600}a\u{e9}".into()),
            row("h\u{e9}llo", 2, "x", "h\u{e9}".into()),
            row("a", 5, "", "a".into()),
            row("a", 0, "x", "".into()),
            row("a", -1, "x", "".into()),
            row("", 3, "ab", "aba".into()),
            row("a", 1 << 40, "x", Fallback.into()),
            (vec![NULL, 3.into(), "x".into()], NULL),
        ],
    );
    check(
        &call(Function::Pad(Side::Right), arguments(), Utf8),
        &[row("hi", 5, "xy", "hixyx".into()), row("h\u{e9}", 4, "\u{e8}", "h\u{e9}\u{e8}\u{e8}".into())],
    );
    let spaces = call(Function::Pad(Side::Right), vec![col(0, Utf8), int(3, Int64)], Utf8);
    check_one(&spaces, vec![("a".into(), "a  ".into()), (NULL, NULL)]);
    let row = |text: &str, delimiter: &str, position: i64, expected: Value| {
        (vec![text.into(), delimiter.into(), position.into()], expected)
    };
    check(
        &call(Function::SplitPart, vec![col(0, Utf8), col(1, Utf8), col(2, Int64)], Utf8),
        &[
            row("a-b--c", "-", 1, "a".into()),
            row("a-b--c", "-", 2, "b".into()),
            row("a-b--c", "-", 3, "".into()),
            row("a-b--c", "-", 4, "c".into()),
            row("a-b--c", "-", 5, "".into()),
            row("a-b", "--", 1, "a-b".into()),
            row("aaa", "aa", 2, "a".into()),
            row("abc", "", 1, "abc".into()),
            row("abc", "", 2, "".into()),
            row("", "-", 1, "".into()),
            row("\u{e9}\u{1f600}\u{e8}", "\u{1f600}", 2, "\u{e8}".into()),
            row("a-b", "-", 0, Fallback.into()),
            row("a-b", "-", -1, "b".into()),
            row("a-b--c", "-", -2, "".into()),
            row("a-b--c", "-", -4, "a".into()),
            row("a-b--c", "-", -5, "".into()),
            row("aaa", "aa", -1, "".into()),
            row("aaa", "aa", -2, "a".into()),
            row("abc", "", -1, "abc".into()),
            row("abc", "", -2, "".into()),
            row("a-b", "-", i64::MIN, "".into()),
            (vec!["a".into(), NULL, 1.into()], NULL),
        ],
    );
}
