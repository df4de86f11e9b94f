//! Chosen queries as pipelines: every kernel validates under every target and micro model, and some are kept as printed
//! snapshots of KIR, CUDA C and CLIF.

#![expect(clippy::expect_used, reason = "a test fails where its helpers do")]

use std::collections::BTreeSet;

use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, HostAction, Program, ScanInfo, Task, When};
use kelpie_compile::plan::{
    Aggregate, AggregateFunction, Join, JoinKind, PairStatistic, Plan, Scan, SortKey,
};
use kelpie_compile::primitives::reduce::{self, Reduction};
use kelpie_compile::primitives::{block_sort, chained_scan, merge, radix, runs, scan, select, sweep, ties};
use kelpie_compile::shape::{LaunchShape, ShapeChoices};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_compile::variant::Forced;
use kelpie_compile::{MicroModel, Resolution};
use kelpie_kir::{Scalar, Target, text, validate};

const MONEY: DataType = DataType::Decimal128 { precision: 15, scale: 2 };

fn fixed(scalar: Scalar, has_base: bool, min: i128, max: i128) -> ColumnLayout {
    let range = Some(Range { min, max });
    ColumnLayout { storage: Storage::Fixed { scalar, has_base }, has_nulls: false, range }
}

fn dictionary(entries: u32) -> ColumnLayout {
    let storage = Storage::Dictionary { code: Scalar::U8, entries };
    ColumnLayout { storage, has_nulls: false, range: None }
}

/// lineitem: quantity, price, discount, tax, return flag, line status, ship date, order key, comment.
fn lineitem() -> (Plan, ScanInfo) {
    let columns = [
        ("l_quantity", MONEY, fixed(Scalar::U16, false, 100, 5000)),
        ("l_extendedprice", MONEY, fixed(Scalar::I32, false, 90_000, 10_494_950)),
        ("l_discount", MONEY, fixed(Scalar::U8, false, 0, 10)),
        ("l_tax", MONEY, fixed(Scalar::U8, false, 0, 8)),
        ("l_returnflag", DataType::Utf8, dictionary(3)),
        ("l_linestatus", DataType::Utf8, dictionary(2)),
        ("l_shipdate", DataType::Date32, fixed(Scalar::U16, false, 8036, 10_561)),
        ("l_orderkey", DataType::Int64, fixed(Scalar::I64, false, i64::MIN.into(), i64::MAX.into())),
        (
            "l_comment",
            DataType::Utf8,
            ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None },
        ),
    ];
    let field = |(name, data_type, layout): &(&str, DataType, ColumnLayout)| Field {
        name: (*name).into(),
        data_type: data_type.clone(),
        nullable: layout.has_nulls,
    };
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let scan = Scan { source: 0, table: "lineitem".into(), columns: (0..fields.len()).collect(), fields };
    let layouts = columns.into_iter().map(|(_, _, layout)| layout).collect();
    (Plan::Scan(scan), ScanInfo::new(6_001_215, layouts))
}

fn column(plan: &Plan, index: usize) -> Expr {
    let field = &plan.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

fn compare(op: CompareOp, a: Expr, value: i128) -> Expr {
    let literal = Expr::literal(Literal::Int(value), a.data_type.clone());
    let kind = ExprKind::Compare(op, Box::new(a), Box::new(literal));
    Expr { kind, data_type: DataType::Boolean, nullable: false }
}

fn and(a: Expr, b: Expr) -> Expr {
    Expr { kind: ExprKind::And(Box::new(a), Box::new(b)), data_type: DataType::Boolean, nullable: false }
}

fn arithmetic(op: ArithmeticOp, a: Expr, b: Expr, precision: u8, scale: i8) -> Expr {
    let kind = ExprKind::Arithmetic(op, Box::new(a), Box::new(b));
    Expr { kind, data_type: DataType::Decimal128 { precision, scale }, nullable: false }
}

fn aggregate(function: AggregateFunction, argument: Option<Expr>, precision: u8, scale: i8) -> Aggregate {
    let data_type = match function {
        AggregateFunction::Count => DataType::Int64,
        _ => DataType::Decimal128 { precision, scale },
    };
    Aggregate {
        function,
        argument,
        distinct: false,
        field: Field { name: format!("{function:?}"), data_type, nullable: true },
    }
}

fn one() -> Expr {
    Expr::literal(Literal::Int(100), DataType::Decimal128 { precision: 20, scale: 2 })
}

fn q6() -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    let ship = |op, value| compare(op, column(&scan, 6), value);
    let dates = and(ship(CompareOp::Ge, 8766), ship(CompareOp::Lt, 9131));
    let discount =
        and(compare(CompareOp::Ge, column(&scan, 2), 5), compare(CompareOp::Le, column(&scan, 2), 7));
    let predicate = and(and(dates, discount), compare(CompareOp::Lt, column(&scan, 0), 2400));
    let revenue = arithmetic(ArithmeticOp::Multiply, column(&scan, 1), column(&scan, 2), 30, 4);
    let input = Box::new(Plan::Filter { input: Box::new(scan), predicate });
    let aggregates = vec![aggregate(AggregateFunction::Sum, Some(revenue), 38, 4)];
    (Plan::Aggregate { input, keys: vec![], aggregates, names: vec![] }, info)
}

