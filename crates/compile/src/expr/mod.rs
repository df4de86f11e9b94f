//! Scalar expressions: the typed tree. [`crate::lower`] generates code for them.

pub(crate) mod dfa;
pub(crate) mod range;
mod share;
mod tree;

pub use dfa::Regex;
pub use kelpie_kir::CompareOp;
pub(crate) use share::share_kept;
pub(crate) use tree::is_pair;
pub use tree::{children, columns_read, substitute, with_children};

use crate::types::{DataType, Literal};

/// A typed scalar expression. Types are those that DataFusion's planner derived: every coercion is a `Cast`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Type of the result.
    pub data_type: DataType,
    /// Whether the result can be NULL.
    pub nullable: bool,
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArithmeticOp {
    /// +
    Add,
    /// -
    Subtract,
    /// *
    Multiply,
    /// /
    Divide,
    /// %
    Remainder,
    /// + of integers, an error where their type does not hold the result; `Add` wraps.
    AddExact,
    /// - likewise.
    SubtractExact,
    /// * likewise.
    MultiplyExact,
}

impl ArithmeticOp {
    /// The operation whatever becomes of results that the type does not hold.
    pub const fn plain(self) -> ArithmeticOp {
        match self {
            ArithmeticOp::AddExact => ArithmeticOp::Add,
            ArithmeticOp::SubtractExact => ArithmeticOp::Subtract,
            ArithmeticOp::MultiplyExact => ArithmeticOp::Multiply,
            other => other,
        }
    }
}

/// Fields of a date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatePart {
    /// Year.
    Year,
    /// Quarter, 1–4.
    Quarter,
    /// Month, 1–12.
    Month,
    /// ISO 8601 week, 1–53.
    Week,
    /// Day of the month, 1–31.
    Day,
    /// Day of the week, 0 = Sunday.
    DayOfWeek,
    /// Day of the year, 1–366.
    DayOfYear,
    /// ISO 8601 year: that of the week's Thursday.
    IsoYear,
    /// ISO 8601 day of the week, 1 = Monday to 7 = Sunday.
    IsoDayOfWeek,
    /// Hour, 0–23.
    Hour,
    /// Minute, 0–59.
    Minute,
    /// Second, 0–59.
    Second,
    /// Millisecond, with the seconds.
    Millisecond,
    /// Microsecond, with the seconds.
    Microsecond,
    /// Nanosecond, with the seconds.
    Nanosecond,
    /// Seconds since 1970-01-01.
    Epoch,
}

/// What `date_trunc` cuts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Granularity {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
}

/// What `date_bin` counts in: a time becomes the beginning of the bin that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bins {
    /// Ticks of the time's type; above 0.
    pub width: i64,
    /// The beginning of one of them, from 0 on and below the width.
    pub first: i64,
}

/// A bit operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitOp {
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`, `#`
    Xor,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
}

/// A question about a text and another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Search {
    /// Whether it starts with it.
    StartsWith,
    /// Whether it ends with it.
    EndsWith,
    /// Whether it contains it.
    Contains,
    /// The character, from 1, at which it stands first; 0 where it does not.
    Position,
}

/// Which ends of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The start.
    Left,
    /// The end.
    Right,
    /// Both.
    Both,
}

