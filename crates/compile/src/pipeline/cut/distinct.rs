//! DISTINCT inside aggregates: by a set of all pairs of group and value beside the groups, or by way of groups by the pairs.
//!
//! The second are two aggregations. The first brings rows to groups by the keys and the value, with the cells of what is aggregated
//! besides. The second brings those groups to the groups that are wanted: each has another value, and brings it once; its cells are
//! merged, as those of a finer grouping set are. So every way to find groups finds distinct values too: rows in parts, of which each is
//! added up in a block's memory or by a worker alone, places that the keys give, near copies, rows that come sorted.

use std::borrow::Cow;

use super::delivery::{Grouped, Wanted};
use super::groups::over_columns;
use super::{Cut, OpenRows};
use crate::MicroModel;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, substitute};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::aggregate::{TableSize, counts_once};
use crate::plan::{Aggregate, AggregateFunction};
use crate::types::{DataType, Field, Range};
use crate::variant::axes::{DistinctValues, GroupParts};

/// Groups up to which the second aggregation finds them near, wherever their values lie.
const NEAR_GROUPS: u64 = 1 << 16;
/// Groups by keys and value.
struct Pairs<'a> {
    /// What is counted once.
    value: &'a Expr,
    /// Its place among the keys.
    place: usize,
    keys: Vec<Expr>,
    /// The aggregates that see every row.
    aggregates: Vec<Aggregate>,
}

impl Cut<'_> {
    /// Brings rows to their groups, by way of pairs of group and value where values count once and that is chosen.
    pub(super) fn aggregate(
        &mut self,
        rows: OpenRows,
        keys: &[Expr],
        (aggregates, wanted): (&[Aggregate], Wanted),
    ) -> Result<Grouped, Unsupported> {
        if !aggregates.iter().any(counts_once) {
            return self.aggregate_in_order(rows, keys, (aggregates, wanted));
        }
        let pairs = Pairs::of(keys, aggregates);
        let (rule, text) = match &pairs {
            Ok(pairs) => self.rule(pairs, keys, &rows),
            Err(lacks) => ((DistinctValues::Set, lacks.as_str().into()), None),
        };
        let site = self.groups.to_string();
        let chosen =
            self.chooser.choose_by(&site, ((rule.0, &*rule.1), text), |value| match (value, &pairs) {
                (DistinctValues::Groups, Err(lacks)) => Err(lacks.clone()),
                _ => Ok(()),
            })?;
        let pairs = match (chosen, pairs) {
            (DistinctValues::Groups, Ok(pairs)) => pairs,
            _ => return self.aggregate_in_order(rows, keys, (aggregates, wanted)),
        };
        let groups =
            self.aggregate_in_order(rows, &pairs.keys, (&pairs.aggregates, Wanted::Table))?.table()?;
        let own = keys.iter().enumerate().map(|(place, key)| column(place, key)).collect::<Vec<_>>();
        self.groups = self.groups.of_groups();
        Ok(self.aggregate_values_of(&groups, &own, &pairs.of_groups(aggregates))?.into())
    }

    /// What the rule takes, and why; and what is thought of the pairs.
    fn rule(
        &self,
        pairs: &Pairs<'_>,
        keys: &[Expr],
        rows: &OpenRows,
    ) -> ((DistinctValues, Cow<'static, str>), Option<String>) {
        let (exprs, _, aggregates) = over_columns(&pairs.keys, &pairs.aggregates);
        let infos = columns_of(&exprs, &rows.columns);
        let table = self.scattered(&pairs.keys, &aggregates, &infos, rows);
        let groups = self.scattered(keys, &[], &infos, rows).map(|table| table.groups);
        let of_pairs = |pairs: &TableSize| {
            format!("by pairs, {}", pairs.estimate(rows.expected(), &self.choices.calibration))
        };
        let text = table.as_ref().map(of_pairs);
        let rule = self.rule_of_pairs((table.as_ref(), groups), &infos, rows);
        (rule, text)
    }

    /// What the rule takes, and why, by what is thought of the groups by pairs, whose keys and arguments `infos` tells of, and of how
    /// many `groups` there are that are far from each other.
    fn rule_of_pairs(
        &self,
        (table, groups): (Option<&TableSize>, Option<u64>),
        infos: &[ColumnInfo],
        rows: &OpenRows,
    ) -> (DistinctValues, Cow<'static, str>) {
        let set = |reason: &'static str| (DistinctValues::Set, reason.into());
        if self.choices.micro_model != MicroModel::Resolution {
            return set("the micro model looks for values as rows come");
        }
        if self.shape.is_serial() {
            return set("rows of a worker wait for many slots of a set at once, and are not stored before");
        }
        let lacks = self.lacks_group_parts(infos, rows);
        let (parts, reason) = self.parts_by_rule(lacks.is_some(), table, rows);
        if parts == GroupParts(1) {
            return (DistinctValues::Set, format!("no parts of pairs of group and value: {reason}").into());
        }
        if groups.is_some_and(|groups| groups > NEAR_GROUPS) {
            return set("the groups are many and far from each other, not only their values");
        }
        (
            DistinctValues::Groups,
            "many pairs of group and value, far from each other, which come in parts".into(),
        )
    }
}

