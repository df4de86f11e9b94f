//! Plans over two tables, for tests that run each of them in many ways.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function};
use kelpie_compile::plan::{
    Aggregate, AggregateFunction, GroupingSet, GroupingSets, Join, JoinKind, Plan, Rank, Ranked, RankedValue,
    Scan, SortKey,
};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{CancelToken, Engine, EngineError, Query, QueryOptions, QueryOutput, TableSource};

use crate::common::Table;
use crate::common::cases::covering;

/// `k`: few values and NULLs; `n`: 0..rows; `s`: few texts; `u`: unique text and NULLs; `f`: doubles.
pub fn table(rows: usize) -> Arc<dyn TableSource> {
    let schema = Schema::new(vec![
        ArrowField::new("k", ArrowType::Int64, true),
        ArrowField::new("n", ArrowType::Int32, false),
        ArrowField::new("s", ArrowType::Utf8, false),
        ArrowField::new("u", ArrowType::Utf8, true),
        ArrowField::new("f", ArrowType::Float64, false),
    ]);
    let all = 0..rows;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(all.clone().map(|row| (row % 7 != 3).then_some((row % 40) as i64)))),
        Arc::new(Int32Array::from_iter_values(all.clone().map(|row| row as i32))),
        Arc::new(StringArray::from_iter_values(all.clone().map(|row| ["x", "", "zß", "long text"][row % 4]))),
        Arc::new(StringArray::from_iter(
            all.clone().map(|row| (row % 11 != 5).then(|| format!("unique é {row}"))),
        )),
        Arc::new(Float64Array::from_iter_values(all.map(|row| row as f64 / 4.0 - 10.0))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

pub fn scan(source: usize) -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("k", DataType::Int64, true),
        field("n", DataType::Int32, false),
        field("s", DataType::Utf8, false),
        field("u", DataType::Utf8, true),
        field("f", DataType::Float64, false),
    ];
    Plan::Scan(Scan { source, table: "t".into(), columns: (0..5).collect(), fields })
}

fn column(plan: &Plan, index: usize) -> Expr {
    let field = &plan.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

fn compare(op: CompareOp, expr: Expr, value: i128) -> Expr {
    let nullable = expr.nullable;
    let literal = Expr::literal(Literal::Int(value), expr.data_type.clone());
    let kind = ExprKind::Compare(op, Box::new(expr), Box::new(literal));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

pub fn filter(input: Plan, index: usize, op: CompareOp, value: i128) -> Plan {
    let predicate = compare(op, column(&input, index), value);
    Plan::Filter { input: Box::new(input), predicate }
}

/// Whether a text matches a pattern, or does not.
pub fn like(input: &Plan, index: usize, pattern: &str, negated: bool) -> Expr {
    let (text, case_insensitive) = (column(input, index), false);
    let nullable = text.nullable;
    let pattern = Expr::literal(Literal::Utf8(pattern.into()), DataType::Utf8);
    let kind =
        ExprKind::Like { input: Box::new(text), pattern: Box::new(pattern), negated, case_insensitive };
    Expr { kind, data_type: DataType::Boolean, nullable }
}

/// Columns of the input, and the sum of column `a` and itself.
pub fn project(input: Plan, columns: &[usize], a: usize) -> Plan {
    let mut exprs: Vec<Expr> = columns.iter().map(|index| column(&input, *index)).collect();
    let operand = column(&input, a);
    let (data_type, nullable) = (operand.data_type.clone(), operand.nullable);
    let kind = ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(operand.clone()), Box::new(operand));
    exprs.push(Expr { kind, data_type, nullable });
    let names = (0..exprs.len()).map(|index| format!("c{index}")).collect();
    Plan::Project { input: Box::new(input), exprs, names }
}

pub fn join(kind: JoinKind, build: Plan, probe: Plan, keys: &[(usize, usize)], residual: bool) -> Plan {
    let keys = keys.iter().map(|(a, b)| (column(&build, *a), column(&probe, *b))).collect();
    let (mut left, width) = (build.fields(), build.fields().len());
    left.extend(probe.fields());
    let side = |index: usize| Expr::column(index, left[index].data_type.clone(), left[index].nullable);
    let residual = residual.then(|| Expr {
        kind: ExprKind::Compare(CompareOp::Lt, Box::new(side(1)), Box::new(side(width + 1))),
        data_type: DataType::Boolean,
        nullable: false,
    });
    Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal: false, null_aware: false }))
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
    let names = keys.iter().enumerate().map(|(index, _)| format!("k{index}")).collect();
    let aggregates = aggregates.iter().map(|(function, argument, distinct)| {
        let argument = argument.map(|index| column(&input, index));
        let data_type = match (function, &argument) {
            (Count, _) | (Sum, Some(_)) => DataType::Int64,
            (Avg, _) => DataType::Float64,
            (_, Some(expr)) => expr.data_type.clone(),
            _ => DataType::Int64,
        };
        let field = Field { name: format!("{function:?}"), data_type, nullable: true };
        Aggregate { function: *function, argument, distinct: *distinct, field }
    });
    let aggregates = aggregates.collect();
    Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
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
    let rank = Rank::FromFirst(Expr::literal(Literal::Int(0), DataType::Int64));
    ranked.values[0] = RankedValue { rank, argument: first, counted: None, field };
    Plan::Ranked(ranked)
}