/// Scalar functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// Of 2ⁿ parts of all rows, the one with rows of these keys (`Int64`): equal keys, also NULLs, are in one part.
    Part(u32),
    /// The first argument that is not NULL; later ones are not evaluated.
    Coalesce,
    /// NULL where both arguments are equal, else the first.
    NullIf,
    /// `substr(text, start [, length])`, in characters, 1-based, as DataFusion.
    Substr,
    /// Length in characters.
    CharacterLength,
    /// Length in bytes.
    OctetLength,
    /// Text to upper case.
    Upper,
    /// Text to lower case; a sigma at the end of a word is a final one.
    Lower,
    /// `initcap(text)`.
    InitialCapitals,
    /// `translate(text, from, to)`.
    Translate,
    /// `date_part(constant, value)`; the argument is the value alone.
    DatePart(DatePart),
    /// `date_trunc(constant, value)`; the argument is the value alone.
    DateTrunc(Granularity),
    /// `date_bin(constant, value, constant)`; the argument is the value alone.
    DateBin(Bins),
    /// `a || b`: NULL where one of them is.
    ConcatOperator,
    /// `concat(...)`: leaves NULLs out.
    Concat,
    /// `concat_ws(separator, ...)`: leaves NULLs out.
    ConcatWithSeparator,
    /// `btrim`, `ltrim`, `rtrim(text [, characters])`.
    Trim(Side),
    /// `left(text, count)`.
    Left,
    /// `right(text, count)`.
    Right,
    /// `starts_with`, `ends_with`, `contains`, `strpos(text, other)`.
    Search(Search),
    /// `lpad`, `rpad(text, characters [, fill])`.
    Pad(Side),
    /// `split_part(text, delimiter, position)`.
    SplitPart,
    /// `replace(text, from, to)`.
    Replace,
    /// `repeat(text, count)`.
    Repeat,
    /// `reverse(text)`, by characters.
    Reverse,
    /// Absolute value.
    Abs,
    /// A float, with the one NaN that has neither sign nor payload in place of any other.
    OneNan,
    /// `round(value [, digits])`.
    Round,
    /// Towards negative infinity.
    Floor,
    /// Towards positive infinity.
    Ceil,
    /// `trunc(value [, digits])`: towards zero.
    Trunc,
    /// A bit operator on two integers of one type.
    Bits(BitOp),
    /// The greatest of the arguments that are not NULL.
    Greatest,
    /// The least of the arguments that are not NULL.
    Least,
    /// The first of two arguments, NULL where one of them is: what aggregates over pairs take.
    Pair,
}

/// What an expression computes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExprKind {
    /// A column of the input, by position.
    Column(usize),
    /// A constant.
    Literal(Literal),
    /// The value of a scalar subquery, by its position in `Plan::Scalars`: the engine puts a literal in its place before
    /// it compiles.
    Scalar(usize),
    /// Arithmetic; both operands are of one type (decimals: of their own precision and scale), or a date or
    /// timestamp ± an interval literal, or a date minus a date where DataFusion has it.
    Arithmetic(ArithmeticOp, Box<Expr>, Box<Expr>),
    /// A comparison of operands of one type.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// `IS DISTINCT FROM`; with `true`, `IS NOT DISTINCT FROM`.
    Distinct(bool, Box<Expr>, Box<Expr>),
    /// Three-valued AND.
    And(Box<Expr>, Box<Expr>),
    /// Three-valued OR.
    Or(Box<Expr>, Box<Expr>),
    /// Three-valued NOT.
    Not(Box<Expr>),
    /// `-x`.
    Negate(Box<Expr>),
    /// `IS NULL`.
    IsNull(Box<Expr>),
    /// `IS NOT NULL`.
    IsNotNull(Box<Expr>),
    /// Searched CASE (a simple CASE arrives as equality conditions).
    Case {
        /// Condition and result, in order.
        branches: Vec<(Expr, Expr)>,
        /// ELSE; NULL where absent.
        otherwise: Option<Box<Expr>>,
    },
    /// To `data_type` of the expression; `safe` gives NULL where the value does not fit (TRY_CAST), else an error.
    Cast {
        /// What is cast.
        input: Box<Expr>,
        /// TRY_CAST.
        safe: bool,
    },
    /// `[NOT] IN (list)`.
    InList {
        /// What is looked for.
        input: Box<Expr>,
        /// Of the input's type.
        list: Vec<Expr>,
        /// NOT IN.
        negated: bool,
    },
    /// `[NOT] [I]LIKE`; `%` and `_` are wildcards, `\` escapes.
    Like {
        /// The text.
        input: Box<Expr>,
        /// The pattern: a literal.
        pattern: Box<Expr>,
        /// NOT LIKE.
        negated: bool,
        /// ILIKE.
        case_insensitive: bool,
    },
    /// Whether a regular expression matches anywhere in a text.
    Regex {
        /// The text.
        input: Box<Expr>,
        /// What is looked for.
        regex: Regex,
        /// Whether it matches nowhere.
        negated: bool,
    },
    /// A function.
    Function(Function, Vec<Expr>),
}

impl Expr {
    /// A column.
    pub fn column(index: usize, data_type: DataType, nullable: bool) -> Expr {
        Expr { kind: ExprKind::Column(index), data_type, nullable }
    }

    /// A constant.
    pub fn literal(literal: Literal, data_type: DataType) -> Expr {
        let nullable = literal == Literal::Null;
        Expr { kind: ExprKind::Literal(literal), data_type, nullable }
    }
}
