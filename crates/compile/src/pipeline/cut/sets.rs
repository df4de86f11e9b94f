//! Grouping sets: which of them are made of the rows, and which of the groups of a finer set.
//!
//! Each set that is made of the rows reads them again, with the joins that make them. A finer set's groups are mostly fewer. So
//! sets are taken from the one with the most keys downwards, and each is made of the groups of the smallest set so far that has
//! all its keys: a ROLLUP goes down step by step. Where no set has the keys of several others, one that nobody asked for may be
//! made for them.

use std::sync::Arc;

use super::delivery::Wanted;
use super::groups::groups_of;
use super::{Cut, Open, OpenRows, united};
use crate::context::Unsupported;
use crate::expr::Expr;
use crate::lower::columns_of;
use crate::operator::aggregate::{AggregateOperator, key_values, why_not_rollup};
use crate::plan::{Aggregate, AggregateFunction, GroupingSet, GroupingSets, Plan};
use crate::types::{DataType, Field};
use crate::variant::axes::GroupingLevels;

/// Rows of a table for each of a finer set's groups from which on a coarser set is made of those: a row of a table is read in its
/// order and costs less than a slot of a hash table, which may be empty besides.
const ROWS_A_GROUP: u64 = 4;
/// The same where nobody asked for the finer set: bringing all rows to so many more groups must pay too.
const ROWS_A_GROUP_OF_NONE: u64 = 64;

impl Cut<'_> {
    pub(super) fn grouping_sets(&mut self, node: &GroupingSets) -> Result<OpenRows, Unsupported> {
        // Whoever opens the input again gets the same scans and joins.
        let numbers = (self.next_scan, self.next_join, self.next_groups);
        let rows = self.open(&node.input)?;
        self.begin_groups();
        let levels = self.grouping_levels(node, &rows)?;
        let aggregates = counting(node, &levels);
        let mut input = Some(rows);
        let mut made: Vec<Arc<AggregateOperator>> = Vec::with_capacity(levels.all.len());
        for (number, level) in levels.all.iter().enumerate() {
            let finer = level.from.and_then(|from| levels.all.get(from).zip(made.get(from)));
            let operator = match (finer, input.take()) {
                (Some((finer, groups)), before) => {
                    input = before;
                    self.groups = self.groups.of_set(number);
                    self.aggregate_groups(&Arc::clone(groups), &keys_among(node, level, finer))?
                }
                (None, rows) => {
                    let rows = match rows {
                        Some(rows) => rows,
                        None => self.open_again(&node.input, numbers)?,
                    };
                    self.groups = self.groups.of_set(number);
                    self.aggregate(rows, &node.keys_of(&level.has), (&aggregates, Wanted::Table))?.table()?
                }
            };
            made.push(operator);
        }
        let of_set = |(set, level): (&GroupingSet, &usize)| {
            let groups = made.get(*level).ok_or_else(|| Unsupported::internal("a set without its level"))?;
            Ok(rows_of(node, set, groups))
        };
        let all = node.sets.iter().zip(&levels.of_sets).map(of_set);
        let all = all.collect::<Result<Vec<_>, Unsupported>>()?;
        let all = all.into_iter().map(|rows| self.end_operator(rows)).collect::<Result<Vec<_>, _>>()?;
        united(all)
    }

    /// Opens the input once more, whose scans, joins and operators that make groups have the same numbers each time.
    fn open_again(
        &mut self,
        input: &Plan,
        (scan, join, groups): (usize, usize, usize),
    ) -> Result<OpenRows, Unsupported> {
        (self.next_scan, self.next_join, self.next_groups) = (scan, join, groups);
        let rows = self.open(input)?;
        self.begin_groups();
        Ok(rows)
    }

    /// What each set is made of.
    fn grouping_levels(&self, node: &GroupingSets, rows: &OpenRows) -> Result<Levels, Unsupported> {
        let sets: Vec<&[bool]> = node.sets.iter().map(|set| set.has.as_slice()).collect();
        let lacks = match sets.len() {
            1 => Some("there is one set".to_string()),
            _ => why_not_rollup(&node.aggregates),
        };
        let known = Known {
            values: columns_of(&node.keys, &rows.columns).iter().map(key_values).collect(),
            rows: rows.expected(),
            is_table: rows.branches.iter().all(Open::is_table),
        };
        let upwards = Levels::upwards(&sets, Some(&known));
        let saves = upwards.of_rows() < sets.len();
        let rule = match &lacks {
            Some(lacks) => (GroupingLevels::Direct, lacks.as_str()),
            None if saves => (GroupingLevels::Upwards, "a finer set has fewer groups than there are rows"),
            None => {
                (GroupingLevels::Direct, "no finer set is known to have fewer groups than there are rows")
            }
        };
        let site = self.groups.to_string();
        let chosen = self.chooser.choose(&site, rule, |value| match (value, &lacks) {
            (GroupingLevels::Upwards, Some(lacks)) => Err(lacks.clone()),
            _ => Ok(()),
        })?;
        Ok(match chosen {
            GroupingLevels::Direct => Levels::direct(&sets),
            GroupingLevels::Upwards if saves => upwards,
            GroupingLevels::Upwards => Levels::upwards(&sets, None),
        })
    }
}

