//! The loop of a CPU: a worker takes morsels from a counter that all workers share.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use super::Emitted;
use crate::context::{Argument, Context, Unsupported};
use crate::operator::roles::Emitter;
use crate::pipeline::body::Body;

/// The counter, `ptr<global, u64>`, and rows of a morsel.
pub(super) struct Morsels {
    counter: V,
    rows: u64,
    /// The end of all rows, `i64`.
    end: V,
}

/// What is done with the rows of a morsel, from one up to another (`i64`).
type EachMorsel<'m> = dyn FnMut(&mut Context<'_>, (V, V), &mut dyn Emitter) -> Emitted + 'm;

impl Morsels {
    /// Those of a kernel, before what a worker has for all of them.
    pub(super) fn of(body: &Body<'_>, cx: &mut Context<'_>) -> Result<Morsels, Unsupported> {
        if body.sink.passes() > 1 {
            return Err(Unsupported::internal("a worker takes each row once"));
        }
        let counter = body.morsels.ok_or_else(|| Unsupported::internal("morsels without a counter"))?;
        let counter = cx.argument("morsels", Type::global(Scalar::U64), Argument::State(counter));
        Ok(Morsels { counter, rows: body.variants.morsel.0, end: body.rows })
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
        let start = b.bitcast(start, Scalar::I64);
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let start = b.add(start, first);
        let done = b.ge(start, self.end);
        b.break_if(done);
        let end = b.add_int(start, self.rows as i64);
        let end = b.binary(BinaryOp::Min, end, self.end);
        each(cx, (start, end), emitter)?;
        cx.end();
        Ok(())
    }
}
