//! A bit a key of a dense range: all that semi and anti joins ask of a build side.

use std::sync::Arc;

use kelpie_kir::Scalar;
use kelpie_kir::builder::{V, Var};

use crate::context::{Context, Unsupported};
use crate::operator::join::JoinOperator;
use crate::operator::join::method::{AccessPath, DenseKey, Keys, stored_and_indexed};
use crate::operator::join::place_rows::PlaceBuildSide;
use crate::operator::roles::Sink;
use crate::program::States;
use crate::table::bitmap::Bitmap;
use crate::table::key_range::KeyRange;

/// The bits, which the rows set once they are stored, or as they come.
#[derive(Debug)]
pub(super) struct Existence {
    range: KeyRange,
    taken: Bitmap,
    is_stored: bool,
}

impl Existence {
    pub fn plan(range: KeyRange, is_stored: bool, states: &mut States) -> Existence {
        Existence { range, taken: Bitmap::plan(range.slots(), states), is_stored }
    }
}

impl AccessPath for Existence {
    fn name(&self, rows: &str) -> String {
        format!("direct{rows}")
    }

    fn passes(&self, join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        match self.is_stored {
            true => stored_and_indexed(join),
            false => vec![Arc::new(PlaceBuildSide::of(join, self.range, self.taken))],
        }
    }

    fn dense(&self) -> Option<DenseKey> {
        Some(DenseKey { range: self.range, taken: Some(self.taken) })
    }

    fn insert(&self, cx: &mut Context<'_>, keys: Keys<'_>, _place: V) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        self.taken.take(cx, slot);
        Ok(())
    }

    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        let taken = self.taken.is_taken(cx, slot);
        let taken = cx.builder.convert(taken, Scalar::U32);
        cx.builder.assign(cursor, taken);
        Ok(())
    }

    fn bytes_searched(&self, _rows: u64, _key_bytes: u64) -> u64 {
        self.range.slots() / 8
    }
}
