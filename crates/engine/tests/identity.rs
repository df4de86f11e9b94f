//! What is compiled once and what is not: another constant compiles nothing, another structure or genome shares nothing but equal
//! code, and a genome is compiled when it is used.

use crate::common::*;
use crate::plans::{aggregate, filter, plans, scan, some_plans, table};
use kelpie_compile::expr::substitute;
use kelpie_engine::testing::{KnownKernels, kernels, prepare};

/// A plan with other constants: each number is one more. The ranks of a plan that asks for the ends of groups alone stay: that it
/// is the first and the last row, and not the second, is what lets them be found without a sort, and so is structure.
fn with_other_constants(plan: &Plan) -> Plan {
    let other = |expr: &Expr| match expr.kind {
        ExprKind::Literal(Literal::Int(value)) => {
            Some(Expr { kind: ExprKind::Literal(Literal::Int(value + 1)), ..expr.clone() })
        }
        _ => None,
    };
    let inputs = plan.map_inputs(&mut |input| Ok::<_, ()>(with_other_constants(input)));
    let plan = inputs.expect("no error");
    match &plan {
        Plan::Ranked(ranked) if ranked.values.iter().all(|value| !matches!(value.rank, Rank::Median)) => plan,
        _ => plan.map_exprs(&|expr| substitute(expr, &other)),
    }
}

/// The pipelines of a query that compiled something.
fn compiled(engine: &Engine, plan: &Plan, sources: &[Arc<dyn TableSource>], options: &QueryOptions) -> usize {
    let output = run(engine, plan, sources, options);
    output.metrics.pipelines.iter().filter(|pipeline| pipeline.compile_ns > 0).count()
}

#[test]
fn another_constant_compiles_nothing() {
    let sources = [150, 60].map(table);
    let mut tried = 0;
    for (name, plan, ordered) in some_plans("another constant", 30) {
        let engine = Engine::new();
        let other = with_other_constants(&plan);
        if other == plan {
            continue;
        }
        assert!(compiled(&engine, &plan, &sources, &cpu()) > 0, "{name}");
        // Keys that are multiplied have a slot a multiple: which, is code for the factor.
        let is_for_constant = name == "sums of a number's groups";
        let again = compiled(&engine, &other, &sources, &cpu()) > 0;
        assert_eq!(again, is_for_constant, "{name}");
        let rows = |engine: &Engine| rows_of(&run(engine, &other, &sources, cpu()).batch, ordered);
        assert_eq!(rows(&engine), rows(&Engine::new()), "{name}");
        tried += 1;
    }
    assert!(tried >= floor(30), "{tried}");
}

/// Keys are equal only where structure and genome are, and where they are equal so is the code.
#[test]
fn what_differs_in_structure_or_genome_shares_no_kernel() {
    let engine = Engine::new();
    let sources = [150, 60].map(table);
    // By key: the plan, what it was forced to, and the code.
    let mut known: HashMap<String, (String, String)> = HashMap::new();
    let mut shared = 0;
    let all = plans();
    let mut next = random(7);
    let mut below = |count: usize| next() as usize % count.max(1);
    let picked = sample("structures and genomes", 0..250, 90);
    for number in 0..250 {
        let (name, plan, _) = &all[below(all.len())];
        let axes: Vec<_> = kelpie_engine::variant::axes::ALL.iter().collect();
        let axis = axes[below(axes.len())];
        let value = axis.values[below(axis.values.len())];
        let device = [DeviceChoice::Cpu, DeviceChoice::Simt][below(2)];
        let query = query_of(plan, &sources, on(device, &[(axis.name, value)]));
        if !picked.contains(&number) {
            continue;
        }
        // Plans of several stages prepare the first one only when they run.
        if prepare(&engine, &query).is_err() {
            continue;
        }
        let statement = format!("{name} on {:?}", query.options.device);
        for KnownKernels { key, code, .. } in kernels(&engine).pop().expect("the program that was used last")
        {
            assert!(!key.is_empty());
            match known.get(&key) {
                Some((other, other_code)) => {
                    assert_eq!((other, other_code), (&statement, &code), "{key}");
                    shared += 1;
                }
                None => {
                    known.insert(key, (statement.clone(), code));
                }
            }
        }
    }
    assert!(known.len() >= floor(200) && shared >= floor(20), "{} and {shared}", known.len());
}

#[test]
fn genomes_of_a_pipeline_stand_side_by_side_and_compile_when_they_are_used() {
    let engine = Engine::new();
    let sources = [150, 60].map(table);
    let plan =
        aggregate(filter(scan(0), 1, CompareOp::Lt, 90), &[2], &[(AggregateFunction::Count, None, false)]);
    let genomes = [cpu(), on(DeviceChoice::Cpu, &[("p0.morsel_rows", "4096")])];
    for options in &genomes {
        let query = query_of(&plan, &sources, options);
        prepare(&engine, &query).expect("one stage");
    }
    let compiled_of = |engine: &Engine| -> Vec<Vec<bool>> {
        kernels(engine)
            .iter()
            .map(|program| program.iter().map(|known| known.is_compiled).collect())
            .collect()
    };
    let programs = kernels(&engine);
    let [first, second] = programs.as_slice() else { panic!("{} programs", programs.len()) };
    // The first pipelines differ in their genome; the second ones are the same.
    assert_ne!((&first[0].key, &first[0].code), (&second[0].key, &second[0].code));
    assert_eq!(first[1], second[1]);
    assert_eq!(compiled_of(&engine), [[false, false], [false, false]]);
    assert!(compiled(&engine, &plan, &sources, &genomes[0]) > 0);
    // The program that was used last stands at the end.
    assert_eq!(compiled_of(&engine), [[false, true], [true, true]]);
    assert_eq!(compiled(&engine, &plan, &sources, &genomes[1]), 1);
    assert_eq!(compiled_of(&engine), [[true, true], [true, true]]);
    for options in [&genomes[0], &genomes[1], &genomes[0]] {
        assert_eq!(compiled(&engine, &plan, &sources, options), 0);
    }
    assert_eq!(kernels(&engine).len(), 2);
}

/// Tables that had to grow begin as large with another constant.
#[test]
fn another_constant_begins_with_the_sizes_that_were_needed() {
    let engine = Engine::new();
    let sources = [table(50_000)];
    let launches = |last: i128| {
        let plan = aggregate(
            filter(scan(0), 1, CompareOp::Lt, last),
            &[3],
            &[(AggregateFunction::Count, None, false)],
        );
        let output = run(&engine, &plan, &sources, on(DeviceChoice::Cpu, &[("group_table", "hash")]));
        (output.metrics.pipelines[0].launches, output.batch.num_rows())
    };
    // Every eleventh row has no text, and all of these are one group.
    let (first, groups) = launches(44_000);
    assert!(first > 1 && groups == 40_001, "{first} launches, {groups} groups");
    assert_eq!(launches(42_900), (1, 39_001));
    assert_eq!(launches(11), (1, 11));
    assert_eq!(launches(44_000), (1, 40_001));
}
