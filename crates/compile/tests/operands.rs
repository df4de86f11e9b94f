//! Operands of other types than an expression combines, and plans whose columns are other than their expressions take them for,
//! are refused with a reason: compiled they would give other values, not errors.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind, Function};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::lower::{check, facts};
use kelpie_compile::pipeline::{ScanInfo, compile};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, TimeUnit};
use kelpie_kir::{Scalar, Target};

fn decimal(precision: u8, scale: i8) -> DataType {
    DataType::Decimal128 { precision, scale }
}

fn timestamp(unit: TimeUnit, timezone: Option<&str>) -> DataType {
    DataType::Timestamp { unit, timezone: timezone.map(Into::into) }
}

/// Expressions that combine values of two types.
fn combinations(a: &DataType, b: &DataType) -> Vec<(&'static str, Expr)> {
    let column = |index, data_type: &DataType| Expr::column(index, data_type.clone(), true);
    let (x, y) = (column(0, a), column(1, b));
    let pair = || (Box::new(x.clone()), Box::new(y.clone()));
    let condition = Expr::column(2, DataType::Boolean, true);
    let case = |otherwise: Option<Expr>, result: Expr| ExprKind::Case {
        branches: vec![(condition.clone(), result)],
        otherwise: otherwise.map(Box::new),
    };
    let list = |list| ExprKind::InList { input: Box::new(x.clone()), list, negated: false };
    let of = |kind, data_type: &DataType| Expr { kind, data_type: data_type.clone(), nullable: true };
    let ((l, r), (m, n)) = (pair(), pair());
    vec![
        ("CASE", of(case(Some(y.clone()), x.clone()), a)),
        ("CASE", of(case(None, y.clone()), a)),
        ("COALESCE", of(ExprKind::Function(Function::Coalesce, vec![x.clone(), y.clone()]), a)),
        ("NULLIF", of(ExprKind::Function(Function::NullIf, vec![x.clone(), y.clone()]), a)),
        ("IN list", of(list(vec![x.clone(), y.clone()]), &DataType::Boolean)),
        ("comparison", of(ExprKind::Compare(CompareOp::Lt, l, r), &DataType::Boolean)),
        ("comparison", of(ExprKind::Distinct(false, m, n), &DataType::Boolean)),
    ]
}

#[test]
fn operands_of_different_types_have_a_reason() {
    use TimeUnit::{Millisecond, Second};
    let pairs = [
        (decimal(38, 1), decimal(38, 10)),
        (decimal(10, 2), DataType::Int64),
        (timestamp(Second, None), timestamp(Millisecond, None)),
        (DataType::Int32, DataType::Int64),
        (DataType::Utf8, DataType::Date32),
        (DataType::Float32, DataType::Float64),
    ];
    for (a, b) in pairs {
        for (name, expr) in combinations(&a, &b) {
            let reason = facts(&expr, &|_| None).expect_err("refused").0;
            assert!(reason.starts_with(name) && reason.contains(&b.to_string()), "{reason}");
            let mut reasons = Vec::new();
            check(&expr, &mut reasons);
            assert_eq!(reasons, [reason]);
        }
    }
}

#[test]
fn precision_and_time_zone_change_no_value() {
    let utc = timestamp(TimeUnit::Second, Some("UTC"));
    for (a, b) in [(decimal(10, 2), decimal(38, 2)), (timestamp(TimeUnit::Second, None), utc)] {
        for (name, expr) in combinations(&a, &b) {
            facts(&expr, &|_| None).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        }
    }
}

fn scan(data_type: &DataType) -> Plan {
    let fields = vec![Field { name: "x".into(), data_type: data_type.clone(), nullable: false }];
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: vec![0], fields })
}

fn refusal(plan: &Plan) -> String {
    let storage = Storage::Fixed { scalar: Scalar::I32, has_base: false };
    let layout = ColumnLayout { storage, has_nulls: false, range: None };
    let scans = vec![ScanInfo::new(10, vec![layout]); 2];
    let compiled = compile(plan, &scans, &Target::cpu(1), MicroModel::Resolution, &BTreeSet::new());
    compiled.map(|_| ()).expect_err("refused").0
}

#[test]
fn plans_whose_columns_do_not_fit_are_refused() {
    let (two, three) = (decimal(10, 2), decimal(10, 3));
    let project = |input: Plan, expr: Expr| Plan::Project {
        input: Box::new(input),
        exprs: vec![expr],
        names: vec!["y".into()],
    };
    let taken_for = project(scan(&two), Expr::column(0, three.clone(), false));
    assert_eq!(refusal(&taken_for), "column x is of type Decimal128(10, 2), not Decimal128(10, 3)");
    let missing = project(scan(&two), Expr::column(4, two.clone(), false));
    assert_eq!(refusal(&missing), "column 4 is out of range");
    let united = Plan::Union { inputs: vec![scan(&two), scan(&three)], fields: scan(&two).fields() };
    assert_eq!(refusal(&united), "UNION of Decimal128(10, 2) and Decimal128(10, 3)");
    let null = Expr::literal(Literal::Null, DataType::Null);
    let inputs = vec![scan(&two), project(scan(&two), null)];
    let united = Plan::Union { inputs, fields: scan(&two).fields() };
    assert_eq!(refusal(&united), "UNION of Decimal128(10, 2) and Null");
    let keys = vec![(Expr::column(0, two.clone(), false), Expr::column(0, three.clone(), false))];
    let join = Join {
        build: scan(&two),
        probe: scan(&three),
        kind: JoinKind::Inner,
        keys,
        residual: None,
        null_equal: false,
        null_aware: false,
    };
    let reason = refusal(&Plan::Join(Box::new(join)));
    assert_eq!(reason, "a join key of Decimal128(10, 2) and Decimal128(10, 3)");
    let predicate = Expr::column(0, two.clone(), false);
    let filter = Plan::Filter { input: Box::new(scan(&two)), predicate };
    assert_eq!(refusal(&filter), "a filter of Boolean and Decimal128(10, 2)");
}