fn q1() -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    let predicate = compare(CompareOp::Le, column(&scan, 6), 10_471);
    let rebate = arithmetic(ArithmeticOp::Subtract, one(), column(&scan, 2), 23, 2);
    let price = arithmetic(ArithmeticOp::Multiply, column(&scan, 1), rebate, 38, 4);
    let tax = arithmetic(ArithmeticOp::Add, one(), column(&scan, 3), 23, 2);
    let charge = arithmetic(ArithmeticOp::Multiply, price.clone(), tax, 38, 6);
    let keys = vec![column(&scan, 4), column(&scan, 5)];
    use AggregateFunction::*;
    let aggregates = vec![
        aggregate(Sum, Some(column(&scan, 0)), 25, 2),
        aggregate(Sum, Some(column(&scan, 1)), 25, 2),
        aggregate(Sum, Some(price), 38, 4),
        aggregate(Sum, Some(charge), 38, 6),
        aggregate(Avg, Some(column(&scan, 0)), 19, 6),
        aggregate(Avg, Some(column(&scan, 2)), 19, 6),
        aggregate(Count, None, 0, 0),
    ];
    let input = Box::new(Plan::Filter { input: Box::new(scan), predicate });
    (Plan::Aggregate { input, keys, aggregates, names: vec!["flag".into(), "status".into()] }, info)
}

/// Rows with text and a nullable column.
fn selection() -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    let predicate = compare(CompareOp::Lt, column(&scan, 0), 2400);
    let exprs = vec![column(&scan, 7), column(&scan, 8), column(&scan, 4)];
    let names = vec!["key".into(), "comment".into(), "flag".into()];
    let input = Box::new(Plan::Filter { input: Box::new(scan), predicate });
    (Plan::Project { input, exprs, names }, info)
}

/// Groups by hashing: `keys` are columns of lineitem.
fn groups(keys: &[usize]) -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    let names = keys.iter().map(|key| format!("key{key}")).collect();
    let keys = keys.iter().map(|key| column(&scan, *key)).collect();
    use AggregateFunction::*;
    let aggregates = vec![
        aggregate(Count, None, 0, 0),
        aggregate(Min, Some(column(&scan, 1)), 15, 2),
        aggregate(Max, Some(column(&scan, 1)), 15, 2),
    ];
    let having = Plan::Aggregate { input: Box::new(scan), keys, aggregates, names };
    let count = having.fields().iter().position(|field| field.name == "Count").expect("a count");
    let predicate = compare(CompareOp::Gt, column(&having, count), 3);
    (Plan::Filter { input: Box::new(having), predicate }, info)
}

