//! The look-ups of a join that several rows of a thread do at once, before they go on one by one: the loads of slots and of the few bytes
//! that are wanted of a match are in flight together, where a row by itself waits for each.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, LookedUp, Lowered, Repr, Unsupported};
use crate::expr::ExprKind;
use crate::operator::roles::{LookUps, Next};
use crate::table::index::SlotOfRow;

/// Bytes of a match's columns that are loaded with the look-up, at most: those of eight rows take 16 registers.
const MOST_BYTES: u32 = 8;

impl LookUps for JoinOperator {
    fn lacks(&self) -> Result<usize, String> {
        match (self.index.lacks_look_ups(), self.probe_keys.as_slice()) {
            (Some(lacks), _) => Err(lacks.into()),
            (None, [key]) => match (&key.kind, self.codes.first()) {
                (ExprKind::Column(column), Some(None) | None) => Ok(*column),
                _ => Err("keys are computed, or codes of texts".into()),
            },
            (None, _) => Err("several keys".into()),
        }
    }

    fn slots(&self, cx: &mut Context<'_>, active: &[V]) -> Result<Vec<SlotOfRow>, Unsupported> {
        let keys = self.keys_of_probe(cx)?;
        let [Lowered { repr: Repr::Scalar(values), valid, range }] = keys.as_slice() else {
            return Err(Unsupported::internal("a look-up by other than one number"));
        };
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
            let repr = Repr::Scalar(of_row(cx, *values));
            let valid = valid.map(|valid| of_row(cx, valid));
            let key = Lowered { repr, valid, range: *range };
            slots.push(self.index.slot_of_row(cx, &key, *active)?);
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
        let numbers = self.index.look_up(cx, slots)?;
        let wanted = self.columns_loaded(columns);
        let mut rows = Vec::new();
        for number in numbers {
            let place = self.index.place_found(cx, number);
            let load = |(column, stored): &(usize, usize)| {
                (*column, self.matches().columns()[*stored].load(cx, place, None))
            };
            rows.push(LookedUp { number, columns: wanted.iter().map(load).collect() });
        }
        Ok(rows)
    }

    fn go_on(&self, cx: &mut Context<'_>, found: &LookedUp, next: &mut Next<'_>) -> Result<(), Unsupported> {
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
    /// The columns of a pair that are loaded with the look-up, of those that are wanted; and where the store has them.
    fn columns_loaded(&self, wanted: &BTreeSet<usize>) -> Vec<(usize, usize)> {
        // Columns of a row that may be missing are NULL there, and what a mark says is no column of the store.
        if !self.gives_matches_alone() {
            return Vec::new();
        }
        let (mut left, mut chosen) = (MOST_BYTES, Vec::new());
        for (column, stored) in self.places.iter().enumerate().filter(|(column, _)| wanted.contains(column)) {
            let bytes = self.matches().columns().get(*stored).and_then(|column| column.number_bytes());
            if let Some(bytes) = bytes.filter(|bytes| *bytes <= left) {
                left -= bytes;
                chosen.push((column, *stored));
            }
        }
        chosen
    }
}