/// Medians of doubles, their number, and the text and number of the last row of each group.
fn ranked(input: Plan, keys: &[usize]) -> Plan {
    let names = keys.iter().enumerate().map(|(index, _)| format!("k{index}")).collect();
    let keys = keys.iter().map(|key| column(&input, *key)).collect();
    let sorted = |index| SortKey { expr: column(&input, index), descending: false, nulls_first: false };
    let value = |rank, index| {
        let argument = column(&input, index);
        let field = Field { name: "v".into(), data_type: argument.data_type.clone(), nullable: true };
        RankedValue { rank, argument, counted: None, field }
    };
    let last = || Rank::FromLast(Expr::literal(Literal::Int(0), DataType::Int64));
    let values = vec![value(Rank::Median, 4), value(last(), 3), value(last(), 1)];
    let field = Field { name: "n".into(), data_type: DataType::Int64, nullable: true };
    let aggregates = vec![Aggregate { function: Count, argument: None, distinct: false, field }];
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
    ranked.order = vec![SortKey { expr: column(&ranked.input, 2), descending: false, nulls_first: true }];
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
    let delimiter = Expr::literal(Literal::Utf8(delimiter.into()), DataType::Utf8);
    let field = Field { name: "v".into(), data_type: DataType::Utf8, nullable: true };
    let rank = Rank::Texts { delimiter, distinct };
    RankedValue { rank, argument: column(input, index), counted: None, field }
}

pub fn sort(input: Plan, keys: &[usize], fetch: Option<usize>) -> Plan {
    let key = |index: &usize| SortKey { expr: column(&input, *index), descending: true, nulls_first: true };
    let keys = keys.iter().map(key).collect();
    Plan::Sort { input: Box::new(input), keys, fetch }
}

pub fn union(inputs: Vec<Plan>) -> Plan {
    let nullable = |index: usize| inputs.iter().any(|input| input.fields()[index].nullable);
    let fields = inputs[0].fields().into_iter().enumerate();
    let fields = fields.map(|(index, field)| Field { nullable: nullable(index), ..field }).collect();
    Plan::Union { inputs, fields }
}

use AggregateFunction::{Avg, Count, Max, Min, Sum};
use JoinKind::*;

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
    let text = Expr::literal(Literal::Utf8("unique é 77".into()), DataType::Utf8);
    let equal = ExprKind::Compare(CompareOp::Eq, Box::new(column(&scan(0), 3)), Box::new(text));
    let equal = Expr { kind: equal, data_type: DataType::Boolean, nullable: true };
    let texts = Plan::Filter { input: Box::new(few()), predicate: equal };
    let matching = Plan::Filter { input: Box::new(few()), predicate: like(&scan(0), 3, "%é%7%", false) };
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
        (
            "limit counts".into(),
            aggregate(Plan::Limit { input: Box::new(few()), skip: 3, fetch: Some(40) }, &[], &ALL[..1]),
            false,
        ),
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
    let name = |name: &str| Expr::literal(Literal::Utf8(name.into()), DataType::Utf8);
    let below = |limit| compare(CompareOp::Lt, column(input, 1), limit);
    let few = compare(CompareOp::Eq, column(input, 0), 3);
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
    let names = (0..exprs.len()).map(|index| format!("c{index}")).collect();
    filter(Plan::Project { input: Box::new(input), exprs, names }, 1, CompareOp::Ge, 9)
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
    let (number, row) = (column(&input, 0), column(&input, 1));
    let (data_type, nullable) = (number.data_type.clone(), number.nullable);
    let factor = Box::new(Expr::literal(Literal::Int(1_000_003), data_type.clone()));
    let kind = ExprKind::Arithmetic(ArithmeticOp::Multiply, Box::new(number), factor);
    let exprs = vec![Expr { kind, data_type, nullable }, row];
    Plan::Project { input: Box::new(input), exprs, names: vec!["far".into(), "n".into()] }
}

/// The five columns, one of them computed.
fn project_back(input: Plan) -> Plan {
    let exprs: Vec<Expr> = (0..5).map(|index| column(&input, index)).collect();
    let names = vec![String::new(); 5];
    let operand = Box::new(exprs[1].clone());
    let zero = Box::new(Expr::literal(Literal::Int(0), DataType::Int32));
    let kind = ExprKind::Arithmetic(ArithmeticOp::Add, operand, zero);
    let mut exprs = exprs;
    exprs[1] = Expr { kind, data_type: DataType::Int32, nullable: false };
    Plan::Project { input: Box::new(input), exprs, names }
}

pub fn run(
    engine: &Engine,
    plan: &Plan,
    sources: &[Arc<dyn TableSource>],
    options: &QueryOptions,
) -> QueryOutput {
    match try_run(engine, plan, sources, options) {
        Ok(output) => output,
        Err(error) => panic!("{options:?}: {error}"),
    }
}

pub fn try_run(
    engine: &Engine,
    plan: &Plan,
    sources: &[Arc<dyn TableSource>],
    options: &QueryOptions,
) -> Result<QueryOutput, EngineError> {
    let query = Query { plan: plan.clone(), sources: sources.to_vec(), options: options.clone() };
    engine.execute(&query, &CancelToken::default())
}

/// The rows of a batch as text, in order where that counts.
pub fn rows_of(batch: &RecordBatch, ordered: bool) -> Vec<String> {
    let cell = |column: usize, row: usize| {
        let array = batch.column(column);
        if array.is_null(row) { "-".into() } else { array_value_to_string(array, row).expect("prints") }
    };
    let row =
        |row| (0..batch.num_columns()).map(|column| cell(column, row)).collect::<Vec<String>>().join("|");
    let mut rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    if !ordered {
        rows.sort();
    }
    rows
}
