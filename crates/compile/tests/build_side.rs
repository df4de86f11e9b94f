//! Which side of an inner join is built: what the rule makes of what is known of the sides, and the kernels of joins whose sides have
//! changed places, which validate and which NVRTC accepts.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_compile::variant::Forced;
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{self, column, compiles, gpu};

const MILLION: u64 = 1_000_000;

/// A table of a key, a text, a number below 100 and a decimal of more than 64 bits. Its keys are those of so many rows; they may be
/// known to be all different and in order.
fn table(source: usize, (rows, values): (u64, u64), is_unique: bool) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type| Field { name: name.into(), data_type, nullable: false };
    let fields = vec![
        field("k", DataType::Int64),
        field("t", DataType::Utf8),
        field("n", DataType::Int32),
        field("w", DataType::Decimal128 { precision: 38, scale: 0 }),
    ];
    let fixed = |scalar, max: Option<i128>| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls: false,
        range: max.map(|max| Range { min: 0, max }),
    };
    let text = ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: false, range: None };
    let layouts = vec![
        fixed(Scalar::I64, Some(i128::from(values) - 1)),
        text,
        fixed(Scalar::U8, Some(99)),
        fixed(Scalar::I128, None),
    ];
    let scan = Scan { source, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    let known = if is_unique { vec![true, false, false, false] } else { Vec::new() };
    let mut info = ScanInfo::new(rows, layouts);
    for (facts, known) in info.columns.iter_mut().zip(known) {
        (facts.is_unique, facts.is_clustered) = (known, known);
    }
    (Plan::Scan(scan), info)
}

fn compare(op: CompareOp, a: Expr, b: Expr) -> Expr {
    let kind = ExprKind::Compare(op, Box::new(a), Box::new(b));
    Expr { kind, data_type: DataType::Boolean, nullable: false }
}

/// The rows of which a column, a number, is below another one.
fn filtered(input: Plan, (index, number): (usize, i128)) -> Plan {
    let limit = Expr::literal(Literal::Int(number), DataType::Int32);
    let predicate = compare(CompareOp::Lt, column(&input, index), limit);
    Plan::Filter { input: Box::new(input), predicate }
}

/// The rows of a table whose number is below one.
fn below(input: Plan, number: i128) -> Plan {
    filtered(input, (2, number))
}

fn join(keys: &[usize], residual: bool, build: Plan, probe: Plan) -> Plan {
    let keys = keys.iter().map(|key| (column(&build, *key), column(&probe, *key))).collect();
    let width = build.fields().len();
    let right = Expr::column(width + 2, DataType::Int32, false);
    let residual = residual.then(|| compare(CompareOp::Lt, column(&build, 2), right));
    let (kind, null_equal, null_aware) = (JoinKind::Inner, false, false);
    Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware }))
}

/// How many rows there are of each group.
fn grouped(input: Plan, keys: &[usize]) -> Plan {
    let count = Aggregate {
        function: AggregateFunction::Count,
        argument: None,
        distinct: false,
        field: Field { name: "count".into(), data_type: DataType::Int64, nullable: false },
    };
    let keys: Vec<Expr> = keys.iter().map(|key| column(&input, *key)).collect();
    let names = keys.iter().map(|_| "key".to_string()).collect();
    Plan::Aggregate { input: Box::new(input), keys, aggregates: vec![count], names }
}

