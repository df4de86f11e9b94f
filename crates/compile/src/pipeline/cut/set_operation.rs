//! INTERSECT and EXCEPT: distinct rows of one side that have, or have not, a partner among the other side's, as a join of groups, or as
//! groups of the rows of both sides.
//!
//! The join has three tables of the same rows: the groups that make one side's rows distinct, the rows of the build side, and the index over
//! these. Groups of all rows are one: a group keeps in two bits which sides its rows are of. So rows in parts, of which each is added up in
//! a block's memory or by a worker alone, serve set operations too, where a join looks into its tables in the order of the rows.

use super::delivery::Wanted;
use super::{Cut, OpenRows, united};
use crate::context::Unsupported;
use crate::expr::{CompareOp, Expr, ExprKind, substitute};
use crate::layout::{ColumnInfo, Scattered};
use crate::operator::filter::Filter;
use crate::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan};
use crate::types::{DataType, Field, Literal};
use crate::variant::axes::SetOperations;

/// The type of the bits that tell of a group which sides its rows are of.
const SIDES: DataType = DataType::Int32;
/// The bit of the side whose rows are kept.
const KEPT: i128 = 1;
/// That of the other side.
const OTHER: i128 = 2;

/// A set operation, found in a join.
struct SetOperation<'a> {
    /// The rows that are kept once each, and as what.
    kept: (&'a Plan, Vec<Expr>),
    /// What has a partner for some of them.
    other: (&'a Plan, Vec<Expr>),
    kept_is_build: bool,
    /// The bits of the groups that are wanted.
    wanted: i128,
}

impl Cut<'_> {
    /// The rows of a join that is a set operation, where it is carried out by groups.
    pub(super) fn set_operation(
        &mut self,
        join: &Join,
        ordinal: usize,
    ) -> Result<Option<OpenRows>, Unsupported> {
        let Some(set) = SetOperation::of(join) else { return Ok(None) };
        let lacks = set.lacks();
        let rule =
            (SetOperations::Join, lacks.unwrap_or("a join took less time wherever both were measured"));
        let chosen = self.chooser.choose(&format!("join{ordinal}"), rule, |value| match (value, lacks) {
            (SetOperations::Groups, Some(lacks)) => Err(lacks.to_string()),
            _ => Ok(()),
        })?;
        if chosen == SetOperations::Join {
            return Ok(None);
        }
        // Scans are numbered in this order.
        let sides = match set.kept_is_build {
            true => [(&set.kept, KEPT), (&set.other, OTHER)],
            false => [(&set.other, OTHER), (&set.kept, KEPT)],
        };
        let mut opened = Vec::with_capacity(sides.len());
        for ((plan, exprs), bit) in sides {
            let mut rows = self.open(plan)?;
            let exprs: Vec<Expr> =
                exprs.iter().cloned().chain([Expr::literal(Literal::Int(bit), SIDES)]).collect();
            rows.project(exprs);
            opened.push(rows);
        }
        let scattered = both_scattered(opened.iter().map(|rows| rows.columns.as_slice()));
        let mut rows = united(opened)?;
        rows.columns.iter_mut().zip(scattered).for_each(|(column, scattered)| column.scattered = scattered);
        let keys: Vec<Expr> =
            set.kept.1.iter().enumerate().map(|(place, key)| set.column(place, key)).collect();
        let sides = Expr::column(keys.len(), SIDES, false);
        let aggregates = [which_sides(sides.clone())];
        let mut rows = self.aggregate(rows, &keys, (&aggregates, Wanted::Rows))?.rows();
        let wanted = Box::new(Expr::literal(Literal::Int(set.wanted), SIDES));
        let kind = ExprKind::Compare(CompareOp::Eq, Box::new(sides), wanted);
        rows.push(Filter(Expr { kind, data_type: DataType::Boolean, nullable: false }));
        rows.project(keys);
        self.end_operator(rows).map(Some)
    }
}

