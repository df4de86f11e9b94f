//! Random modules that are valid, terminate and give one answer: to fuzz printers and back ends.
//!
//! Every module has the kernel [`KERNEL`] with the signature
//! `(input: ptr<global, i64>, n: i64, output: ptr<global, i64>)`. It reads only `input[index % n]` (so `n` is at least
//! 1 and nothing writes `input`), and each thread writes only `output[thread]`, where
//! `thread = block_id * block_dim + thread_id`. Launch it with at most [`MOST_BLOCK_THREADS`] threads a block.
//!
//! Without lane operations what a thread writes depends on `thread`, `n` and `input` alone: not on the lanes of a warp,
//! the threads of a block or the order in which they run. With them it depends on lanes and block size too, but never
//! on the order. NaNs never reach `output` as bits, as their payload is the device's.

mod expressions;
mod memory;
pub mod sample;
mod statements;
mod vectors;

use crate::arena::Handle;
use crate::builder::{Builder, V, Var};
use crate::module::*;
use crate::types::{Scalar, Struct, Type};

/// The name of the kernel of a random module.
pub const KERNEL: &str = "random";
/// The most threads a block may have: shared arrays have so many elements, one for each thread.
pub const MOST_BLOCK_THREADS: u32 = 256;

/// A valid module that the seed determines. `lane_operations` lets it use lane operations, barriers that exchange
/// data, and the builtins that tell a thread about its warp and block.
pub fn random_module(seed: u64, lane_operations: bool) -> Module {
    let mut generator = Generator::new(seed, lane_operations);
    generator.structs();
    for index in 0..generator.random.below(4) {
        generator.device_function(index);
    }
    generator.kernel();
    // The generator only makes well-typed calls: a test builds and validates hundreds of modules.
    generator.builder.finish().unwrap_or_default()
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014, figure 17).
#[derive(Debug)]
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True `percent` times in a hundred.
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A device function that is there to be called.
#[derive(Debug, Clone)]
struct Callee {
    handle: Handle<Function>,
    params: Vec<Type>,
}

/// What a kernel has and a device function has not.
#[derive(Debug, Clone)]
struct KernelParts {
    /// Address of the thread's own element of the output; always initialised.
    output: V,
    thread_id: V,
    /// Addresses of this thread's own elements of shared arrays, with their scalar types; always initialised.
    slots: Vec<(V, Scalar)>,
    /// Address of this thread's own struct in shared memory.
    record: V,
    /// Address of the array through which threads exchange data.
    exchange: V,
}

/// What the code under construction may do.
#[derive(Debug, Clone, Copy)]
struct Context {
    /// All threads of the block come here together, and every iteration of the loops around it.
    uniform: bool,
    /// In a loop that conditional `break` and `continue` may leave.
    in_loop: bool,
    /// A `return` here keeps no thread from a barrier.
    may_return: bool,
    depth: usize,
}

#[derive(Debug)]
struct Generator {
    builder: Builder,
    random: Random,
    lane_operations: bool,
    functions: Vec<Callee>,
    record: Option<Handle<Struct>>,
    record_fields: Vec<Scalar>,
    /// Scalar values in scope.
    pool: Vec<V>,
    /// Scalar variables of the function.
    vars: Vec<(Var, Scalar)>,
    /// Collects what is computed; the result is made of it.
    mix: Option<Var>,
    /// The input pointer and its length as `u64`, where the function has them.
    input: Option<(V, V)>,
    /// A variable that always points to an element of the input.
    cursor: Option<Var>,
    kernel: Option<KernelParts>,
    vectors: vectors::VectorParts,
    /// Statements still to be made.
    budget: usize,
    /// Loops around the code under construction.
    open_loops: usize,
}

impl Generator {
    fn new(seed: u64, lane_operations: bool) -> Generator {
        Generator {
            builder: Builder::new(),
            random: Random { state: seed ^ (u64::from(lane_operations) << 63) },
            lane_operations,
            functions: Vec::new(),
            record: None,
            record_fields: Vec::new(),
            pool: Vec::new(),
            vars: Vec::new(),
            mix: None,
            input: None,
            cursor: None,
            kernel: None,
            vectors: vectors::VectorParts::default(),
            budget: 0,
            open_loops: 0,
        }
    }

