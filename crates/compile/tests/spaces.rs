//! The spaces of variants: how many there are, which are left out, that each makes a valid kernel for a GPU and for a CPU, and that NVRTC
//! takes them.

use kelpie_backend::cuda;
use kelpie_compile::shape::LaunchShape;
use kelpie_compile::spaces::{AggregationSpace, Comparison, Kind, Predicate, SelectionSpace, Space};
use kelpie_kir::builder::V;
use kelpie_kir::testing::sample::{covering, sample};
use kelpie_kir::{Builder, CompareOp, Module, Scalar, Target, Type, TypeError, validate};

use crate::common::compiles;

const SCALARS: [Scalar; 3] = [Scalar::I32, Scalar::I64, Scalar::F64];

fn gpu() -> Target {
    Target::simt(32, 256, 48 << 10, 1056)
}

fn source(what: &str, module: Result<Module, TypeError>) -> String {
    let module = module.unwrap_or_else(|error| panic!("{what}: {error}"));
    let module = validate(module).unwrap_or_else(|error| panic!("{what}: {error}"));
    cuda::print(&module).expect("code")
}

fn passes(what: &str, module: Result<Module, TypeError>) {
    let source = source(what, module);
    compiles(what, &source);
}

#[test]
fn spaces_are_as_large_as_the_papers_and_in_order() {
    for target in [gpu(), Target::cpu(8)] {
        let (selections, aggregations) = (SelectionSpace::new(&target), AggregationSpace::new(&target));
        let (of_selections, of_sums) = (selections.genomes(), aggregations.genomes());
        assert!((6_000..8_000).contains(&of_selections.len()), "{}", of_selections.len());
        assert!((15_000..16_000).contains(&of_sums.len()), "{}", of_sums.len());
        for genomes in [of_selections, of_sums] {
            assert!(genomes.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order");
        }
    }
}

#[test]
fn what_the_paper_leaves_out_is_left_out() {
    let target = gpu();
    let space = SelectionSpace::new(&target);
    let of = |genome: &Vec<u16>| space.variant(genome).expect("it is allowed");
    for variant in space.genomes().iter().map(of) {
        let atomic = variant.kind.is_atomic();
        assert!(
            !atomic || variant.element_bits >= 32 && variant.branched && !variant.unrolled,
            "{variant:?}"
        );
        assert!(variant.kind != Kind::Reduce || !variant.branched, "{variant:?}");
        assert!(variant.shared_bytes() <= target.shared_bytes, "{variant:?}");
        assert!((1..=1024).contains(&variant.threads), "{variant:?}");
    }
    assert!(!space.allowed(&[0, 0, 0, 0, 0]) && !space.allowed(&[0, 0, 0, 0, 0, 12]));
    assert!(!space.allowed(&[6, 0, 0, 0, 0, 0]) && !space.allowed(&[0, 0, 2, 0, 0, 0]));
    assert_eq!(
        space.describe(&[5, 1, 0, 1, 10, 8]),
        "kind=interleaved-transpose element_bits=16 branched=false unrolled=true elements=1024 threads=128"
    );
    // A block with little memory has fewer variants.
    let small = SelectionSpace::new(&Target::simt(32, 256, 2 << 10, 8));
    assert!(small.genomes().len() < space.genomes().len());
}

#[test]
fn kernels_are_valid_on_both_kinds_of_devices() {
    for target in [gpu(), Target::cpu(3)] {
        let shape = LaunchShape::of(&target);
        let space = SelectionSpace::new(&target);
        let facets = |genome: &Vec<u16>| vec![genome[..4].to_vec()];
        for genome in covering("selections", space.genomes(), 200, facets) {
            let variant = space.variant(&genome).expect("it is allowed");
            let scalar = SCALARS[usize::from(genome[4]) % 3];
            let comparison = Comparison { scalar, op: CompareOp::Ge };
            let module = variant.module(&shape, &comparison, genome[5].is_multiple_of(2));
            let module = validate(module.expect("code"));
            assert!(module.is_ok(), "{variant:?}: {:?}", module.err());
        }
        let space = AggregationSpace::new(&target);
        for genome in sample("sums", space.genomes(), 150) {
            let variant = space.variant(&genome).expect("it is allowed");
            let module =
                variant.module(&shape, SCALARS[usize::from(genome[4]) % 3], genome[5].is_multiple_of(2));
            let module = validate(module.expect("code"));
            assert!(module.is_ok(), "{variant:?}: {:?}", module.err());
        }
    }
}

/// Any code of a row: here two columns.
struct Ordered;

impl Predicate for Ordered {
    fn begin(&self, b: &mut Builder) -> Vec<V> {
        let columns = ["low", "high"].map(|name| b.add_param(name, Type::global(Scalar::F32)));
        columns.map(|column| b.param(column)).to_vec()
    }

    fn holds(&self, b: &mut Builder, params: &[V], row: V) -> V {
        let (low, high) = (b.element(params[0], row), b.element(params[1], row));
        let (doubled, sum) = (b.add(low, low), b.add(low, high));
        let (above, below) = (b.lt(doubled, high), b.ge(sum, low));
        b.and(above, below)
    }
}

#[test]
fn a_predicate_may_be_of_several_columns() {
    let target = gpu();
    let (shape, space) = (LaunchShape::of(&target), SelectionSpace::new(&target));
    for genome in covering("of two columns", space.genomes(), 6, |genome| vec![genome[0]]) {
        let variant = space.variant(&genome).expect("it is allowed");
        passes(&format!("{variant:?}"), variant.module(&shape, &Ordered, true));
    }
}

#[test]
fn kernels_pass_nvrtc() {
    let target = gpu();
    let shape = LaunchShape::of(&target);
    let space = SelectionSpace::new(&target);
    for genome in covering("selections for nvrtc", space.genomes(), 16, |genome| vec![genome[0]]) {
        let variant = space.variant(&genome).expect("it is allowed");
        let scalar = SCALARS[usize::from(genome[5]) % 3];
        let module = variant.module(&shape, &Comparison { scalar, op: CompareOp::Lt }, genome[4] % 2 == 0);
        passes(&format!("{variant:?}"), module);
    }
    let space = AggregationSpace::new(&target);
    // Those with thousands of additions take NVRTC seconds.
    let short = space.genomes().into_iter().filter(|genome| genome[1] + genome[3] <= 5);
    for genome in sample("sums for nvrtc", short, 10) {
        let variant = space.variant(&genome).expect("it is allowed");
        let scalar = SCALARS[usize::from(genome[4]) % 3];
        passes(&format!("{variant:?}"), variant.module(&shape, scalar, genome[5] % 2 == 0));
    }
}