impl<'a> SetOperation<'a> {
    /// A semi or anti join of distinct rows by all of their columns, in which NULLs are equal.
    fn of(join: &'a Join) -> Option<SetOperation<'a>> {
        let (kept_is_build, wanted) = match join.kind {
            JoinKind::BuildSemi => (true, KEPT | OTHER),
            JoinKind::BuildAnti => (true, KEPT),
            JoinKind::ProbeSemi => (false, KEPT | OTHER),
            JoinKind::ProbeAnti => (false, KEPT),
            _ => return None,
        };
        if join.residual.is_some() || join.null_aware || !join.null_equal {
            return None;
        }
        let (kept, other) =
            if kept_is_build { (&join.build, &join.probe) } else { (&join.probe, &join.build) };
        let pairs = join
            .keys
            .iter()
            .map(|(build, probe)| if kept_is_build { (build, probe) } else { (probe, build) });
        let pairs: Vec<(&Expr, &Expr)> = pairs.collect();
        let (input, keys) = distinct_rows(kept).filter(|(_, keys)| keys.len() == pairs.len())?;
        // The other side's expression for each column.
        let partner = |column: usize| {
            let of_column =
                pairs.iter().find(|(own, _)| matches!(own.kind, ExprKind::Column(own) if own == column));
            of_column.map(|(_, partner)| (*partner).clone())
        };
        let partners = (0..keys.len()).map(partner).collect::<Option<Vec<_>>>()?;
        let other = match distinct_rows(other) {
            // A partner more or less makes no difference.
            Some((input, own)) => {
                let key = |part: &Expr| match part.kind {
                    ExprKind::Column(column) => own.get(column).cloned(),
                    _ => None,
                };
                (input, partners.iter().map(|partner| substitute(partner, &key)).collect())
            }
            None => (other, partners),
        };
        Some(SetOperation { kept: (input, keys.to_vec()), other, kept_is_build, wanted })
    }

    fn lacks(&self) -> Option<&'static str> {
        let is_float = |key: &Expr| key.data_type.is_float();
        // A join may tell apart what is one group.
        self.kept.1.iter().any(is_float).then_some("floats of one group may be two values")
    }

    /// A column of the rows of both sides.
    fn column(&self, place: usize, key: &Expr) -> Expr {
        let nullable = key.nullable || self.other.1.get(place).is_some_and(|other| other.nullable);
        Expr::column(place, key.data_type.clone(), nullable)
    }
}

/// The input and keys of groups without anything that is aggregated.
fn distinct_rows(plan: &Plan) -> Option<(&Plan, &[Expr])> {
    match plan {
        Plan::Aggregate { input, keys, aggregates, .. } if aggregates.is_empty() && !keys.is_empty() => {
            Some((input, keys))
        }
        _ => None,
    }
}

/// The bits of the sides of a group's rows.
fn which_sides(argument: Expr) -> Aggregate {
    let field = Field { name: "sides".into(), data_type: SIDES, nullable: false };
    Aggregate { function: AggregateFunction::BitOr, argument: Some(argument), distinct: false, field }
}

/// About how many values each column of two inputs has that are far from each other in both.
fn both_scattered<'c>(inputs: impl IntoIterator<Item = &'c [ColumnInfo]>) -> Vec<Option<Scattered>> {
    // The codes of two dictionaries say nothing of each other: their texts would be told apart by bytes, of which nothing is known here.
    let own = |column: &ColumnInfo| {
        column.scattered.filter(|own| own.text_bytes > 0 || column.data_type != DataType::Utf8)
    };
    let all = inputs.into_iter().map(|columns| columns.iter().map(own).collect::<Vec<_>>());
    let both = |(a, b): (Option<Scattered>, Option<Scattered>)| {
        let (a, b) = a.zip(b)?;
        Some(Scattered {
            values: a.values.saturating_add(b.values),
            are_even: a.are_even && b.are_even,
            text_bytes: a.text_bytes.max(b.text_bytes),
        })
    };
    all.reduce(|a, b| a.into_iter().zip(b).map(both).collect()).unwrap_or_default()
}
