//! Joins that ask whether a row has a match, under a condition that compares: `exists (… where b.k = a.k and b.x <> a.x)`.
//!
//! Rows of one key that do not fulfil the condition are all looked at, so that a frequent key takes as many pairs as its rows squared.
//! But whether there is a row with a greater value is known of the greatest one, whether there is one with a smaller value of the least one,
//! and whether there is one with another value of both: so of the side that is asked, the least and the greatest value of each key are
//! kept, and no key comes twice. NULLs fulfil no comparison, and are no extreme either. A condition that is an OR of
//! comparisons is fulfilled where one of them is.

use super::Cut;
use super::build_side::may_fail;
use super::delivery::Wanted;
use super::group_site::GroupSite;
use super::join::JoinSite;
use super::open::OpenRows;
use crate::context::Unsupported;
use crate::expr::{CompareOp, Expr, ExprKind, columns_read, substitute};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan};
use crate::types::{DataType, Field};
use crate::variant::axes::AskedRows;

/// Rows of a key from which its groups take less time than to go through them: a chain's next row is a miss in a cache, as a group is.
const ROWS_OF_KEY: u64 = 6;
/// Rows up to which it does not matter.
const FEW_ROWS: u64 = 1 << 12;
/// How many times as many rows the asked side may have as the side whose rows are kept, where that is stored and asked from: then to go
/// through the asked side once is what takes time.
const MOST_ASKED: u64 = 8;

/// The side that is asked, with one row for each key.
pub(super) struct KeyExtremes {
    pub(super) join: Join,
    keys: Vec<Expr>,
    aggregates: Vec<Aggregate>,
}

impl Cut<'_> {
    /// Where that is chosen, the rows of the side that is asked by their keys, with the extremes of each, and the join with them; else
    /// these rows. `kept`: rows of the other side that are thought to come, where they are known already.
    pub(super) fn by_extremes(
        &mut self,
        at: &JoinSite<'_>,
        rows: OpenRows,
        kept: Option<u64>,
    ) -> Result<(Option<Join>, OpenRows), Unsupported> {
        let extremes = KeyExtremes::of(at.join, &rows.columns);
        if !is_asking(at.join.kind) || at.join.residual.is_none() || at.join.keys.is_empty() {
            return Ok((None, rows));
        }
        let (rule, text) = match &extremes {
            Ok(extremes) => rule(&extremes.keys, &rows, kept),
            Err(lacks) => ((AskedRows::All, *lacks), None),
        };
        let chosen = at.site.choose_by((rule, text), |value| match (value, &extremes) {
            (AskedRows::Extremes, Err(lacks)) => Err((*lacks).into()),
            _ => Ok(()),
        })?;
        let extremes = match (chosen, extremes) {
            (AskedRows::Extremes, Ok(extremes)) => extremes,
            _ => return Ok((None, rows)),
        };
        let is_safe = rows.properties.is_safe;
        let outer = std::mem::replace(&mut self.groups, GroupSite::of_join(at.ordinal));
        let groups = self.aggregate(rows, &extremes.keys, (&extremes.aggregates, Wanted::Rows))?;
        self.groups = outer;
        let mut rows = groups.rows();
        rows.properties.is_safe = is_safe;
        Ok((Some(extremes.join), rows))
    }
}

/// Whether the side with the index is the one that is asked.
pub(super) fn asks_build_side(kind: JoinKind) -> bool {
    matches!(kind, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark)
}

/// Whether rows of one side come out, by whether they have a match.
fn is_asking(kind: JoinKind) -> bool {
    asks_build_side(kind) || matches!(kind, JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark)
}

