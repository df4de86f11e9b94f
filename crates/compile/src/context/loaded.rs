//! Rows of which columns are in registers before they change lanes (full scan; DogQC, section 5.1), where others move as the numbers that
//! their columns stand on ([`live_columns`](super::live_columns)).
//!
//! Columns that lie in memory are loaded; what is computed of them is computed where it is read, by the rows that come so far: no row
//! fails by an expression that a filter before it would have kept it from.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kelpie_kir::builder::V;

use super::row::missing;
use super::{Case, Context, DictionaryCode, Lowered, Moved, Origin, Repr, RowLayer, Text, Unsupported};
use crate::types::Range;

/// A column in registers.
#[derive(Debug, Clone)]
enum Loaded {
    /// Its value.
    Value(Lowered),
    /// The code of a text in a dictionary, which is what its column has, and its validity. The text is looked up where it is read.
    Code(DictionaryCode, Option<V>),
}

impl Loaded {
    fn moved(&self, moved: &Moved) -> Loaded {
        match self {
            Loaded::Value(value) => Loaded::Value(value.moved(moved)),
            Loaded::Code(code, valid) => {
                let value = moved.of(code.value);
                Loaded::Code(DictionaryCode { value, ..*code }, valid.map(|valid| moved.of(valid)))
            }
        }
    }
}

/// A layer of which some columns are in registers.
#[derive(Debug)]
struct LoadedRow {
    layer: Rc<dyn RowLayer>,
    columns: BTreeMap<usize, Loaded>,
}

impl RowLayer for LoadedRow {
    fn origin(&self, column: usize) -> Option<Origin<'_>> {
        match self.columns.get(&column) {
            Some(Loaded::Value(value)) => Some(Origin::Value(value)),
            Some(Loaded::Code(..)) => Some(Origin::Memory),
            None => self.layer.origin(column),
        }
    }

    fn load(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        match self.columns.get(&column) {
            Some(Loaded::Value(value)) => Ok(value.clone()),
            Some(Loaded::Code(code, valid)) => {
                let text = cx.dictionary_entry(*code);
                Ok(Lowered { repr: Repr::Text(text), valid: *valid, range: None })
            }
            None => self.layer.load(cx, column),
        }
    }

    fn range(&self, column: usize, below: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
        self.layer.range(column, below)
    }

    fn registers(&self, column: usize) -> Vec<V> {
        match self.columns.get(&column) {
            Some(Loaded::Value(value)) => value.registers(),
            Some(Loaded::Code(code, valid)) => [code.value].into_iter().chain(*valid).collect(),
            None => self.layer.registers(column),
        }
    }

    fn moved(&self, moved: &Moved) -> Option<Rc<dyn RowLayer>> {
        let layer = self.layer.moved(moved).unwrap_or_else(|| Rc::clone(&self.layer));
        let columns = self.columns.iter().map(|(column, loaded)| (*column, loaded.moved(moved))).collect();
        Some(Rc::new(LoadedRow { layer, columns }))
    }

    fn has_codes(&self, column: usize) -> bool {
        match self.columns.get(&column) {
            Some(loaded) => matches!(loaded, Loaded::Code(..)),
            None => self.layer.has_codes(column),
        }
    }

    fn load_code(&self, cx: &mut Context<'_>, column: usize) -> Option<(DictionaryCode, Option<V>)> {
        match self.columns.get(&column) {
            Some(Loaded::Code(code, valid)) => Some((*code, *valid)),
            Some(Loaded::Value(_)) => None,
            None => self.layer.load_code(cx, column),
        }
    }
}

impl Context<'_> {
    /// Loads those of the current row's `columns` that lie in memory, and those that others of them are computed from; emits `body` with
    /// the row that has them in registers.
    pub(crate) fn with_loaded<T>(
        &mut self,
        columns: &BTreeSet<usize>,
        body: impl FnOnce(&mut Self) -> Result<T, Unsupported>,
    ) -> Result<T, Unsupported> {
        let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (layer, column) in self.row.stand_on(columns)? {
            let origin = self.row.layers.get(layer).and_then(|this| this.origin(column));
            if matches!(origin, Some(Origin::Memory)) {
                found.entry(layer).or_default().insert(column);
            }
        }
        let (before, current) = (self.row.layers.clone(), self.row.current);
        for (layer, columns) in found {
            let this = self.row.layers.get(layer).cloned().ok_or_else(|| missing(layer))?;
            let mut loaded = BTreeMap::new();
            for column in columns {
                loaded.insert(column, self.load_now(layer, &*this, column)?);
            }
            if let Some(place) = self.row.layers.get_mut(layer) {
                *place = Rc::new(LoadedRow { layer: this, columns: loaded });
            }
        }
        self.row.ranges.borrow_mut().clear();
        let result = body(self);
        (self.row.layers, self.row.current) = (before, current);
        self.row.ranges.borrow_mut().clear();
        result
    }

    fn load_now(&mut self, layer: usize, this: &dyn RowLayer, column: usize) -> Result<Loaded, Unsupported> {
        if this.has_codes(column)
            && self.known(layer, column).is_none()
            && let Some((code, valid)) = this.load_code(self, column)
        {
            return Ok(Loaded::Code(code, valid));
        }
        let value = self.layer_column(layer, column)?;
        Ok(match &value.repr {
            Repr::Text(Text { code: Some(code), case: Case::Keep, .. }) => Loaded::Code(*code, value.valid),
            _ => Loaded::Value(value),
        })
    }
}
