//! Windows: rows with values that are computed over other rows of their partition.
//!
//! One window stands for several of SQL's that share a sort: rows are in the order of all keys, each function's partition is rows
//! that agree in so many first keys, and the keys behind these, up to a number, are its order. So `over (partition by a order by b)`
//! and `over (partition by a, b)` are one window by the keys `a, b`.

use super::{AggregateFunction, Plan, SortKey};
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Field, Literal};

/// The rows of the input, with a column a function behind theirs. They come in any order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Window {
    /// Its rows.
    pub input: Plan,
    /// What they are sorted by, most significant first. Rows that the keys do not tell apart are in any order; without keys, in that
    /// of the input.
    pub keys: Vec<SortKey>,
    /// One column each.
    pub functions: Vec<WindowFunction>,
}

/// A function over rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowFunction {
    /// What is computed.
    pub call: WindowCall,
    /// Rows of a partition agree in so many first keys.
    pub partition: usize,
    /// Rows that agree in so many first keys are peers: the keys between are what the partition is ordered by.
    pub order: usize,
    /// Which rows it sees, where it depends on that.
    pub frame: Frame,
    /// The result's column, as DataFusion's planner has it.
    pub field: Field,
}

/// What a window function computes of a row. Expressions are over the input's columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WindowCall {
    /// The row's number in its partition, from 1.
    RowNumber,
    /// The number of the first of its peers.
    Rank,
    /// How many rows before it are not peers of another one before it, and 1.
    DenseRank,
    /// `(rank - 1) / (rows - 1)`, 0 of a single row.
    PercentRank,
    /// The share of the rows that come before it or are its peers.
    CumeDist,
    /// The number, from 1, of the part that it is in where the partition is cut into so many of equal size; the first ones have a row
    /// more than the last.
    Ntile(u64),
    /// The argument of the row so many after this one in the partition.
    Shifted {
        /// What is looked up.
        argument: Expr,
        /// Rows; negative: before this one.
        offset: i64,
        /// Where there is no such row, of the argument's type; NULL where absent. A constant.
        default: Option<Expr>,
        /// Rows where the argument is NULL are not counted.
        ignores_nulls: bool,
    },
    /// The argument of a row of the frame.
    At {
        /// What is looked up.
        argument: Expr,
        /// Which row: 1 is the first, -1 the last; never 0.
        place: i64,
        /// Rows where the argument is NULL are not counted.
        ignores_nulls: bool,
    },
    /// An aggregate of the frame.
    Aggregate {
        /// Which.
        function: AggregateFunction,
        /// `None` for `count(*)`.
        argument: Option<Expr>,
    },
}

impl WindowCall {
    /// Whether the frame decides what it computes.
    pub fn has_frame(&self) -> bool {
        matches!(self, WindowCall::At { .. } | WindowCall::Aggregate { .. })
    }

    /// What is taken of rows.
    pub fn argument(&self) -> Option<&Expr> {
        match self {
            WindowCall::Shifted { argument, .. } | WindowCall::At { argument, .. } => Some(argument),
            WindowCall::Aggregate { argument, .. } => argument.as_ref(),
            _ => None,
        }
    }

    fn argument_mut(&mut self) -> Option<&mut Expr> {
        match self {
            WindowCall::Shifted { argument, .. } | WindowCall::At { argument, .. } => Some(argument),
            WindowCall::Aggregate { argument, .. } => argument.as_mut(),
            _ => None,
        }
    }
}

/// The rows of a partition that a function sees at a row: from one bound to another, both included.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What bounds count.
    pub units: FrameUnits,
    /// The first row.
    pub start: FrameBound,
    /// The last row.
    pub end: FrameBound,
}

/// What the bounds of a frame count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameUnits {
    /// Rows.
    Rows,
    /// The distance of the values of the only key of the order; the current row stands for all of its peers.
    Range,
    /// Groups of peers.
    Groups,
}

/// A bound of a frame. Distances are constants that are not NULL nor negative: of type `Int64` for rows and groups, else what is
/// added to or taken from the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FrameBound {
    /// The partition's first row.
    UnboundedPreceding,
    /// So much before the row.
    Preceding(Expr),
    /// The row.
    CurrentRow,
    /// So much after the row.
    Following(Expr),
    /// The partition's last row.
    UnboundedFollowing,
}

