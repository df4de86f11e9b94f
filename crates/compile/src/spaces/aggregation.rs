//! The sum of a column (section 2.2), as a kernel by itself.
//!
//! | kernel | parameters |
//! |---|---|
//! | [`SUM`] | `data`, `rows: u32`, `validity: u8[]` (where values may be NULL), `total` |
//!
//! A block's part of the column is cut into parts of its threads, either neighbours or taken in turn. Each thread adds up its own in several
//! accumulators, the threads of the block add up theirs two by two in its memory (Horn 2005), and the block adds its sum to the total by an
//! atomic. Sums of integers have 64 bits and wrap; those of floats depend on the variant as far as additions round. `validity` has a bit a row, and
//! whole words of 64 bits.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, Builtin, Module, Pointee, ReduceOp, Scalar, Scope, Target, Type, TypeError,
};

use super::group::{Group, div_up, param, share_of};
use super::{MOST_THREADS_POWER, Space, Variable, powers};
use crate::primitives::for_range;
use crate::shape::LaunchShape;

/// The kernel.
pub const SUM: &str = "sum_column";

/// Values that one turn of a thread's loop adds, at most, as a power of two.
const MOST_UNROLL_POWER: u32 = 6;
/// Elements of a vector, at most, as a power of two.
const MOST_VECTOR_POWER: u32 = 4;
/// Blocks for each of a device's compute units, at most, as a power of two.
const MOST_BLOCKS_POWER: u32 = 4;

/// A variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Aggregation {
    /// Whether the threads of a block take values in turn, not each its neighbours.
    pub interleaved: bool,
    /// Vectors that one turn of a thread's loop adds.
    pub unroll: u32,
    /// Accumulators of a thread, each a vector: the instructions that do not wait for each other.
    pub parallel: u32,
    /// Elements of a vector.
    pub vector: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks for each of a device's compute units. They are the launch's, and no part of the kernel.
    pub blocks: u32,
}

/// A kernel's parameters and what follows from them.
struct Sum<'a> {
    variant: &'a Aggregation,
    group: Group,
    data: V,
    rows: V,
    validity: Option<V>,
    accumulator: Scalar,
}

impl Aggregation {
    /// The type of the sum of a column.
    pub fn total(scalar: Scalar) -> Scalar {
        match scalar {
            Scalar::F32 | Scalar::F64 => Scalar::F64,
            _ => Scalar::I64,
        }
    }

    /// Bytes of the block's memory.
    fn shared_bytes(&self) -> u32 {
        self.threads * Scalar::I64.bytes()
    }

    /// The kernel for a column of integers or floats of up to 64 bits, for launches of blocks of this shape (of as many threads, or a
    /// CPU's). `nullable`: whether values may be NULL.
    ///
    /// # Errors
    /// Where there are no sums of such columns.
    pub fn module(&self, shape: &LaunchShape, scalar: Scalar, nullable: bool) -> Result<Module, TypeError> {
        let mut b = Builder::new();
        b.begin_kernel(SUM);
        let accumulator = Aggregation::total(scalar);
        let data = param(&mut b, "data", Type::global(scalar));
        let rows = param(&mut b, "rows", Scalar::U32);
        let validity = nullable.then(|| param(&mut b, "validity", Type::global(Scalar::U8)));
        let total = param(&mut b, "total", Type::global(accumulator));
        let group = Group::new(shape, self.threads);
        let sum = Sum { variant: self, group, data, rows, validity, accumulator };
        sum.kernel(&mut b, total);
        b.end_kernel();
        b.finish()
    }
}

