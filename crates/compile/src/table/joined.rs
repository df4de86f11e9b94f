//! Rows put together of several places, as a layer of the current row: columns are loaded when they are first asked for.

use std::fmt;
use std::rc::Rc;

use kelpie_kir::builder::V;

use super::stored::StoredColumn;
use crate::context::{Context, Lowered, Moved, Origin, RowLayer, Unsupported};
use crate::types::Range;

/// Where a column of a joined row comes from.
#[derive(Debug, Clone)]
pub(crate) enum Joined {
    /// A column of the layer below.
    Below(usize),
    Stored {
        column: Box<StoredColumn>,
        /// Its place, `i64`; always readable.
        place: V,
        /// `bool`: there is such a row; else the value is NULL.
        present: Option<V>,
    },
    Value(Lowered),
    /// A value that is made when it is first asked for.
    Made(Rc<dyn Made>),
}

/// A value that costs so much that it is made only where it is wanted.
pub(crate) trait Made: fmt::Debug {
    fn make(&self, cx: &mut Context<'_>) -> Result<Lowered, Unsupported>;

    /// The registers that it stands on.
    fn registers(&self) -> Vec<V>;

    /// The same on other registers.
    fn moved(&self, moved: &Moved) -> Rc<dyn Made>;
}

impl Joined {
    pub fn stored(column: &StoredColumn, place: V, present: Option<V>) -> Joined {
        Joined::Stored { column: Box::new(column.clone()), place, present }
    }

    fn moved(&self, moved: &Moved) -> Joined {
        match self {
            Joined::Below(below) => Joined::Below(*below),
            Joined::Stored { column, place, present } => Joined::Stored {
                column: column.clone(),
                place: moved.of(*place),
                present: present.map(|present| moved.of(present)),
            },
            Joined::Value(value) => Joined::Value(value.moved(moved)),
            Joined::Made(made) => Joined::Made(made.moved(moved)),
        }
    }
}

#[derive(Debug)]
struct JoinedRow(Vec<Joined>);

impl RowLayer for JoinedRow {
    fn origin(&self, column: usize) -> Option<Origin<'_>> {
        Some(match self.0.get(column)? {
            Joined::Below(below) => Origin::Below(*below),
            Joined::Stored { .. } | Joined::Made(_) => Origin::Memory,
            Joined::Value(value) => Origin::Value(value),
        })
    }

    fn load(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        match self.0.get(column) {
            Some(Joined::Stored { column, place, present }) => Ok(column.load(cx, *place, *present)),
            Some(Joined::Made(made)) => made.make(cx),
            _ => Err(Unsupported::internal(format!("column {column} of a join is not stored"))),
        }
    }

    fn range(&self, column: usize, _below: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
        match self.0.get(column)? {
            Joined::Stored { column, .. } => {
                column.info().range.or_else(|| column.info().data_type.full_range())
            }
            Joined::Below(_) | Joined::Value(_) | Joined::Made(_) => None,
        }
    }

    fn registers(&self, column: usize) -> Vec<V> {
        match self.0.get(column) {
            Some(Joined::Stored { place, present, .. }) => [*place].into_iter().chain(*present).collect(),
            Some(Joined::Made(made)) => made.registers(),
            _ => Vec::new(),
        }
    }

    fn moved(&self, moved: &Moved) -> Option<Rc<dyn RowLayer>> {
        Some(Rc::new(JoinedRow(self.0.iter().map(|column| column.moved(moved)).collect())))
    }

    fn has_codes(&self, column: usize) -> bool {
        matches!(self.0.get(column), Some(Joined::Stored { column, .. }) if column.info().dictionary.is_some())
    }
}

impl Context<'_> {
    /// Puts a join on the row, or starts one of stored columns and values: columns are now those of `columns`.
    pub(crate) fn push_joined(&mut self, columns: Vec<Joined>) {
        self.push_layer(Rc::new(JoinedRow(columns)));
    }
}
