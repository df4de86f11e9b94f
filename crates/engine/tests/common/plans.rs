//! Plans over two tables, for tests that run each of them in many ways.

use crate::common::*;
use kelpie_compile::plan::{GroupingSet, GroupingSets};

use AggregateFunction::{Avg, Count, Max, Min, Sum};
use JoinKind::*;

/// `k`: few values and NULLs; `n`: 0..rows; `s`: few texts; `u`: unique text and NULLs; `f`: doubles.
pub const COLUMNS: [Column; 5] = [
    ("k", DataType::Int64, true),
    ("n", DataType::Int32, false),
    ("s", DataType::Utf8, false),
    ("u", DataType::Utf8, true),
    ("f", DataType::Float64, false),
];

pub fn table(rows: usize) -> Arc<dyn TableSource> {
    let unique = |row| (row % 11 != 5).then(|| format!("unique é {row}"));
    keyed(rows, |row| (row % 7 != 3).then_some((row % 40) as i64), unique)
}

/// The same with other keys and unique texts.
pub fn keyed(
    rows: usize,
    key: impl Fn(usize) -> Option<i64>,
    unique: impl Fn(usize) -> Option<String>,
) -> Arc<dyn TableSource> {
    let arrays = vec![
        maybe_longs((0..rows).map(key)),
        ints((0..rows).map(|row| row as i32)),
        texts((0..rows).map(|row| ["x", "", "zß", "long text"][row % 4])),
        maybe_texts((0..rows).map(unique)),
        doubles((0..rows).map(|row| row as f64 / 4.0 - 10.0)),
    ];
    table_of(&COLUMNS, arrays)
}

pub fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

pub fn filter(input: Plan, index: usize, op: CompareOp, value: i128) -> Plan {
    let predicate = compare_with(op, column(&input, index), value);
    keep(input, predicate)
}

/// Whether a text matches a pattern, or does not.
pub fn like(input: &Plan, index: usize, pattern: &str, negated: bool) -> Expr {
    let (text, case_insensitive) = (column(input, index), false);
    let (nullable, pattern) = (text.nullable, Box::new(text_literal(pattern)));
    boolean(ExprKind::Like { input: Box::new(text), pattern, negated, case_insensitive }, nullable)
}

/// Columns of the input, and the sum of column `a` and itself.
pub fn project(input: Plan, columns: &[usize], a: usize) -> Plan {
    let mut exprs: Vec<Expr> = columns.iter().map(|index| column(&input, *index)).collect();
    exprs.push(arithmetic(ArithmeticOp::Add, column(&input, a), column(&input, a)));
    values_of(input, exprs)
}

pub fn join(kind: JoinKind, build: Plan, probe: Plan, keys: &[(usize, usize)], residual: bool) -> Plan {
    let keys = keys.iter().map(|(a, b)| (column(&build, *a), column(&probe, *b))).collect();
    let (mut left, width) = (build.fields(), build.fields().len());
    left.extend(probe.fields());
    let side = |index: usize| Expr::column(index, left[index].data_type.clone(), left[index].nullable);
    let less = || compare(CompareOp::Lt, side(1), side(width + 1));
    let residual = residual.then(|| Expr { nullable: false, ..less() });
    Plan::Join(Box::new(Join { residual, ..join_of(kind, build, probe, keys) }))
}

/// INTERSECT or EXCEPT: a join by all columns of the side that has fewer.
pub fn set_operation(kind: JoinKind, build: Plan, probe: Plan) -> Plan {
    let columns = build.fields().len().min(probe.fields().len());
    let keys: Vec<(usize, usize)> = (0..columns).map(|column| (column, column)).collect();
    let Plan::Join(join) = join(kind, build, probe, &keys, false) else { return scan(0) };
    Plan::Join(Box::new(Join { null_equal: true, ..*join }))
}

pub fn aggregate(
    input: Plan,
    keys: &[usize],
    aggregates: &[(AggregateFunction, Option<usize>, bool)],
) -> Plan {
    let keys: Vec<Expr> = keys.iter().map(|key| column(&input, *key)).collect();
    let aggregates = aggregates.iter().map(|(function, argument, distinct)| {
        let argument = argument.map(|index| column(&input, index));
        let data_type = match (function, &argument) {
            (Count, _) | (Sum, Some(_)) => DataType::Int64,
            (Avg, _) => DataType::Float64,
            (_, Some(expr)) => expr.data_type.clone(),
            _ => DataType::Int64,
        };
        Aggregate { distinct: *distinct, ..of(*function, argument, data_type) }
    });
    let aggregates = aggregates.collect();
    groups_of(input, keys, aggregates)
}

