//! Kernels of a few lines, which the interpreter runs: for tests of what blocks do in their memory.

use kelpie_backend::simt::{Argument as Bound, Config, Memory, Program};
use kelpie_kir::builder::{Builder, V};
use kelpie_kir::{Builtin, Scalar, Target, Type, ValidModule, validate};

use super::block_loop::for_each;
use crate::context::{Argument, Context};
use crate::shape::{LaunchShape, ShapeChoices};

const NAME: &str = "test";

/// A kernel whose states are arrays of `u64`.
pub(crate) struct Kernel {
    module: ValidModule,
    config: Config,
}

impl Kernel {
    /// That of blocks of so many threads with so many lanes, and of so many states, which `emit` is given.
    pub fn new((lanes, threads): (u32, u32), states: usize, emit: &dyn Fn(&mut Context<'_>, &[V])) -> Kernel {
        let target = Target::simt(lanes, threads, 200 << 10, 4);
        let choices = ShapeChoices { block_threads: Some(threads), ..ShapeChoices::default() };
        let shape = LaunchShape::new(&target, &choices).expect("a shape");
        let mut builder = Builder::new();
        builder.begin_kernel(NAME);
        let mut cx = Context::shaped(&mut builder, &target, shape);
        let of_state =
            |state| cx.argument(&format!("state{state}"), Type::global(Scalar::U64), Argument::State(state));
        let pointers: Vec<V> = (0..states).map(of_state).collect();
        emit(&mut cx, &pointers);
        cx.check_possible().expect("nothing impossible");
        builder.end_kernel();
        let module = validate(builder.finish().expect("types")).expect("a valid module");
        Kernel { module, config: Config { lanes, block_threads: threads, ..Config::default() } }
    }

    /// Runs so many blocks, whose warps come in an order that `seed` says.
    pub fn run(&self, states: &mut [Vec<u64>], blocks: u32, seed: u64) {
        let mut memory = Memory::new();
        let of_state = |words: &Vec<u64>| {
            let id = memory.allocate(8 * words.len());
            let bytes = memory.data_mut(id).expect("it was allocated");
            bytes
                .chunks_exact_mut(8)
                .zip(words)
                .for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
            id
        };
        let ids: Vec<_> = states.iter().map(of_state).collect();
        let arguments: Vec<_> = ids.iter().map(|id| Bound::Pointer(memory.address(*id))).collect();
        let config = Config { blocks, seed, ..self.config.clone() };
        let program = Program::new(&self.module, NAME);
        let report = program.and_then(|program| program.run(&arguments, &mut memory, &config, &|| false));
        assert_eq!(report.map(|report| report.status), Ok(0));
        for (words, id) in states.iter_mut().zip(ids) {
            let bytes = memory.data(id).expect("it was allocated");
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            *words = bytes.chunks_exact(8).map(word).collect();
        }
    }
}

/// Emits a loop over the elements of an array that are the block's, so many each; a thread has every so many of them.
pub(crate) fn for_each_of_block(
    cx: &mut Context<'_>,
    (array, count): (V, u32),
    body: &dyn Fn(&mut Context<'_>, V),
) {
    for_each(cx, count, |cx, number| {
        let b = &mut *cx.builder;
        let (block, count) = (b.builtin(Builtin::BlockId), b.i64(count.into()));
        let block = b.convert(block, Scalar::I64);
        let first = b.mul(block, count);
        let index = b.add(first, number);
        let pointer = b.offset(array, index);
        let element = b.load(pointer);
        body(cx, element);
    });
}

/// Groups of rows in the orders in which the bytes of a word come to 255 together, or anyhow: `count` rows of groups 0 to `groups`.
pub(crate) fn orders(count: usize, groups: u64, seed: u64) -> Vec<(&'static str, Vec<u64>)> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    // Those above come to 255 before the lowest goes round.
    let filled = |row: usize| if row < 255 * 3 { 1 + row as u64 / 255 } else { 0 };
    vec![
        ("in turn", (0..count as u64).map(|row| row % groups).collect()),
        ("downwards", (0..count as u64).map(|row| groups - 1 - row % groups).collect()),
        ("four of a word in turn", (0..count as u64).map(|row| row % 4).collect()),
        ("four of a word", (0..count).map(|_| random() % 4).collect()),
        ("any", (0..count).map(|_| random() % groups).collect()),
        ("one", vec![1; count]),
        ("one after those above", (0..count).map(filled).collect()),
        ("one of nine", (0..count).map(|_| if random() % 9 > 0 { 2 } else { random() % groups }).collect()),
    ]
}
