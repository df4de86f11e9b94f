//! The kernels of sorted relational algebra: every operator, width, output, partition and block join makes valid kernels, which NVRTC takes.

use kelpie_backend::cuda;
use kelpie_compile::algebra::flat::{self, keeps_order};
use kelpie_compile::algebra::{
    BlockJoin, Comparison, Description, Duplicates, Field, Operator, Outer, Output, Partition, Tuning,
    Tuples, Width, pages,
};
use kelpie_compile::shape::{LaunchShape, ShapeChoices};
use kelpie_kir::testing::sample::covering;
use kelpie_kir::{CompareOp, Module, Target, TypeError, validate};

use crate::common::compiles;

fn gpu() -> LaunchShape {
    LaunchShape::of(&Target::simt(32, 256, 48 << 10, 1056))
}

fn tuples(width: Width) -> Tuples {
    match width {
        Width::W32 => Tuples { width, key_bits: 20, value_bits: 12 },
        Width::W64 => Tuples { width, key_bits: 32, value_bits: 32 },
        Width::W128 => Tuples { width, key_bits: 64, value_bits: 30 },
    }
}

fn operators() -> Vec<Operator> {
    let comparison = Comparison { field: Field { shift: 0, bits: 8 }, op: CompareOp::Lt, value: 100 };
    let outer = |left, right| Operator::Join(Outer { left, right });
    vec![
        Operator::Select(vec![comparison]),
        Operator::Intersect,
        Operator::Union,
        Operator::Difference,
        outer(false, false),
        outer(true, false),
        outer(false, true),
        outer(true, true),
    ]
}

fn descriptions() -> Vec<Description> {
    let mut all = Vec::new();
    for operator in operators() {
        for width in Width::ALL {
            for output in [Output::Gather, Output::SinglePass, Output::Pages] {
                for partition in [Partition::BinarySearch, Partition::MergePath] {
                    for block_join in BlockJoin::ALL {
                        for buffer in [0, 512] {
                            let tuning = Tuning { buffer, ..Tuning::default() };
                            let new = Description::new(operator.clone(), tuples(width));
                            all.push(Description { output, partition, block_join, tuning, ..new });
                        }
                    }
                }
            }
        }
    }
    all
}

fn facets(description: &Description) -> Vec<String> {
    let Description { operator, tuples, output, partition, block_join, .. } = description;
    vec![
        format!("{operator:?}"),
        format!("{:?} {output:?}", tuples.width),
        format!("{partition:?} {output:?}"),
        format!("{block_join:?}"),
    ]
}

fn passes(what: &str, module: Result<Module, TypeError>) {
    let module = module.unwrap_or_else(|error| panic!("{what}: {error}"));
    let module = validate(module).unwrap_or_else(|error| panic!("{what}: {error}"));
    let source = cuda::print(&module).expect("code");
    compiles(what, &source);
}

#[test]
fn kernels_pass_nvrtc() {
    for description in covering("algebra kernels", descriptions(), 16, facets) {
        assert_eq!(description.problem(&gpu()), None, "{description:?}");
        passes(&format!("{description:?}"), description.module(&gpu()));
    }
    let half = |width| Tuples { key_bits: 8, value_bits: 8, width };
    for width in Width::ALL {
        passes("pages", pages::from_dense(width, 4096));
        let fields = [Field { shift: 8, bits: 8 }, Field { shift: 0, bits: 4 }];
        passes("projection", flat::project(&gpu(), half(width), &fields, half(Width::W32)));
        passes("product", flat::product(&gpu(), (half(width), half(Width::W64)), half(width)));
    }
    passes("copy", flat::copy());
}

#[test]
fn kernels_are_valid_in_every_shape() {
    let (cpu, small) = (Target::cpu(2), Target::simt(8, 16, 48 << 10, 4));
    for description in covering("algebra shapes", descriptions(), 60, facets) {
        let one_warp = ShapeChoices { block_threads: Some(8), ..ShapeChoices::default() };
        let shapes = [
            LaunchShape::of(&cpu),
            LaunchShape::of(&small),
            LaunchShape::new(&small, &one_warp).expect("a shape"),
        ];
        for shape in shapes {
            assert_eq!(description.problem(&shape), None, "{description:?}");
            let module =
                description.module(&shape).unwrap_or_else(|error| panic!("{description:?}: {error}"));
            let valid = validate(module);
            assert!(valid.is_ok(), "{description:?}, {shape:?}: {:?}", valid.err());
        }
    }
}

#[test]
fn what_there_is_not_says_why() {
    let new = |key_bits, value_bits, width| {
        Description::new(Operator::Intersect, Tuples { width, key_bits, value_bits })
    };
    let why = |description: &Description| description.problem(&gpu()).unwrap_or_default();
    assert!(why(&new(0, 8, Width::W32)).contains("without a key"));
    assert!(why(&new(20, 20, Width::W32)).contains("40 bits: more than 32"));
    assert_eq!(why(&new(32, 0, Width::W32)), "");
    let join = Operator::Join(Outer::default());
    let wide = Description { operator: join, ..new(64, 33, Width::W128) };
    assert!(why(&wide).contains("130 bits"), "{}", why(&wide));
    let none = Tuning { blocking: 0, ..Tuning::default() };
    assert!(why(&Description { tuning: none, ..new(8, 8, Width::W32) }).contains("blocking"));
    let field = Field { shift: 30, bits: 3 };
    let select = Operator::Select(vec![Comparison { field, op: CompareOp::Lt, value: 1 }]);
    assert!(why(&Description { operator: select, ..new(8, 8, Width::W32) }).contains("not in a word"));
    let much = Tuning { buffer: 1 << 20, ..Tuning::default() };
    let block_join = BlockJoin::Hash;
    assert!(why(&Description { tuning: much, block_join, ..new(8, 8, Width::W32) }).contains("memory"));
}

#[test]
fn a_join_takes_the_narrowest_word() {
    let of = |key_bits, value_bits, outer| {
        let tuples = Tuples { width: Width::W64, key_bits, value_bits };
        Description::new(Operator::Join(outer), tuples).output()
    };
    let (inner, full) = (Outer::default(), Outer { left: true, right: true });
    assert_eq!(of(16, 8, inner), Tuples { width: Width::W32, key_bits: 16, value_bits: 16 });
    assert_eq!(of(16, 8, full), Tuples { width: Width::W64, key_bits: 16, value_bits: 18 });
    assert_eq!(of(32, 32, inner), Tuples { width: Width::W128, key_bits: 32, value_bits: 64 });
    let each =
        Description { duplicates: Duplicates::Each, ..Description::new(Operator::Union, tuples(Width::W32)) };
    assert_eq!(each.output(), tuples(Width::W32));
}

#[test]
fn projections_that_keep_keys_keep_their_order() {
    let tuples = Tuples { width: Width::W32, key_bits: 16, value_bits: 16 };
    let field = |shift, bits| Field { shift, bits };
    for (fields, keeps) in [
        (vec![field(16, 16), field(0, 16)], true),
        (vec![field(16, 16), field(0, 8)], true),
        (vec![field(24, 8)], true),
        (vec![field(16, 8), field(24, 8)], false),
        (vec![field(24, 8), field(0, 16)], false),
        (vec![field(0, 16)], false),
    ] {
        assert_eq!(keeps_order(&tuples, &fields), keeps, "{fields:?}");
    }
}