/// Groups by several sets of keys, each given by the places of its keys among `keys`.
pub fn grouping_sets(
    input: Plan,
    (keys, sets): (&[usize], &[&[usize]]),
    aggregates: &[(AggregateFunction, Option<usize>, bool)],
) -> Plan {
    let Plan::Aggregate { input, keys, aggregates, .. } = aggregate(input, keys, aggregates) else {
        return scan(0);
    };
    let set = |(index, set): (usize, &&[usize])| {
        let has = (0..keys.len()).map(|key| set.contains(&key)).collect();
        GroupingSet { has, identifier: index as i128 }
    };
    let sets = sets.iter().enumerate().map(set).collect();
    let key = |(index, key): (usize, &Expr)| Field {
        name: format!("k{index}"),
        data_type: key.data_type.clone(),
        nullable: true,
    };
    let mut fields: Vec<Field> = keys.iter().enumerate().map(key).collect();
    fields.push(Field { name: "set".into(), data_type: DataType::Int64, nullable: false });
    fields.extend(aggregates.iter().map(|aggregate| aggregate.field.clone()));
    Plan::GroupingSets(Box::new(GroupingSets { input: *input, keys, sets, aggregates, fields }))
}

/// The texts and numbers of the last rows of groups by their numbers, and the first of a column of few values.
fn ends(input: Plan, keys: &[usize]) -> Plan {
    let Plan::Ranked(mut ranked) = ranked(input, keys) else { return scan(0) };
    ranked.order.remove(0);
    let first = column(&ranked.input, 0);
    let field = Field { name: "v".into(), data_type: first.data_type.clone(), nullable: true };
    let rank = Rank::FromFirst(int(0));
    ranked.values[0] = RankedValue { rank, argument: first, counted: None, field };
    Plan::Ranked(ranked)
}

/// Medians of doubles, their number, and the text and number of the last row of each group.
fn ranked(input: Plan, keys: &[usize]) -> Plan {
    let names = keys.iter().enumerate().map(|(index, _)| format!("k{index}")).collect();
    let keys = keys.iter().map(|key| column(&input, *key)).collect();
    let sorted = |index| sort_key(column(&input, index), false, false);
    let value = |rank, index| {
        let argument = column(&input, index);
        let field = Field { name: "v".into(), data_type: argument.data_type.clone(), nullable: true };
        RankedValue { rank, argument, counted: None, field }
    };
    let last = || Rank::FromLast(int(0));
    let values = vec![value(Rank::Median, 4), value(last(), 3), value(last(), 1)];
    let aggregates = vec![of_longs(Count, None)];
    let order = vec![sorted(4), sorted(1)];
    Plan::Ranked(Box::new(Ranked { keys, order, aggregates, values, names, input }))
}

/// Texts of groups by their numbers from the last to the first, and others with NULLs, beside a count.
fn strung_texts(input: Plan, keys: &[usize]) -> Plan {
    let Plan::Ranked(mut ranked) = ranked(input, keys) else { return scan(0) };
    ranked.order.remove(0);
    ranked.order[0].descending = true;
    ranked.values = [strung(&ranked.input, 2, "; ", false), strung(&ranked.input, 3, "", false)].into();
    Plan::Ranked(ranked)
}

/// Texts of groups, each once, in their own order.
fn distinct_texts(input: Plan, keys: &[usize]) -> Plan {
    let Plan::Ranked(mut ranked) = ranked(input, keys) else { return scan(0) };
    ranked.order = vec![sort_key(column(&ranked.input, 2), false, true)];
    ranked.values = vec![strung(&ranked.input, 2, ",", true)];
    Plan::Ranked(ranked)
}

/// Texts of groups in the order of the rows.
fn texts_of_rows(input: Plan, keys: &[usize]) -> Plan {
    let Plan::Ranked(mut ranked) = ranked(input, keys) else { return scan(0) };
    ranked.order = Vec::new();
    ranked.values = vec![strung(&ranked.input, 3, ",", false)];
    Plan::Ranked(ranked)
}

