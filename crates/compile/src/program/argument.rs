//! What a kernel is given, and the errors that it reports.

use std::sync::Arc;

use kelpie_kir::Scalar;

/// Where a kernel's argument comes from; one a kernel parameter, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// A buffer of a scan's column.
    Column {
        /// The scan of the query.
        scan: usize,
        /// Position of the column in the scan.
        column: usize,
        /// Which buffer.
        part: ColumnPart,
    },
    /// The base of a scan's column, of type `i64` (`i128` where the column stores `i128`).
    ColumnBase {
        /// The scan of the query.
        scan: usize,
        /// Position of the column in the scan.
        column: usize,
        /// `I64` or `I128`.
        scalar: Scalar,
    },
    /// Rows of the pipeline's source, `i64`: the end of those to be worked on.
    RowCount,
    /// The first row to be worked on, `i64`.
    FirstRow,
    /// Whether the launch drains the queue of the pipeline (`Task::Drain`), `bool`: then it is over pieces of ranges, with as many rows
    /// for each as a warp has lanes.
    Drains,
    /// A constant.
    Constant(Constant),
    /// Bytes that are uploaded once, `ptr<global, u8>`; 16-byte aligned.
    Bytes(Arc<[u8]>),
    /// A state buffer of the query, by its id.
    State(usize),
    /// Capacity (in elements) of a state buffer, `i64`: it may grow between runs.
    StateCapacity(usize),
    /// The stage's heap for new text, which grows where a launch reports [`Status::Grow`].
    Heap(HeapPart),
    /// Memory of this kernel alone, `ptr<global, u32>`, zero before each launch.
    Scratch {
        /// Tells several of a kernel apart.
        id: usize,
        /// Its elements.
        words: u32,
    },
}

/// What a kernel must know of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapPart {
    /// Its bytes, `ptr<global, u8>`.
    Bytes,
    /// How many are taken, or were asked for: one `u64`.
    Cursor,
    /// How many there are, `i64`.
    Capacity,
}

/// A buffer of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnPart {
    /// Values, codes, or the text's bytes.
    Data,
    /// Validity bitmap, `ptr<global, u8>`.
    Validity,
    /// Offsets of text.
    Offsets,
    /// Offsets of the dictionary's entries, `ptr<global, u32>`.
    DictionaryOffsets,
    /// Bytes of the dictionary's entries.
    DictionaryBytes,
    /// Codes beside the values ([`crate::layout::ValueCodes`]).
    Codes,
    /// The values that these stand for, `ptr<global, i64>`.
    Entries,
}

/// A constant argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant {
    /// An integer of a type.
    Int(Scalar, i128),
    /// `f32`, exactly representable.
    F32(f32),
    /// `f64`.
    F64(f64),
    /// A boolean.
    Bool(bool),
}

/// Errors that generated code reports through the status word. Each maps to one code and one message; the code's lower eight
/// bits say which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// The query was cancelled; set by the engine.
    Cancelled = 1,
    /// A state buffer is full: the engine grows it and runs the pipeline again.
    Grow = 2,
    /// Arrow: "Divide by zero error".
    DivideByZero = 3,
    /// Arrow: "Arithmetic overflow".
    Overflow = 4,
    /// Arrow's cast error: a value does not fit the target type.
    CastOutOfRange = 5,
    /// Arrow's cast error: text is not a value of the target type.
    CastParse = 6,
    /// Something that only DataFusion's own operators handle (a float of many digits in text, a long text as a minimum or
    /// maximum, the average of a sum beyond 128 bits): the engine falls back.
    Fallback = 7,
    /// `substr` with a negative length.
    NegativeSubstringLength = 8,
    /// The build side of a join has a key twice, against the assumption: the engine compiles again without it.
    NotUnique = 9,
    /// A sum of decimals is beyond its type; the upper bits are the number of its aggregate.
    SumOverflow = 10,
}

/// Bits of a code below the number of an aggregate.
const STATUS_BITS: u32 = 8;

impl Status {
    /// The code of a sum that is beyond its type.
    pub const fn sum_overflow(number: u32) -> u32 {
        Status::SumOverflow as u32 | number << STATUS_BITS
    }

    /// The number of the aggregate in a code.
    pub const fn aggregate_of(code: u32) -> usize {
        (code >> STATUS_BITS) as usize
    }

    /// The status of a code, if it is one.
    pub fn from_code(code: u32) -> Option<Status> {
        use Status::*;
        [
            Cancelled, Grow, DivideByZero, Overflow, CastOutOfRange, CastParse, Fallback,
            NegativeSubstringLength, NotUnique, SumOverflow,
        ]
        .into_iter()
        .find(|status| *status as u32 == code % (1 << STATUS_BITS))
    }
}
