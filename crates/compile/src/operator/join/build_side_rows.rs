//! The rows of a join's build side as sources: all of them, for the index, and those that the kind keeps, for the result.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{JoinOperator, boolean};
use crate::context::{Argument, Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::plan::JoinKind;
use crate::program::RowCount;
use crate::table::joined::Joined;

/// All rows of a join's store, with the store's columns.
#[derive(Debug)]
pub(crate) struct StoredRows(pub Arc<JoinOperator>);

impl fmt::Display for StoredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("build side")
    }
}

impl Source for StoredRows {
    fn rows(&self) -> RowCount {
        self.0.index.store.rows()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.index.store.infos()
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        self.0.index.store.is_taken(cx, row)
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let columns = self.0.index.store.columns().iter();
        cx.push_joined(columns.map(|column| Joined::stored(column, row, None)).collect());
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.0.index.store.read(columns, states);
    }
}

/// The rows of a join's build side that its kind keeps.
#[derive(Debug)]
pub(crate) struct KeptRows(pub Arc<JoinOperator>);

impl fmt::Display for KeptRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("build rows")
    }
}

impl Source for KeptRows {
    fn rows(&self) -> RowCount {
        self.0.index.store.rows()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.columns.clone()
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        match (self.0.index.store.is_taken(cx, row), self.0.is_kept(cx, row)) {
            (Some(taken), Some(kept)) => Some(cx.builder.and(taken, kept)),
            (taken, kept) => taken.or(kept),
        }
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let mut columns = self.0.build_columns(row, None);
        if self.0.kind == JoinKind::BuildMark
            && let Some(matched) = self.0.is_matched(cx, row)
        {
            columns.push(Joined::Value(boolean(matched)));
        }
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.0.read_build(columns, states);
        if self.0.nulls.is_some() {
            self.0.index.store.read(&(0..self.0.probe_keys.len()).collect(), states);
        }
    }
}

impl JoinOperator {
    /// Whether the kind keeps the build row at `place` (`i64`), which is one; `None`: it keeps all.
    fn is_kept(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        if self.kind == JoinKind::BuildMark {
            return None;
        }
        let matched = self.is_matched(cx, place)?;
        if self.kind == JoinKind::BuildSemi {
            return Some(matched);
        }
        let unmatched = cx.builder.not(matched);
        Some(self.not_in(cx, place, unmatched))
    }

    /// `NOT IN`: nothing passes once the probe side has a NULL key, and no NULL key unless the probe side is empty.
    fn not_in(&self, cx: &mut Context<'_>, place: V, unmatched: V) -> V {
        if self.nulls.is_none() {
            return unmatched;
        }
        let keys = self.index.store.columns()[..self.probe_keys.len()].iter();
        let valid: Vec<V> = keys.filter_map(|column| column.load_valid(cx, place)).collect();
        self.passes_not_in(cx, &valid, unmatched)
    }

    /// `NOT IN`: whether a row that has no match passes; `valid`: of its keys that may be NULL, whether they are not.
    pub(super) fn passes_not_in(&self, cx: &mut Context<'_>, valid: &[V], unmatched: V) -> V {
        let Some(state) = self.nulls else { return unmatched };
        let nulls = cx.argument("other_nulls", Type::global(Scalar::U32), Argument::State(state));
        let seen = cx.builder.load(nulls);
        let two = cx.builder.u32(2);
        let no_null = cx.builder.lt(seen, two);
        let mut live = cx.builder.and(unmatched, no_null);
        let zero = cx.builder.u32(0);
        let empty = cx.builder.eq(seen, zero);
        for valid in valid {
            let passes = cx.builder.or(*valid, empty);
            live = cx.builder.and(live, passes);
        }
        live
    }

    fn is_matched(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        self.matched.map(|state| {
            let flags = cx.argument("matched", Type::global(Scalar::U32), Argument::State(state));
            let flag = cx.builder.element(flags, place);
            let zero = cx.builder.u32(0);
            cx.builder.ne(flag, zero)
        })
    }
}
