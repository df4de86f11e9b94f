//! The row loop over rows that lie in parts: a block takes all rows of a piece before it goes on to the next, so that its memory
//! has room for all that the sink keeps of one part.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Scalar, Scope, Type};

use super::body::Body;
use super::row::for_range;
use crate::context::{Argument, Context, Unsupported};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Parts, Piece};

impl Body<'_> {
    /// `for piece in (block ..).step_by(grid)`: uniform in the block. A CPU's workers take the next piece that nobody has taken.
    pub(super) fn pieces(
        &self,
        cx: &mut Context<'_>,
        job: &Job<'_>,
        parts: &dyn Parts,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        if !self.variants.points.is_empty() {
            return Err(Unsupported::internal("lanes exchange rows that come in parts"));
        }
        let pieces = parts.pieces(cx);
        let taken = self
            .morsels
            .map(|state| cx.argument("morsels", Type::global(Scalar::U64), Argument::State(state)));
        let b = &mut *cx.builder;
        let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
        let number = b.var_of("piece", block);
        cx.begin_loop();
        if let Some(taken) = taken {
            Self::break_if_failed(cx);
            Self::break_if_enough(cx, emitter);
            let one = cx.builder.u64(1);
            let next = cx.builder.atomic(AtomicOp::Add, taken, one, Scope::Device);
            let next = cx.builder.convert(next, Scalar::U32);
            cx.builder.assign(number, next);
        }
        let b = &mut *cx.builder;
        let current = b.read(number);
        let done = b.ge(current, pieces.count);
        b.break_if(done);
        let next = b.add(current, blocks);
        b.assign(number, next);
        let piece = parts.piece(cx, &pieces, current)?;
        // A launch may be told to work on fewer rows than are stored: then another may have the rest of a part.
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let first = b.binary(BinaryOp::Max, piece.first, first);
        let end = b.binary(BinaryOp::Min, piece.end, job.rows);
        let (from_start, to_end) = (b.eq(first, piece.first), b.eq(end, piece.end));
        let is_whole = b.and(from_start, to_end);
        let is_alone = b.and(piece.is_alone, is_whole);
        let any = b.lt(first, end);
        cx.begin_if(any);
        let piece = Piece { first, end, is_alone, ..piece };
        emitter.begin_part(cx, &piece);
        self.piece(cx, job, &piece, emitter)?;
        emitter.end_part(cx)?;
        cx.end();
        cx.end();
        Ok(())
    }

    /// `for base in (first .. end).step_by(threads)`.
    fn piece(
        &self,
        cx: &mut Context<'_>,
        job: &Job<'_>,
        piece: &Piece,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        if cx.shape.is_serial() {
            let flow = if job.flags { Flow::Flag { active: None } } else { Flow::Branch };
            return for_range(cx, "row", piece.first, piece.end, |cx, row| self.row(cx, row, flow, emitter));
        }
        let count = emitter.rows_at_once();
        let b = &mut *cx.builder;
        let mut wide = |builtin| {
            let value = b.builtin(builtin);
            b.convert(value, Scalar::I64)
        };
        let (thread, threads) = (wide(Builtin::ThreadId), wide(Builtin::BlockDim));
        let at_once = b.i64(count);
        let stride = b.mul(threads, at_once);
        let base = b.var_of("base", piece.first);
        cx.begin_loop();
        let current = cx.builder.read(base);
        let done = cx.builder.ge(current, piece.end);
        cx.builder.break_if(done);
        Self::break_if_enough(cx, emitter);
        let row = cx.builder.add(current, thread);
        emitter.begin_round(cx);
        self.rows_of_turn(cx, row, &Job { rows: piece.end, ..*job }, (threads, count), emitter)?;
        emitter.end_round(cx)?;
        let next = cx.builder.add(current, stride);
        cx.builder.assign(base, next);
        cx.end();
        Ok(())
    }

    /// The rows of a thread in one turn of the row loop, `threads` (`i64`) apart.
    pub(super) fn rows_of_turn(
        &self,
        cx: &mut Context<'_>,
        row: V,
        job: &Job<'_>,
        (threads, count): (V, i64),
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        match count {
            1 => self.guarded_row(cx, row, job, emitter),
            count => self.several_rows(cx, row, (job.rows, threads, count), emitter),
        }
    }
}
