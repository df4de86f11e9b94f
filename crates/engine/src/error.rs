//! What can go wrong in the engine.

use kelpie_compile::context::Unsupported;
use kelpie_device::DeviceError;

/// An error of a query.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The plan cannot be compiled.
    #[error(transparent)]
    Unsupported(Unsupported),
    /// A source could not be read.
    #[error("{table}: {message}")]
    Source {
        /// The table.
        table: String,
        /// What happened.
        message: String,
    },
    /// The query itself fails, as it does in DataFusion.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A sum of decimals is beyond its type. DataFusion's own operators would give another number.
    #[error("Arithmetic overflow: {aggregate} is beyond the range of its type")]
    SumOverflow {
        /// The aggregate.
        aggregate: String,
    },
    /// The query met what only DataFusion's own operators handle: run it there.
    #[error("the data needs DataFusion's own operators: {0}")]
    Fallback(#[from] FallbackReason),
    /// The first rows of the answer were delivered, and the others cannot be made: nothing else may deliver them again.
    #[error("{rows} rows were delivered, and the next cannot be made: {cause}")]
    Interrupted {
        /// Rows that were delivered.
        rows: u64,
        /// What happened.
        cause: Box<EngineError>,
    },
    /// Cancelled.
    #[error("the query was cancelled")]
    Cancelled,
    /// An Arrow error.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
    /// A broken invariant of Kelpie: please report it.
    #[error("internal error: {0}")]
    Internal(String),
}

/// How a query fails that fails in DataFusion too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum QueryError {
    /// An integer or decimal is divided by zero.
    #[error("Divide by zero error")]
    DivideByZero,
    /// The result of an operation does not fit its type.
    #[error("Arithmetic overflow")]
    Overflow,
    /// A value does not fit the type that it is cast to.
    #[error("Cast error: a value does not fit the target type")]
    CastOutOfRange,
    /// A text is not a value of the type that it is cast to.
    #[error("Cast error: text is not a value of the target type")]
    CastParse,
    /// `substr` with a negative length.
    #[error("negative substring length not allowed")]
    NegativeSubstringLength,
    /// A scalar subquery has more than one row.
    #[error("Scalar subquery returned more than one row")]
    SubqueryRows,
}

/// Why DataFusion's own operators are to run a query that Kelpie compiles.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FallbackReason {
    /// A kernel met a value that kernels do not handle.
    #[error(
        "a value that kernels do not handle (a number of many digits in text, text of 64 KiB, the average of a sum beyond 128 bits)"
    )]
    Value,
    /// More rows at once than a kernel can number.
    #[error("{what}: {rows} rows at once, more than {most}")]
    Rows {
        /// What has the rows.
        what: String,
        /// How many.
        rows: u64,
        /// The most that are possible.
        most: u64,
    },
    /// Groups of sorted rows whose texts begin with too many bytes in common, or that no memory is left to compare.
    #[error("long texts by which groups are sorted could not be told apart")]
    Undecided,
    /// The query does not fit into the memory of any device.
    #[error("{0}")]
    DeviceMemory(DeviceError),
    /// The device can do nothing any more.
    #[error("the device is lost: {0}")]
    DeviceLost(DeviceError),
    /// A derived column fails on some row of its table, which need not be one that the query asks for.
    #[error("{expression}, computed for every row, fails: {error}")]
    Derived {
        /// The expression.
        expression: String,
        /// How it fails.
        error: String,
    },
    /// The host has no memory for a part of the answer.
    #[error("out of memory: {bytes} bytes asked for {what}")]
    HostMemory {
        /// Bytes asked for.
        bytes: u64,
        /// What they are for.
        what: &'static str,
    },
}

impl From<Unsupported> for EngineError {
    /// A broken invariant of the compiler is no property of the query.
    fn from(error: Unsupported) -> EngineError {
        match error.broken_invariant() {
            Some(what) => EngineError::Internal(what.into()),
            None => EngineError::Unsupported(error),
        }
    }
}

/// The system is asked for memory of this size before Arrow, which aborts where there is none, allocates it.
const LARGE_BYTES: usize = 1 << 20;

/// An error where the host has no memory of this size at the moment.
pub(crate) fn reserve(bytes: usize, what: &'static str) -> Result<(), EngineError> {
    if bytes < LARGE_BYTES {
        return Ok(());
    }
    let tried = Vec::<u8>::new().try_reserve_exact(bytes);
    tried.map_err(|_| FallbackReason::HostMemory { bytes: bytes as u64, what }.into())
}
