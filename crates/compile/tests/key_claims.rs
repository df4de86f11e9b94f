//! How slots of hash tables of groups are claimed: which ways there are for which keys, what the rule takes, what a kernel looks at, and
//! that NVRTC accepts it.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, Growth, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field};
use kelpie_compile::variant::Forced;
use kelpie_device::nvrtc;
use kelpie_kir::{Scalar, Target, validate};

fn fields() -> Vec<Field> {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    vec![
        field("a", DataType::Int64, false),
        field("b", DataType::Int64, true),
        field("f", DataType::Float64, true),
        field("d", DataType::Decimal128 { precision: 38, scale: 0 }, true),
        field("t", DataType::Utf8, true),
    ]
}

/// Groups by columns of a table.
fn groups(keys: &[usize], distinct: bool) -> (Plan, ScanInfo) {
    let fields = fields();
    let fixed = |scalar| Storage::Fixed { scalar, has_base: false };
    let storages = [
        fixed(Scalar::I64),
        fixed(Scalar::I64),
        fixed(Scalar::F64),
        fixed(Scalar::I128),
        Storage::Text { offset: Scalar::U32 },
    ];
    let layouts = storages.into_iter().zip(&fields);
    let layouts =
        layouts.map(|(storage, field)| ColumnLayout { storage, has_nulls: field.nullable, range: None });
    let info = ScanInfo::new(10_000_000, layouts.collect());
    let column = |index: usize| Expr::column(index, fields[index].data_type.clone(), fields[index].nullable);
    let aggregate = |function, argument, distinct| Aggregate {
        function,
        argument,
        distinct,
        field: Field { name: "x".into(), data_type: DataType::Int64, nullable: true },
    };
    let mut aggregates = vec![aggregate(AggregateFunction::Count, None, false)];
    if distinct {
        aggregates.push(aggregate(AggregateFunction::Count, Some(column(0)), true));
    }
    let names = vec![String::new(); keys.len() + aggregates.len()];
    let keys = keys.iter().copied().map(column).collect();
    let scan =
        Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields: fields.clone() };
    (Plan::Aggregate { input: Box::new(Plan::Scan(scan)), keys, aggregates, names }, info)
}

fn compile((plan, info): &(Plan, ScanInfo), target: &Target, variants: &[(&str, &str)]) -> Program {
    let mut forced = Forced::default();
    for (axis, value) in variants {
        forced.set(axis, value).expect("an axis and its value");
    }
    let duplicates = BTreeSet::new();
    let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(plan, std::slice::from_ref(info), target, &choices).expect("the plan compiles")
}

fn gpu() -> Target {
    Target::simt(32, 256, 227 << 10, 1056)
}

#[test]
fn buckets_are_possible_for_keys_of_no_word_and_no_rule() {
    let chosen = |keys: &[usize], target: &Target| {
        let program = compile(&groups(keys, false), target, &[]);
        let choice = program.genome.of("aggregate0").find(|choice| choice.axis.name == "key_claims")?;
        Some((choice.value, choice.possible().collect::<Vec<_>>()))
    };
    let all = vec!["latch", "words", "bucket"];
    assert_eq!(chosen(&[0, 1], &gpu()), Some(("words", all.clone())));
    assert_eq!(chosen(&[0, 1], &Target::cpu(2)), Some(("latch", all)));
    assert_eq!(chosen(&[4], &gpu()), Some(("latch", vec!["latch", "bucket"])));
}

/// A table has whole buckets, also once it is known how many groups there are.
#[test]
fn tables_have_whole_buckets() {
    for (claims, bucket) in [("latch", 1), ("words", 1), ("bucket", 4)] {
        let program = compile(&groups(&[0, 1], false), &gpu(), &[("key_claims", claims)]);
        let growths = program.classes.iter().filter_map(|class| match class.growth {
            Growth::Table(growth) => Some((growth, class.initial)),
            _ => None,
        });
        let growths: Vec<_> = growths.collect();
        assert!(!growths.is_empty());
        for (growth, initial) in growths {
            assert_eq!((growth.bucket, initial % bucket), (bucket, 0), "{claims}");
            for groups in [0, 1, 4_097, 1_000_001, 123_456_789] {
                assert_eq!(growth.fitting(groups).expect("a size") % bucket, 0, "{claims}, {groups}");
            }
        }
    }
}

#[test]
fn kernels_pass_nvrtc() {
    let mut seen = BTreeSet::new();
    for (keys, distinct) in
        [(&[0, 1][..], true), (&[2], false), (&[3, 0], false), (&[4, 1], true), (&[4], false)]
    {
        for (layout, mapping) in [("beside", "multiply_high"), ("apart", "mask"), ("beside", "modulo")] {
            for near in ["0", "256"] {
                let forced = [
                    ("group_table", "hash"),
                    ("distinct_values", "set"),
                    ("key_claims", "bucket"),
                    ("slot_layout", layout),
                    ("hash_mapping", mapping),
                    ("near_groups", near),
                ];
                let program = compile(&groups(keys, distinct), &gpu(), &forced);
                for module in program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules) {
                    let source = cuda::print(&validate(module).expect("valid")).expect("prints");
                    if !seen.insert(source.clone()) {
                        continue;
                    }
                    match nvrtc::get() {
                        Err(error) => kelpie_device::testing::skip("nvrtc", &error),
                        Ok(nvrtc) => {
                            let compiled = nvrtc.compile(&source, "sm_90", "key_claims");
                            assert!(compiled.is_ok(), "{keys:?}, {forced:?}: {:?}", compiled.err());
                        }
                    }
                }
            }
        }
    }
    assert!(seen.len() > 20, "{}", seen.len());
}