/// The aggregates, and the number of rows where a set without keys is made of groups: it has a group where there are no rows, and
/// tells by their number that there are none.
fn counting(node: &GroupingSets, levels: &Levels) -> Vec<Aggregate> {
    let mut aggregates = node.aggregates.clone();
    if levels.all.iter().any(|level| level.from.is_some() && !level.has.contains(&true)) {
        let field = Field { name: "rows".into(), data_type: DataType::Int64, nullable: false };
        let function = AggregateFunction::Count;
        aggregates.push(Aggregate { function, argument: None, distinct: false, field });
    }
    aggregates
}

/// The keys of a level among the columns of the groups of a finer one.
fn keys_among(node: &GroupingSets, level: &Level, finer: &Level) -> Vec<Expr> {
    let of_finer = node.keys.iter().zip(&finer.has).zip(&level.has).filter(|((_, has), _)| **has);
    let keys = of_finer.enumerate().filter(|(_, (_, has))| **has);
    keys.map(|(place, ((key, _), _))| Expr::column(place, key.data_type.clone(), key.nullable)).collect()
}

/// The groups of a set as rows of all sets.
fn rows_of(node: &GroupingSets, set: &GroupingSet, groups: &Arc<AggregateOperator>) -> OpenRows {
    let mut rows = groups_of(Arc::clone(groups));
    let keys = node.keys_of(&set.has).into_iter();
    let keys = keys.map(|key| Field {
        name: String::new(),
        data_type: key.data_type.clone(),
        nullable: key.nullable,
    });
    let fields: Vec<Field> =
        keys.chain(node.aggregates.iter().map(|aggregate| aggregate.field.clone())).collect();
    let exprs = set.columns(&fields, &node.fields);
    rows.project(exprs);
    rows
}

/// Groups that are made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    /// Of each key whether they are groups by it.
    has: Vec<bool>,
    /// The level whose groups they are made of, an earlier one; `None`: of the rows.
    from: Option<usize>,
}

/// What is made, in the order in which it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Levels {
    all: Vec<Level>,
    /// The level of each set.
    of_sets: Vec<usize>,
}

/// What is known before.
struct Known {
    /// How many values each key has at most, or about.
    values: Vec<Option<u64>>,
    /// The rows that are thought to come.
    rows: u64,
    /// They are those of a table, of which filters alone leave some out. Others cost more.
    is_table: bool,
}

impl Known {
    /// How many groups a set has at most.
    fn groups(&self, has: &[bool]) -> Option<u64> {
        let values = self.values.iter().zip(has).filter(|(_, has)| **has);
        let groups = values
            .map(|(values, _)| *values)
            .try_fold(1, |groups: u64, values| Some(groups.saturating_mul(values?)));
        groups.map(|groups| groups.min(self.rows))
    }

    /// Whether a level has few enough groups for coarser sets to be made of.
    fn is_few(&self, has: &[bool]) -> bool {
        let is_few = |groups: u64| groups.saturating_mul(ROWS_A_GROUP) <= self.rows;
        !self.is_table || self.groups(has).is_some_and(is_few)
    }

    /// Whether the union of all sets has so few groups that it is to be made though nobody wants them.
    fn is_worth_making(&self, has: &[bool]) -> bool {
        let is_few = |groups: u64| groups.saturating_mul(ROWS_A_GROUP_OF_NONE) <= self.rows;
        self.groups(has).is_some_and(is_few)
    }
}

impl Levels {
    /// Each set is made of the rows.
    fn direct(sets: &[&[bool]]) -> Levels {
        let all = sets.iter().map(|has| Level { has: has.to_vec(), from: None }).collect();
        Levels { all, of_sets: (0..sets.len()).collect() }
    }

    /// Each set is made of the smallest level that has its keys, where that is thought to pay. `None`: wherever it is possible.
    fn upwards(sets: &[&[bool]], known: Option<&Known>) -> Levels {
        let alone = Levels::of(sets, known, None);
        let all_keys = sets.iter().fold(Vec::new(), |all: Vec<bool>, has| {
            has.iter().enumerate().map(|(key, has)| *has || all.get(key) == Some(&true)).collect()
        });
        let is_worth = known.is_none_or(|known| known.is_worth_making(&all_keys));
        match alone.of_rows() > 1 && is_worth && !sets.contains(&all_keys.as_slice()) {
            true => Levels::of(sets, known, Some(all_keys)),
            false => alone,
        }
    }

