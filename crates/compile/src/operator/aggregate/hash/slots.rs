//! Where the keys and cells of a hash table of groups lie.

use super::WordKeys;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::operator::aggregate::input::Claims;
use crate::operator::aggregate::{Input, declare};
use crate::table::packed::PackedKey;
use crate::table::stored::{RecordLayout, StoredColumn};
use crate::variant::axes::SlotLayout;

/// Records of a table in a state of their own, one a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Apart {
    pub state: usize,
    /// Words of a record.
    pub stride: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Keys {
    Packed(Vec<PackedKey>),
    Stored(Vec<StoredColumn>),
    Words(WordKeys),
}

impl Keys {
    /// The same where stored keys are in records of so many words in a state.
    fn in_records(self, (state, words): (usize, u32)) -> Keys {
        match self {
            Keys::Stored(stored) => {
                Keys::Stored(stored.into_iter().map(|key| key.in_records(state, words)).collect())
            }
            keys => keys,
        }
    }
}

/// Where a table's keys and cells are.
pub(super) struct Slots {
    /// State of the slots, the words of one, and those before the key's own.
    pub state: usize,
    pub stride: u32,
    pub head: u32,
    /// What a slot has where its entry is not.
    pub apart: Option<Apart>,
    pub keys: Keys,
}

impl Slots {
    /// Declares the states, which are of one class, where keys are packed, or else claimed in some way.
    pub(super) fn plan(
        columns: &[ColumnInfo],
        (packed, claims): (Option<Vec<PackedKey>>, Option<Claims>),
        words: u32,
        input: &Input<'_>,
        (class, states): (usize, &mut declare::States),
    ) -> Result<Slots, Unsupported> {
        let mut layout = RecordLayout::behind(1);
        let mut beside = false;
        let keys = match (packed, claims) {
            (Some(packed), _) => Keys::Packed(packed),
            (None, Some(Claims::Words(words))) => Keys::Words(words),
            (None, _) => {
                beside = input.slot_layout()? == SlotLayout::Beside;
                let stored = columns.iter().map(|column| match beside {
                    true => StoredColumn::plan_record(column, true, &mut layout),
                    false => StoredColumn::plan_key(column, class, states),
                });
                Keys::Stored(stored.collect::<Result<_, _>>()?)
            }
        };
        let apart = match &keys {
            Keys::Packed(_) if words > 0 && input.packed_layout()? == SlotLayout::Apart => Some(words),
            Keys::Packed(_) | Keys::Stored(_) | Keys::Words(_) => None,
        };
        let (head, stride) = match &keys {
            _ if apart.is_some() => (1, 1),
            Keys::Words(own) => (own.words, own.words + words),
            Keys::Packed(_) | Keys::Stored(_) => (layout.words(), layout.stride(words)),
        };
        let state = states.state("groups", 8 * stride, class);
        let apart =
            apart.map(|stride| Apart { state: states.state("group_cells", 8 * stride, class), stride });
        let keys = if beside { keys.in_records((state, stride)) } else { keys };
        Ok(Slots { state, stride, head, apart, keys })
    }
}