fn strung(input: &Plan, index: usize, delimiter: &str, distinct: bool) -> RankedValue {
    let delimiter = text_literal(delimiter);
    let field = Field { name: "v".into(), data_type: DataType::Utf8, nullable: true };
    let rank = Rank::Texts { delimiter, distinct };
    RankedValue { rank, argument: column(input, index), counted: None, field }
}

pub fn sort(input: Plan, keys: &[usize], fetch: Option<usize>) -> Plan {
    let keys = keys.iter().map(|index| sort_key(column(&input, *index), true, true)).collect();
    sorted(input, keys, fetch)
}

pub fn union(inputs: Vec<Plan>) -> Plan {
    let nullable = |index: usize| inputs.iter().any(|input| input.fields()[index].nullable);
    let fields = inputs[0].fields().into_iter().enumerate();
    let fields = fields.map(|(index, field)| Field { nullable: nullable(index), ..field }).collect();
    Plan::Union { inputs, fields }
}

const ALL: [(AggregateFunction, Option<usize>, bool); 6] = [
    (Count, None, false),
    (Count, Some(0), true),
    (Sum, Some(1), false),
    (Min, Some(0), false),
    (Max, Some(3), false),
    (Avg, Some(4), false),
];

/// Without those that count equal values once.
const LEVELS: [(AggregateFunction, Option<usize>, bool); 5] = [ALL[0], ALL[2], ALL[3], ALL[4], ALL[5]];

const INTEGERS: [(AggregateFunction, Option<usize>, bool); 4] =
    [(Count, None, false), (Sum, Some(1), false), (Min, Some(0), false), (Count, Some(0), false)];

/// Some of [`plans`], of which there is each kind of join, and each set of keys.
pub fn some_plans(name: &str, most: usize) -> Vec<(String, Plan, bool)> {
    covering(name, plans(), most, |(name, ..)| {
        name.split_once(" on ")
            .into_iter()
            .flat_map(|(kind, keys)| [kind.to_string(), keys.to_string()])
            .collect()
    })
}