    /// As [`Self::upwards`], with a level of `more` keys that is no set.
    fn of(sets: &[&[bool]], known: Option<&Known>, more: Option<Vec<bool>>) -> Levels {
        let mut wanted: Vec<Vec<bool>> =
            more.into_iter().chain(sets.iter().map(|has| has.to_vec())).collect();
        let count = |has: &[bool]| has.iter().filter(|has| **has).count();
        // A stable sort: each set behind all that have more keys.
        wanted.sort_by_key(|has| std::cmp::Reverse(count(has)));
        let mut all: Vec<Level> = Vec::new();
        for has in wanted {
            if all.iter().any(|level| level.has == has) {
                continue;
            }
            let has_all = |level: &Level| level.has.iter().zip(&has).all(|(finer, has)| *finer || !*has);
            let suits = |level: &Level| has_all(level) && known.is_none_or(|known| known.is_few(&level.has));
            let groups = |level: &Level| known.and_then(|known| known.groups(&level.has)).unwrap_or(u64::MAX);
            let finer = all.iter().enumerate().filter(|(_, level)| suits(level));
            let smallest = finer.min_by_key(|(_, level)| (groups(level), count(&level.has)));
            let from = smallest.map(|(index, _)| index);
            all.push(Level { has, from });
        }
        let of_set = |has: &&[bool]| all.iter().position(|level| level.has == *has).unwrap_or_default();
        let of_sets = sets.iter().map(of_set).collect();
        Levels { all, of_sets }
    }

    /// How many are made of the rows.
    fn of_rows(&self) -> usize {
        self.all.iter().filter(|level| level.from.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(keys: &str) -> Vec<bool> {
        ["a", "b", "c"].iter().map(|key| keys.contains(key)).collect()
    }

    /// The levels by the names of their keys, each with what it is made of.
    fn made(sets: &[&str], known: Option<&Known>) -> Vec<String> {
        let sets: Vec<Vec<bool>> = sets.iter().map(|keys| set(keys)).collect();
        let levels = Levels::upwards(&sets.iter().map(Vec::as_slice).collect::<Vec<_>>(), known);
        let name = |has: &[bool]| -> String {
            ["a", "b", "c"].iter().zip(has).filter(|(_, has)| **has).map(|(key, _)| *key).collect()
        };
        let of_sets = levels.of_sets.iter().map(|level| &levels.all[*level].has);
        assert!(of_sets.eq(sets.iter()));
        let from = |level: &Level| level.from.map_or("rows".into(), |from| name(&levels.all[from].has));
        levels.all.iter().map(|level| format!("{}<{}", name(&level.has), from(level))).collect()
    }

    fn known(values: [Option<u64>; 3], rows: u64, is_table: bool) -> Known {
        Known { values: values.to_vec(), rows, is_table }
    }

    #[test]
    fn a_rollup_goes_down_step_by_step() {
        let sets = ["", "a", "ab", "abc"];
        assert_eq!(made(&sets, None), ["abc<rows", "ab<abc", "a<ab", "<a"]);
        let few = known([Some(5), Some(20), Some(100)], 1_000_000, true);
        assert_eq!(made(&sets, Some(&few)), ["abc<rows", "ab<abc", "a<ab", "<a"]);
    }

    #[test]
    fn a_cube_takes_the_smallest_finer_set() {
        let sets = ["abc", "ab", "ac", "bc", "a", "b", "c", ""];
        let few = known([Some(2), Some(30), Some(4)], 1_000_000, true);
        let levels = ["abc<rows", "ab<abc", "ac<abc", "bc<abc", "a<ac", "b<ab", "c<ac", "<a"];
        assert_eq!(made(&sets, Some(&few)), levels);
    }

    #[test]
    fn groups_nearly_as_many_as_rows_are_not_read_again() {
        let sets = ["abc", "ab", "a", ""];
        let many = known([Some(10), Some(10), Some(1000)], 200_000, true);
        assert_eq!(made(&sets, Some(&many)), ["abc<rows", "ab<rows", "a<ab", "<a"]);
        let unknown = known([Some(10), None, Some(10)], 200_000, true);
        assert_eq!(made(&sets, Some(&unknown)), ["abc<rows", "ab<rows", "a<rows", "<a"]);
        let joined = known([Some(10), None, Some(10)], 200_000, false);
        assert_eq!(made(&sets, Some(&joined)), ["abc<rows", "ab<abc", "a<ab", "<a"]);
    }

    #[test]
    fn equal_sets_are_made_once_and_one_that_nobody_asked_for_where_it_pays() {
        assert_eq!(made(&["a", "", "a", ""], None), ["a<rows", "<a"]);
        let sets = ["a", "b", "bc"];
        assert_eq!(made(&sets, None), ["abc<rows", "bc<abc", "a<abc", "b<bc"]);
        let few = known([Some(10), Some(10), Some(10)], 64_000, true);
        assert_eq!(made(&sets, Some(&few)), ["abc<rows", "bc<abc", "a<abc", "b<bc"]);
        let many = known([Some(10), Some(10), Some(10)], 63_000, true);
        assert_eq!(made(&sets, Some(&many)), ["bc<rows", "a<rows", "b<bc"]);
    }
}