impl Sum<'_> {
    fn kernel(&self, b: &mut Builder, total: V) {
        let Aggregation { vector, threads, .. } = *self.variant;
        let sums = b.shared("sums", Pointee::Scalar(self.accumulator), threads);
        let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
        let vectors = b.div_int(self.rows, vector);
        let share = div_up(b, vectors, blocks);
        let (first, end) = share_of(b, (block, share), vectors);
        self.group.phase(b, |b, thread| {
            let accumulators = self.add_own(b, (first, end), thread);
            if vector > 1 {
                self.add_rest(b, (block, thread), accumulators.1);
            }
            let own = self.of_accumulators(b, &accumulators);
            let pointer = b.offset(sums, thread);
            b.store(pointer, own);
        });
        self.group.barrier(b);
        let mut stride = threads / 2;
        while stride > 0 {
            self.group.phase_of(b, stride, |b, thread| {
                let other = b.add_int(thread, stride);
                let (own, other) = (b.offset(sums, thread), b.offset(sums, other));
                let (value, more) = (b.load(own), b.load(other));
                let both = b.add(value, more);
                b.store(own, both);
            });
            self.group.barrier(b);
            stride /= 2;
        }
        self.group.phase_of(b, 1, |b, _| {
            let sum = b.load(sums);
            b.atomic_discard(AtomicOp::Add, total, sum, Scope::Device);
        });
    }

    /// A thread's accumulators of vectors, and the one of single rows, with the thread's part of the block's vectors `first..end` in them.
    fn add_own(&self, b: &mut Builder, (first, end): (V, V), thread: V) -> (Vec<Var>, Var) {
        let Aggregation { interleaved, unroll, parallel, threads, .. } = *self.variant;
        let nothing = self.nothing(b);
        let accumulators: Vec<Var> = (0..parallel).map(|_| b.var_of("sum", nothing)).collect();
        let zero = b.zero(self.accumulator);
        let of_rows = b.var_of("sum_of_rows", zero);
        let count = b.sub(end, first);
        // The thread's first vector, how many it has, and how far they are apart.
        let (from, own, step) = if interleaved {
            let before = b.binary(BinaryOp::Min, thread, count);
            let left = b.sub(count, before);
            let threads = b.u32(threads);
            (b.add(first, thread), div_up(b, left, threads), threads)
        } else {
            let threads = b.u32(threads);
            let share = div_up(b, count, threads);
            let (begin, end) = share_of(b, (thread, share), count);
            let own = b.sub(end, begin);
            (b.add(first, begin), own, b.u32(1))
        };
        let turns = b.div_int(own, unroll);
        let (zero, one) = (b.u32(0), b.u32(1));
        for_range(b, zero, turns, one, |b, turn| {
            let before = b.mul_int(turn, unroll);
            let distance = b.mul(before, step);
            let base = b.add(from, distance);
            for (number, accumulator) in (0..unroll).zip(accumulators.iter().cycle()) {
                let distance = b.mul_int(step, number);
                let vector = b.add(base, distance);
                self.add(b, *accumulator, vector);
            }
        });
        let done = b.mul_int(turns, unroll);
        for_range(b, done, own, one, |b, number| {
            let distance = b.mul(number, step);
            let vector = b.add(from, distance);
            if let Some(accumulator) = accumulators.first() {
                self.add(b, *accumulator, vector);
            }
        });
        (accumulators, of_rows)
    }

    fn nothing(&self, b: &mut Builder) -> V {
        match self.variant.vector {
            1 => b.zero(self.accumulator),
            lanes => b.zero_vector(self.accumulator, lanes as u8),
        }
    }

    /// Adds a vector of values (by its number) to an accumulator.
    fn add(&self, b: &mut Builder, accumulator: Var, vector: V) {
        let lanes = self.variant.vector;
        if lanes == 1 {
            return self.add_row(b, accumulator, vector);
        }
        let row = b.mul_int(vector, lanes);
        let pointer = b.offset(self.data, row);
        let values = b.load_vector_read_only(pointer, lanes as u8);
        let values = b.convert(values, self.accumulator);
        let values = match self.validity {
            None => values,
            Some(validity) => {
                let bits = self.bits(b, validity, row);
                let mask = b.bits_mask(bits, lanes as u8);
                let nothing = self.nothing(b);
                b.select(mask, values, nothing)
            }
        };
        let old = b.read(accumulator);
        let new = b.add(old, values);
        b.assign(accumulator, new);
    }

    /// The bits (`u32`) of a vector's rows, the first one lowest.
    fn bits(&self, b: &mut Builder, validity: V, row: V) -> V {
        let byte = b.div_int(row, 8);
        let bits = b.element(validity, byte);
        let bits = b.convert(bits, Scalar::U32);
        if self.variant.vector == 16 {
            let next = b.add_int(byte, 1);
            let more = b.element(validity, next);
            let more = b.convert(more, Scalar::U32);
            let more = b.shl_int(more, 8);
            return b.or(bits, more);
        }
        let within = b.rem_int(row, 8);
        b.binary(BinaryOp::Shr, bits, within)
    }

    fn add_row(&self, b: &mut Builder, accumulator: Var, row: V) {
        let value = b.element(self.data, row);
        let value = b.convert(value, self.accumulator);
        let value = match self.validity {
            None => value,
            Some(validity) => {
                let byte = b.div_int(row, 8);
                let bits = b.element(validity, byte);
                let within = b.rem_int(row, 8);
                let within = b.convert(within, Scalar::U8);
                let bit = b.binary(BinaryOp::Shr, bits, within);
                let bit = b.and_int(bit, 1);
                let (valid, nothing) = (b.ne_int(bit, 0), b.zero(self.accumulator));
                b.select(valid, value, nothing)
            }
        };
        let old = b.read(accumulator);
        let new = b.add(old, value);
        b.assign(accumulator, new);
    }

    /// The rows that no vector has, fewer than it has elements, are the first thread's of the first block.
    fn add_rest(&self, b: &mut Builder, (block, thread): (V, V), accumulator: Var) {
        let lanes = self.variant.vector;
        let both = b.or(block, thread);
        let is_first = b.eq_int(both, 0);
        b.begin_if(is_first);
        let vectors = b.div_int(self.rows, lanes);
        let (from, one) = (b.mul_int(vectors, lanes), b.u32(1));
        for_range(b, from, self.rows, one, |b, row| self.add_row(b, accumulator, row));
        b.end();
    }

    /// The sum of a thread's accumulators.
    fn of_accumulators(&self, b: &mut Builder, (vectors, of_rows): &(Vec<Var>, Var)) -> V {
        let mut all: Vec<V> = vectors.iter().map(|accumulator| b.read(*accumulator)).collect();
        while all.len() > 1 {
            all = all
                .chunks(2)
                .map(|pair| match pair {
                    [a, c] => b.add(*a, *c),
                    single => single[0],
                })
                .collect();
        }
        let rest = b.read(*of_rows);
        match (all.first(), self.variant.vector) {
            (None, _) => rest,
            (Some(sum), 1) => b.add(*sum, rest),
            (Some(sums), _) => {
                let sum = b.reduce(ReduceOp::Add, *sums);
                b.add(sum, rest)
            }
        }
    }
}