/// Plans over two tables, and whether their order counts.
pub fn plans() -> Vec<(String, Plan, bool)> {
    let few = || filter(scan(0), 1, CompareOp::Lt, 90);
    let wide = || project(few(), &[3, 2, 0, 1], 1);
    let equal = compare(CompareOp::Eq, column(&scan(0), 3), text_literal("unique é 77"));
    let texts = keep(few(), equal);
    let matching = keep(few(), like(&scan(0), 3, "%é%7%", false));
    let mut plans = vec![
        ("scan".into(), scan(0), false),
        ("filter".into(), few(), false),
        ("texts that are equal".into(), texts, false),
        ("texts that match".into(), aggregate(matching, &[2], &ALL), false),
        ("nothing left".into(), filter(scan(0), 1, CompareOp::Lt, -1), false),
        ("projections and filters".into(), filter(wide(), 4, CompareOp::Ge, 60), false),
        ("no groups' keys".into(), aggregate(filter(scan(0), 0, CompareOp::Gt, 5), &[], &ALL), false),
        ("aggregates of nothing".into(), aggregate(filter(few(), 1, CompareOp::Lt, 0), &[], &ALL), false),
        ("sums of integers".into(), aggregate(few(), &[], &INTEGERS), false),
        ("sums of few rows".into(), aggregate(filter(scan(1), 0, CompareOp::Eq, 7), &[], &INTEGERS), false),
        ("sums of all rows".into(), aggregate(project(scan(0), &[0, 1], 1), &[], &INTEGERS[1..]), false),
        ("sums of floats".into(), aggregate(few(), &[], &[ALL[0], ALL[5]]), false),
        ("groups by text".into(), aggregate(few(), &[2], &ALL), false),
        (
            "sums of a number's groups".into(),
            aggregate(far_apart(scan(0)), &[0], &[ALL[0], (Sum, Some(1), false)]),
            false,
        ),
        ("groups by more".into(), aggregate(scan(0), &[3, 0], &ALL[..4]), false),
        ("groups by a number and a float".into(), aggregate(scan(0), &[0, 4], &ALL[..4]), false),
        ("groups by what follows from a number".into(), aggregate(scan(0), &[3, 1, 2], &ALL), false),
        ("groups by texts of the statement".into(), by_size(few(), true), false),
        ("groups by a text of the statement".into(), by_size(few(), false), false),
        ("groups by capitals".into(), by_capitals(scan(0)), false),
        ("groups by texts, having".into(), filter(by_size(sizes(few()), true), 2, CompareOp::Gt, 3), false),
        (
            "groups of computed keys, having".into(),
            filter(aggregate(project(few(), &[0, 1, 2, 3, 4], 1), &[5, 2], &ALL), 2, CompareOp::Gt, 0),
            false,
        ),
        ("groups of groups".into(), aggregate(aggregate(few(), &[0, 2], &ALL[..2]), &[1], &ALL[..1]), false),
        ("a rollup".into(), grouping_sets(few(), (&[2, 0], &[&[0, 1], &[0], &[]]), &LEVELS), false),
        (
            "sets of many groups".into(),
            grouping_sets(scan(0), (&[2, 0, 3], &[&[1], &[0, 2], &[], &[1]]), &LEVELS[1..]),
            false,
        ),
        ("sets that count once".into(), grouping_sets(few(), (&[2, 0], &[&[0], &[1]]), &ALL[..3]), false),
        ("medians".into(), ranked(few(), &[]), false),
        ("ends of groups".into(), ends(scan(0), &[2, 0]), false),
        ("ends of all".into(), ends(few(), &[]), false),
        ("medians of nothing".into(), ranked(filter(few(), 1, CompareOp::Lt, 0), &[]), false),
        ("medians of groups".into(), ranked(scan(0), &[0]), false),
        ("first medians of groups".into(), sort(ranked(few(), &[2, 0]), &[2, 0, 1], Some(9)), true),
        ("texts of groups".into(), strung_texts(few(), &[0]), false),
        ("texts of all".into(), strung_texts(scan(0), &[]), false),
        ("texts of groups, each once".into(), distinct_texts(scan(0), &[0]), false),
        ("texts in the order of rows".into(), texts_of_rows(few(), &[2]), false),
        ("texts of all in the order of rows".into(), texts_of_rows(scan(0), &[]), false),
        ("union".into(), union(vec![few(), filter(scan(1), 0, CompareOp::Gt, 20), scan(1)]), false),
        (
            "groups over a union".into(),
            aggregate(union(vec![wide(), project(scan(1), &[3, 2, 0, 1], 1)]), &[1], &ALL[..1]),
            false,
        ),
        ("sort".into(), sort(scan(0), &[1], None), true),
        ("sort of a filter".into(), sort(wide(), &[2, 3], None), true),
        ("first rows".into(), sort(filter(scan(0), 0, CompareOp::Gt, 5), &[4], Some(7)), true),
        (
            "first groups".into(),
            sort(aggregate(union(vec![few(), scan(1)]), &[0, 2], &ALL), &[0, 1], Some(20)),
            true,
        ),
        ("limit counts".into(), aggregate(limit(few(), 3, Some(40)), &[], &ALL[..1]), false),
    ];
    let kinds = [
        Inner, BuildOuter, ProbeOuter, FullOuter, BuildSemi, BuildAnti, BuildMark, ProbeSemi, ProbeAnti,
        ProbeMark,
    ];
    for kind in kinds {
        for (keys, residual) in
            [(&[(0, 0)][..], false), (&[(1, 1)], false), (&[(2, 2), (0, 0)], true), (&[(3, 3)], false)]
        {
            let build = filter(scan(1), 1, CompareOp::Ge, 7);
            let plan = join(kind, build, project_back(few()), keys, residual);
            plans.push((format!("{kind:?} join on {keys:?}"), plan, false));
        }
    }
    let distinct = |source, columns: &[usize]| aggregate(scan(source), columns, &[]);
    for (kind, build, probe) in [
        (BuildSemi, distinct(0, &[0, 2]), distinct(1, &[0, 2])),
        (ProbeSemi, project(scan(1), &[3], 1), distinct(0, &[3, 1])),
        (BuildAnti, distinct(0, &[0]), filter(scan(1), 0, CompareOp::Gt, 20)),
        (ProbeAnti, distinct(1, &[3, 0]), distinct(0, &[3, 0])),
    ] {
        plans.push((format!("{kind:?} join of sets"), set_operation(kind, build, probe), false));
    }
    let two = join(Inner, scan(1), few(), &[(0, 0)], false);
    let three = join(ProbeOuter, filter(scan(1), 1, CompareOp::Lt, 20), two, &[(1, 1)], false);
    let narrow = |op, limit| filter(scan(1), 1, op, limit);
    let semi = join(ProbeSemi, narrow(CompareOp::Ge, 20), few(), &[(1, 1)], false);
    let narrow = join(Inner, narrow(CompareOp::Lt, 30), semi, &[(1, 1)], false);
    let by_texts =
        |kind, limit| join(kind, filter(scan(1), 1, CompareOp::Lt, limit), few(), &[(2, 2)], false);
    plans.push(("a join by few texts".into(), aggregate(by_texts(Inner, 30), &[2], &ALL[..2]), false));
    plans.push(("rows by few texts".into(), by_texts(ProbeSemi, 2), false));
    plans.push(("joins with filtered tables".into(), aggregate(narrow, &[], &ALL[..2]), false));
    plans.push(("three tables".into(), filter(three.clone(), 11, CompareOp::Lt, 50), false));
    let outer = join(ProbeOuter, filter(scan(1), 1, CompareOp::Lt, 60), few(), &[(1, 1)], false);
    plans.push(("groups by a join's key and more".into(), aggregate(outer, &[3, 6, 4, 2], &ALL[..3]), false));
    plans.push((
        "groups over joins".into(),
        aggregate(three, &[2, 7], &[(Count, None, false), (Sum, Some(11), false)]),
        false,
    ));
    plans
}

