//! Groups found by hashing: a [`KeyTable`] whose keys have the cells of their group as words.

use std::fmt;

use kelpie_kir::Scope;
use kelpie_kir::builder::V;

use super::groups::{AtGroup, GroupEmitter, GroupTable, Located};
use super::hash::KeyTable;
use super::key_count::KeyCount;
use super::tables::Strategy;
use super::{Cells, Input, declare, update_group, word_pointer};
use crate::choices::Choices;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::Flow;
use crate::shape::LaunchShape;
use crate::variant::axes::GroupForm;

/// Keys of any kind.
pub(super) struct HashedKeys<'k>(&'k [ColumnInfo]);

impl<'k> HashedKeys<'k> {
    pub(super) fn of(keys: &'k [ColumnInfo]) -> HashedKeys<'k> {
        HashedKeys(keys)
    }
}

impl Strategy for HashedKeys<'_> {
    fn form(&self) -> GroupForm {
        GroupForm::Hash
    }

    fn lacks(&self) -> Option<String> {
        None
    }

    fn suits(&self, _row_bound: u64) -> Option<&'static str> {
        Some("keys have no small dense domain")
    }

    fn plan(
        self: Box<Self>,
        cells: &mut Cells,
        input: &Input<'_>,
        _on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<Box<dyn GroupTable>, Unsupported> {
        let table = KeyTable::plan(self.0, cells.words(), (input.row_bound, input.fill()?), states)?;
        Ok(Box::new(HashGroups { table, row_bound: input.row_bound }))
    }
}

/// Groups in a hash table.
#[derive(Debug)]
pub struct HashGroups {
    pub table: KeyTable,
    /// Groups at most, by the rows.
    pub row_bound: u64,
}

impl fmt::Display for HashGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl GroupTable for HashGroups {
    fn class(&self) -> usize {
        self.table.class
    }

    fn zeroed(&self) -> Vec<usize> {
        self.table.zeroed()
    }

    fn grows(&self) -> Vec<usize> {
        vec![self.table.class]
    }

    fn count(&self) -> Option<usize> {
        Some(self.table.count)
    }

    fn row_bound(&self) -> u64 {
        self.row_bound
    }

    fn is_local(&self) -> bool {
        false
    }

    /// A probe loops.
    fn takes_flags(&self) -> bool {
        false
    }

    fn part(&self, cx: &mut Context<'_>, keys: &[Expr], bits: u32) -> Result<V, Unsupported> {
        let values = keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
        self.table.part(cx, &values, bits)
    }

    fn begin<'s>(&'s self, cx: &mut Context<'_>, cells: &'s Cells, _: u64) -> Box<dyn GroupEmitter + 's> {
        Box::new(HashEmitter { table: &self.table, count: self.table.begin(cx), cells })
    }

    fn present(&self, cx: &mut Context<'_>, _cells: &Cells, slot: V) -> Option<V> {
        Some(self.table.present(cx, slot))
    }

    fn words(&self, cx: &mut Context<'_>, _cells: &Cells, slot: V) -> V {
        self.table.words(cx, slot)
    }

    fn keys(&self, cx: &mut Context<'_>, columns: &[ColumnInfo], slot: V) -> Vec<Lowered> {
        self.table.keys(cx, columns, slot)
    }
}

/// The groups in one kernel.
struct HashEmitter<'s> {
    table: &'s KeyTable,
    count: KeyCount,
    cells: &'s Cells,
}

impl GroupEmitter for HashEmitter<'_> {
    fn locate(
        &self,
        cx: &mut Context<'_>,
        keys: &[Expr],
        _flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let values = keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
        let probe = self.table.insert(cx, &self.count, &values)?;
        let found = cx.builder.read(probe.found);
        cx.begin_if(found);
        let slot = cx.builder.read(probe.slot);
        next(cx, Located { slot: Some(slot), active: None, keys: Some(values) })?;
        cx.end();
        Ok(())
    }

    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return cx.impossible("a row without a slot") };
        let base = self.table.words(cx, slot);
        update_group(cx, self.cells, base, values, Scope::Device);
    }

    fn current(&self, cx: &mut Context<'_>, slot: Option<V>, index: usize) -> Option<V> {
        let base = self.table.words(cx, slot?);
        let pointer = word_pointer(cx, base, self.cells.cells.get(index)?.word);
        Some(cx.builder.atomic_load(pointer, Scope::Device))
    }

    fn is_full(&self, cx: &mut Context<'_>) -> Option<V> {
        Some(self.count.is_full(cx))
    }

    fn end(&self, cx: &mut Context<'_>) {
        self.count.end(cx);
    }
}
