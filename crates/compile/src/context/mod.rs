//! What lowering works on: the builder, the kernel's arguments, the target, and the current row.

mod cancellation;
mod dictionary;
pub(crate) mod lanes;
mod live_columns;
mod load;
mod loaded;
mod prefetched_rows;
pub(crate) mod register_words;
mod row;
mod scratch;
mod texts;
mod value;
mod value_codes;
mod wide;

use std::collections::HashMap;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Builder, Scalar, Target, Type};

use crate::expr::Expr;
use crate::shape::LaunchShape;

pub(crate) use self::cancellation::Leaving;
use self::cancellation::Watches;
pub(crate) use self::live_columns::{LiveColumns, Moved};
use self::prefetched_rows::Prefetched;
pub(crate) use self::prefetched_rows::prefetched_bytes;
use self::row::CurrentRow;
pub(crate) use self::row::{Origin, RowLayer};
pub(crate) use self::scratch::TEXT_MARGIN;
pub(crate) use self::texts::RawTexts;
pub use self::value::{Case, DictionaryCode, Lowered, Repr, Text, register_of, register_type};
pub(crate) use self::wide::{StoredIntegers, WIDE_ROWS};
pub use crate::program::{Argument, ColumnPart, Constant, HeapPart, Status};
pub use crate::unsupported::Unsupported;

/// State of code generation for one kernel.
pub struct Context<'a> {
    /// Builds the module.
    pub builder: &'a mut Builder,
    /// What the kernel runs on.
    pub target: &'a Target,
    /// How it is launched: what depends on threads, warps and blocks is generated from this.
    pub shape: LaunchShape,
    /// Nothing is kept of what is built: see `lower::facts`.
    pub dry_run: bool,
    /// What is lowered is the condition of a dictionary's entry: see `lower::dictionary`.
    pub(crate) in_memo: bool,
    arguments: Vec<Argument>,
    row: CurrentRow,
    loads: Loads,
    memos: Memos,
    repetition: Repetition,
    made_text: MadeText,
    watches: Watches,
    /// The first impossible state that was met: the kernel is not to be used.
    impossible: Option<String>,
}

/// What was loaded of the columns of several rows of a scan, each by scan and position, and whether it is the validity.
#[derive(Debug, Default)]
struct Loads {
    /// The current row stands for so many rows from it on: see `context::wide`.
    wide: Option<u8>,
    /// Of a wide row.
    of_wide_row: HashMap<(usize, usize, bool), V>,
    /// Of rows that are worked on one by one: see `context::prefetched_rows`.
    prefetched: Option<Prefetched>,
}

/// Conditions on dictionary columns, by scan and position, that the kernel computes once an entry.
#[derive(Debug, Default)]
struct Memos {
    all: Vec<((usize, usize), Expr)>,
    /// With the words of those that a block has in its memory.
    near: Vec<((usize, usize), Expr, V)>,
}

/// A row that is emitted several times.
#[derive(Debug, Default)]
struct Repetition {
    /// Parameters of its constants, in the order they were asked for.
    constants: Vec<u32>,
    /// How many of them this repetition has used; `None` outside of repetitions.
    used: Option<usize>,
}

/// Where text is made.
#[derive(Debug, Default)]
struct MadeText {
    /// What is thrown away with the row.
    scratch: Option<scratch::Scratch>,
    /// What a CPU's worker keeps.
    piece: Option<scratch::Piece>,
}

