//! Rows that change lanes: what the columns of the current row stand on, and the same row on other registers.
//!
//! Lanes of a warp exchange rows by exchanging registers. Few are needed: a column that lies in memory stands on its row's
//! number, and a computed one on what it is computed from; so a row of a table moves as its number, whatever columns are
//! read of it later, and these are loaded where they are asked for (post-projection; DogQC, section 5.1).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use kelpie_kir::builder::V;

use super::row::missing;
use super::{Context, DictionaryCode, Lowered, Origin, Repr, RowLayer, Text, Unsupported};
use crate::expr::columns_read;

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
pub(crate) struct CarriedRow {
    layers: Vec<Rc<dyn RowLayer>>,
    registers: Vec<V>,
}

impl CarriedRow {
    /// What is to be carried along with the row.
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
    pub(crate) fn carried(&self, columns: &BTreeSet<usize>) -> Result<CarriedRow, Unsupported> {
        let (mut registers, mut seen) = (Vec::new(), HashSet::new());
        for column in columns {
            self.add_registers(self.current, *column, &mut registers, &mut seen)?;
        }
        Ok(CarriedRow { layers: self.layers[..=self.current].to_vec(), registers })
    }

    /// `seen`: the columns by layer that were looked at.
    fn add_registers(
        &self,
        layer: usize,
        column: usize,
        registers: &mut Vec<V>,
        seen: &mut HashSet<(usize, usize)>,
    ) -> Result<(), Unsupported> {
        if !seen.insert((layer, column)) {
            return Ok(());
        }
        let this = self.layers.get(layer).ok_or_else(|| missing(column))?;
        let below = || layer.checked_sub(1).ok_or_else(|| missing(column));
        let own = match this.origin(column).ok_or_else(|| missing(column))? {
            Origin::Value(value) => value.registers(),
            Origin::Memory => this.registers(column),
            Origin::Below(column) => return self.add_registers(below()?, column, registers, seen),
            Origin::Computed(expr) => {
                for column in columns_read(expr) {
                    self.add_registers(below()?, column, registers, seen)?;
                }
                return Ok(());
            }
        };
        for register in own {
            if !registers.contains(&register) {
                registers.push(register);
            }
        }
        Ok(())
    }

    /// Emits `body` with a row on `registers` in place of its own as the current one. What was computed for the row that is the
    /// current one now is not known there.
    pub(crate) fn with_carried<T>(
        &mut self,
        row: &CarriedRow,
        registers: &[V],
        body: impl FnOnce(&mut Self) -> Result<T, Unsupported>,
    ) -> Result<T, Unsupported> {
        let moved = Moved::between(row.registers.iter().copied().zip(registers.iter().copied()));
        let place = |layer: &Rc<dyn RowLayer>| layer.moved(&moved).unwrap_or_else(|| Rc::clone(layer));
        let layers = std::mem::replace(&mut self.layers, row.layers.iter().map(place).collect());
        let scopes = std::mem::replace(&mut self.scopes, vec![Vec::new()]);
        let current = std::mem::replace(&mut self.current, self.layers.len().saturating_sub(1));
        self.ranges.borrow_mut().clear();
        let result = body(self);
        (self.layers, self.scopes, self.current) = (layers, scopes, current);
        self.ranges.borrow_mut().clear();
        result
    }
}
