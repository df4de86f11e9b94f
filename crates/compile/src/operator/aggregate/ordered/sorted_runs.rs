//! Groups that come sorted: the group of a row is a place that was found before, as the number of its run among sorted keys
//! (`primitives/runs`), and nothing is looked up. What a place's keys are, the engine notes beside it, as the word by which they were
//! sorted. This is what strides of rows are reduced to, and what several of these are merged into
//! (Karnagel et al. 2015, section 5.2; `pipeline/cut/strides`).

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Scope, Type};

use crate::context::{Argument, Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::Flow;
use crate::operator::aggregate::functions::{Cells, group_pointer, why_not_rollup};
use crate::operator::aggregate::keys::{KeyWord, RowKeys};
use crate::operator::aggregate::tables::{AtGroup, GroupEmitter, GroupTable, Located};
use crate::plan::Aggregate;
use crate::program::{Growth, PlacedGroups, States};
use crate::table::packed::{PackedKey, pack};

/// Groups at places that were found before.
#[derive(Debug)]
pub(crate) struct RunTable {
    keys: Vec<PackedKey>,
    pub places: PlacedGroups,
    row_bound: u64,
}

impl RunTable {
    /// Declares the states of groups whose keys fit one word. `initial`: for how many there is room at first.
    pub fn plan(
        key_columns: &[ColumnInfo],
        cells: &Cells,
        (row_bound, initial): (u64, u64),
        states: &mut States,
    ) -> Result<RunTable, Unsupported> {
        let keys = pack(key_columns).ok_or_else(|| Unsupported(WIDE_KEYS.into()))?;
        let count = states.counter("group_count");
        let class = states.class(initial.min(row_bound).max(1), Growth::Counted(count));
        // A group of keys alone has no cells, but its state has an element.
        let bytes = 8 * cells.words().max(1);
        let (words, cells) = (states.state("key_words", 8, class), states.state("groups", bytes, class));
        Ok(RunTable { keys, places: PlacedGroups { count, class, words, cells }, row_bound })
    }
}

/// What keys lack that no word has.
const WIDE_KEYS: &str = "the keys do not fit a word, by which strides of rows are sorted and merged";

displayed!(RunTable = "sorted runs");

impl GroupTable for RunTable {
    fn class(&self) -> usize {
        self.places.class
    }

    /// The engine clears the places that it gives out.
    fn zeroed(&self) -> Vec<usize> {
        Vec::new()
    }

    fn count(&self) -> Option<usize> {
        Some(self.places.count)
    }

    fn row_bound(&self) -> u64 {
        self.row_bound
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        cells: &'s Cells,
        _thread_rows: u64,
    ) -> Box<dyn GroupEmitter + 's> {
        Box::new(RunEmitter { table: self, cells })
    }

    fn present(&self, cx: &mut Context<'_>, _cells: &Cells, slot: V) -> Option<V> {
        let count = cx.argument("group_count", Type::global(Scalar::U64), Argument::State(self.places.count));
        let count = cx.builder.load(count);
        let count = cx.builder.bitcast(count, Scalar::I64);
        Some(cx.builder.lt(slot, count))
    }

    fn words(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> V {
        group_pointer(cx, self.places.cells, cells.words(), slot)
    }

    fn keys(&self, cx: &mut Context<'_>, columns: &[ColumnInfo], slot: V) -> Vec<Lowered> {
        let words = cx.argument("key_words", Type::global(Scalar::U64), Argument::State(self.places.words));
        let word = cx.builder.element(words, slot);
        self.keys.iter().zip(columns).map(|(key, column)| key.decode(cx, word, column)).collect()
    }
}

struct RunEmitter<'s> {
    table: &'s RunTable,
    cells: &'s Cells,
}

impl GroupEmitter for RunEmitter<'_> {
    /// The only key is the place.
    fn locate(
        &self,
        cx: &mut Context<'_>,
        keys: &RowKeys,
        _word: Option<KeyWord>,
        flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let place = keys.telling.first().ok_or_else(|| Unsupported::internal("a row without a place"))?;
        let Repr::Scalar(place) = lower(cx, place)?.repr else {
            return Err(Unsupported::internal("a place that is no number"));
        };
        let place = cx.builder.convert(place, Scalar::I64);
        next(cx, Located { slot: Some(place), active: flow.active(), keys: None })
    }

    /// Several threads may have rows of one group: a run goes on from warp to warp.
    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return cx.impossible("a row without a place") };
        let base = self.table.words(cx, self.cells, slot);
        self.cells.update(cx, base, values, Scope::Device);
    }

    fn current(&self, cx: &mut Context<'_>, slot: Option<V>, index: usize) -> Option<V> {
        let base = self.table.words(cx, self.cells, slot?);
        self.cells.current(cx, base, index)
    }
}

/// Why an aggregation cannot be reduced stride by stride, if it cannot.
pub(crate) fn why_not_strided(
    key_columns: &[ColumnInfo],
    aggregates: &[Aggregate],
    columns: &[ColumnInfo],
    row_bound: u64,
) -> Option<String> {
    if pack(key_columns).is_none() {
        return Some(WIDE_KEYS.into());
    }
    if let Some(why_not) = why_not_rollup(aggregates) {
        return Some(why_not);
    }
    match Cells::plan(aggregates, columns, row_bound, true) {
        Err(why_not) => Some(why_not.to_string()),
        // A text is kept by where it lies, and a stride's rows give way to the next one's.
        Ok(cells) if !cells.are_plain() => Some("texts are not kept from stride to stride".into()),
        Ok(_) => None,
    }
}
