//! The bounds of the only key of an index: a runtime filter for the scan of the probe side.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, CompareOp, Pointee, Scalar, Scope, Type};

use super::key_range::scalar_of;
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::layout::ColumnInfo;
use crate::primitives::reduce::{Reduction, block_reduce};
use crate::program::Growth;
use crate::program::States;
use crate::types::{DataType, Range};

/// The state of the bounds: two words, zero where no row is indexed. The greatest order key (`i64` with the sign bit flipped, as
/// `u64`), and the greatest complement of one.
#[derive(Debug, Clone, Copy)]
pub struct KeyBounds(pub usize);

/// Bounds while rows are indexed, a thread.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    greatest: Var,
    least: Var,
}

impl KeyBounds {
    /// Declares the state, if the key is an integer of 64 bits inside.
    pub(crate) fn plan(key: &ColumnInfo, states: &mut States) -> Option<KeyBounds> {
        has_order(key).then(|| {
            let class = states.class(2, Growth::Fixed);
            KeyBounds(states.state("key_bounds", 8, class))
        })
    }

    /// Before the row loop.
    pub fn begin(self, cx: &mut Context<'_>) -> Bounds {
        let zero = cx.builder.u64(0);
        Bounds {
            greatest: cx.builder.var_of("greatest_key", zero),
            least: cx.builder.var_of("least_key", zero),
        }
    }

    /// Loads the bounds once they are finished.
    pub(crate) fn load(self, cx: &mut Context<'_>) -> Loaded {
        let words = cx.argument("key_bounds", Type::global(Scalar::U64), Argument::State(self.0));
        let b = &mut *cx.builder;
        let mut word = |index| {
            let index = b.i64(index);
            let pointer = b.offset(words, index);
            b.load(pointer)
        };
        let (order, complement) = (word(0), word(1));
        let complement = b.not(complement);
        let mut value = |order| {
            let value = b.bitcast(order, Scalar::I64);
            b.xor_int(value, i64::MIN)
        };
        Loaded { least: value(complement), greatest: value(order) }
    }

    /// After the row loop, where the threads of a block are together: the threads of a device would wait for each other at the two
    /// words, so a block looks at them once.
    pub fn end(self, cx: &mut Context<'_>, bounds: Bounds) {
        let words = cx.argument("key_bounds", Type::global(Scalar::U64), Argument::State(self.0));
        let vars = [("greatest_keys", bounds.greatest), ("least_keys", bounds.least)];
        for (index, (name, var)) in vars.into_iter().enumerate() {
            let own = cx.builder.read(var);
            let (own, opened) = begin_for_block(cx, name, (Reduction::Greatest, own));
            let index = index as i64;
            let index = cx.builder.i64(index);
            let pointer = cx.builder.offset(words, index);
            let known = cx.builder.atomic_load(pointer, Scope::Device);
            let beyond = cx.builder.compare(CompareOp::Gt, own, known);
            cx.begin_if(beyond);
            cx.builder.atomic_discard(AtomicOp::Max, pointer, own, Scope::Device);
            cx.end();
            for _ in 0..opened {
                cx.end();
            }
        }
    }
}

/// What the values of all threads of a block are together, and how many `if`s were opened in which one of the threads has that. At
/// uniform control flow of the block; `name`: of an array in its memory.
pub(crate) fn begin_for_block(
    cx: &mut Context<'_>,
    name: &str,
    (reduction, own): (Reduction, V),
) -> (V, usize) {
    if cx.shape.is_serial() {
        return (own, 0);
    }
    let (scalar, warps) = (cx.builder.scalar(own), cx.shape.warps());
    let totals = cx.builder.shared(name, Pointee::Scalar(scalar), warps);
    let all = block_reduce(cx.builder, &cx.shape, reduction, own, totals);
    let (thread, first) = (cx.builder.builtin(Builtin::ThreadId), cx.builder.u32(0));
    let is_first = cx.builder.eq(thread, first);
    cx.begin_if(is_first);
    (all, 1)
}

/// The bounds of a finished build side's keys, `i64` and both inclusive. The lower one is above the upper one where it has no row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub least: V,
    pub greatest: V,
}

impl Bounds {
    /// Takes the current row's key, which is not NULL, into the bounds.
    pub fn widen(self, cx: &mut Context<'_>, key: &Lowered) -> Result<(), Unsupported> {
        let value = scalar_of(key)?;
        let b = &mut *cx.builder;
        let value = b.convert(value, Scalar::I64);
        let order = b.xor_int(value, i64::MIN);
        let order = b.bitcast(order, Scalar::U64);
        let complement = b.not(order);
        for (var, candidate) in [(self.greatest, order), (self.least, complement)] {
            let known = b.read(var);
            let new = b.binary(BinaryOp::Max, known, candidate);
            b.assign(var, new);
        }
        Ok(())
    }
}

/// Whether a key is an integer of 64 bits inside.
fn has_order(key: &ColumnInfo) -> bool {
    let range = key.range.or_else(|| key.data_type.full_range());
    !matches!(key.data_type, DataType::Utf8 | DataType::Boolean)
        && range.is_some_and(|range| range.within(Range::new(i64::MIN, i64::MAX)))
}
