//! Keys of groups that follow from others, by what is known of tables and joins: which are carried, and that kernels are valid for every
//! micro model and NVRTC accepts them.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{self, compiles, gpu};

fn fields() -> Vec<Field> {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    vec![
        field("key", DataType::Int64, false),
        field("other", DataType::Int64, false),
        field("name", DataType::Utf8, false),
        field("address", DataType::Utf8, true),
    ]
}

/// A table of its own key, that of another, and two texts.
fn table(source: usize) -> Plan {
    Plan::Scan(Scan { source, table: "t".into(), columns: vec![0, 1, 2, 3], fields: fields() })
}

/// `unique`: the first column is known to be.
fn info(unique: bool) -> ScanInfo {
    let text =
        |has_nulls| ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls, range: None };
    let key = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::I32, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max: 60_000_000 }),
    };
    let layouts = vec![key.clone(), key, text(false), text(true)];
    let mut info = ScanInfo::new(10_000_000, layouts);
    info.columns[0].is_unique = unique;
    info
}

/// Groups of the rows of a join of two tables, the second one's key of the first with the first one's own.
fn query(customers_are_built: bool, keys: &[usize]) -> Plan {
    let key = |index| Expr::column(index, DataType::Int64, false);
    let (build, probe) = if customers_are_built { (0, 1) } else { (1, 0) };
    let keys_of_join = if customers_are_built { (key(0), key(1)) } else { (key(1), key(0)) };
    let join = Plan::Join(Box::new(Join {
        build: table(build),
        probe: table(probe),
        kind: JoinKind::Inner,
        keys: vec![keys_of_join],
        residual: None,
        null_equal: false,
        null_aware: false,
    }));
    let fields = join.fields();
    // Of the columns of customers, then those of orders.
    let place = |key: &usize| if customers_are_built { *key } else { (key + 4) % 8 };
    let column = |key: &usize| {
        let field = &fields[place(key)];
        Expr::column(place(key), field.data_type.clone(), field.nullable)
    };
    let field = Field { name: "count".into(), data_type: DataType::Int64, nullable: false };
    Plan::Aggregate {
        keys: keys.iter().map(column).collect(),
        input: Box::new(join),
        aggregates: vec![Aggregate {
            function: AggregateFunction::Count,
            argument: None,
            distinct: false,
            field,
        }],
        names: vec![String::new(); keys.len()],
    }
}

fn compile(
    plan: &Plan,
    (infos, duplicates): (&[ScanInfo], &BTreeSet<usize>),
    (target, model): (&Target, MicroModel),
    forced: &[(&str, &str)],
) -> Program {
    let set = common::forced(forced);
    let choices = Choices { forced: &set, ..Choices::new(model, duplicates) };
    pipeline::compile_with(plan, infos, target, &choices).expect("the plan compiles")
}

#[test]
fn what_follows_is_what_is_certain() {
    let (none, broken) = (BTreeSet::new(), BTreeSet::from([0]));
    for (customers_are_built, unique, duplicates, keys, carried) in [
        // The index of customers is built as unique, and is not, if they have a key twice.
        (true, false, &none, &[0, 2, 3][..], 2),
        (true, false, &none, &[5, 2, 3], 2),
        (true, false, &broken, &[0, 2, 3], 0),
        (true, true, &broken, &[0, 2, 3], 2),
        // The index is that of orders, which says nothing of customers. Their key tells what the table is known for.
        (false, false, &none, &[0, 2, 3], 0),
        (false, true, &broken, &[0, 2, 3], 2),
        (false, true, &broken, &[2, 5, 3], 2),
        (false, true, &broken, &[2, 3], 0),
        // An order's key is known for nothing.
        (false, true, &broken, &[4, 2, 3], 0),
        // The assumption of orders: that none has the same customer as another.
        (false, true, &none, &[0, 2, 6, 7], 3),
    ] {
        let plan = query(customers_are_built, keys);
        // Scans are numbered build side first.
        let infos =
            if customers_are_built { [info(unique), info(false)] } else { [info(false), info(unique)] };
        for target in [gpu(), Target::cpu(2)] {
            let as_written = [("build_side", "written")];
            let program =
                compile(&plan, (&infos, duplicates), (&target, MicroModel::Resolution), &as_written);
            let choice = program.genome.of("aggregate0").find(|choice| choice.axis.name == "dependent_keys");
            let choice = choice.expect("several keys");
            let expected = match carried {
                0 => "no key is known to follow from the others".to_string(),
                carried => format!("{carried} of {} keys follow from the others", keys.len()),
            };
            assert_eq!(choice.reason, expected, "{customers_are_built} {unique} {duplicates:?} {keys:?}");
            assert_eq!(choice.value == "carried", carried > 0);
        }
    }
}

#[test]
fn kernels_that_carry_keys_pass_nvrtc() {
    let (none, infos) = (BTreeSet::new(), [info(true), info(true)]);
    let mut seen = BTreeSet::new();
    let variants: [&[(&str, &str)]; 5] = [
        &[],
        &[("local_preaggregation", "256")],
        &[("group_order", "sorted"), ("segments", "warp")],
        &[("hash_mapping", "modulo"), ("run_accumulator", "on")],
        &[("group_estimate", "sketch")],
    ];
    // All that is left of the keys is a word, or a text.
    for keys in [&[0, 2, 3, 1][..], &[7, 0, 2, 3]] {
        for (number, forced) in variants.into_iter().enumerate() {
            for model in MicroModel::ALL {
                let plan = query(number % 2 == 0, keys);
                let program = compile(&plan, (&infos, &none), (&gpu(), model), forced);
                for module in program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules) {
                    let module = validate(module).expect("valid");
                    let source = cuda::print(&module).expect("prints");
                    if !source.contains("records") || !seen.insert(source.clone()) {
                        continue;
                    }
                    compiles(&format!("{plan:?}, {forced:?}"), &source);
                }
            }
        }
    }
    assert!(seen.len() >= 10, "{}", seen.len());
}
