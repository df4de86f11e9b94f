//! The text form of plans: what is printed is read again as it was, and what cannot be read is an error that says where.

#[path = "plan_text/random.rs"]
mod random;

use std::collections::HashSet;
use std::mem::discriminant;

use kelpie_compile::expr::{Expr, ExprKind, Function, children};
use kelpie_compile::plan::text::{Table, parse, parse_fields, parse_row, print};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};

use self::random::{Random, functions};

/// Prints a plan and reads it again.
fn round_trip(plan: &Plan) -> String {
    let text = print(plan);
    let again = parse(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}\n{plan:#?}"));
    assert!(again == *plan, "{text}\n{plan:#?}\n{again:#?}");
    assert_eq!(print(&again), text);
    text
}

fn fields() -> Vec<Field> {
    parse_fields(
        "k: Int64?, v: Int32, \"sum(v)\": Float64, s: Utf8?, d: Date32, m: Decimal128(15, 2)?, k: Int8",
    )
    .expect("columns")
}

fn scan() -> Plan {
    let fields = fields();
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields })
}

fn filter(predicate: Expr) -> Plan {
    Plan::Filter { input: Box::new(scan()), predicate }
}

#[test]
fn random_plans_are_read_as_they_were() {
    let mut random = Random { state: 7 };
    let mut seen = HashSet::new();
    for _ in 0..600 {
        let depth = random.below(4);
        let plan = random.plan(depth);
        seen.insert(discriminant(&plan));
        round_trip(&plan);
    }
    assert_eq!(seen.len(), 11, "kinds of plans");
}

#[test]
fn random_expressions_are_read_as_they_were() {
    let mut random = Random { state: 11 };
    let (mut kinds, mut called) = (HashSet::new(), HashSet::new());
    let fields = fields();
    for _ in 0..3_000 {
        let expr = random.expr(&fields, 4);
        let mut open = vec![&expr];
        while let Some(expr) = open.pop() {
            kinds.insert(discriminant(&expr.kind));
            if let ExprKind::Function(function, _) = expr.kind {
                called.insert(function);
            }
            open.extend(children(expr));
        }
        round_trip(&filter(expr));
    }
    assert_eq!(kinds.len(), 18, "kinds of expressions");
    assert_eq!(called, functions().into_iter().collect::<HashSet<Function>>());
}

/// What can be said briefly, and what it is read as.
#[test]
fn texts_are_brief_where_types_follow() {
    let tables = [Table { name: "t".into(), fields: fields() }];
    for expr in [
        "v < 5 and #0 is not null or not s like '%it''s_'",
        "v + 1 = #6",
        "-v - -3 * (v - 1) % 2 > 0",
        "m * 1.25 >= -0.0100",
        "d + Interval '1 months 0 days 0 ns' < '1969-12-31'",
        "case when v in (1, 2) then 'few' when v is not distinct from 3 then null else s end || '!' = 'x'",
        "coalesce(#0, -9223372036854775808) not in (1, null)",
        "cast(v as Int64) = #0 and s ~ '(?i)a+' and try_cast(s as Int32) is null",
        "\"sum(v)\" <> NaN and \"sum(v)\" <= -inf",
        "date_part(year, d) = 1995 and date_trunc(month, d) = d and contains(s, E'\\n')",
        "(#9 : Int64?) = #0 or (scalar(0) : Int32?) = v or (v + v : Int64) > 5",
        "Int32 5 = Int32 6 or 5 = 6 or 99999999999 = d",
    ] {
        let plan =
            parse(&format!("filter {expr}\n  scan t"), &tables).unwrap_or_else(|e| panic!("{expr}: {e}"));
        assert_eq!(print(&plan).lines().next(), Some(format!("filter {expr}").as_str()));
        round_trip(&plan);
    }
}

