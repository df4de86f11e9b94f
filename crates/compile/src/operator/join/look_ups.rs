//! The look-ups of a join that several rows of a thread do at once, before they go on one by one: the loads of slots, of keys that are
//! compared, and of the few bytes that are wanted of a match are in flight together, where a row by itself waits for each.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, LookedUp, Lowered, Repr, Unsupported};
use crate::expr::Expr;
use crate::operator::roles::{LookUps, Next};
use crate::table::index::SlotOfRow;
use crate::types::DataType;

/// Bytes of a match's columns that are loaded with the look-up, at most: those of eight rows take 16 registers.
const MOST_BYTES: u32 = 8;

/// A column of a pair that is loaded with the look-up, and where the store has it.
struct Loaded {
    column: usize,
    stored: usize,
}

impl LookUps for JoinOperator {
    fn keys(&self) -> Result<&[Expr], &'static str> {
        let is_told_by_text = |(number, key): (usize, &Expr)| {
            key.data_type == DataType::Utf8 && matches!(self.codes.get(number), Some(None) | None)
        };
        match self.index.lacks_look_ups() {
            Some(lacks) => Err(lacks),
            None if self.probe_keys.iter().enumerate().any(is_told_by_text) => {
                Err("texts are hashed and compared in loops")
            }
            None => Ok(&self.probe_keys),
        }
    }

    fn slots(&self, cx: &mut Context<'_>, active: &[V]) -> Result<Vec<SlotOfRow>, Unsupported> {
        let keys = self.keys_of_probe(cx)?;
        let is_wide = cx.wide().is_some();
        let mut slots = Vec::new();
        for (row, active) in active.iter().enumerate() {
            let of_row = |cx: &mut Context<'_>, all: V| match is_wide {
                true => {
                    let all = cx.each_row(all);
                    cx.builder.lane(all, row as u8)
                }
                false => all,
            };
            if is_wide {
                cx.begin_repetition(row == 0);
            }
            let mut own = Vec::new();
            for Lowered { repr, valid, range } in &keys {
                let Repr::Scalar(values) = repr else {
                    return Err(Unsupported::internal("a look-up by a text"));
                };
                let repr = Repr::Scalar(of_row(cx, *values));
                let valid = valid.map(|valid| of_row(cx, valid));
                own.push(Lowered { repr, valid, range: *range });
            }
            slots.push(self.index.slot_of_row(cx, &own, *active)?);
        }
        if is_wide {
            cx.end_repetition();
        }
        Ok(slots)
    }

    fn look_up(
        &self,
        cx: &mut Context<'_>,
        slots: &[SlotOfRow],
        columns: &BTreeSet<usize>,
    ) -> Result<Vec<LookedUp>, Unsupported> {
        let numbers = self.index.look_up(cx, self.matches(), slots)?;
        let wanted = self.columns_loaded(columns);
        Ok(numbers.into_iter().map(|number| self.with_columns(cx, number, &wanted)).collect())
    }

    fn go_on(&self, cx: &mut Context<'_>, found: &LookedUp, next: &mut Next<'_>) -> Result<(), Unsupported> {
        let found = self.ended(cx, found)?;
        let search = self.index.search_found(cx, found.number);
        self.matches_of(cx, search, &mut |cx, flow| {
            for (column, value) in &found.columns {
                cx.remember(*column, value);
            }
            next(cx, flow)
        })
    }
}

impl JoinOperator {
    /// What was found, with columns of it.
    fn with_columns(&self, cx: &mut Context<'_>, number: V, wanted: &[Loaded]) -> LookedUp {
        let stored = self.matches().columns();
        let mut columns = Vec::new();
        if !wanted.is_empty() {
            let place = self.index.place_found(cx, number);
            let load =
                |loaded: &Loaded| Some((loaded.column, stored.get(loaded.stored)?.load(cx, place, None)));
            columns.extend(wanted.iter().filter_map(load));
        }
        LookedUp { number, columns }
    }

    /// What the search of the current row finds, which may have to go on behind its first slot.
    fn ended(&self, cx: &mut Context<'_>, found: &LookedUp) -> Result<LookedUp, Unsupported> {
        let Some(is_open) = self.index.is_open(cx, found.number) else { return Ok(found.clone()) };
        let kept = found.keep(cx);
        cx.begin_if(is_open);
        let keys = self.keys_of_probe(cx)?;
        let search = self.index.search_behind_first(cx, self.matches(), &keys)?;
        let number = cx.builder.read(search.cursor);
        let loaded = |(column, _): &(usize, Lowered)| {
            Some(Loaded { column: *column, stored: self.places.get(*column).copied()? })
        };
        let wanted: Vec<Loaded> = found.columns.iter().filter_map(loaded).collect();
        let now = self.with_columns(cx, number, &wanted);
        for (var, register) in kept.iter().zip(now.registers()) {
            cx.builder.assign(*var, register);
        }
        cx.end();
        Ok(found.kept_in(cx, &kept))
    }

    /// The columns of a pair that are loaded with the look-up, of those that are wanted.
    fn columns_loaded(&self, wanted: &BTreeSet<usize>) -> Vec<Loaded> {
        // Columns of a row that may be missing are NULL there, and what a mark says is no column of the store.
        if !self.gives_matches_alone() {
            return Vec::new();
        }
        // Keys that were compared are in the nearest cache.
        let compared = if self.index.reads_keys() { self.probe_keys.len() } else { 0 };
        let (mut left, mut chosen) = (MOST_BYTES, Vec::new());
        let places = self.places.iter().enumerate().filter(|(_, stored)| **stored >= compared);
        for (column, stored) in places.filter(|(column, _)| wanted.contains(column)) {
            let bytes = self.matches().columns().get(*stored).and_then(|column| column.number_bytes());
            if let Some(bytes) = bytes.filter(|bytes| *bytes <= left) {
                left -= bytes;
                chosen.push(Loaded { column, stored: *stored });
            }
        }
        chosen
    }
}
