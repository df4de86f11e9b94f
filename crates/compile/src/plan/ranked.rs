//! Aggregates over the sorted rows of a group: medians, percentiles, values at the ends of an order, and texts strung together.
//!
//! Each is made of the values at *ranks*: the numbers of rows among those of their group, in the order of all its rows.

use super::{Aggregate, Plan, SortKey, field};
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Field, Literal};

/// Groups, aggregates of them in any order of their rows, and values of rows that are found by their rank. The columns are the
/// keys', then the aggregates', then the values'. Without keys: exactly one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ranked {
    /// Its rows.
    pub input: Plan,
    /// Keys; NULL is a key like any other.
    pub keys: Vec<Expr>,
    /// The order of a group's rows, most significant first. Any order will do of rows that it does not tell apart; but where it is
    /// empty and texts are strung together, these keep the order of the input.
    pub order: Vec<SortKey>,
    /// Aggregates that need no order.
    pub aggregates: Vec<Aggregate>,
    /// Values of rows.
    pub values: Vec<RankedValue>,
    /// Names of the keys.
    pub names: Vec<String>,
}

/// A value of the rows at one or two ranks of a group, or at all of them; NULL where there is no such rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RankedValue {
    /// Which rows, and what is made of their values.
    pub rank: Rank,
    /// Over the input's columns: what is taken of the rows.
    pub argument: Expr,
    /// Where it is NULL, a row has no rank. Such rows must be the last of their group: it is the first key of the order, with
    /// its NULLs last. `None`: every row has a rank.
    pub counted: Option<Expr>,
    /// The result's type and nullability, as DataFusion's planner has it.
    pub field: Field,
}

/// The ranks of rows among the `n` of a group that have one, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Rank {
    /// So many rows after the first: a constant of type `Int64`.
    FromFirst(Expr),
    /// So many rows before the last: a constant of type `Int64`.
    FromLast(Expr),
    /// The mean of the values at `(n - 1) / 2` and `n / 2`, of floats or decimals; that of decimals is cut off towards zero.
    Median,
    /// The value at `p * (n - 1)`, where `p` is a constant of type `Float64` from 0 to 1; between two ranks that of floats is
    /// interpolated linearly.
    Percentile(Expr),
    /// The first value up to which there is the share `p` of all: at `n - floor(n - p * n) - 1`, and the first one at least, where `p` is a
    /// constant of type `Float64` from 0 to 1.
    Discrete(Expr),
    /// All of them: the texts one after the other, without those that are NULL, and NULL where there is no other.
    Texts {
        /// What stands between two texts: a constant of type `Utf8`, not NULL.
        delimiter: Expr,
        /// Of equal texts only one. They follow each other: the texts are the first key of the order.
        distinct: bool,
    },
}

impl Rank {
    fn constant(&self) -> Option<&Expr> {
        match self {
            Rank::FromFirst(constant)
            | Rank::FromLast(constant)
            | Rank::Percentile(constant)
            | Rank::Discrete(constant) => Some(constant),
            Rank::Texts { delimiter, .. } => Some(delimiter),
            Rank::Median => None,
        }
    }

    fn constant_mut(&mut self) -> Option<&mut Expr> {
        match self {
            Rank::FromFirst(constant)
            | Rank::FromLast(constant)
            | Rank::Percentile(constant)
            | Rank::Discrete(constant) => Some(constant),
            Rank::Texts { delimiter, .. } => Some(delimiter),
            Rank::Median => None,
        }
    }
}

impl Ranked {
    /// The columns of the result.
    pub fn fields(&self) -> Vec<Field> {
        let keys = self.keys.iter().zip(&self.names).map(|(key, name)| field(key, name));
        let aggregates = self.aggregates.iter().map(|aggregate| aggregate.field.clone());
        keys.chain(aggregates).chain(self.values.iter().map(|value| value.field.clone())).collect()
    }

    /// Its own expressions, not its input's.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|key| &key.expr);
        let arguments = self.aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
        let values = self.values.iter().flat_map(|value| {
            [&value.argument].into_iter().chain(&value.counted).chain(value.rank.constant())
        });
        self.keys.iter().chain(order).chain(arguments).chain(values)
    }

    /// The same in the same order, to be replaced by others.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|key| &mut key.expr);
        let arguments = self.aggregates.iter_mut().filter_map(|aggregate| aggregate.argument.as_mut());
        let values = self.values.iter_mut().flat_map(|value| {
            [&mut value.argument].into_iter().chain(&mut value.counted).chain(value.rank.constant_mut())
        });
        self.keys.iter_mut().chain(order).chain(arguments).chain(values)
    }

    /// Whether rows keep the order in which the input delivers them.
    pub(crate) fn keeps_order(&self) -> bool {
        let is_texts = |value: &RankedValue| matches!(value.rank, Rank::Texts { .. });
        self.order.is_empty() && self.values.iter().any(is_texts)
    }

    /// What the compiler cannot do with it, if there is something.
    pub(crate) fn lacks(&self) -> Option<String> {
        self.values.iter().find_map(|value| {
            let (argument, result) = (&value.argument.data_type, &value.field.data_type);
            let is_fit = match &value.rank {
                Rank::FromFirst(_) | Rank::FromLast(_) | Rank::Discrete(_) => true,
                Rank::Median => argument.is_float() || matches!(argument, DataType::Decimal128 { .. }),
                Rank::Percentile(_) => argument.is_float(),
                Rank::Texts { .. } => *argument == DataType::Utf8,
            };
            let is_constant_fit = match &value.rank {
                Rank::Median => true,
                Rank::FromFirst(constant) | Rank::FromLast(constant) => constant.data_type == DataType::Int64,
                Rank::Percentile(constant) | Rank::Discrete(constant) => {
                    constant.data_type == DataType::Float64
                }
                Rank::Texts { delimiter, .. } => {
                    matches!(delimiter.kind, ExprKind::Literal(Literal::Utf8(_)))
                }
            };
            let is_tied = match &value.rank {
                Rank::Texts { distinct: true, .. } => {
                    self.order.first().is_some_and(|key| key.expr == value.argument)
                }
                _ => true,
            };
            let is_last = |key: &SortKey| Some(&key.expr) == value.counted.as_ref() && !key.nulls_first;
            match () {
                () if !is_fit => Some(format!("{} of {argument}", value.field.name)),
                () if !is_constant_fit => {
                    Some("a rank that is no number, or a delimiter that is no text".into())
                }
                () if !is_tied => Some("DISTINCT texts in another order than their own".into()),
                () if argument != result => Some(format!("{argument} at a rank as {result}")),
                () if value.counted.is_some() && !self.order.first().is_some_and(is_last) => {
                    Some("rows without a rank that are not the last of their group".into())
                }
                () => None,
            }
        })
    }
}