impl<'a> Context<'a> {
    /// A context for the kernel that `builder` has begun, with the shape that suits most kernels of the target.
    pub fn new(builder: &'a mut Builder, target: &'a Target) -> Context<'a> {
        Context::shaped(builder, target, LaunchShape::of(target))
    }

    /// As [`Context::new`], for launches of a shape.
    pub fn shaped(builder: &'a mut Builder, target: &'a Target, shape: LaunchShape) -> Context<'a> {
        Context {
            builder,
            target,
            shape,
            dry_run: false,
            in_memo: false,
            arguments: Vec::new(),
            row: CurrentRow::default(),
            loads: Loads::default(),
            memos: Memos::default(),
            repetition: Repetition::default(),
            made_text: MadeText::default(),
            watches: Watches::default(),
            impossible: None,
        }
    }

    /// Notes a state that cannot be. What is emitted from here on is never run: who generates the kernel gives an internal
    /// error instead of it.
    pub(crate) fn impossible(&mut self, what: &str) {
        self.impossible.get_or_insert_with(|| what.to_string());
    }

    /// An internal error where an impossible state was met.
    pub(crate) fn check_possible(&self) -> Result<(), Unsupported> {
        self.impossible.as_ref().map_or(Ok(()), |what| Err(Unsupported::internal(what)))
    }

    /// The kernel's arguments, one a parameter.
    pub fn into_arguments(self) -> Vec<Argument> {
        self.arguments
    }

    // ---- arguments

    /// Adds a parameter and gives its value.
    pub fn argument(&mut self, name: &str, ty: impl Into<Type>, argument: Argument) -> V {
        if let Some(known) =
            self.arguments.iter().position(|a| *a == argument && !matches!(a, Argument::Constant(_)))
        {
            return self.builder.param(known as u32);
        }
        let index = self.builder.add_param(&format!("{name}_{}", self.arguments.len()), ty.into());
        self.arguments.push(argument);
        self.builder.param(index)
    }

    /// A literal of the query as a kernel parameter, so that another constant reuses the kernel.
    pub fn constant(&mut self, constant: Constant) -> V {
        let scalar = match constant {
            Constant::Int(scalar, _) => scalar,
            Constant::F32(_) => Scalar::F32,
            Constant::F64(_) => Scalar::F64,
            Constant::Bool(_) => Scalar::Bool,
        };
        if let Some(used) = self.repetition.used {
            self.repetition.used = Some(used + 1);
            let known = self.repetition.constants.get(used).copied();
            if let Some(index) = known
                && self.arguments.get(index as usize) == Some(&Argument::Constant(constant))
            {
                return self.builder.param(index);
            }
            self.repetition.constants.push(self.arguments.len() as u32);
        }
        self.argument("literal", scalar, Argument::Constant(constant))
    }

    /// The row that follows is emitted again from here: its constants are those of the row before, one parameter each.
    pub fn begin_repetition(&mut self, first: bool) {
        if first {
            self.repetition.constants.clear();
        }
        self.repetition.used = Some(0);
    }

    /// Constants are parameters of their own again.
    pub fn end_repetition(&mut self) {
        self.repetition.used = None;
    }

    /// Bytes in device memory, uploaded once.
    pub fn bytes(&mut self, bytes: &[u8]) -> V {
        self.argument("bytes", Type::global(Scalar::U8), Argument::Bytes(bytes.into()))
    }

    /// As [`Context::bytes`], of a table that many kernels are given.
    pub fn shared_bytes(&mut self, bytes: &Arc<[u8]>) -> V {
        self.argument("bytes", Type::global(Scalar::U8), Argument::Bytes(Arc::clone(bytes)))
    }

    /// Orders the bytes of text and its address: to be called between writing a text and publishing its address in a
    /// state, and between reading an address and its bytes. Nothing where the kernel makes no text.
    pub fn fence_text(&mut self) {
        if self.arguments.iter().any(|argument| matches!(argument, Argument::Heap(_))) {
            self.builder.fence();
        }
    }

    // ---- blocks: values computed inside are forgotten at the end

    /// Opens `if condition {`.
    pub fn begin_if(&mut self, condition: V) {
        self.builder.begin_if(condition);
        self.row.scopes.push(Vec::new());
    }

    /// `} else {`
    pub fn begin_else(&mut self) {
        self.builder.begin_else();
        if let Some(scope) = self.row.scopes.last_mut() {
            scope.clear();
        }
    }

    /// Opens `loop {`.
    pub fn begin_loop(&mut self) {
        self.builder.begin_loop();
        self.row.scopes.push(Vec::new());
    }

    /// Closes the innermost `if` or `loop` of this context.
    pub fn end(&mut self) {
        self.builder.end();
        self.row.scopes.pop();
    }
}
