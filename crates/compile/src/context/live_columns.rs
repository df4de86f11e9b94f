//! Rows that change lanes: what the columns of the current row stand on, and the same row on other registers.
//!
//! Lanes of a warp exchange rows by exchanging registers. Few are needed: a column that lies in memory stands on its row's
//! number, and a computed one on what it is computed from; so a row of a table moves as its number, whatever columns are
//! read of it later, and these are loaded where they are asked for (post-projection; DogQC, section 5.1).

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use kelpie_kir::builder::V;

use super::row::CurrentRow;
use super::{Context, DictionaryCode, Lowered, Origin, Repr, RowLayer, Text, Unsupported};

/// Where registers go: the new one of each that moves. Others are left, as nothing reads what stands on them.
#[derive(Debug)]
pub(crate) struct Moved(HashMap<V, V>);

impl Moved {
    /// Moves each register to the one beside it.
    pub(crate) fn between(pairs: impl Iterator<Item = (V, V)>) -> Moved {
        Moved(pairs.collect())
    }

    /// The register that takes the place of one.
    pub(crate) fn of(&self, register: V) -> V {
        self.0.get(&register).copied().unwrap_or(register)
    }
}

/// A row, and the registers that some of its columns stand on.
#[derive(Debug, Clone)]
pub(crate) struct LiveColumns {
    layers: Vec<Rc<dyn RowLayer>>,
    registers: Vec<V>,
}

impl LiveColumns {
    /// What moves with the row.
    pub(crate) fn registers(&self) -> &[V] {
        &self.registers
    }
}

impl Lowered {
    /// The registers of the value.
    pub(crate) fn registers(&self) -> Vec<V> {
        let mut registers = match &self.repr {
            Repr::Scalar(value) => vec![*value],
            Repr::Text(text) => {
                let code = text.code.map(|code| code.value);
                [text.data, text.length].into_iter().chain(code).collect()
            }
        };
        registers.extend(self.valid);
        registers
    }

    /// The value in other registers.
    pub(crate) fn moved(&self, moved: &Moved) -> Lowered {
        let repr = match &self.repr {
            Repr::Scalar(value) => Repr::Scalar(moved.of(*value)),
            Repr::Text(text) => Repr::Text(Text {
                data: moved.of(text.data),
                length: moved.of(text.length),
                case: text.case,
                code: text.code.map(|code| DictionaryCode { value: moved.of(code.value), ..code }),
            }),
        };
        Lowered { repr, valid: self.valid.map(|valid| moved.of(valid)), range: self.range }
    }
}

impl Context<'_> {
    /// The current row as far as `columns` of it are read later.
    pub(crate) fn live_columns(&self, columns: &BTreeSet<usize>) -> Result<LiveColumns, Unsupported> {
        let mut registers = Vec::new();
        for (layer, column) in self.row.stand_on(columns)? {
            let Some(this) = self.row.layers.get(layer) else { continue };
            let own = match this.origin(column) {
                Some(Origin::Value(value)) => value.registers(),
                _ => this.registers(column),
            };
            for register in own {
                if !registers.contains(&register) {
                    registers.push(register);
                }
            }
        }
        Ok(LiveColumns { layers: self.row.layers[..=self.row.current].to_vec(), registers })
    }

    /// Emits `body` with a row on `registers` in place of its own as the current one. What was computed for the row that is the
    /// current one now is not known there.
    pub(crate) fn with_live_columns<T>(
        &mut self,
        row: &LiveColumns,
        registers: &[V],
        body: impl FnOnce(&mut Self) -> Result<T, Unsupported>,
    ) -> Result<T, Unsupported> {
        let moved = Moved::between(row.registers.iter().copied().zip(registers.iter().copied()));
        let place = |layer: &Rc<dyn RowLayer>| layer.moved(&moved).unwrap_or_else(|| Rc::clone(layer));
        let moved_row = CurrentRow::of(row.layers.iter().map(place).collect());
        let before = std::mem::replace(&mut self.row, moved_row);
        let result = body(self);
        self.row = before;
        result
    }
}
