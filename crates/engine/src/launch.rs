//! The one place where this crate launches kernels, and answers for what they do to memory.
#![expect(unsafe_code, reason = "a launch runs generated code over raw memory")]

use kelpie_compile::shape::LaunchShape;
use kelpie_device::{
    BlockShape, CancelToken, DeviceError, Kernel, KernelArgument, Launch, LaunchReport, QueryStream,
};

use crate::error::EngineError;

/// Runs a kernel on a grid of `blocks` blocks (of the shape for which it was compiled), unless the query is cancelled, and waits for it where the stream
/// does not defer launches. Whatever work a query gives to
/// its device comes through here: kernels of plans (`stage/launcher`), primitives, and the measurements of bandwidth and caches.
pub(crate) fn submit(
    stream: &dyn QueryStream,
    kernel: &dyn Kernel,
    blocks: u32,
    arguments: &[KernelArgument],
    cancel: &CancelToken,
) -> Result<LaunchReport, EngineError> {
    if cancel.is_cancelled() {
        return Err(EngineError::Cancelled);
    }
    Ok(launch(stream, kernel, blocks, arguments, cancel)?)
}

/// Runs a kernel of this crate. Beside [`submit`] only the meter calls it, which passes on what was submitted.
///
/// Those who submit know what their kernels ask for: a stage, which gives the kernels of a compiled plan the
/// arguments that the compiler declared for them (`stage/arguments`); the device-wide primitives, which size their arrays by
/// the same counts that they pass; the measurement of bandwidth; and that of caches, whose working sets lie within their buffer
/// (`calibration/measure`).
pub(crate) fn launch(
    stream: &dyn QueryStream,
    kernel: &dyn Kernel,
    blocks: u32,
    arguments: &[KernelArgument],
    cancel: &CancelToken,
) -> Result<LaunchReport, DeviceError> {
    // SAFETY: no module, kernel, buffer or column comes into this crate from outside: a query is a plan, which the compiler
    // checks, over Arrow arrays, which are valid. So every kernel is one that `kelpie-compile` emitted (or stands in
    // `bandwidth`), and its arguments are those that were declared with it: states have the bytes that their capacity takes,
    // which is passed beside them, windows are over the rows that are passed, codes and offsets in columns were made
    // by `columns`. That emitted kernels then keep to their buffers and do not race is what the interpreter checks, access
    // by access, in the tests of every operator; values that index a table are clamped besides. Buffers that a kernel writes
    // belong to one run of one query, whose operations are in order, and columns are not written once they are made. Where
    // launches are deferred (`stage/deferral`), numbers of rows are what a state held the last time: kernels go no further than what
    // it holds now, tables are sized and filled by the same number, and nothing runs after a launch that failed.
    let launch = unsafe { Launch::new(kernel, blocks, arguments, cancel) };
    stream.launch(launch)
}

/// What a device is told of a kernel's shape.
pub(crate) fn block_shape(shape: &LaunchShape) -> BlockShape {
    BlockShape { threads: shape.block_threads, resident: shape.resident }
}