/// Every kind of cell, and a set of distinct values: grouped by the return flag, or not at all.
fn cells(grouped: bool) -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    use AggregateFunction::*;
    let price = || column(&scan, 1);
    let square = arithmetic(ArithmeticOp::Multiply, price(), price(), 38, 4);
    let cube = arithmetic(ArithmeticOp::Multiply, square, price(), 38, 6);
    let float = Expr {
        kind: ExprKind::Cast { input: Box::new(price()), safe: false },
        data_type: DataType::Float64,
        nullable: false,
    };
    let distinct = Aggregate { distinct: true, ..aggregate(Count, Some(column(&scan, 7)), 0, 0) };
    let pair = Expr {
        kind: ExprKind::Function(Function::Pair, vec![float.clone(), float.clone()]),
        ..float.clone()
    };
    let aggregates = vec![
        aggregate(Max, Some(cube), 38, 6),
        aggregate(BitXor, Some(column(&scan, 7)), 18, 0),
        aggregate(BitAnd, Some(column(&scan, 7)), 18, 0),
        of_type(Min, column(&scan, 8), DataType::Utf8),
        of_type(Max, column(&scan, 8), DataType::Utf8),
        of_type(VarSample, float.clone(), DataType::Float64),
        of_type(Avg, float.clone(), DataType::Float64),
        of_type(OfPairs(PairStatistic::Correlation), pair, DataType::Float64),
        distinct,
    ];
    let keys = if grouped { vec![column(&scan, 4)] } else { Vec::new() };
    let names = vec![String::new(); keys.len() + aggregates.len()];
    (Plan::Aggregate { input: Box::new(scan), keys, aggregates, names }, info)
}

/// Cells whose arguments are made by the kernel: texts in scratch memory, and decimals that nothing proves to have a sum within
/// 128 bits. By the return flag, by the order key, or not at all.
fn made(key: Option<usize>) -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    use AggregateFunction::*;
    let text = |function, arguments| Expr {
        kind: ExprKind::Function(function, arguments),
        data_type: DataType::Utf8,
        nullable: false,
    };
    let both = text(Function::ConcatOperator, vec![column(&scan, 8), column(&scan, 4)]);
    let upper = text(Function::Upper, vec![column(&scan, 8)]);
    let key_of_order = Expr {
        kind: ExprKind::Cast { input: Box::new(column(&scan, 7)), safe: false },
        data_type: DataType::Decimal128 { precision: 38, scale: 0 },
        nullable: false,
    };
    let square = arithmetic(ArithmeticOp::Multiply, key_of_order.clone(), key_of_order, 38, 0);
    let aggregates = vec![
        of_type(Min, both, DataType::Utf8),
        of_type(Max, upper, DataType::Utf8),
        aggregate(Sum, Some(square), 38, 0),
    ];
    let keys: Vec<Expr> = key.map(|key| column(&scan, key)).into_iter().collect();
    let names = vec![String::new(); keys.len() + aggregates.len()];
    (Plan::Aggregate { input: Box::new(scan), keys, aggregates, names }, info)
}

/// A filter, a join of the table with itself, and groups.
fn joined() -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    let predicate = compare(CompareOp::Lt, column(&scan, 0), 2400);
    let build = Plan::Filter { input: Box::new(scan.clone()), predicate: predicate.clone() };
    let probe = Plan::Filter { input: Box::new(scan.clone()), predicate };
    let keys = vec![(column(&scan, 7), column(&scan, 7))];
    let (kind, residual) = (JoinKind::Inner, None);
    let join = Join { build, probe, kind, keys, residual, null_equal: false, null_aware: false };
    let input = Plan::Join(Box::new(join));
    let keys = vec![column(&input, 4)];
    let aggregates = vec![
        aggregate(AggregateFunction::Sum, Some(column(&input, 10)), 25, 2),
        aggregate(AggregateFunction::Count, None, 0, 0),
    ];
    (Plan::Aggregate { input: Box::new(input), keys, aggregates, names: vec!["flag".into()] }, info)
}

/// Groups that meet the rows of a table: what changes lanes, or waits in a queue, are texts, 128 bits, doubles and flags.
fn met() -> (Plan, ScanInfo) {
    let ((build, info), (probe, _)) = (lineitem(), cells(true));
    let keys = vec![(column(&build, 4), column(&probe, 0))];
    let (kind, residual) = (JoinKind::ProbeOuter, None);
    let join = Join { build, probe, kind, keys, residual, null_equal: false, null_aware: false };
    (Plan::Join(Box::new(join)), info)
}

/// Rows of a text.
fn same_texts() -> (Plan, ScanInfo) {
    let (scan, info) = lineitem();
    let (left, right) =
        (column(&scan, 8), Expr::literal(Literal::Utf8("even deposits".into()), DataType::Utf8));
    let kind = ExprKind::Compare(CompareOp::Eq, Box::new(left), Box::new(right));
    let same = Expr { kind, data_type: DataType::Boolean, nullable: true };
    let predicate = and(compare(CompareOp::Lt, column(&scan, 0), 2400), same);
    (Plan::Filter { input: Box::new(scan), predicate }, info)
}

