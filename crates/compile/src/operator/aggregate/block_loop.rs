//! Loops that the threads of a block share out.

use kelpie_kir::builder::V;
use kelpie_kir::{Builtin, Scalar};

use crate::context::Context;

/// Sets `count` elements of an array that is the block's to zero, its threads side by side.
pub fn clear(cx: &mut Context<'_>, table: V, scalar: Scalar, count: u32) {
    for_each(cx, count, |cx, index| {
        let pointer = cx.builder.offset(table, index);
        let zero = cx.builder.zero(scalar);
        cx.builder.store(pointer, zero);
    });
}

/// Runs `body` for `0..count` (`i64`), the threads of the block side by side. Ends without a barrier.
pub fn for_each(cx: &mut Context<'_>, count: u32, body: impl FnOnce(&mut Context<'_>, V)) {
    let thread = cx.builder.builtin(Builtin::ThreadId);
    let start = cx.builder.convert(thread, Scalar::I64);
    let index = cx.builder.var_of("index", start);
    cx.begin_loop();
    let current = cx.builder.read(index);
    let end = cx.builder.i64(i64::from(count));
    let done = cx.builder.ge(current, end);
    cx.builder.break_if(done);
    body(cx, current);
    let threads = cx.builder.builtin(Builtin::BlockDim);
    let threads = cx.builder.convert(threads, Scalar::I64);
    let next = cx.builder.add(current, threads);
    cx.builder.assign(index, next);
    cx.end();
}