#[test]
fn plans_are_trees_of_lines() {
    let text = "\
sort total desc nulls last, city asc nulls first fetch 3
  aggregate by city; sum(v) as total, count(distinct customer), min(v) as least: Int64?; names total
    join build_outer on build.id = probe.customer residual build.id > 5 and probe.v <> 0 null_equal
      scan customers source 0 (id: Int64, city: Utf8?)
      union
        scan orders source 1 (customer: Int64?, v: Int32 at 7)
        ranked by k; order by v desc nulls last; median(v)
          project k, v
            scan t source 2 (k: Int64?, v: Int32)
";
    let plan = parse(text, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(round_trip(&plan), text);
    let sets = "\
grouping_sets by k, v + 1 as w; sets (k, w) = 0, (k) = 1, () = 3 as id: Int32; count(*) as n
  scan t source 0 (k: Int64, v: Int32)
";
    let plan = parse(sets, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(round_trip(&plan), sets);
    assert_eq!(plan.fields(), parse_fields("k: Int64?, w: Int32?, id: Int32, n: Int64").expect("columns"));
}

#[test]
fn errors_say_where_and_what() {
    let scan = "  scan t source 0 (k: Int64?, v: Int32, s: Utf8)";
    for (line, expected) in [
        ("filter w > 1", "1:8: there is no column w"),
        ("filter v > ", "1:12: expected an expression, found the end of the line"),
        ("filter v > 'x'", "1:12: 'x' is no value of type Int32"),
        ("filter v = v = v", "1:14: comparisons of comparisons need brackets"),
        ("filter (v > 1", "1:14: expected `)`, found the end of the line"),
        ("filter v ! 1", "1:10: the character '!' has no meaning here"),
        ("filter s = 'x", "1:12: a closing ' is missing"),
        ("filter s ~ '('", "1:12: the regular expression '(' is not compiled"),
        ("filter median(v)", "1:8: expected a function, found `median`"),
        ("filter scalar(0)", "1:8: the type of `scalar` must follow"),
        ("aggregate by k sum(v)", "1:16: expected `;`, found `sum`"),
        ("aggregate total(v)", "1:11: expected an aggregate function, found `total`"),
        ("sort v fetch x", "1:14: expected a number of rows, found `x`"),
        ("join inner", "1:1: a join has 2 inputs"),
        ("select v", "1:1: there is no operator `select`"),
        ("limit skip 1 2", "1:14: expected the end of the line, found `2`"),
        ("project cast(v as Int65)", "1:19: expected a type, found `Int65`"),
    ] {
        let error = parse(&format!("{line}\n{scan}"), &[]).expect_err(line).to_string();
        assert!(error.starts_with(expected), "{line}: {error}");
    }
    for (text, expected) in [
        ("", "1:1: expected an operator, found nothing"),
        (
            "limit\n    scan t source 0 (k: Int64)\n  scan t source 0 (k: Int64)",
            "3:3: inputs of one operator",
        ),
        ("scan t source 0 (k: Int64)\nscan t source 0 (k: Int64)", "2:1: expected the end of the plan"),
        ("scan t", "1:6: there is no table t"),
    ] {
        let error = parse(text, &[]).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let deep = format!("filter {}v{}\n{scan}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(parse(&deep, &[]).expect_err("deep").message.contains("nested deeper"));
    let chain = format!("filter v = 1{}\n{scan}", " or v = 1".repeat(1_900));
    round_trip(&parse(&chain, &[]).expect("a long chain"));
    let long = format!("filter v = 1{}\n{scan}", " or v = 1".repeat(5_000));
    assert!(parse(&long, &[]).expect_err("long").message.contains("operators on top of each other"));
}

#[test]
fn rows_are_values_of_their_types() {
    let fields = parse_fields(
        "a: Int8, b: Utf8?, c: Decimal128(5, 2), d: Date32, e: Timestamp(Millisecond), f: Float32",
    )
    .expect("columns");
    let row =
        parse_row("-128, null, -0.5, '1969-12-31', '1969-12-31T23:59:59.999', -0.0", &fields).expect("a row");
    let expected = [
        Literal::Int(-128),
        Literal::Null,
        Literal::Int(-50),
        Literal::Int(-1),
        Literal::Int(-1),
        Literal::Float(-0.0),
    ];
    assert_eq!(row, expected);
    let date = |text: &str| parse_row(text, &fields[3..4]);
    assert_eq!(date("'0000-03-01'"), Ok(vec![Literal::Int(-719_468)]));
    assert_eq!(date("'2000-02-29'"), Ok(vec![Literal::Int(11_016)]));
    for text in ["'1900-02-29'", "'1970-13-01'", "'1970-1'", "1.5", "x", ""] {
        assert!(date(text).is_err(), "{text}");
    }
    assert!(parse_row("1, 'x'", &fields).is_err() && parse_row("0.001", &fields[2..3]).is_err());
}

/// Texts of plans with parts left out, doubled or exchanged: whatever they are, reading them ends, and what is read is printed as such.
#[test]
fn damaged_texts_are_errors_or_other_plans() {
    let mut random = Random { state: 3 };
    let mut read = 0;
    for _ in 0..200 {
        let depth = random.below(3);
        let text: Vec<char> = print(&random.plan(depth)).chars().collect();
        for _ in 0..10 {
            let (from, length) = (random.below(text.len()), 1 + random.below(6));
            let part = &text[from..text.len().min(from + length)];
            let place = random.below(text.len());
            let (before, after) = text.split_at(place);
            let rest = if random.below(2) == 0 { after } else { &after[after.len().min(length)..] };
            let damaged: String = before.iter().chain(part).chain(rest).collect();
            if let Ok(plan) = parse(&damaged, &[]) {
                read += 1;
                round_trip(&plan);
            }
        }
    }
    assert!(read > 20, "{read} are plans");
}

#[test]
fn constants_of_every_type_are_read_as_they_were() {
    let mut random = Random { state: 5 };
    for value in [0, 1, -1, 9, 36_524, -719_469, 86_399_999, i128::from(i64::MIN), i128::MAX, i128::MIN] {
        for _ in 0..40 {
            let expr = Expr::literal(Literal::Int(value), random.data_type());
            round_trip(&filter(expr));
        }
    }
    let null = Expr::literal(Literal::Null, DataType::Null);
    assert_eq!(round_trip(&filter(null)).lines().next(), Some("filter null"));
}
