//! Queries as trees, and their text with as few parentheses as SQL's precedence allows.

use std::fmt::{self, Display, Write};

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Int,
    Text,
    Bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Count,
    Sum,
    Min,
    Max,
}

#[derive(Debug, Clone)]
pub(super) enum Expr {
    /// A column; without a relation, by its name alone.
    Column {
        relation: Option<String>,
        name: String,
    },
    Int(i64),
    Text(&'static str),
    Bool(bool),
    Null(Type),
    /// A key of the groups, by its number and as it is written.
    Key {
        number: usize,
        written: Box<Expr>,
    },
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Distinct {
        negated: bool,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    IsNull {
        negated: bool,
        of: Box<Expr>,
    },
    /// `+`, `-` or `*`.
    Arithmetic(char, Box<Expr>, Box<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    Between {
        negated: bool,
        of: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
    },
    InList {
        negated: bool,
        of: Box<Expr>,
        list: Vec<Expr>,
    },
    Case {
        when: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    Coalesce(Box<Expr>, Box<Expr>),
    NullIf(Box<Expr>, Box<Expr>),
    Exists {
        negated: bool,
        query: Box<Query>,
    },
    Within {
        negated: bool,
        of: Box<Expr>,
        query: Box<Query>,
    },
    Quantified {
        of: Box<Expr>,
        comparison: Comparison,
        all: bool,
        query: Box<Query>,
    },
    Scalar(Box<Query>),
    /// An aggregate; without an argument, `count(*)`.
    Call {
        function: Function,
        distinct: bool,
        argument: Option<Box<Expr>>,
        filter: Option<Box<Expr>>,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Query {
    pub body: Body,
    /// Rows that are skipped and kept, in the order of all columns.
    pub limit: Option<(usize, usize)>,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Select(Box<Select>),
    Set { operation: SetOperation, all: bool, left: Box<Body>, right: Box<Body> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetOperation {
    Union,
    Except,
    Intersect,
}

#[derive(Debug, Clone)]
pub(super) struct Select {
    pub distinct: bool,
    /// Empty is `*`.
    pub items: Vec<Expr>,
    pub from: Option<From>,
    pub filter: Option<Expr>,
    pub group: Group,
    pub having: Option<Expr>,
}

#[derive(Debug, Clone)]
pub(super) enum Group {
    /// Rows are not grouped.
    None,
    /// By keys; by none of them, all rows are one group.
    Keys(Vec<Expr>),
    /// By some of the keys, one after the other.
    Sets { keys: Vec<Expr>, sets: Vec<Vec<usize>> },
}

#[derive(Debug, Clone)]
pub(super) enum From {
    Table { name: &'static str, alias: Option<String> },
    Derived { query: Box<Query>, alias: String },
    Join { kind: JoinKind, left: Box<From>, right: Box<From>, on: On },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

#[derive(Debug, Clone)]
pub(super) enum On {
    Cross,
    Condition(Expr),
    Using(Vec<String>),
    Natural,
}

/// How close the outermost operator of an expression binds.
fn level(expr: &Expr) -> u8 {
    match expr {
        Expr::Or(..) => 1,
        Expr::And(..) => 2,
        Expr::Not(_) | Expr::Exists { negated: true, .. } => 3,
        Expr::IsNull { .. } | Expr::Distinct { .. } => 4,
        Expr::Compare(..)
        | Expr::Between { .. }
        | Expr::InList { .. }
        | Expr::Within { .. }
        | Expr::Quantified { .. } => 5,
        Expr::Concat(..) => 6,
        Expr::Arithmetic('*', ..) => 8,
        Expr::Arithmetic(..) => 7,
        Expr::Key { written, .. } => level(written),
        Expr::Int(number) if *number < 0 => 0,
        _ => 9,
    }
}

/// An expression, in parentheses where it binds less than so.
struct At<'a>(u8, &'a Expr);

impl Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match level(self.1) < self.0 {
            true => write!(f, "({})", self.1),
            false => self.1.fmt(f),
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Int => "BIGINT",
            Type::Text => "VARCHAR",
            Type::Bool => "BOOLEAN",
        })
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Eq => "=",
            Comparison::NotEq => "<>",
            Comparison::Lt => "<",
            Comparison::LtEq => "<=",
            Comparison::Gt => ">",
            Comparison::GtEq => ">=",
        })
    }
}

fn not(negated: &bool) -> &'static str {
    if *negated { "NOT " } else { "" }
}

impl Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Column { relation: Some(relation), name } => write!(f, "{relation}.{name}"),
            Expr::Column { relation: None, name } => f.write_str(name),
            Expr::Int(number) => write!(f, "{number}"),
            Expr::Text(text) => write!(f, "'{text}'"),
            Expr::Bool(value) => write!(f, "{value}"),
            Expr::Null(data_type) => write!(f, "CAST(NULL AS {data_type})"),
            Expr::Key { written, .. } => written.fmt(f),
            Expr::Compare(comparison, a, b) => write!(f, "{} {comparison} {}", At(6, a), At(6, b)),
            Expr::Distinct { negated, left, right } => {
                write!(f, "{} IS {}DISTINCT FROM {}", At(5, left), not(negated), At(6, right))
            }
            Expr::And(a, b) => write!(f, "{} AND {}", At(2, a), At(3, b)),
            Expr::Or(a, b) => write!(f, "{} OR {}", At(1, a), At(2, b)),
            Expr::Not(of) => write!(f, "NOT {}", At(4, of)),
            Expr::IsNull { negated, of } => write!(f, "{} IS {}NULL", At(5, of), not(negated)),
            Expr::Arithmetic('*', a, b) => write!(f, "{} * {}", At(8, a), At(9, b)),
            Expr::Arithmetic(operator, a, b) => write!(f, "{} {operator} {}", At(7, a), At(8, b)),
            Expr::Concat(a, b) => write!(f, "{} || {}", At(6, a), At(7, b)),
            Expr::Between { negated, of, low, high } => {
                write!(f, "{} {}BETWEEN {} AND {}", At(6, of), not(negated), At(6, low), At(6, high))
            }
            Expr::InList { negated, of, list } => {
                let list: Vec<String> = list.iter().map(Expr::to_string).collect();
                write!(f, "{} {}IN ({})", At(6, of), not(negated), list.join(", "))
            }
            Expr::Case { when, then, otherwise } => {
                write!(f, "CASE WHEN {when} THEN {then} ELSE {otherwise} END")
            }
            Expr::Coalesce(a, b) => write!(f, "coalesce({a}, {b})"),
            Expr::NullIf(a, b) => write!(f, "nullif({a}, {b})"),
            Expr::Exists { negated, query } => write!(f, "{}EXISTS ({query})", not(negated)),
            Expr::Within { negated, of, query } => {
                write!(f, "{} {}IN ({query})", At(6, of), not(negated))
            }
            Expr::Quantified { of, comparison, all, query } => {
                let quantifier = if *all { "ALL" } else { "ANY" };
                write!(f, "{} {comparison} {quantifier} ({query})", At(6, of))
            }
            Expr::Scalar(query) => write!(f, "({query})"),
            Expr::Call { function, distinct, argument, filter } => {
                let name = match function {
                    Function::Count => "count",
                    Function::Sum => "sum",
                    Function::Min => "min",
                    Function::Max => "max",
                };
                let distinct = if *distinct { "DISTINCT " } else { "" };
                match argument {
                    Some(argument) => write!(f, "{name}({distinct}{argument})")?,
                    None => write!(f, "{name}(*)")?,
                }
                match filter {
                    Some(filter) => write!(f, " FILTER (WHERE {filter})"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(f)?;
        if let Some((skip, keep)) = self.limit {
            let places: Vec<String> = (1..=self.body.columns()).map(|place| place.to_string()).collect();
            write!(f, " ORDER BY {} LIMIT {keep} OFFSET {skip}", places.join(", "))?;
        }
        Ok(())
    }
}

impl Body {
    /// How many columns it has; of `*`, none are known.
    pub fn columns(&self) -> usize {
        match self {
            Body::Select(select) => select.items.len(),
            Body::Set { left, .. } => left.columns(),
        }
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Select(select) => select.fmt(f),
            Body::Set { operation, all, left, right } => {
                let operation = match operation {
                    SetOperation::Union => "UNION",
                    SetOperation::Except => "EXCEPT",
                    SetOperation::Intersect => "INTERSECT",
                };
                write!(f, "({left}) {operation}{} ({right})", if *all { " ALL" } else { "" })
            }
        }
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.distinct { "SELECT DISTINCT " } else { "SELECT " })?;
        match self.items.as_slice() {
            [] => f.write_char('*')?,
            items => {
                for (place, item) in items.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{item} AS c{place}")?;
                }
            }
        }
        if let Some(from) = &self.from {
            write!(f, " FROM {from}")?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        match &self.group {
            Group::None => {}
            Group::Keys(keys) if keys.is_empty() => {}
            Group::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(Expr::to_string).collect();
                write!(f, " GROUP BY {}", keys.join(", "))?;
            }
            Group::Sets { keys, sets } => {
                let sets = sets.iter().map(|set| {
                    let keys: Vec<String> = set.iter().map(|key| keys[*key].to_string()).collect();
                    format!("({})", keys.join(", "))
                });
                write!(f, " GROUP BY GROUPING SETS ({})", sets.collect::<Vec<_>>().join(", "))?;
            }
        }
        match &self.having {
            Some(having) => write!(f, " HAVING {having}"),
            None => Ok(()),
        }
    }
}

impl Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From::Table { name, alias: Some(alias) } => write!(f, "{name} AS {alias}"),
            From::Table { name, alias: None } => f.write_str(name),
            From::Derived { query, alias } => write!(f, "({query}) AS {alias}"),
            From::Join { kind, left, right, on } => {
                let kind = match kind {
                    JoinKind::Inner => "JOIN",
                    JoinKind::Left => "LEFT JOIN",
                    JoinKind::Right => "RIGHT JOIN",
                    JoinKind::Full => "FULL JOIN",
                };
                match on {
                    On::Cross => write!(f, "{left} CROSS JOIN {right}"),
                    On::Condition(condition) => write!(f, "{left} {kind} {right} ON {condition}"),
                    On::Using(keys) => write!(f, "{left} {kind} {right} USING ({})", keys.join(", ")),
                    On::Natural => write!(f, "{left} NATURAL {kind} {right}"),
                }
            }
        }
    }
}
