//! A cell of a group: how it is updated, and what a row contributes to it.

use super::cells::CellOp;
use super::extremes::OrderKey;
use crate::expr::Expr;
use crate::types::Range;

/// How a row's argument becomes what it contributes.
#[derive(Debug, Clone, PartialEq)]
pub enum ContributionForm {
    /// 1, without an argument.
    Row,
    /// 1.
    Valid,
    Value,
    /// The bits of the argument, a decimal, from this one on.
    UpperBits {
        shift: u32,
    },
    /// The order key of the argument, or its complement (so that a minimum is a maximum).
    Key {
        key: OrderKey,
        complement: bool,
    },
    /// The argument, a text.
    Text,
    /// The bits of the argument, or their complement (so that an "and" is an "or").
    Bits {
        complement: bool,
    },
    /// The moments of the argument alone.
    Moments,
    /// The pair of two values.
    PairMoments,
    /// The argument, an integer or decimal, times itself.
    Square,
    /// What the same cell of a finer group holds, whose parts are the arguments.
    Group {
        counts_rows: bool,
    },
    /// What rows contribute to several cells, as fields of a word, from the lowest bit on.
    Packed {
        fields: Vec<Field>,
    },
}

/// What a row contributes to a cell; nothing where the argument is NULL.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    pub form: ContributionForm,
    /// The expressions that are evaluated.
    pub arguments: Vec<Expr>,
}

impl Contribution {
    /// Of the rows themselves.
    pub const ROW: Contribution = Contribution { form: ContributionForm::Row, arguments: Vec::new() };

    /// Of one argument.
    pub fn of(form: ContributionForm, argument: &Expr) -> Contribution {
        Contribution { form, arguments: vec![argument.clone()] }
    }
}

/// A cell of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// How it is updated.
    pub op: CellOp,
    /// With what.
    pub contribution: Contribution,
    /// The set of `Cells::distinct` that lets a row contribute only where its value is new.
    pub distinct: Option<usize>,
    /// Position of its first word in the group's words.
    pub word: u32,
    /// Bounds of a row's contribution to a sum of integers, or of the keys of a maximum.
    pub bounds: Option<Range>,
    /// Rows often contribute nothing to it.
    pub is_sparse: bool,
}

/// A field of a word.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// What a row adds to it: 1, or the argument with a number.
    pub form: ContributionForm,
    pub argument: Option<usize>,
    /// The lowest bit, and how many there are.
    pub shift: u32,
    pub bits: u32,
    /// The sum may be below zero.
    pub is_signed: bool,
}

/// Where a cell is that aggregates are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CellPlace {
    /// A cell of its own.
    Whole(usize),
    /// A field of a cell.
    Field { cell: usize, field: usize },
}

impl Cell {
    /// Whether what it takes may be a text in scratch memory.
    pub fn takes_texts(&self) -> bool {
        !self.op.is_plain() && !matches!(self.contribution.form, ContributionForm::Group { .. })
    }

    /// What a sum of integers of so many rows may come to, and on the way.
    pub fn total(&self, rows: u64) -> Option<Range> {
        let bounds = self.bounds.filter(|_| matches!(self.op, CellOp::Add | CellOp::AddWide))?;
        total_range(bounds, rows)
    }
}

/// Bounds of the sum of up to `rows` values.
pub(crate) fn total_range(bounds: Range, rows: u64) -> Option<Range> {
    let rows = i128::from(rows);
    let (min, max) = (bounds.min.min(0).checked_mul(rows)?, bounds.max.max(0).checked_mul(rows)?);
    Some(Range { min, max })
}
