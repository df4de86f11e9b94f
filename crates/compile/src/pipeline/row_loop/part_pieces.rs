//! The row loop over rows that lie in parts: a block takes all rows of a piece before it goes on to the next, so that its memory
//! has room for all that the sink keeps of one part.

use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Scalar, Scope, Type};

use super::grid::wide;
use super::single::{RowsApart, Single};
use super::{Emitted, RowLoopStrategy, TurnRows};
use crate::context::{Argument, Context, Unsupported};
use crate::operator::roles::{Arrival, Emitter, Piece};
use crate::pipeline::body::Body;

/// Rows of parts, in a part one by one.
pub(super) struct PartPieces(pub Single);

impl RowLoopStrategy for PartPieces {
    fn turn_rows(&self) -> TurnRows {
        self.0.turn_rows()
    }

    /// A block takes pieces of parts as they come, of any size.
    fn shares_out(&self) -> bool {
        false
    }

    /// `for piece in (block ..).step_by(grid)`: uniform in the block. A CPU's workers take the next piece that nobody has taken.
    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        if !body.variants.points.is_empty() {
            return Err(Unsupported::internal("lanes exchange rows that come in parts"));
        }
        let Some(parts) = body.pipeline.source.parts() else {
            return Err(Unsupported::internal("parts of rows that have none"));
        };
        let pieces = parts.pieces(cx);
        let taken = body
            .morsels
            .map(|state| cx.argument("morsels", Type::global(Scalar::U64), Argument::State(state)));
        let b = &mut *cx.builder;
        let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
        let number = b.var_of("piece", block);
        cx.begin_loop();
        if let Some(taken) = taken {
            Body::break_if_failed(cx);
            Body::break_if_enough(cx, emitter);
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
        let end = b.binary(BinaryOp::Min, piece.end, body.rows);
        let (from_start, to_end) = (b.eq(first, piece.first), b.eq(end, piece.end));
        let is_whole = b.and(from_start, to_end);
        let is_alone = b.and(piece.is_alone, is_whole);
        let any = b.lt(first, end);
        cx.begin_if(any);
        let piece = Piece { first, end, is_alone, ..piece };
        emitter.begin_part(cx, &piece);
        rows_of_piece(body, cx, (body.variants.alone, &piece), emitter)?;
        emitter.end_part(cx)?;
        cx.end();
        cx.end();
        Ok(())
    }
}

/// `for base in (first .. end).step_by(threads)`.
fn rows_of_piece(
    body: &Body<'_>,
    cx: &mut Context<'_>,
    (arrival, piece): (Arrival, &Piece),
    emitter: &mut dyn Emitter,
) -> Emitted {
    if cx.shape.is_serial() {
        return Single::rows_of_range(body, cx, ((piece.first, piece.end), arrival.flow()), emitter);
    }
    let count = emitter.rows_at_once();
    let (thread, threads) = (wide(cx, Builtin::ThreadId), wide(cx, Builtin::BlockDim));
    let b = &mut *cx.builder;
    let stride = b.mul_int(threads, count);
    let base = b.var_of("base", piece.first);
    cx.begin_loop();
    let current = cx.builder.read(base);
    let done = cx.builder.ge(current, piece.end);
    cx.builder.break_if(done);
    Body::break_if_enough(cx, emitter);
    let row = cx.builder.add(current, thread);
    emitter.begin_round(cx);
    RowsApart { first: row, end: piece.end, threads, count }.emit(body, cx, arrival, emitter)?;
    emitter.end_round(cx)?;
    let next = cx.builder.add(current, stride);
    cx.builder.assign(base, next);
    cx.end();
    Ok(())
}
