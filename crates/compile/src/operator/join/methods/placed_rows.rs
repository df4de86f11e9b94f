//! Rows at the slots of their keys: a direct-addressed index whose store is addressed by the keys too (dense writes).
//!
//! Where keys are unique and dense, the slot of a key is all that a search has to know: the columns of the row are at that place of the
//! store, and no row's number is looked up before. What is left is a bit that says whether there is such a row; and where as many rows are
//! known to come as there are slots, no two with one key, every slot has one, and not even that is looked at.

use std::borrow::Cow;
use std::sync::Arc;

use kelpie_kir::builder::Var;

use super::existence::Existence;
use crate::MicroModel;
use crate::context::{Context, Unsupported, register_type};
use crate::layout::ColumnInfo;
use crate::operator::join::JoinOperator;
use crate::operator::join::facts::JoinFacts;
use crate::operator::join::key_codes::KeyEncoding;
use crate::operator::join::method::{AccessPath, BuildSide, DenseKey, JoinMethod, Keys, NUMBER_BYTES};
use crate::operator::join::place_rows::PlaceBuildSide;
use crate::operator::roles::Sink;
use crate::program::States;
use crate::table::bitmap::Bitmap;
use crate::table::key_range::KeyRange;
use crate::table::key_rows::KeyRows;
use crate::table::probing::number_of;
use crate::table::rows::RowStore;
use crate::types::DataType;
use crate::variant::axes::JoinForm;

/// Slots a row, at most, where several columns are read of a row: with more of them a row's columns, each in a line of a cache that
/// it shares with no other row, are dearer than the look-up of its number.
const SLOTS_PER_ROW: u64 = 2;
/// Bytes of a text: its address and its length.
const TEXT_BYTES: u64 = 12;

/// The method, by how keys are found.
pub(in crate::operator::join) struct Placed {
    pub form: Option<JoinForm>,
}

#[derive(Debug)]
struct PlacedRows {
    range: KeyRange,
    taken: Bitmap,
    /// Every slot has a row: the bitmap is not looked at.
    is_full: bool,
}

impl JoinMethod for Placed {
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String> {
        let slots = match (self.form, &facts.slots) {
            (Some(JoinForm::Rank), _) => return Some("rows are found by ranks".into()),
            (Some(JoinForm::Direct), Ok(range)) => range.slots(),
            _ => return Some("keys are no slots".into()),
        };
        let row_bytes: u64 = payload(facts).iter().map(bytes_of).sum();
        let bytes = slots.saturating_mul(row_bytes.max(NUMBER_BYTES));
        match () {
            () if !facts.is_unique() && !facts.first_only => Some("several rows may have a key".into()),
            () if !facts.first_only && !facts.has_room(bytes) => Some(format!("memory for {bytes} bytes")),
            () => facts.why_not_placed().map(Into::into),
        }
    }

    fn why(&self, facts: &JoinFacts<'_>) -> Option<Cow<'static, str>> {
        let slots = facts.slots.as_ref().ok()?.slots();
        let is_dense = |rows: u64| slots <= rows.saturating_mul(SLOTS_PER_ROW);
        match () {
            () if facts.input.choices.micro_model != MicroModel::Resolution => None,
            () if facts.first_only => Some("only whether there is a row is asked".into()),
            () if payload(facts).len() <= 1 => Some("a row's column is where its number would be".into()),
            () if facts.input.build.rows.expected.is_some_and(is_dense) => {
                Some("most slots have a row".into())
            }
            () => None,
        }
    }

    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported> {
        let range = facts.slots.clone().map_err(Unsupported)?;
        let store = RowStore::placed(&facts.stored, range.slots(), states)?;
        let path: Box<dyn AccessPath> = match facts.first_only {
            true => Box::new(Existence::plan(range, false, states)),
            false => {
                let taken = Bitmap::plan(range.slots(), states);
                Box::new(PlacedRows { range, taken, is_full: is_full(facts, range) })
            }
        };
        Ok(BuildSide { store, path, rows: KeyRows::One })
    }
}

/// What the store has of a row beside its keys.
fn payload<'f>(facts: &'f JoinFacts<'_>) -> &'f [ColumnInfo] {
    facts.stored.get(facts.keys.len()..).unwrap_or_default()
}

/// Whether each slot will have a row: as many come as there are slots, and each row has one.
fn is_full(facts: &JoinFacts<'_>, range: KeyRange) -> bool {
    let rows = &facts.input.build.rows;
    let has_slot = |encoding: &KeyEncoding| !matches!(encoding, KeyEncoding::LookedUp(_));
    let nullable = facts.stored.iter().take(facts.keys.len()).any(|key| key.nullable);
    facts.encodings.iter().all(has_slot) && rows.is_exact && rows.bound == range.slots() && !nullable
}

/// Bytes of a stored column, at most, a place.
fn bytes_of(column: &ColumnInfo) -> u64 {
    let value = match column.data_type {
        DataType::Null => 0,
        DataType::Utf8 if column.dictionary.is_some() => 4,
        DataType::Utf8 => TEXT_BYTES,
        _ => register_type(&column.data_type, column.range).bytes().into(),
    };
    value + u64::from(column.nullable)
}

impl AccessPath for PlacedRows {
    fn name(&self, _rows: &str) -> String {
        let all = if self.is_full { ", all" } else { "" };
        format!("rows at their keys{all}")
    }

    fn passes(&self, join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        vec![Arc::new(PlaceBuildSide::of(join, self.range, self.taken))]
    }

    fn dense(&self) -> Option<DenseKey> {
        Some(DenseKey { range: self.range, taken: Some(self.taken) })
    }

    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        let number = match self.is_full {
            true => number_of(cx, slot),
            false => {
                let taken = self.taken.is_taken(cx, slot);
                let (number, none) = (number_of(cx, slot), cx.builder.u32(0));
                cx.builder.select(taken, number, none)
            }
        };
        cx.builder.assign(cursor, number);
        Ok(())
    }
}
