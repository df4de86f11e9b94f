//! The current row: layers of columns, one above the other. A column is loaded or computed when it is first asked for, and
//! kept as long as the code stands in the block where that happened.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

use kelpie_kir::builder::V;

use super::{Context, DictionaryCode, Lowered, Moved, StoredIntegers, Unsupported};
use crate::expr::{Expr, ExprKind, columns_read};
use crate::types::Range;

/// Where a column of a layer comes from.
pub(crate) enum Origin<'l> {
    /// It is a column of the layer below.
    Below(usize),
    /// It is in registers.
    Value(&'l Lowered),
    /// It lies in memory as it is.
    Memory,
    /// It is computed from columns of the layer below.
    Computed(&'l Expr),
}

/// A layer of the current row. A table's columns, a projection, and the columns of a join are layers.
pub(crate) trait RowLayer: fmt::Debug {
    /// Where a column comes from; `None`: there is no such column.
    fn origin(&self, column: usize) -> Option<Origin<'_>>;

    /// Loads a column that lies in memory, or computes one; the layer below is the current one then.
    fn load(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported>;

    /// Bounds of a column that lies in memory or is computed, given those of the layer below.
    fn range(&self, column: usize, below: &dyn Fn(usize) -> Option<Range>) -> Option<Range>;

    /// The registers that a column stands on which lies in memory.
    fn registers(&self, _column: usize) -> Vec<V> {
        Vec::new()
    }

    /// The layer on other registers; `None`: it stands on none itself.
    fn moved(&self, _moved: &Moved) -> Option<Rc<dyn RowLayer>> {
        None
    }

    /// Whether a column that lies in memory is one of codes of a dictionary.
    fn has_codes(&self, _column: usize) -> bool {
        false
    }

    /// Code and validity of such a column, where they can be loaded without the text.
    fn load_code(&self, _cx: &mut Context<'_>, _column: usize) -> Option<(DictionaryCode, Option<V>)> {
        None
    }

    /// The code of the current row in a column of a scan (its number and the column's) that has codes beside its values, and the validity.
    fn load_value_code(&self, _cx: &mut Context<'_>, _column: (usize, usize)) -> Option<(V, Option<V>)> {
        None
    }

    /// The integers of a column that lies in memory as they lie there, where the current row is wide.
    fn load_stored(&self, _cx: &mut Context<'_>, _column: usize) -> Option<StoredIntegers> {
        None
    }
}

/// Columns that an operator has computed.
#[derive(Debug)]
struct Values(Vec<Lowered>);

impl RowLayer for Values {
    fn origin(&self, column: usize) -> Option<Origin<'_>> {
        self.0.get(column).map(Origin::Value)
    }

    fn load(&self, _cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        self.0.get(column).cloned().ok_or_else(|| missing(column))
    }

    fn range(&self, column: usize, _below: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
        self.0.get(column)?.range
    }

    fn moved(&self, moved: &Moved) -> Option<Rc<dyn RowLayer>> {
        Some(Rc::new(Values(self.0.iter().map(|value| value.moved(moved)).collect())))
    }
}

/// The layers of the current row, and what is known of them.
#[derive(Debug)]
pub(super) struct CurrentRow {
    pub layers: Vec<Rc<dyn RowLayer>>,
    /// The layer that `column` addresses.
    pub current: usize,
    /// Values computed so far: (layer, column, value), in nested scopes.
    pub scopes: Vec<Vec<(usize, usize, Lowered)>>,
    /// Bounds of columns that were asked for, by layer and position.
    pub ranges: RefCell<HashMap<(usize, usize), Option<Range>>>,
}

impl Default for CurrentRow {
    fn default() -> CurrentRow {
        CurrentRow::of(Vec::new())
    }
}

impl CurrentRow {
    /// A row of these layers, of which nothing was computed.
    pub(super) fn of(layers: Vec<Rc<dyn RowLayer>>) -> CurrentRow {
        let current = layers.len().saturating_sub(1);
        CurrentRow { layers, current, scopes: vec![Vec::new()], ranges: RefCell::default() }
    }

    /// The columns in registers or in memory, each once by layer and position, which `columns` are or are computed from.
    pub(super) fn stand_on(&self, columns: &BTreeSet<usize>) -> Result<Vec<(usize, usize)>, Unsupported> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for column in columns {
            self.add_columns((self.current, *column), &mut found, &mut seen)?;
        }
        Ok(found)
    }

    /// `seen`: those that were looked at.
    fn add_columns(
        &self,
        (layer, column): (usize, usize),
        found: &mut Vec<(usize, usize)>,
        seen: &mut HashSet<(usize, usize)>,
    ) -> Result<(), Unsupported> {
        if !seen.insert((layer, column)) {
            return Ok(());
        }
        let this = self.layers.get(layer).ok_or_else(|| missing(column))?;
        let below = || layer.checked_sub(1).ok_or_else(|| missing(column));
        match this.origin(column).ok_or_else(|| missing(column))? {
            Origin::Value(_) | Origin::Memory => found.push((layer, column)),
            Origin::Below(column) => self.add_columns((below()?, column), found, seen)?,
            Origin::Computed(expr) => {
                for column in columns_read(expr) {
                    self.add_columns((below()?, column), found, seen)?;
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn missing(column: usize) -> Unsupported {
    Unsupported(format!("column {column} is out of range"))
}

impl Context<'_> {
    /// Starts a row whose columns are given.
    pub fn begin_values(&mut self, values: Vec<Lowered>) {
        self.push_layer(Rc::new(Values(values)));
    }

    /// Puts a layer on the row, or starts one: columns are now those of the layer.
    pub(crate) fn push_layer(&mut self, layer: Rc<dyn RowLayer>) {
        self.row.layers.push(layer);
        self.row.current = self.row.layers.len() - 1;
    }

    /// Takes the last layer off again.
    pub fn pop_layer(&mut self) {
        self.row.layers.pop();
        self.row.ranges.borrow_mut().clear();
        // The next layer there has other columns.
        let layers = self.row.layers.len();
        self.row.scopes.iter_mut().for_each(|scope| scope.retain(|(layer, ..)| *layer < layers));
        self.row.current = self.row.layers.len().saturating_sub(1);
    }

    /// Forgets the row: the next one starts with the layer that is put first.
    pub fn end_row(&mut self) {
        self.row.layers.clear();
        self.row.ranges.borrow_mut().clear();
        for scope in &mut self.row.scopes {
            scope.clear();
        }
    }

    /// Column `index` of the current row.
    pub fn column(&mut self, index: usize) -> Result<Lowered, Unsupported> {
        self.layer_column(self.row.current, index)
    }

    pub(super) fn layer_column(&mut self, layer: usize, index: usize) -> Result<Lowered, Unsupported> {
        if let Some(known) = self.known(layer, index) {
            return Ok(known.clone());
        }
        let this = self.row.layers.get(layer).cloned().ok_or_else(|| missing(index))?;
        let below = || layer.checked_sub(1).ok_or_else(|| missing(index));
        let current = match this.origin(index).ok_or_else(|| missing(index))? {
            Origin::Value(value) => return Ok(value.clone()),
            Origin::Below(column) => return self.layer_column(below()?, column),
            Origin::Memory => layer,
            Origin::Computed(_) => below()?,
        };
        let before = std::mem::replace(&mut self.row.current, current);
        let value = this.load(self, index);
        self.row.current = before;
        let value = value?;
        if let Some(scope) = self.row.scopes.last_mut() {
            scope.push((layer, index, value.clone()));
        }
        Ok(value)
    }

    /// A column that was loaded or computed before, in a block that is still open.
    pub(super) fn known(&self, layer: usize, index: usize) -> Option<&Lowered> {
        let found = self.row.scopes.iter().flatten().find(|(l, c, _)| (*l, *c) == (layer, index));
        found.map(|(_, _, value)| value)
    }

    /// Bounds of column `index` of the current row, without evaluating it.
    pub fn column_range(&self, index: usize) -> Option<Range> {
        self.layer_range(self.row.current, index)
    }

    /// Remembered, as columns of many projections one above the other may be read on very many ways.
    fn layer_range(&self, layer: usize, index: usize) -> Option<Range> {
        if let Some(known) = self.row.ranges.borrow().get(&(layer, index)) {
            return *known;
        }
        let range = self.find_range(layer, index);
        self.row.ranges.borrow_mut().insert((layer, index), range);
        range
    }

    fn find_range(&self, layer: usize, index: usize) -> Option<Range> {
        let this = self.row.layers.get(layer)?;
        let below = |column| self.layer_range(layer.checked_sub(1)?, column);
        match this.origin(index)? {
            Origin::Value(value) => value.range,
            Origin::Below(column) => below(column),
            Origin::Memory | Origin::Computed(_) => this.range(index, &below),
        }
    }

    /// Whether an expression over the current row is a value that lies in memory as it is. Its range is then that of what was
    /// stored. The range of a value that this kernel computes holds only as far as every step of its lowering keeps to its
    /// own, so that what is indexed by it is guarded besides.
    pub(crate) fn is_stored(&self, expr: &Expr) -> bool {
        match expr.kind {
            ExprKind::Column(index) => self.memory_layer(self.row.current, index).is_some(),
            _ => false,
        }
    }

    /// The layer and position where a column lies in memory as it is.
    pub(super) fn memory_layer(&self, layer: usize, index: usize) -> Option<(usize, usize)> {
        match self.row.layers.get(layer)?.origin(index)? {
            Origin::Memory => Some((layer, index)),
            Origin::Below(column) => self.memory_layer(layer.checked_sub(1)?, column),
            Origin::Value(_) | Origin::Computed(_) => None,
        }
    }

    /// Column `index` of the current row as it lies in memory, where that is possible.
    pub(crate) fn stored_integers(&mut self, index: usize) -> Option<StoredIntegers> {
        let (layer, index) = self.memory_layer(self.row.current, index)?;
        let layer = Rc::clone(self.row.layers.get(layer)?);
        layer.load_stored(self, index)
    }

    /// Whether `test` holds for an expression over the current row, or for one that a column of it is yet to be computed by.
    /// `test` gets an expression and the bounds of the columns that it is over.
    pub(crate) fn any_computed(&self, expr: &Expr, test: &ExprTest<'_>) -> bool {
        self.layer_computes(self.row.current, expr, test, &mut HashSet::new())
    }

    /// `seen`: the columns by layer that were looked at, for which it does not hold.
    fn layer_computes(
        &self,
        layer: usize,
        expr: &Expr,
        test: &ExprTest<'_>,
        seen: &mut HashSet<(usize, usize)>,
    ) -> bool {
        let own = match expr.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) => false,
            _ => test(expr, &|column| self.layer_range(layer, column)),
        };
        own || columns_read(expr).into_iter().any(|column| self.column_computes(layer, column, test, seen))
    }

    fn column_computes(
        &self,
        layer: usize,
        index: usize,
        test: &ExprTest<'_>,
        seen: &mut HashSet<(usize, usize)>,
    ) -> bool {
        if !seen.insert((layer, index)) || self.known(layer, index).is_some() {
            return false;
        }
        let (Some(this), Some(below)) = (self.row.layers.get(layer), layer.checked_sub(1)) else {
            return false;
        };
        match this.origin(index) {
            Some(Origin::Computed(expr)) => self.layer_computes(below, expr, test, seen),
            Some(Origin::Below(column)) => self.column_computes(below, column, test, seen),
            Some(Origin::Value(_) | Origin::Memory) | None => false,
        }
    }
}

/// A question about an expression, given the bounds of the columns that it is over.
pub(crate) type ExprTest<'t> = dyn Fn(&Expr, &dyn Fn(usize) -> Option<Range>) -> bool + 't;