fn compile(plan: &Plan, infos: &[ScanInfo], target: &Target, forced: &Forced) -> Program {
    let duplicates = BTreeSet::new();
    let choices = Choices { forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(plan, infos, target, &choices).expect("the plan compiles")
}

/// What was chosen for a join, and why.
fn chosen(program: &Program, join: &str) -> (&'static str, String) {
    let mut choices = program.genome.0.iter();
    let choice = choices.find(|choice| choice.axis.name == "build_side" && choice.site == join);
    choice.map(|choice| (choice.value, choice.reason.clone())).expect("a choice")
}

const UNIQUE: &str = "the probe side has unique keys, which need no buckets, and no more rows";
const FEWER: &str = "the probe side has far fewer rows";
const NOTHING: &str = "nothing is known that the planner did not know";

/// Rows, numbers below which they are kept, and whether keys are unique, of both sides.
#[test]
fn rows_and_unique_keys_decide() {
    let (ten, all) = (10 * MILLION, 100);
    for (build, probe, value, reason) in [
        // Foreign keys and primary keys.
        ((ten, all, false), (ten, all, true), "other", UNIQUE),
        ((ten, all, false), (MILLION, all, true), "other", UNIQUE),
        ((ten, all, false), (ten + 1, all, true), "written", "the probe side has unique keys, but more rows"),
        ((ten, 50, false), (ten, all, true), "written", "the probe side has unique keys, but more rows"),
        ((ten, 50, false), (ten, 40, true), "other", UNIQUE),
        ((ten, all, true), (ten, all, false), "written", NOTHING),
        ((ten, all, true), (ten, all, true), "written", NOTHING),
        ((ten, all, false), (ten, all, false), "written", NOTHING),
        // By rows alone.
        ((4 * MILLION, all, false), (MILLION, all, false), "other", FEWER),
        ((4 * MILLION, all, true), (MILLION, all, true), "other", FEWER),
        ((4 * MILLION - 1, all, false), (MILLION, all, false), "written", NOTHING),
        ((4 * MILLION, 99, false), (MILLION, all, false), "written", NOTHING),
        ((8 * MILLION, all, true), (MILLION, all, false), "written", NOTHING),
        ((16 * MILLION, all, true), (MILLION, all, false), "other", FEWER),
        ((16_383, all, false), (10, all, true), "written", "few rows are built"),
        ((16_384, all, false), (10, all, true), "other", UNIQUE),
    ] {
        let side = |source, (rows, number, is_unique): (u64, i128, bool)| {
            let (plan, info) = table(source, (rows, rows), is_unique);
            (if number < all { below(plan, number) } else { plan }, info)
        };
        let ((left, left_info), (right, right_info)) = (side(0, build), side(1, probe));
        let plan = grouped(join(&[0], false, left, right), &[]);
        for target in [gpu(), Target::cpu(4)] {
            let program = compile(&plan, &[left_info.clone(), right_info.clone()], &target, Forced::none());
            assert_eq!(chosen(&program, "join0"), (value, reason.into()), "{build:?} {probe:?}");
        }
    }
}

/// TPC-H 10 and 12 at the scale factor 1, and what SSB's joins are: their sides stay.
#[test]
fn filtered_foreign_keys_stay_the_build_side_where_they_are_few() {
    for (build, probe) in [
        // Lines of a year in two shipment modes with two comparisons of dates, and orders.
        ((6 * MILLION, 1), 3 * MILLION / 2),
        // Lines of a month, and parts.
        ((6 * MILLION, 2), MILLION / 5),
        // Orders of a quarter, and customers.
        ((3 * MILLION / 2, 4), 3 * MILLION / 20),
    ] {
        let ((left, left_info), (right, right_info)) =
            (table(0, (build.0, probe), false), table(1, (probe, probe), true));
        let plan = grouped(join(&[0], false, below(left, build.1), right), &[]);
        let program = compile(&plan, &[left_info, right_info], &gpu(), Forced::none());
        assert_eq!(chosen(&program, "join0").0, "written", "{build:?} {probe}");
    }
}

/// What stands behind the join, or below it.
#[test]
fn what_is_around_the_join_decides_too() {
    let (rows, forced) = (10 * MILLION, Forced::none());
    let (foreign, foreign_info) = table(0, (rows, rows), false);
    let (primary, primary_info) = table(1, (rows, rows), true);
    let (third, third_info) = table(2, (MILLION, rows), false);
    let joined = || join(&[0], false, foreign.clone(), primary.clone());
    let infos = [foreign_info.clone(), primary_info.clone()];
    let in_order = "the probe side's rows come group after group, or nearly";
    let further = "joins further on may leave out rows at the probe side's scan";
    let unforeseen = "how many rows joins and groups leave is not foreseen well";
    // Groups by the primary key, which the foreign key is too, by columns of either side, and by a number of the primary key's side.
    for (keys, expected) in [
        (&[4][..], ("written", in_order)),
        (&[0], ("written", in_order)),
        (&[0, 6], ("written", in_order)),
        (&[6], ("other", UNIQUE)),
        (&[1, 2], ("other", UNIQUE)),
        (&[], ("other", UNIQUE)),
    ] {
        let program = compile(&grouped(joined(), keys), &infos, &gpu(), forced);
        assert_eq!(chosen(&program, "join0"), (expected.0, expected.1.into()), "{keys:?}");
        // Columns in another order, and a filter between.
        let fields = joined().fields();
        let exprs = (0..fields.len()).rev().map(|index| column(&joined(), index)).collect();
        let names = fields.iter().map(|field| field.name.clone()).collect();
        let turned = filtered(Plan::Project { input: Box::new(joined()), exprs, names }, (1, 50));
        let keys: Vec<usize> = keys.iter().map(|key| fields.len() - 1 - key).collect();
        let program = compile(&grouped(turned, &keys), &infos, &gpu(), forced);
        assert_eq!(chosen(&program, "join0"), (expected.0, expected.1.into()), "{keys:?}, turned");
    }
    // As the probe side of a join, and as its build side.
    let plan = grouped(join(&[0], false, third.clone(), joined()), &[]);
    let all = [third_info.clone(), foreign_info.clone(), primary_info.clone()];
    let program = compile(&plan, &all, &gpu(), forced);
    assert_eq!(chosen(&program, "join0"), ("written", unforeseen.into()));
    assert_eq!(chosen(&program, "join1"), ("written", further.into()));
    let plan = grouped(join(&[0], false, joined(), third), &[]);
    let all = [foreign_info, primary_info, third_info];
    let program = compile(&plan, &all, &gpu(), forced);
    assert_eq!(chosen(&program, "join0"), ("written", unforeseen.into()));
    assert_eq!(chosen(&program, "join1"), ("other", UNIQUE.into()));
    // As a table of far more rows than the joined ones can be.
    let far_fewer = "the probe side has far fewer rows at most";
    for (fact_rows, expected) in [(MILLION, ("other", far_fewer)), (2 * MILLION, ("written", unforeseen))] {
        let (large, large_info) = table(0, (rows, rows), false);
        let (dimension, dimension_info) = table(1, (MILLION, MILLION), true);
        let (fact, fact_info) = table(2, (fact_rows, MILLION), false);
        let plan = grouped(join(&[0], false, large, join(&[0], false, dimension, fact)), &[]);
        let program = compile(&plan, &[large_info, dimension_info, fact_info], &gpu(), forced);
        assert_eq!(chosen(&program, "join0"), (expected.0, expected.1.into()), "{fact_rows}");
    }
    // Pairs of all rows.
    let plan = grouped(join(&[], true, foreign, primary), &[]);
    let program = compile(&plan, &infos, &gpu(), forced);
    assert_eq!(chosen(&program, "join0"), ("written", "the other side's rows have no better order".into()));
}

/// Scans keep their numbers, and the columns their order: the kernels are accepted.
#[test]
fn kernels_of_changed_joins_are_accepted() {
    let ((left, left_info), (right, right_info)) =
        (table(0, (MILLION, MILLION), false), table(1, (MILLION, MILLION), true));
    let infos = [left_info, right_info];
    let forced = common::forced(&[("build_side", "other")]);
    for (keys, residual) in
        [(&[0][..], false), (&[0], true), (&[1], false), (&[3], false), (&[0, 1], true), (&[], true)]
    {
        let joined = join(keys, residual, below(left.clone(), 50), right.clone());
        for target in [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)] {
            let program = compile(&joined, &infos, &target, &forced);
            assert_eq!(chosen(&program, "join0"), ("other", "forced".into()));
            let names: Vec<String> = program.pipelines.iter().map(|own| own.name.clone()).collect();
            assert!(names.last().is_some_and(|name| name.contains("join Inner")), "{names:?}");
            for pipeline in program.pipelines {
                let name = pipeline.name.clone();
                for module in pipeline.into_modules() {
                    let module = validate(module).unwrap_or_else(|error| panic!("{name}: {error}"));
                    if target.lanes == 32 {
                        compiles(&name, &cuda::print(&module).expect("CUDA"));
                    }
                }
            }
        }
    }
}
