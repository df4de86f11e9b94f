//! Values at ranks of sorted groups: the kernels validate for every target and micro model, and NVRTC accepts those of a GPU; of a
//! row no more is stored and sorted by than the values and their order need.

use kelpie_compile::MicroModel;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Rank, Ranked, RankedValue, Scan, SortKey};
use kelpie_compile::types::{DataType, Literal, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{accepts, compile, compile_as, field, gpu};

const DECIMAL: DataType = DataType::Decimal128 { precision: 15, scale: 2 };

/// A key of 14 bits, prices of 24, quantities of 6 with NULLs, and a text.
fn table() -> (Plan, ScanInfo) {
    let fields = vec![
        field("supplier", DataType::Int64, false),
        field("price", DECIMAL, false),
        field("quantity", DataType::Int32, true),
        field("text", DataType::Utf8, true),
        field("float", DataType::Float32, true),
    ];
    let fixed = |scalar, has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: true },
        has_nulls,
        range: Some(Range { min: 1, max }),
    };
    let text = ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None };
    let storage = Storage::Fixed { scalar: Scalar::F32, has_base: false };
    let layouts = vec![
        fixed(Scalar::U16, false, 10_000),
        fixed(Scalar::U32, false, 10_494_950),
        fixed(Scalar::U8, true, 50),
        text,
        ColumnLayout { storage, has_nulls: true, range: None },
    ];
    let scan = Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    (Plan::Scan(scan), ScanInfo::new(6_000_000, layouts))
}

fn column(index: usize) -> Expr {
    let field = &table().0.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

fn cast(input: Expr, data_type: DataType) -> Expr {
    let nullable = input.nullable;
    Expr { kind: ExprKind::Cast { input: Box::new(input), safe: false }, data_type, nullable }
}

/// `CASE WHEN quantity < 9 THEN value END`.
fn filtered(value: Expr) -> Expr {
    let literal = Box::new(Expr::literal(Literal::Int(9), DataType::Int32));
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(column(2)), literal);
    let condition = Expr { kind, data_type: DataType::Boolean, nullable: true };
    let data_type = value.data_type.clone();
    let kind = ExprKind::Case { branches: vec![(condition, value)], otherwise: None };
    Expr { kind, data_type, nullable: true }
}

fn value(rank: Rank, argument: Expr, counted: Option<Expr>) -> RankedValue {
    let field = field("value", argument.data_type.clone(), true);
    RankedValue { rank, argument, counted, field }
}

fn ranked(keys: &[usize], order: Vec<Expr>, values: Vec<RankedValue>) -> (Plan, ScanInfo) {
    let (input, info) = table();
    let sum = Aggregate {
        function: AggregateFunction::Sum,
        argument: Some(column(2)),
        distinct: false,
        field: field("sum", DataType::Int64, true),
    };
    let order = order.into_iter().map(|expr| SortKey { expr, descending: false, nulls_first: false });
    let plan = Ranked {
        input,
        keys: keys.iter().copied().map(column).collect(),
        order: order.collect(),
        aggregates: vec![sum],
        values,
        names: keys.iter().map(|key| format!("k{key}")).collect(),
    };
    (Plan::Ranked(Box::new(plan)), info)
}

/// The median of prices, of quantities as floats and where a condition holds, and values of other rows in that order.
fn medians(keys: &[usize]) -> Vec<(Plan, ScanInfo)> {
    let share = || Rank::Percentile(Expr::literal(Literal::Float(0.25), DataType::Float64));
    let discrete = || Rank::Discrete(Expr::literal(Literal::Float(0.9), DataType::Float64));
    let number = |number| Expr::literal(Literal::Int(number), DataType::Int64);
    let of = |argument: Expr, rank| {
        let counted = argument.nullable.then(|| argument.clone());
        value(rank, argument, counted)
    };
    let as_float = |expr| cast(expr, DataType::Float64);
    let quantity = || as_float(column(2));
    let left = || filtered(as_float(column(1)));
    vec![
        ranked(keys, vec![column(1)], vec![of(column(1), Rank::Median)]),
        ranked(keys, vec![quantity()], vec![of(quantity(), Rank::Median), of(quantity(), share())]),
        ranked(keys, vec![left()], vec![of(left(), Rank::Median), of(left(), share())]),
        ranked(keys, vec![column(4)], vec![of(column(4), Rank::Median), of(column(4), share())]),
        ranked(keys, vec![column(3)], vec![of(column(3), discrete())]),
        ranked(
            keys,
            vec![column(1), column(3)],
            vec![
                value(Rank::FromFirst(number(0)), column(3), None),
                value(Rank::FromLast(number(2)), column(2), None),
            ],
        ),
        ranked(
            keys,
            vec![column(2)],
            vec![
                value(Rank::FromFirst(number(0)), column(3), None),
                value(Rank::FromFirst(number(0)), quantity(), None),
                value(Rank::FromLast(number(0)), column(1), None),
            ],
        ),
    ]
}

/// Texts strung together by prices, some of them left out, beside other values; in their own order without equal ones; and in the
/// order of the rows.
fn texts(keys: &[usize]) -> Vec<(Plan, ScanInfo)> {
    let strung = |delimiter: &str, distinct| {
        let delimiter = Expr::literal(Literal::Utf8(delimiter.into()), DataType::Utf8);
        Rank::Texts { delimiter, distinct }
    };
    let number = |number| Expr::literal(Literal::Int(number), DataType::Int64);
    vec![
        ranked(
            keys,
            vec![column(1)],
            vec![
                value(strung(", ", false), column(3), None),
                value(Rank::FromFirst(number(1)), column(3), None),
                value(strung("", false), filtered(column(3)), None),
                value(Rank::Median, column(1), None),
            ],
        ),
        ranked(keys, vec![column(3)], vec![value(strung("-", true), column(3), None)]),
        ranked(keys, vec![], vec![value(strung(",", false), column(3), None)]),
    ]
}

#[test]
fn kernels_of_ranks_are_accepted() {
    let gpu = gpu();
    for target in [&gpu, &Target::simt(4, 8, 200 << 10, 4), &Target::cpu(2)] {
        for keys in [&[][..], &[0], &[3, 0], &[4]] {
            for query in medians(keys).into_iter().chain(texts(keys)) {
                for micro_model in MicroModel::ALL {
                    accepts(compile_as(&query, target, micro_model, &[]), target);
                }
            }
        }
    }
}

/// What only gives a value another form in the same order is not sorted by: the floats that integers and decimals are cast to would
/// take 64 bits of their own.
#[test]
fn one_word_is_sorted_by() {
    for query in &medians(&[0])[..4] {
        let program = compile(query, &Target::cpu(2), &[]);
        let sorting =
            program.pipelines.iter().find_map(|pipeline| pipeline.variant.sorting()).expect("a sort");
        assert_eq!(sorting.words.len(), 1);
        assert!(sorting.is_exact);
    }
    // A text has two words of its own.
    let program = compile(&medians(&[3, 0])[0], &Target::cpu(2), &[]);
    let sorting = program.pipelines.iter().find_map(|pipeline| pipeline.variant.sorting()).expect("a sort");
    assert_eq!((sorting.words.len(), sorting.texts.len()), (3, 1));
}
