//! The loop of a CPU: a worker takes morsels from a counter that all workers share.
//!
//! Where rows that were seen bound those that matter, morsels are taken in the order of their numbers' bits reversed (van der Corput's
//! sequence): the first ones lie all over the table. Of rows that come in the worst order, a morsel is then better than all before it but
//! once for each bit. Where much is done with rows, these are looked at in batches before, and batches without one that may matter are passed
//! over.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, CompareOp, Scalar, Scope, Type};

use super::Emitted;
use crate::context::{Argument, Context, Unsupported};
use crate::operator::roles::Emitter;
use crate::operator::sort::BatchBound;
use crate::pipeline::body::Body;

/// Rows of a batch that is looked at before: few enough that most have none that matters, and enough that a search of texts is worth its
/// beginning.
const BOUNDED_ROWS: i64 = 2048;

/// The counter, `ptr<global, u64>`, and rows of a morsel.
pub(super) struct Morsels<'b> {
    body: &'b Body<'b>,
    counter: V,
    rows: u64,
    /// The end of all rows, `i64`.
    end: V,
    /// Where they are taken all over the table.
    scattered: Option<Scattered>,
}

/// An order of morsels.
struct Scattered {
    /// How many there are, `u32`.
    count: V,
    /// Numbers that are taken, of which some are of no morsel; `u32`.
    numbers: V,
    /// Bits of a `u32` that numbers do not have.
    spare: V,
}

/// What is done with the rows of a morsel, from one up to another (`i64`).
type EachMorsel<'m> = dyn FnMut(&mut Context<'_>, (V, V), &mut dyn Emitter) -> Emitted + 'm;

impl<'b> Morsels<'b> {
    /// Those of a kernel, before what a worker has for all of them.
    pub(super) fn of(body: &'b Body<'b>, cx: &mut Context<'_>) -> Result<Morsels<'b>, Unsupported> {
        if body.sink.passes() > 1 {
            return Err(Unsupported::internal("a worker takes each row once"));
        }
        let counter = body.morsels.ok_or_else(|| Unsupported::internal("morsels without a counter"))?;
        let counter = cx.argument("morsels", Type::global(Scalar::U64), Argument::State(counter));
        let (rows, end) = (body.variants.morsel.0, body.rows);
        let scattered = body.sink.learns_from_rows().then(|| Scattered::of(cx, rows, end));
        Ok(Morsels { body, counter, rows, end, scattered })
    }

    /// A worker takes morsels until there are none or the launch has failed.
    pub(super) fn each(
        &self,
        cx: &mut Context<'_>,
        emitter: &mut dyn Emitter,
        each: &mut EachMorsel<'_>,
    ) -> Emitted {
        cx.begin_loop();
        Body::break_if_failed(cx);
        Body::break_if_enough(cx, emitter);
        let b = &mut *cx.builder;
        let size = b.u64(self.rows);
        let start = b.atomic(AtomicOp::Add, self.counter, size, Scope::Device);
        let start = match &self.scattered {
            Some(scattered) => {
                let number = b.div(start, size);
                scattered.begin_if_morsel(cx, (number, size))
            }
            None => b.bitcast(start, Scalar::I64),
        };
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let start = b.add(start, first);
        if self.scattered.is_none() {
            let done = b.ge(start, self.end);
            b.break_if(done);
        }
        let end = b.add_int(start, self.rows as i64);
        let end = b.binary(BinaryOp::Min, end, self.end);
        match emitter.batch_bound(&|column| self.in_source(column)) {
            Some(bound) => {
                self.each_batch(cx, (start, end), &bound, &mut |cx, rows| each(cx, rows, emitter))?
            }
            None => each(cx, (start, end), emitter)?,
        }
        if self.scattered.is_some() {
            cx.end();
        }
        cx.end();
        Ok(())
    }
}

impl Morsels<'_> {
    /// Where a column of the rows that come to the sink is in the source, if it is.
    fn in_source(&self, column: usize) -> Option<usize> {
        self.body.pipeline.steps.iter().rev().try_fold(column, |column, step| step.below(column))
    }

    /// The batches of a morsel of which a row may matter.
    fn each_batch(
        &self,
        cx: &mut Context<'_>,
        (start, end): (V, V),
        bound: &BatchBound,
        each: &mut dyn FnMut(&mut Context<'_>, (V, V)) -> Emitted,
    ) -> Emitted {
        let batch = cx.builder.var_of("bounded_batch", start);
        cx.begin_loop();
        let from = cx.builder.read(batch);
        let done = cx.builder.ge(from, end);
        cx.builder.break_if(done);
        let to = cx.builder.add_int(from, BOUNDED_ROWS);
        let to = cx.builder.binary(BinaryOp::Min, to, end);
        cx.builder.assign(batch, to);
        let passes = bound.may_pass(cx, &*self.body.pipeline.source, (from, to))?;
        cx.begin_if(passes);
        each(cx, (from, to))?;
        cx.end();
        cx.end();
        Ok(())
    }
}

impl Scattered {
    /// That of the morsels of some rows up to `end`.
    fn of(cx: &mut Context<'_>, rows: u64, end: V) -> Scattered {
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let all = b.sub(end, first);
        let most = b.add_int(all, rows as i64 - 1);
        let each = b.i64(rows as i64);
        let count = b.div(most, each);
        let count = b.convert(count, Scalar::U32);
        let (two, most_bits) = (b.u32(2), b.u32(31));
        let (numbers, spare) = (b.var_of("numbers", two), b.var_of("spare", most_bits));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (known, left) = (b.read(numbers), b.read(spare));
        let (is_enough, one) = (b.ge(known, count), b.u32(1));
        let is_last = b.compare(CompareOp::Le, left, one);
        let done = b.or(is_enough, is_last);
        b.break_if(done);
        let (twice, fewer) = (b.add(known, known), b.sub(left, one));
        b.assign(numbers, twice);
        b.assign(spare, fewer);
        cx.end();
        Scattered { count, numbers: cx.builder.read(numbers), spare: cx.builder.read(spare) }
    }

    /// Leaves the loop after the last number, and opens `if` for a number (`u64`) that is a morsel's; the morsel's first row of the
    /// launch's, `i64`. `rows`: of a morsel, `u64`.
    fn begin_if_morsel(&self, cx: &mut Context<'_>, (number, rows): (V, V)) -> V {
        let b = &mut *cx.builder;
        let numbers = b.convert(self.numbers, Scalar::U64);
        let done = b.ge(number, numbers);
        b.break_if(done);
        let mut bits = b.convert(number, Scalar::U32);
        for (shift, mask) in [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0f0f_0f0f), (8, 0x00ff_00ff)] {
            let (by, mask) = (b.u32(shift), b.u32(mask));
            let upper = b.binary(BinaryOp::Shr, bits, by);
            let (upper, lower) = (b.and(upper, mask), b.and(bits, mask));
            let lower = b.binary(BinaryOp::Shl, lower, by);
            bits = b.or(upper, lower);
        }
        let half = b.u32(16);
        let (upper, lower) = (b.binary(BinaryOp::Shr, bits, half), b.binary(BinaryOp::Shl, bits, half));
        let bits = b.or(upper, lower);
        let morsel = b.binary(BinaryOp::Shr, bits, self.spare);
        let is_there = b.lt(morsel, self.count);
        cx.begin_if(is_there);
        let b = &mut *cx.builder;
        let morsel = b.convert(morsel, Scalar::U64);
        let start = b.mul(morsel, rows);
        b.bitcast(start, Scalar::I64)
    }
}