/// The rows of a filter in order.
fn sorted() -> (Plan, ScanInfo) {
    let (input, info) = selection();
    let key = |index| SortKey { expr: column(&input, index), descending: false, nulls_first: false };
    let keys = vec![key(2), key(0)];
    (Plan::Sort { input: Box::new(input), keys, fetch: Some(100) }, info)
}

fn of_type(function: AggregateFunction, argument: Expr, data_type: DataType) -> Aggregate {
    let field = Field { name: format!("{function:?}"), data_type, nullable: true };
    Aggregate { function, argument: Some(argument), distinct: false, field }
}

fn compile(query: &(Plan, ScanInfo), target: &Target, micro_model: MicroModel) -> Program {
    compile_with(query, target, micro_model, Resolution::default())
}

fn compile_with(
    (plan, info): &(Plan, ScanInfo),
    target: &Target,
    micro_model: MicroModel,
    resolution: Resolution,
) -> Program {
    let duplicates = BTreeSet::new();
    let choices = Choices { resolution, ..Choices::new(micro_model, &duplicates) };
    // A join scans its table twice.
    let infos = [info.clone(), info.clone()];
    pipeline::compile_with(plan, &infos, target, &choices).expect("the plan compiles")
}

fn targets() -> Vec<(&'static str, Target)> {
    vec![
        ("cpu", Target::cpu(2)),
        ("gpu", Target::simt(32, 256, 227 << 10, 1056)),
        ("simt4", Target::simt(4, 8, 48 << 10, 3)),
    ]
}

fn queries() -> Vec<(&'static str, (Plan, ScanInfo))> {
    vec![
        ("q1", q1()),
        ("q6", q6()),
        ("selection", selection()),
        ("packed", groups(&[0, 6])),
        ("stored", groups(&[7, 8])),
        ("cells", cells(false)),
        ("cells in groups", cells(true)),
        ("made", made(None)),
        ("made in groups", made(Some(4))),
        ("made in many groups", made(Some(7))),
        ("joined", joined()),
        ("met", met()),
        ("sorted", sorted()),
    ]
}

#[test]
fn every_kernel_validates_and_prints() {
    for (name, query) in queries() {
        for (target_name, target) in targets() {
            for micro_model in MicroModel::ALL {
                for resolution in Resolution::ALL {
                    let pipelines = compile_with(&query, &target, micro_model, resolution).pipelines;
                    for module in pipelines
                        .iter()
                        .flat_map(|pipeline| pipeline.variant.kernels())
                        .map(|kernel| kernel.module.clone())
                    {
                        let text = text::print(&module);
                        let place = format!("{name} {target_name} {micro_model:?} {resolution:?}");
                        let module =
                            validate(module).unwrap_or_else(|error| panic!("{place}: {error}\n{text}"));
                        let printed = match target_name {
                            "cpu" => kelpie_backend::cpu::clif(&module).map_err(|error| error.to_string()),
                            _ => kelpie_backend::cuda::print(&module).map_err(|error| error.to_string()),
                        };
                        printed.unwrap_or_else(|error| panic!("{place}: {error}\n{text}"));
                    }
                }
            }
        }
    }
}

#[test]
fn another_constant_is_the_same_kernel() {
    let (plan, info) = q6();
    let Plan::Aggregate { input, keys, aggregates, names } = plan.clone() else { panic!("an aggregate") };
    let Plan::Filter { input: scan, .. } = *input else { panic!("a filter") };
    let modules = [2400, 2300].map(|limit| {
        let predicate = compare(CompareOp::Lt, column(&scan, 0), limit);
        let input = Box::new(Plan::Filter { input: scan.clone(), predicate });
        let (keys, aggregates, names) = (keys.clone(), aggregates.clone(), names.clone());
        let query = (Plan::Aggregate { input, keys, aggregates, names }, info.clone());
        compile(&query, &Target::cpu(1), MicroModel::Resolution).pipelines.remove(0).variant.kernel.module
    });
    assert_eq!(modules[0], modules[1]);
}