    fn structs(&mut self) {
        self.record_fields = (0..2 + self.random.below(4)).map(|_| self.random.pick(&Scalar::ALL)).collect();
        let names: Vec<String> =
            (0..self.record_fields.len()).map(|index| format!("field_{index}")).collect();
        let fields: Vec<(&str, Type)> = names
            .iter()
            .zip(&self.record_fields)
            .map(|(name, &scalar)| (name.as_str(), scalar.into()))
            .collect();
        self.record = Some(self.builder.add_struct("Record", &fields));
    }

    /// Forgets the function before.
    fn begin(&mut self, budget: usize) {
        self.pool.clear();
        self.vars.clear();
        (self.mix, self.input, self.cursor, self.kernel) = (None, None, None, None);
        self.vectors = vectors::VectorParts::default();
        self.budget = budget;
    }

    /// Variables of random types; the first collects the result.
    fn variables(&mut self) {
        self.mix = Some(self.builder.var("mix", Scalar::I64));
        for _ in 0..self.random.below(5) {
            let scalar = self.random.pick(&Scalar::ALL);
            let var = self.builder.var("v", scalar);
            self.vars.push((var, scalar));
        }
        self.vector_variables();
        if let Some((pointer, _)) = self.input {
            self.cursor = Some(self.builder.var_of("cursor", pointer));
        }
    }

    /// A function of some scalars, and perhaps of the input, that gives an `i64`.
    fn device_function(&mut self, index: usize) {
        let budget = 6 + self.random.below(15);
        self.begin(budget);
        let reads_input = self.random.chance(40);
        let mut params: Vec<Type> =
            (0..1 + self.random.below(3)).map(|_| self.random.pick(&Scalar::ALL).into()).collect();
        if reads_input {
            params.splice(0..0, [Type::global(Scalar::I64), Type::I64]);
        }
        let names: Vec<String> = (0..params.len()).map(|index| format!("p{index}")).collect();
        let named: Vec<(&str, Type)> =
            names.iter().zip(&params).map(|(name, &ty)| (name.as_str(), ty)).collect();
        self.builder.begin_function(&format!("function_{index}"), &named, Some(Type::I64));
        for position in 0..params.len() {
            let value = self.builder.param(position as u32);
            self.pool.push(value);
        }
        if reads_input {
            let pointer = self.pool.remove(0);
            let length = self.builder.bitcast(self.pool[0], Scalar::U64);
            self.input = Some((pointer, length));
        }
        self.variables();
        self.statements(Context { uniform: false, in_loop: false, may_return: true, depth: 0 });
        let result = self.mixed();
        self.builder.return_value(result);
        let handle = self.builder.end_function();
        self.functions.push(Callee { handle, params });
    }

    fn kernel(&mut self) {
        let budget = 15 + self.random.below(40);
        self.begin(budget);
        self.builder.begin_kernel(KERNEL);
        let input = self.builder.add_param("input", Type::global(Scalar::I64));
        let n = self.builder.add_param("n", Type::I64);
        let output = self.builder.add_param("output", Type::global(Scalar::I64));
        let (input, n, output) =
            (self.builder.param(input), self.builder.param(n), self.builder.param(output));
        let length = self.builder.bitcast(n, Scalar::U64);
        self.input = Some((input, length));
        let block = self.builder.builtin(Builtin::BlockId);
        let block_threads = self.builder.builtin(Builtin::BlockDim);
        let thread_id = self.builder.builtin(Builtin::ThreadId);
        let first = self.builder.mul(block, block_threads);
        let thread = self.builder.add(first, thread_id);
        let output = self.builder.offset(output, thread);
        self.pool.extend([n, thread]);
        self.kernel_memory(output, thread_id);
        self.variables();
        self.statements(Context { uniform: true, in_loop: false, may_return: true, depth: 0 });
        let result = self.mixed();
        self.builder.store(output, result);
        self.builder.end_kernel();
    }

    /// The content of `mix`.
    fn mixed(&mut self) -> V {
        match self.mix {
            Some(mix) => self.builder.read(mix),
            None => self.builder.i64(0),
        }
    }
}