/// All variants of a device.
#[derive(Debug, Clone)]
pub struct AggregationSpace {
    variables: Vec<Variable>,
    shared_bytes: u32,
    vectors: bool,
}

impl AggregationSpace {
    /// The variants for a device.
    pub fn new(target: &Target) -> AggregationSpace {
        let variables = vec![
            Variable::new("access", ["sequential", "interleaved"]),
            Variable::new("unroll", powers(MOST_UNROLL_POWER)),
            Variable::new("parallel", powers(MOST_UNROLL_POWER)),
            Variable::new("vector", powers(MOST_VECTOR_POWER)),
            Variable::new("threads", powers(MOST_THREADS_POWER)),
            Variable::new("blocks", powers(MOST_BLOCKS_POWER)),
        ];
        AggregationSpace { variables, shared_bytes: target.shared_bytes, vectors: target.has_vectors() }
    }
}

impl Space for AggregationSpace {
    type Variant = Aggregation;

    fn variables(&self) -> &[Variable] {
        &self.variables
    }

    fn variant(&self, genome: &[u16]) -> Option<Aggregation> {
        let [access, unroll, parallel, vector, threads, blocks] = *genome else { return None };
        if !self.has_values(genome) {
            return None;
        }
        let variant = Aggregation {
            interleaved: access == 1,
            unroll: 1 << unroll,
            parallel: 1 << parallel,
            vector: 1 << vector,
            threads: 1 << threads,
            blocks: 1 << blocks,
        };
        let exists = variant.parallel <= variant.unroll
            && (variant.vector == 1 || self.vectors)
            && variant.shared_bytes() <= self.shared_bytes;
        exists.then_some(variant)
    }
}