/// What the rule takes, and why, and what it goes by.
fn rule(keys: &[Expr], rows: &OpenRows, kept: Option<u64>) -> ((AskedRows, &'static str), Option<String>) {
    let infos = columns_of(keys, &rows.columns);
    let values =
        infos.iter().map(ColumnInfo::values).try_fold(1_u64, |all, own| Some(all.saturating_mul(own?)));
    let expected = rows.expected();
    let text = values.map(|values| format!("about {expected} rows of {values} keys at most"));
    let rule = match values {
        _ if expected < FEW_ROWS => (AskedRows::All, "few rows are asked"),
        _ if kept.is_some_and(|kept| kept.saturating_mul(MOST_ASKED) < expected) => {
            (AskedRows::All, "few rows are kept, and each that is asked is looked at once")
        }
        Some(values) if expected < values.saturating_mul(ROWS_OF_KEY) => {
            (AskedRows::All, "a key is thought to have few rows")
        }
        Some(_) => (AskedRows::Extremes, "keys have many rows, which may all be in vain"),
        None => (AskedRows::Extremes, "keys may have many rows, which may all be in vain"),
    };
    (rule, text)
}

impl KeyExtremes {
    /// Those of a join whose asked side has such columns, or what is lacking.
    fn of(join: &Join, columns: &[ColumnInfo]) -> Result<KeyExtremes, &'static str> {
        let Some(residual) = &join.residual else { return Err("there is no condition but the keys") };
        let of_build = asks_build_side(join.kind);
        let before = if of_build { columns.len() } else { join.build.fields().len() };
        let keys: Vec<Expr> =
            join.keys.iter().map(|(build, probe)| if of_build { build } else { probe }.clone()).collect();
        if join.null_aware {
            return Err("NULL keys are looked at one by one");
        }
        if keys.iter().any(|key| key.data_type.is_float()) {
            return Err("a key is a float, of which a group may have two");
        }
        let mut asked = Asked { of_build, width: before, values: Vec::new(), columns };
        let condition = asked.condition(residual).ok_or("the condition is no comparison of both sides")?;
        let aggregates = asked.values.iter().map(|(function, value)| extreme(*function, value)).collect();
        Ok(KeyExtremes::new(join, (keys, aggregates), (condition, before)))
    }

    /// `condition`: over the columns of the kept side, in the place that it had, and of the extremes, which are marked by their number
    /// behind all of these.
    fn new(
        join: &Join,
        (keys, aggregates): (Vec<Expr>, Vec<Aggregate>),
        (condition, before): (Expr, usize),
    ) -> KeyExtremes {
        let of_build = asks_build_side(join.kind);
        let asked = if of_build { &join.build } else { &join.probe };
        let names = (0..keys.len() + aggregates.len()).map(|number| format!("extreme_{number}")).collect();
        let groups = Plan::Aggregate {
            input: Box::new(asked.clone()),
            keys: keys.clone(),
            aggregates: aggregates.clone(),
            names,
        };
        let width = keys.len() + aggregates.len();
        let place = |column: usize| match (column.checked_sub(MARK), of_build) {
            (Some(extreme), true) => keys.len() + extreme,
            (Some(extreme), false) => before + keys.len() + extreme,
            (None, true) => column - before + width,
            (None, false) => column,
        };
        let moved = |expr: &Expr| match expr.kind {
            ExprKind::Column(column) => Some(Expr { kind: ExprKind::Column(place(column)), ..expr.clone() }),
            _ => None,
        };
        let own = keys
            .iter()
            .enumerate()
            .map(|(number, key)| Expr::column(number, key.data_type.clone(), key.nullable));
        let pairs = own.zip(&join.keys).map(|(own, (build, probe))| match of_build {
            true => (own, probe.clone()),
            false => (build.clone(), own),
        });
        let keys_of_join = pairs.collect();
        let (build, probe) = match of_build {
            true => (groups, join.probe.clone()),
            false => (join.build.clone(), groups),
        };
        let residual = Some(substitute(&condition, &moved));
        let join = Join { build, probe, keys: keys_of_join, residual, ..*join };
        KeyExtremes { join, keys, aggregates }
    }
}

/// Columns from this number on are extremes.
const MARK: usize = usize::MAX / 2;

