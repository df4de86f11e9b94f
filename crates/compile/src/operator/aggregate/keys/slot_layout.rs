//! Where the keys and cells of a hash table of groups lie.

use super::input::Input;
use super::word_keys::WordKeys;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::program::States;
use crate::table::packed::PackedKey;
use crate::table::stored::{RecordLayout, StoredColumn};
use crate::variant::axes::SlotLayout;

/// How slots have their keys.
#[derive(Debug, Clone)]
pub(crate) enum Keys {
    Packed(Vec<PackedKey>),
    Stored(Vec<StoredColumn>),
    Words(WordKeys),
}

impl Keys {
    /// The same where stored keys are in records of so many words in a state.
    fn in_records(self, state: usize, words: u32) -> Keys {
        match self {
            Keys::Stored(stored) => {
                Keys::Stored(stored.into_iter().map(|key| key.in_records(state, words)).collect())
            }
            keys => keys,
        }
    }
}

/// Where the states of slots are declared, and their class.
pub(super) struct SlotStates<'s> {
    pub class: usize,
    pub states: &'s mut States,
}

/// Where a table's keys and cells are: a slot has an entry (a word, 0 where the slot is free) and the cells behind it, so that a row that finds
/// its key has them in the same cache line. Keys that are stored are in arrays of their own, or between the two.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    /// State of the slots, the words of one, and those before the key's own.
    pub state: usize,
    pub stride: u32,
    pub head: u32,
    pub keys: Keys,
}

impl Slots {
    /// Declares the states, which are of one class, where keys are `packed` or not.
    pub(crate) fn plan(
        columns: &[ColumnInfo],
        packed: Option<Vec<PackedKey>>,
        words: u32,
        input: &Input<'_>,
        SlotStates { class, states }: SlotStates<'_>,
    ) -> Result<Slots, Unsupported> {
        let mut layout = RecordLayout::behind(1);
        let mut beside = false;
        let claimed = if packed.is_some() { None } else { input.claimed_words(columns)? };
        let keys = match (packed, claimed) {
            (Some(packed), _) => Keys::Packed(packed),
            (None, Some(words)) => Keys::Words(words),
            (None, None) => {
                beside = input.slot_layout()? == SlotLayout::Beside;
                let stored = columns.iter().map(|column| match beside {
                    true => StoredColumn::plan_record(column, true, &mut layout),
                    false => StoredColumn::plan_key(column, class, states),
                });
                Keys::Stored(stored.collect::<Result<_, _>>()?)
            }
        };
        let (head, stride) = match &keys {
            Keys::Words(own) => (own.words, own.words + words),
            Keys::Packed(_) | Keys::Stored(_) => (layout.words(), layout.stride(words)),
        };
        let state = states.state("groups", 8 * stride, class);
        let keys = if beside { keys.in_records(state, stride) } else { keys };
        Ok(Slots { state, stride, head, keys })
    }
}