/// Small enough to be read: what else is emitted is validated above, and compiled by `cargo run -p xtask -- kernels`.
#[test]
fn snapshots() {
    let gpu = Target::simt(32, 256, 227 << 10, 1056);
    let on_cpu = compile(&q6(), &Target::cpu(2), MicroModel::Pipelined).pipelines.remove(0);
    let on_gpu = compile(&q6(), &gpu, MicroModel::Pipelined).pipelines.remove(0);
    insta::assert_snapshot!("q6_pipelined_kir_cpu", text::print(&on_cpu.variant.kernel.module));
    insta::assert_snapshot!("q6_pipelined_kir_gpu", text::print(&on_gpu.variant.kernel.module));
    // CLIF is for the machine at hand; the snapshot is that of x86-64.
    if cfg!(target_arch = "x86_64") {
        let on_cpu = validate(on_cpu.variant.kernel.module).expect("valid");
        insta::assert_snapshot!("q6_pipelined_clif", kelpie_backend::cpu::clif(&on_cpu).expect("prints"));
    }
    let on_gpu = validate(on_gpu.variant.kernel.module).expect("valid");
    insta::assert_snapshot!("q6_pipelined_cuda", kelpie_backend::cuda::print(&on_gpu).expect("prints"));
}

/// What row loop a query's first pipeline takes, why, and its kernel.
fn row_loop(query: &(Plan, ScanInfo), target: &Target) -> (&'static str, String, String) {
    let mut program = compile(query, target, MicroModel::Resolution);
    let chosen = program.genome.of("p0").find(|choice| choice.axis.name == "row_loop").expect("a scan");
    let kernel = text::print(&program.pipelines.remove(0).variant.kernel.module);
    (chosen.value, chosen.reason.clone(), kernel)
}

#[test]
fn rows_go_several_at_once_where_that_pays() {
    let (cpu, gpu) = (Target::cpu(2), Target::simt(32, 256, 227 << 10, 1056));
    let (value, _, kernel) = row_loop(&q6(), &cpu);
    assert_eq!(value, "wide");
    assert!(kernel.contains("reduce.count") || kernel.contains("i64x8"), "{kernel}");
    let (value, _, kernel) = row_loop(&q6(), &gpu);
    assert_eq!(value, "wide");
    assert!(kernel.contains("align 16"), "{kernel}");
    let (value, _, kernel) = row_loop(&selection(), &cpu);
    assert_eq!(value, "selected");
    assert!(kernel.contains("compress"), "{kernel}");
    let (value, reason, kernel) = row_loop(&q1(), &cpu);
    assert_eq!((value, reason.as_str()), ("single", "filters keep nearly all rows"));
    assert!(!kernel.contains("load_vector"), "{kernel}");
    let without = Target { vector_bytes: 0, ..Target::cpu(2) };
    let (value, _, kernel) = row_loop(&q6(), &without);
    assert_eq!(value, "single");
    assert!(!kernel.contains("x8"), "{kernel}");
}

/// A filter, a join and groups: the pipelines under every micro model, and their kernels by name.
#[test]
fn models() {
    let target = Target::simt(8, 16, 48 << 10, 4);
    let mut printed = String::new();
    for micro_model in MicroModel::ALL {
        printed += &format!("{}\n", micro_model.name());
        for pipeline in &compile(&joined(), &target, micro_model).pipelines {
            let kernels: Vec<&str> = pipeline.variant.kernels().map(|kernel| kernel.name.as_str()).collect();
            let chained = if pipeline.continues { ", continues" } else { "" };
            printed +=
                &format!("  {} (group {}{chained}): {}\n", pipeline.name, pipeline.group, kernels.join(", "));
        }
    }
    insta::assert_snapshot!("models", printed);
}

/// What the engine does around the kernels of a filter, a join and groups, and of a sort. States and classes by their
/// number: the snapshot shows which occasions there are, and that each pipeline has what its sink needs.
#[test]
fn host_actions() {
    let target = Target::simt(8, 16, 48 << 10, 4);
    let mut printed = String::new();
    for (query, micro_model) in [
        (joined(), MicroModel::Resolution),
        (sorted(), MicroModel::Pipelined),
        (selection(), MicroModel::MultiPass),
    ] {
        let program = compile(&query, &target, micro_model);
        let state = |state: &usize| program.states[*state].name.clone();
        printed += &format!("{}\n", micro_model.name());
        for pipeline in &program.pipelines {
            printed += &format!("  {}\n", pipeline.name);
            for HostAction { when, task } in &pipeline.variant.around {
                let task = match task {
                    Task::Clear(cleared) => format!("clear {}", state(cleared)),
                    Task::PrefixSum(counts) => format!("prefix sum of {}", state(counts)),
                    Task::SkipIfEmpty(rows) => format!("skip where {} is 0", state(rows)),
                    Task::Sort(sorting) => format!("order in {}", state(&sorting.order)),
                    Task::Count(counting) => format!("places after {}", state(&counting.total)),
                    Task::Advance(total) => format!("advance {}", state(total)),
                    other => format!("{other:?}"),
                };
                printed += &format!("    {when:?}: {task}\n");
            }
        }
    }
    insta::assert_snapshot!("host_actions", printed);
}

