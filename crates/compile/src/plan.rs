//! Kelpie's own small physical algebra: what the compiler takes.

use crate::expr::Expr;
use crate::types::Field;

/// A relational plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Some columns of a table.
    Scan(Scan),
    /// The rows where the predicate is true (not false, not NULL).
    Filter {
        /// Its rows.
        input: Box<Plan>,
        /// Boolean.
        predicate: Expr,
    },
    /// One column an expression.
    Project {
        /// Its rows.
        input: Box<Plan>,
        /// Expressions over the input's columns.
        exprs: Vec<Expr>,
        /// Names of the columns, one an expression.
        names: Vec<String>,
    },
    /// Groups and aggregates: the keys' columns, then the aggregates'. Without keys: exactly one row.
    Aggregate {
        /// Its rows.
        input: Box<Plan>,
        /// Keys; NULL is a key like any other.
        keys: Vec<Expr>,
        /// Aggregates.
        aggregates: Vec<Aggregate>,
        /// Names of the columns, keys first.
        names: Vec<String>,
    },
    /// Sorted, and cut to `fetch` rows where given.
    Sort {
        /// Its rows.
        input: Box<Plan>,
        /// Most significant first.
        keys: Vec<SortKey>,
        /// At most this many rows.
        fetch: Option<usize>,
    },
    /// Rows `skip..skip + fetch`.
    Limit {
        /// Its rows.
        input: Box<Plan>,
        /// Rows left out.
        skip: usize,
        /// Rows kept; all where absent.
        fetch: Option<usize>,
    },
}

/// A scan: columns of the table that the engine knows under `source`.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Position in the engine's list of sources.
    pub source: usize,
    /// Name, for people.
    pub table: String,
    /// Position in the source of each column.
    pub columns: Vec<usize>,
    /// The columns.
    pub fields: Vec<Field>,
}

/// An aggregate over the rows of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// What is computed.
    pub function: AggregateFunction,
    /// The argument; `None` for `count(*)`.
    pub argument: Option<Expr>,
    /// The result's type and nullability, as DataFusion's planner has it.
    pub field: Field,
}

/// Aggregate functions; NULL arguments are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// Rows (`count(*)`) or arguments that are not NULL.
    Count,
    /// Sum; integers wrap, NULL over no rows.
    Sum,
    /// Minimum; NULL over no rows.
    Min,
    /// Maximum; NULL over no rows.
    Max,
    /// Mean; NULL over no rows.
    Avg,
}

/// A sort key.
#[derive(Debug, Clone, PartialEq)]
pub struct SortKey {
    /// Over the input's columns.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

impl Plan {
    /// The columns of the result.
    pub fn fields(&self) -> Vec<Field> {
        match self {
            Plan::Scan(scan) => scan.fields.clone(),
            Plan::Filter { input, .. } | Plan::Sort { input, .. } | Plan::Limit { input, .. } => {
                input.fields()
            }
            Plan::Project { exprs, names, .. } => {
                exprs.iter().zip(names).map(|(e, name)| field(e, name)).collect()
            }
            Plan::Aggregate { keys, aggregates, names, .. } => {
                let keys = keys.iter().zip(names).map(|(e, name)| field(e, name));
                keys.chain(aggregates.iter().map(|aggregate| aggregate.field.clone())).collect()
            }
        }
    }
}

fn field(expr: &Expr, name: &str) -> Field {
    Field { name: name.into(), data_type: expr.data_type.clone(), nullable: expr.nullable }
}