/// What the rows of an input are called by the size of their numbers: two of three names are the same, and where there is no `otherwise`
/// some have none.
fn size(input: &Plan, otherwise: bool) -> Expr {
    let name = text_literal;
    let below = |limit| compare_with(CompareOp::Lt, column(input, 1), limit);
    let few = compare_with(CompareOp::Eq, column(input, 0), 3);
    let branches = vec![
        (below(20), name("groß")),
        (few, name("")),
        (below(30), name("klein")),
        (below(70), name("groß")),
    ];
    let otherwise = otherwise.then(|| Box::new(name("other")));
    let nullable = otherwise.is_none();
    Expr { kind: ExprKind::Case { branches, otherwise }, data_type: DataType::Utf8, nullable }
}

/// Groups by a text in capitals, of which there are few, and a number.
fn by_capitals(input: Plan) -> Plan {
    let Plan::Aggregate { input, mut keys, aggregates, names } = aggregate(input, &[2, 0], &INTEGERS) else {
        return scan(0);
    };
    let kind = ExprKind::Function(Function::Upper, vec![keys[0].clone()]);
    keys[0] = Expr { kind, ..keys[0].clone() };
    Plan::Aggregate { input, keys, aggregates, names }
}

/// The rows with their size, where another filter stands behind that.
fn sizes(input: Plan) -> Plan {
    let mut exprs: Vec<Expr> = (0..5).map(|index| column(&input, index)).collect();
    exprs[2] = size(&input, false);
    filter(values_of(input, exprs), 1, CompareOp::Ge, 9)
}

/// Groups by the size and a text column; of rows that [`sizes`] has named, by the names.
fn by_size(input: Plan, otherwise: bool) -> Plan {
    let key = match &input {
        Plan::Filter { input: below, .. } if matches!(**below, Plan::Project { .. }) => column(&input, 2),
        _ => size(&input, otherwise),
    };
    let Plan::Aggregate { input, mut keys, aggregates, names } = aggregate(input, &[2, 0], &ALL[..3]) else {
        return scan(0);
    };
    keys[0] = key;
    Plan::Aggregate { input, keys, aggregates, names }
}

/// Few numbers that lie far from each other, so that they have no places of their own in a table, and the numbers of rows. Rows in parts
/// are added up in windows that have such keys.
fn far_apart(input: Plan) -> Plan {
    let far = arithmetic(ArithmeticOp::Multiply, column(&input, 0), int(1_000_003));
    let exprs = vec![far, column(&input, 1)];
    values_of(input, exprs)
}

/// The five columns, one of them computed.
fn project_back(input: Plan) -> Plan {
    let mut exprs: Vec<Expr> = (0..5).map(|index| column(&input, index)).collect();
    exprs[1] = arithmetic(ArithmeticOp::Add, exprs[1].clone(), literal(0, DataType::Int32));
    values_of(input, exprs)
}