/// Many groups are known to be possible: neighbours will hardly share one.
#[test]
fn many_groups_are_not_resolved() {
    let gpu = Target::simt(32, 256, 227 << 10, 1056);
    for (keys, resolved) in [(vec![0, 6], false), (vec![6, 8], true), (vec![0, 6, 8], false), (vec![8], true)]
    {
        let name = &compile(&groups(&keys), &gpu, MicroModel::Resolution).pipelines[0].name;
        assert_eq!(name.contains("segments in warps"), resolved, "{keys:?}: {name}");
    }
}

/// In blocks of less than a warp to blocks of 32 warps, bounded as they are launched: pipelines that differ by their
/// blocks, and the primitives.
#[test]
fn kernels_in_blocks_of_every_size_pass_nvrtc() {
    let nvrtc = match kelpie_device::nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return kelpie_device::testing::skip("nvrtc", &error),
    };
    let gpu = Target::simt(32, 256, 227 << 10, 1056);
    let duplicates = BTreeSet::new();
    let mut seen = std::collections::HashSet::new();
    for (threads, resident) in
        [(8, None), (32, Some(32)), (64, None), (128, Some(8)), (512, None), (1024, None)]
    {
        let forced = ShapeChoices { block_threads: Some(threads), resident, ..ShapeChoices::default() };
        let shape = LaunchShape::new(&gpu, &forced).expect("a shape");
        let mut modules = vec![
            scan::module(&shape, Scalar::U32).expect("valid"),
            radix::module(&shape).expect("valid"),
            sweep::module(&shape).expect("valid"),
            select::module(&shape).expect("valid"),
            ties::module().expect("valid"),
            merge::module(&shape).expect("valid"),
            runs::module().expect("valid"),
            chained_scan::module(&shape).expect("valid"),
            scan::bits_module(&shape).expect("valid"),
            chained_scan::bits_module(&shape).expect("valid"),
            reduce::module(&shape, Scalar::U64, Reduction::Sum).expect("valid"),
        ];
        let words = [1, 3, block_sort::MOST_WORDS];
        modules.extend(words.map(|words| block_sort::module(&shape, words).expect("valid")));
        for (query, micro_model, resolution) in [
            (q1(), MicroModel::Resolution, Resolution::Simd),
            (q6(), MicroModel::Resolution, Resolution::WorkEfficient),
            (q6(), MicroModel::MultiPass, Resolution::Simd),
            (selection(), MicroModel::Resolution, Resolution::WorkEfficient),
            (groups(&[7, 8]), MicroModel::Resolution, Resolution::Simd),
            (groups(&[7, 8]), MicroModel::Resolution, Resolution::WorkEfficient),
            (joined(), MicroModel::Resolution, Resolution::Simd),
        ] {
            let choices = Choices { resolution, shape: forced, ..Choices::new(micro_model, &duplicates) };
            let infos = [query.1.clone(), query.1.clone()];
            let program = pipeline::compile_with(&query.0, &infos, &gpu, &choices).expect("it compiles");
            let shapes = program
                .pipelines
                .iter()
                .flat_map(|pipeline| pipeline.variant.kernels())
                .map(|kernel| &kernel.shape);
            // A thread that tries rows side by side has a wide row of them.
            let rows_per_thread = shape.rows_per_thread;
            let asked = |own: &LaunchShape| LaunchShape { rows_per_thread, ..own.clone() } == shape;
            assert!(shapes.into_iter().all(asked));
            modules.extend(program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules));
        }
        let options = kelpie_backend::cuda::Options {
            block_threads: Some(threads),
            resident_blocks: resident,
            kernel: None,
        };
        for module in modules {
            let module = validate(module).expect("valid");
            let source = kelpie_backend::cuda::print_with(&module, &options).expect("prints");
            if seen.insert(source.clone()) {
                let compiled = nvrtc.compile(&source, "sm_90", "shaped");
                assert!(compiled.is_ok(), "{threads} threads: {:?}\n{source}", compiled.err());
            }
        }
    }
}