/// What is asked of one side.
struct Asked<'a> {
    of_build: bool,
    /// Columns of the build side.
    width: usize,
    /// Extremes, of expressions over the asked side's columns.
    values: Vec<(AggregateFunction, Expr)>,
    columns: &'a [ColumnInfo],
}

impl Asked<'_> {
    /// The condition for one row with the extremes, which is true where `condition` is for a pair.
    fn condition(&mut self, condition: &Expr) -> Option<Expr> {
        match &condition.kind {
            _ if self.is_of(condition, false) => Some(condition.clone()),
            ExprKind::Or(left, right) => {
                let (left, right) = (self.condition(left)?, self.condition(right)?);
                Some(both(ExprKind::Or, left, right))
            }
            // Two rows might fulfil one each.
            ExprKind::And(left, right) if self.is_of(left, false) || self.is_of(right, false) => {
                let (left, right) = (self.condition(left)?, self.condition(right)?);
                Some(both(ExprKind::And, left, right))
            }
            ExprKind::Compare(op, left, right) => match () {
                () if self.is_of(left, true) && self.is_of(right, false) => self.comparison(left, *op, right),
                () if self.is_of(right, true) && self.is_of(left, false) => {
                    self.comparison(right, op.mirrored(), left)
                }
                () => None,
            },
            _ => None,
        }
    }

    fn comparison(&mut self, value: &Expr, op: CompareOp, own: &Expr) -> Option<Expr> {
        let value = substitute(value, &|part| match part.kind {
            ExprKind::Column(column) if !self.of_build => {
                Some(Expr { kind: ExprKind::Column(column.checked_sub(self.width)?), ..part.clone() })
            }
            _ => None,
        });
        let is_ordered = !matches!(value.data_type, DataType::Interval | DataType::Null);
        if !is_ordered || may_fail(&value, self.columns) {
            return None;
        }
        let compared = |extreme: Expr| Expr {
            data_type: DataType::Boolean,
            nullable: true,
            kind: ExprKind::Compare(op, Box::new(extreme), Box::new(own.clone())),
        };
        match op {
            CompareOp::Gt | CompareOp::Ge => Some(compared(self.extreme(AggregateFunction::Max, value))),
            CompareOp::Lt | CompareOp::Le => Some(compared(self.extreme(AggregateFunction::Min, value))),
            CompareOp::Ne => {
                let least = compared(self.extreme(AggregateFunction::Min, value.clone()));
                let greatest = compared(self.extreme(AggregateFunction::Max, value));
                Some(both(ExprKind::Or, least, greatest))
            }
            CompareOp::Eq => None,
        }
    }

    /// The column of an extreme.
    fn extreme(&mut self, function: AggregateFunction, value: Expr) -> Expr {
        let data_type = value.data_type.clone();
        let wanted = (function, value);
        let known = self.values.iter().position(|known| *known == wanted);
        let number = known.unwrap_or_else(|| {
            self.values.push(wanted);
            self.values.len() - 1
        });
        Expr::column(MARK + number, data_type, true)
    }

    /// Whether an expression reads columns of one side alone: of the asked one, or of the kept one, or none.
    fn is_of(&self, expr: &Expr, asked: bool) -> bool {
        let is_asked = |column: usize| (column < self.width) == self.of_build;
        let columns = columns_read(expr);
        columns.iter().all(|column| is_asked(*column) == asked) && !(asked && columns.is_empty())
    }
}

fn extreme(function: AggregateFunction, value: &Expr) -> Aggregate {
    let field = Field { name: "extreme".into(), data_type: value.data_type.clone(), nullable: true };
    Aggregate { function, argument: Some(value.clone()), distinct: false, field }
}

fn both(kind: fn(Box<Expr>, Box<Expr>) -> ExprKind, left: Expr, right: Expr) -> Expr {
    Expr { kind: kind(Box::new(left), Box::new(right)), data_type: DataType::Boolean, nullable: true }
}