impl<'a> Pairs<'a> {
    /// The pairs of the only argument whose values count once, or what is lacking.
    fn of(keys: &[Expr], aggregates: &'a [Aggregate]) -> Result<Pairs<'a>, String> {
        let once = aggregates.iter().filter(|aggregate| counts_once(aggregate));
        let mut values = once.map(|aggregate| aggregate.argument.as_ref().map(told_apart));
        let none = || "an aggregate without an argument counts once".to_string();
        let value = values.next().flatten().ok_or_else(none)?;
        if values.any(|other| other != Some(value)) {
            return Err("values of several arguments count once".into());
        }
        // Groups have one key for both zeros.
        if value.data_type.is_float() {
            return Err("floats of one group may be two values".into());
        }
        let mut all = keys.to_vec();
        let place = keys.iter().position(|key| key == value).unwrap_or(keys.len());
        if place == keys.len() {
            all.push(value.clone());
        }
        let mut own: Vec<Aggregate> =
            aggregates.iter().filter(|aggregate| !counts_once(aggregate)).cloned().collect();
        // A group without keys is there without rows, and tells by their number that there are none.
        if keys.is_empty() && !own.is_empty() {
            let field = Field { name: "rows".into(), data_type: DataType::Int64, nullable: false };
            let function = AggregateFunction::Count;
            own.push(Aggregate { function, argument: None, distinct: false, field });
        }
        Ok(Pairs { value, place, keys: all, aggregates: own })
    }

    /// All aggregates, of the groups by pairs: values that count once are theirs.
    fn of_groups(&self, aggregates: &[Aggregate]) -> Vec<Aggregate> {
        let own = |aggregate: &Aggregate| {
            let argument = aggregate.argument.as_ref().filter(|_| counts_once(aggregate)).map(|argument| {
                substitute(argument, &|part| (part == self.value).then(|| column(self.place, part)))
            });
            Aggregate { argument: argument.or_else(|| aggregate.argument.clone()), ..aggregate.clone() }
        };
        aggregates.iter().map(own).collect()
    }
}

fn column(place: usize, of: &Expr) -> Expr {
    Expr::column(place, of.data_type.clone(), of.nullable)
}

/// What is below casts that never make two values equal: two results are as different as what they are cast from.
fn told_apart(argument: &Expr) -> &Expr {
    let range = |data_type: &DataType| data_type.full_range().filter(|_| data_type.is_integer());
    let keeps = |from: &DataType, to: &DataType| match (from, to) {
        (
            DataType::Decimal128 { precision: from, scale },
            DataType::Decimal128 { precision: to, scale: other },
        ) => scale == other && from <= to,
        // Every integer of 32 bits is a float of 64.
        (integer, DataType::Float64) => {
            range(integer).is_some_and(|own| own.within(Range::new(i32::MIN, u32::MAX)))
        }
        (from, to) => range(from).zip(range(to)).is_some_and(|(from, to)| from.within(to)),
    };
    match &argument.kind {
        ExprKind::Cast { input, .. } if keeps(&input.data_type, &argument.data_type) => told_apart(input),
        _ => argument,
    }
}