/// Lanes that exchange rows, in whole warps and in less than one.
#[test]
fn kernels_that_exchange_rows_pass_nvrtc() {
    let nvrtc = match kelpie_device::nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return kelpie_device::testing::skip("nvrtc", &error),
    };
    let gpu = Target::simt(32, 256, 227 << 10, 1056);
    let duplicates = BTreeSet::from([0]);
    let (mut seen, mut queues) = (std::collections::HashSet::new(), 0);
    for (query, threads) in [
        (selection(), None),
        (joined(), None),
        (joined(), Some(8)),
        (groups(&[7, 8]), None),
        (sorted(), None),
        (made(Some(7)), None),
        (met(), None),
        (same_texts(), None),
        (same_texts(), Some(8)),
    ] {
        for (refill, expansion, matches, (carried, texts)) in [
            ("last", "lane", "0", ("places", "warp")),
            ("all", "lane", "0", ("values", "refill")),
            ("off", "warp", "2", ("places", "lane")),
            ("last", "packed", "0", ("places", "warp")),
            ("last", "packed", "256", ("places", "refill")),
            ("all", "packed", "256", ("values", "lane")),
            ("off", "refill", "0", ("places", "warp")),
            ("off", "staged", "0", ("places", "lane")),
            ("all", "staged", "256", ("values", "warp")),
            ("all", "refill", "0", ("values", "warp")),
        ] {
            let mut forced = Forced::default();
            forced.set("live_columns", carried).expect("an axis and its value");
            forced.set("text_lanes", texts).expect("an axis and its value");
            // One more choice is tried by every second way.
            let buffer = if carried == "values" { "shared" } else { "registers" };
            forced.set("refill_buffer", buffer).expect("an axis and its value");
            forced.set("lane_refill", refill).expect("an axis and its value");
            forced.set("expansion", expansion).expect("an axis and its value");
            forced.set("queue_matches", matches).expect("an axis and its value");
            let shape = ShapeChoices { block_threads: threads, ..ShapeChoices::default() };
            let choices =
                Choices { forced: &forced, shape, ..Choices::new(MicroModel::Resolution, &duplicates) };
            let infos = [query.1.clone(), query.1.clone()];
            let program = pipeline::compile_with(&query.0, &infos, &gpu, &choices).expect("it compiles");
            let drains = |pipeline: &CompiledPipeline| {
                pipeline.variant.tasks(When::AfterLaunch).any(|task| matches!(task, Task::Drain(_)))
            };
            queues += program.pipelines.iter().filter(|pipeline| drains(pipeline)).count();
            for module in program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules) {
                let module = validate(module).expect("valid");
                let source = kelpie_backend::cuda::print(&module).expect("prints");
                if seen.insert(source.clone()) {
                    let compiled = nvrtc.compile(&source, "sm_90", "exchanges");
                    assert!(compiled.is_ok(), "{refill}, {expansion}: {:?}\n{source}", compiled.err());
                }
            }
        }
    }
    // Two queries with a join, one of them in blocks of two sizes, each by leaders, packed and staged, of places and of values.
    assert_eq!(queues, 12);
}

/// What is made in scratch memory, and sums of which the upper bits are added too, for a GPU.
#[test]
fn kernels_of_made_arguments_pass_nvrtc() {
    let nvrtc = match kelpie_device::nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return kelpie_device::testing::skip("nvrtc", &error),
    };
    let gpu = Target::simt(32, 256, 227 << 10, 1056);
    for key in [None, Some(4), Some(7)] {
        for micro_model in [MicroModel::Pipelined, MicroModel::Resolution] {
            let pipelines = compile(&made(key), &gpu, micro_model).pipelines;
            for module in pipelines.into_iter().flat_map(CompiledPipeline::into_modules) {
                let module = validate(module).expect("valid");
                let source = kelpie_backend::cuda::print(&module).expect("prints");
                let compiled = nvrtc.compile(&source, "sm_90", "made");
                assert!(compiled.is_ok(), "{key:?}, {micro_model:?}: {:?}", compiled.err());
            }
        }
    }
}