impl FrameBound {
    /// The distance, where it has one.
    pub fn distance(&self) -> Option<&Expr> {
        match self {
            FrameBound::Preceding(distance) | FrameBound::Following(distance) => Some(distance),
            _ => None,
        }
    }
}

impl Frame {
    /// All rows of the partition.
    pub const PARTITION: Frame = Frame {
        units: FrameUnits::Rows,
        start: FrameBound::UnboundedPreceding,
        end: FrameBound::UnboundedFollowing,
    };

    /// Whether it is all rows of the partition.
    pub fn is_partition(&self) -> bool {
        (&self.start, &self.end) == (&FrameBound::UnboundedPreceding, &FrameBound::UnboundedFollowing)
    }
}

impl Window {
    /// The columns of the result.
    pub fn fields(&self) -> Vec<Field> {
        let own = self.functions.iter().map(|function| function.field.clone());
        self.input.fields().into_iter().chain(own).collect()
    }

    /// Its own expressions, not its input's, but for constants.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let arguments = self.functions.iter().filter_map(|function| function.call.argument());
        self.keys.iter().map(|key| &key.expr).chain(arguments)
    }

    /// The same in the same order, to be replaced by others.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let arguments = self.functions.iter_mut().filter_map(|function| function.call.argument_mut());
        self.keys.iter_mut().map(|key| &mut key.expr).chain(arguments)
    }

    /// The keys that rows of any function's partition agree in.
    pub fn common_keys(&self) -> Vec<Expr> {
        let common = self.functions.iter().map(|function| function.partition).min().unwrap_or(0);
        self.keys.iter().take(common).map(|key| key.expr.clone()).collect()
    }

    /// What the compiler cannot do with it, if there is something.
    pub(crate) fn lacks(&self) -> Option<String> {
        self.functions.iter().find_map(|function| self.lacks_function(function))
    }

    fn lacks_function(&self, function: &WindowFunction) -> Option<String> {
        let WindowFunction { call, partition, order, frame, field } = function;
        if partition > order || *order > self.keys.len() {
            return Some(format!("{} over keys that the window does not have", field.name));
        }
        let looked_up = match call {
            WindowCall::Shifted { argument, default, .. } => {
                let other = default.as_ref().filter(|default| default.data_type != argument.data_type);
                if other.is_some() {
                    return Some(format!("{} with a default of another type", field.name));
                }
                Some(argument)
            }
            WindowCall::At { place: 0, .. } => return Some(format!("{} of no row", field.name)),
            WindowCall::At { argument, .. } => Some(argument),
            _ => None,
        };
        if let Some(argument) = looked_up.filter(|argument| argument.data_type != field.data_type) {
            return Some(format!("{} of {} as {}", field.name, argument.data_type, field.data_type));
        }
        if matches!(call, WindowCall::Ntile(0)) {
            return Some(format!("{} of no parts", field.name));
        }
        if !call.has_frame() {
            return None;
        }
        let keys = self.keys.get(*partition..*order).unwrap_or_default();
        [&frame.start, &frame.end].into_iter().find_map(|bound| lacks_bound(frame.units, bound, keys))
    }
}

/// What the compiler cannot do with a bound, if there is something. `keys`: the order.
fn lacks_bound(units: FrameUnits, bound: &FrameBound, keys: &[SortKey]) -> Option<String> {
    let distance = bound.distance()?;
    let ExprKind::Literal(literal) = &distance.kind else {
        return Some("a frame whose distance is no constant".into());
    };
    let FrameUnits::Range = units else {
        let fits = matches!(literal, Literal::Int(rows) if *rows >= 0);
        return (!fits).then(|| "a frame whose distance is no number of rows".into());
    };
    let [key] = keys else { return Some("a frame over a range of several keys, or none".into()) };
    let key = &key.expr.data_type;
    let fits = match (key, literal) {
        (DataType::Date32 | DataType::Timestamp { .. }, Literal::Interval(_)) => true,
        (DataType::Float32 | DataType::Float64, Literal::Float(distance)) => *distance >= 0.0,
        (DataType::Decimal128 { .. }, Literal::Int(distance)) => {
            *distance >= 0 && *key == bound.distance()?.data_type
        }
        (key, Literal::Int(distance)) => key.is_integer() && *distance >= 0,
        _ => false,
    };
    (!fits).then(|| format!("a frame over a range of {key}"))
}
