//! Grouping sets: ROLLUP, CUBE and GROUPING SETS.

use super::{Aggregate, Plan};
use crate::expr::Expr;
use crate::types::{Field, Literal};

/// Groups by several sets of keys, one set's groups after the other's. The columns are the keys', NULL where a set has no such
/// key, then the identifier of the set, then the aggregates'. Of a set without keys there is exactly one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupingSets {
    /// Its rows.
    pub input: Plan,
    /// All keys; NULL is a key like any other.
    pub keys: Vec<Expr>,
    /// At least one.
    pub sets: Vec<GroupingSet>,
    /// Aggregates.
    pub aggregates: Vec<Aggregate>,
    /// The columns: what they are called, of which type, and that keys which some set lacks may be NULL.
    pub fields: Vec<Field>,
}

/// One of several grouping sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupingSet {
    /// Of each key whether the set has it.
    pub has: Vec<bool>,
    /// What tells its rows from those of the other sets.
    pub identifier: i128,
}

impl GroupingSet {
    /// The set's rows of `groups`, whose columns are its keys and then aggregates, as rows of all sets, which have the columns
    /// `fields`.
    pub fn rows(&self, groups: Plan, fields: &[Field]) -> Plan {
        let exprs = self.columns(&groups.fields(), fields);
        let names = fields.iter().map(|field| field.name.clone()).collect();
        Plan::Project { input: Box::new(groups), exprs, names }
    }

    /// As [`Self::rows`]: the columns over those of the set's groups, which are `groups`.
    pub fn columns(&self, groups: &[Field], fields: &[Field]) -> Vec<Expr> {
        let mut next = 0..;
        let mut column = |field: &Field| {
            let place = next.next().unwrap_or_default();
            let nullable = groups.get(place).is_none_or(|own| own.nullable);
            Expr::column(place, field.data_type.clone(), nullable)
        };
        let exprs = fields.iter().enumerate().map(|(index, field)| match self.has.get(index) {
            Some(true) => column(field),
            Some(false) => Expr::literal(Literal::Null, field.data_type.clone()),
            None if index == self.has.len() => {
                Expr::literal(Literal::Int(self.identifier), field.data_type.clone())
            }
            None => column(field),
        });
        exprs.collect()
    }
}

impl GroupingSets {
    /// Its own expressions, not its input's.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.keys.iter().chain(self.aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref()))
    }

    /// The same in the same order, to be replaced by others.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let arguments = self.aggregates.iter_mut().filter_map(|aggregate| aggregate.argument.as_mut());
        self.keys.iter_mut().chain(arguments)
    }

    /// The keys of a set.
    pub fn keys_of(&self, has: &[bool]) -> Vec<Expr> {
        self.keys.iter().zip(has).filter(|(_, has)| **has).map(|(key, _)| key.clone()).collect()
    }

    /// The same rows as a union of aggregations, each of which reads the input.
    pub fn united(&self) -> Plan {
        let inputs = self.sets.iter().map(|set| {
            let keys = self.keys_of(&set.has);
            let names = vec![String::new(); keys.len() + self.aggregates.len()];
            let (input, aggregates) = (Box::new(self.input.clone()), self.aggregates.clone());
            set.rows(Plan::Aggregate { input, keys, aggregates, names }, &self.fields)
        });
        Plan::Union { inputs: inputs.collect(), fields: self.fields.clone() }
    }

    /// What the compiler cannot do with it, if there is something.
    pub(crate) fn lacks(&self) -> Option<String> {
        let columns = self.keys.len() + 1 + self.aggregates.len();
        let is_fit = |set: &GroupingSet| set.has.len() == self.keys.len();
        match () {
            () if self.sets.is_empty() => Some("groups by no set of keys".into()),
            () if !self.sets.iter().all(is_fit) || self.fields.len() != columns => {
                Some("grouping sets of other keys or columns".into())
            }
            () => None,
        }
    }
}
