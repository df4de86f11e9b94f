//! Sort and top-k: a pipeline breaker. The rows are stored densely beside their keys, written as words whose order is the
//! keys' ([`words`]); the engine orders the rows' places by the words, on the device where there are many
//! ([`primitives::radix`](crate::primitives::radix)), or few and nobody waits for their number
//! ([`primitives::block_sort`](crate::primitives::block_sort)); then a pipeline of its own delivers the rows in that order.
//!
//! An aggregation that sorts its input (C1) takes the same way, by a word of its keys (`groups`), all of it or stride by stride
//! (`strides`); one that needs the rows of a
//! group in order, by its keys and what they are ordered by (`numbered`). Where it needs the first or the last of them alone, rows
//! are stored with their words and nobody sorts them (`placed`).
//!
//! Where only the first rows are asked for, a CPU's worker leaves out those that it knows not to be among them ([`top`],
//! `beginning`; `bound`).

mod batch_bound;
mod beginning;
mod bound;
mod decode;
mod deliver;
mod form;
mod groups;
mod numbered;
mod placed;
mod store;
mod strides;
pub mod top;
pub mod words;

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Scalar, Scope, Type};

pub(crate) use self::batch_bound::BatchBound;
pub(crate) use self::deliver::SortedRows;
use self::groups::GroupWord;
pub(crate) use self::numbered::NumberedRows;
pub(crate) use self::placed::{PlacedRows, PlacedWord};
pub(crate) use self::store::SortRows;
pub(crate) use self::strides::{PlacedStride, StrideRows};
use self::words::{WordKey, WordText, Words};
use crate::context::{Argument, Context, Unsupported};
use crate::expr::ExprKind;
use crate::layout::ColumnInfo;
use crate::plan::SortKey;
use crate::program::States;
use crate::program::{Growth, SortForm, SortedText, Sorting};
use crate::shape::LaunchShape;
use crate::table::chunks::{Chunk, PlaceChunks};
use crate::table::joined::Joined;
use crate::table::places::Dense;
use crate::table::report_growth;
use crate::table::stored::StoredColumn;

/// Rows that are stored at the first launch, at most.
const INITIAL_ROWS: u64 = 4 << 20;

/// What rows are sorted by.
#[derive(Debug, Clone)]
enum SortedBy {
    /// Keys.
    Words(Words),
    /// Whatever brings equal keys together.
    Groups(GroupWord),
}

impl SortedBy {
    fn count(&self) -> usize {
        match self {
            SortedBy::Words(words) => words.count(),
            SortedBy::Groups(_) => 1,
        }
    }

    fn is_exact(&self) -> bool {
        match self {
            SortedBy::Words(words) => words.is_exact(),
            SortedBy::Groups(_) => true,
        }
    }

    /// The words of keys.
    fn as_words(&self) -> Option<&Words> {
        match self {
            SortedBy::Words(words) => Some(words),
            SortedBy::Groups(_) => None,
        }
    }

    /// The first key, where it is a text that is no code.
    fn leading_text(&self) -> Option<&WordKey> {
        match self {
            SortedBy::Words(words) => words.leading_text(),
            SortedBy::Groups(_) => None,
        }
    }

    /// The columns that the words are made of.
    fn columns(&self) -> Vec<usize> {
        match self {
            SortedBy::Words(words) => words.columns().collect(),
            SortedBy::Groups(word) => (0..word.keys()).collect(),
        }
    }

    /// What rows are bounded by, where that is not the first word.
    fn leading_bits(&self, cx: &mut Context<'_>) -> Result<Option<V>, Unsupported> {
        match self {
            SortedBy::Words(words) => words.leading_bits(cx),
            SortedBy::Groups(_) => Ok(None),
        }
    }

    fn word(&self, cx: &mut Context<'_>, index: usize) -> Result<V, Unsupported> {
        match self {
            SortedBy::Words(words) => words.word(cx, index),
            SortedBy::Groups(word) => word.word(cx),
        }
    }
}

/// How much a sort is to store, and who does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SortSize<'s> {
    /// Rows, at most.
    pub rows: u64,
    /// Pipelines that store rows.
    pub branches: usize,
    /// The launches' shape; `None`: rows come stride by stride, and a stride has its places one by one.
    pub shape: Option<&'s LaunchShape>,
}

/// A sort.
#[derive(Debug, Clone)]
pub struct SortOperator {
    columns: Vec<StoredColumn>,
    words: SortedBy,
    /// One state of one `u64` a row for each word.
    word_states: Vec<usize>,
    /// State that counts the stored rows, one `u64`.
    count: usize,
    class: usize,
    /// State of one `u32` a row: the places in order.
    order: usize,
    /// State of one `u64`: how many rows are delivered.
    delivered: usize,
    fetch: Option<u64>,
    /// One pipeline stores all rows.
    single: bool,
    /// Where workers may take many places at a time.
    chunks: Option<PlaceChunks>,
    /// State of one `u64` a row: the words in order, where columns are read from these.
    sorted_word: Option<usize>,
    form: SortForm,
    /// A worker keeps a heap of the smallest words.
    has_heap: bool,
    /// By which batches of rows are passed over before anything else is done with them.
    bounds_batches: bool,
}

impl SortOperator {
    /// Declares the states. `fetch`: at most this many rows are delivered.
    pub(crate) fn plan(
        keys: &[SortKey],
        fetch: Option<usize>,
        columns: &[ColumnInfo],
        size: SortSize<'_>,
        states: &mut States,
    ) -> Result<SortOperator, Unsupported> {
        let key = |key: &SortKey| match key.expr.kind {
            ExprKind::Column(column) => {
                let &SortKey { descending, nulls_first, .. } = key;
                Ok(WordKey { column, descending, nulls_first, is_group: false })
            }
            _ => Err(Unsupported("a sort key that is not a column".into())),
        };
        let keys = keys.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let order = SortedBy::Words(Words::plan(&keys, columns)?);
        SortOperator::declare(order, fetch, columns, size, states)
    }

    /// Declares the states of a sort that brings rows together whose first `keys` columns are equal.
    pub(crate) fn plan_groups(
        keys: usize,
        columns: &[ColumnInfo],
        size: SortSize<'_>,
        states: &mut States,
    ) -> Result<SortOperator, Unsupported> {
        let order = SortedBy::Groups(GroupWord::plan(&columns[..keys.min(columns.len())]));
        SortOperator::declare(order, None, columns, size, states)
    }

    /// As [`Self::plan_groups`], of rows that are sorted stride by stride. A row's place in a stride is no place in its table, so
    /// that as many branches as it likes may store rows.
    pub(crate) fn plan_stride(
        keys: usize,
        columns: &[ColumnInfo],
        rows: u64,
        states: &mut States,
    ) -> Result<SortOperator, Unsupported> {
        let size = SortSize { rows, branches: 1, shape: None };
        let sort = SortOperator::plan_groups(keys, columns, size, states)?;
        Ok(SortOperator { single: false, ..sort })
    }

    /// The state that counts the stored rows, that of their only word, and that of their order.
    pub(crate) fn stride_states(&self) -> Result<(usize, usize, usize), Unsupported> {
        match *self.word_states {
            [word] => Ok((self.count, word, self.order)),
            _ => Err(Unsupported::internal("a stride that is not sorted by one word")),
        }
    }

    /// Declares a state of one `u32` a row.
    pub(crate) fn numbers(&self, name: &str, states: &mut States) -> usize {
        states.state(name, 4, self.class)
    }

    /// The states of the words in order, one `u64` a row each: that of the only word, where the sort leaves it, or new ones for whoever
    /// notes the words in order.
    pub(crate) fn words_in_order(&self, states: &mut States) -> Vec<usize> {
        match self.only_word_in_order() {
            Some(word) => vec![word],
            None => self.word_states.iter().map(|_| states.state("ordered_words", 8, self.class)).collect(),
        }
    }

    /// Whether a state has the only word in order, once rows are sorted.
    pub(crate) fn has_ordered(&self, state: usize) -> bool {
        self.only_word_in_order() == Some(state)
    }

    /// The state that has the only word in order, if there is one.
    fn only_word_in_order(&self) -> Option<usize> {
        self.sorted_word.filter(|_| self.word_states.len() == 1)
    }

    /// The states by which [`SortOperator::word_at`] finds words.
    pub(crate) fn ordered_words(&self) -> Vec<usize> {
        match self.only_word_in_order() {
            Some(word) => vec![word],
            None => self.word_states.clone(),
        }
    }

    /// How many words there are.
    pub(crate) fn word_count(&self) -> usize {
        self.word_states.len()
    }

    /// A word (`u64`) of the row with a number (`i64`) in the order.
    pub(crate) fn word_at(&self, cx: &mut Context<'_>, word: usize, number: V) -> V {
        let element = |cx: &mut Context<'_>, name: &str, state: usize, index: V| {
            let words = cx.argument(name, Type::global(Scalar::U64), Argument::State(state));
            cx.builder.element(words, index)
        };
        if let Some(state) = self.only_word_in_order() {
            return element(cx, "sorted_word", state, number);
        }
        let order = cx.argument("order", Type::global(Scalar::U32), Argument::State(self.order));
        let place = cx.builder.element(order, number);
        let place = cx.builder.convert(place, Scalar::I64);
        element(cx, "sort_word", self.word_states[word], place)
    }

    /// Declares the states of a sort by words in which groups may come first. `from_word`: whoever reads rows in order gets what
    /// columns it can from the words.
    pub(crate) fn plan_ranked(
        words: Words,
        from_word: bool,
        columns: &[ColumnInfo],
        size: SortSize<'_>,
        states: &mut States,
    ) -> Result<SortOperator, Unsupported> {
        let sort = SortOperator::declare(SortedBy::Words(words), None, columns, size, states)?;
        let sorted_word = from_word.then(|| states.state("sorted_word", 8, sort.class));
        Ok(SortOperator { sorted_word, ..sort })
    }

    fn declare(
        words: SortedBy,
        fetch: Option<usize>,
        columns: &[ColumnInfo],
        SortSize { rows, branches, shape }: SortSize<'_>,
        states: &mut States,
    ) -> Result<SortOperator, Unsupported> {
        let count = states.counter("sorted_rows");
        let slack = shape.map_or(0, |shape| PlaceChunks::slack(rows, shape));
        let class = states.class(rows.clamp(1, INITIAL_ROWS) + slack, Growth::Counted(count));
        let chunks = shape.and_then(|shape| PlaceChunks::plan((rows, shape), (count, class), states));
        let columns = columns.iter().map(|info| StoredColumn::plan(info, class, states));
        Ok(SortOperator {
            columns: columns.collect::<Result<Vec<_>, _>>()?,
            word_states: (0..words.count()).map(|_| states.state("sort_word", 8, class)).collect(),
            words,
            count,
            class,
            order: states.state("order", 4, class),
            delivered: states.counter("delivered_rows"),
            fetch: fetch.map(|rows| rows as u64),
            single: branches == 1,
            chunks,
            sorted_word: None,
            form: SortForm::PLAIN,
            has_heap: false,
            bounds_batches: false,
        })
    }

    /// Sorted in a form.
    pub(crate) fn with_form(self, form: SortForm) -> SortOperator {
        SortOperator { form, ..self }
    }

    /// What is known of the columns.
    pub fn infos(&self) -> Vec<ColumnInfo> {
        self.columns.iter().map(|column| column.info().clone()).collect()
    }

    /// What the engine does before the rows are delivered. `class`: of the delivered rows where they are stored again.
    pub fn sorting(&self, class: Option<usize>) -> Sorting {
        Sorting {
            rows: self.count,
            words: self.word_states.clone(),
            is_exact: self.words.is_exact(),
            texts: self.texts(),
            order: self.order,
            sorted_word: self.sorted_word,
            delivered: self.delivered,
            class,
            fetch: self.fetch,
            form: self.form,
        }
    }

    /// The texts among the keys.
    fn texts(&self) -> Vec<SortedText> {
        let SortedBy::Words(words) = &self.words else { return Vec::new() };
        let text = |text: &WordText| {
            let stored = self.columns.get(text.key.column).and_then(StoredColumn::text_states);
            SortedText { word: text.word, descending: text.key.descending, stored }
        };
        words.texts().iter().map(text).collect()
    }

    /// Columns of the row with a number (`i64`) in the order, which is always readable; where `present` (if given) is false there is no
    /// such row, and they are NULL.
    pub(crate) fn columns_at(
        &self,
        cx: &mut Context<'_>,
        columns: impl Iterator<Item = usize>,
        number: V,
        present: Option<V>,
    ) -> Vec<Joined> {
        let order = cx.argument("order", Type::global(Scalar::U32), Argument::State(self.order));
        let place = cx.builder.element(order, number);
        let mut place = cx.builder.convert(place, Scalar::I64);
        if let Some(present) = present {
            // What stands there may be no place.
            let first = cx.builder.i64(0);
            place = cx.builder.select(present, place, first);
        }
        let word = self.sorted_word.map(|state| {
            let words = cx.argument("sorted_word", Type::global(Scalar::U64), Argument::State(state));
            cx.builder.element(words, number)
        });
        let stored = columns.filter_map(|index| Some((index, self.columns.get(index)?)));
        let joined = stored.map(|(index, column)| match (&self.words, word) {
            (SortedBy::Words(words), Some(word)) => {
                if let Some(decoded) = words.decoded(cx, (index, column.info()), word, present) {
                    return Joined::Value(decoded);
                }
                match words.valid(cx, index, word) {
                    Some(valid) => {
                        let valid = present.map_or(valid, |present| cx.builder.and(valid, present));
                        Joined::stored(&column.clone().without_validity(), place, Some(valid))
                    }
                    None => Joined::stored(column, place, present),
                }
            }
            _ => Joined::stored(column, place, present),
        });
        joined.collect()
    }

    /// Columns of the row that is stored at a place (`i64`), which is always readable; where `present` (if given) is false there is no
    /// such row, and they are NULL.
    pub(crate) fn stored_at(
        &self,
        columns: impl Iterator<Item = usize>,
        place: V,
        present: Option<V>,
    ) -> Vec<Joined> {
        let stored = columns.filter_map(|index| self.columns.get(index));
        stored.map(|column| Joined::stored(column, place, present)).collect()
    }

    /// Adds the states that [`SortOperator::columns_at`] reads of columns.
    pub(crate) fn read_columns(&self, columns: impl Iterator<Item = usize>, states: &mut BTreeSet<usize>) {
        let is_decoded = |column: usize| match &self.words {
            SortedBy::Words(words) => self.sorted_word.is_some() && words.decodes(column),
            SortedBy::Groups(_) => false,
        };
        let stored =
            columns.filter(|column| !is_decoded(*column)).filter_map(|column| self.columns.get(column));
        states.extend(stored.flat_map(StoredColumn::states));
        let texts = self.texts().into_iter().filter_map(|text| text.stored);
        states.extend(texts.flat_map(|(addresses, lengths)| [addresses, lengths]));
    }

    /// The class of the rows.
    pub fn class(&self) -> usize {
        self.class
    }

    /// The state that says how many rows are delivered.
    pub fn delivered(&self) -> usize {
        self.delivered
    }

    fn counter(&self, cx: &mut Context<'_>) -> V {
        cx.argument("sorted_rows", Type::global(Scalar::U64), Argument::State(self.count))
    }

    /// Takes a place, `i64`.
    fn take(&self, cx: &mut Context<'_>, chunk: Option<Chunk>) -> V {
        let place = self.place(cx, chunk);
        cx.builder.bitcast(place, Scalar::I64)
    }

    fn store(
        &self,
        cx: &mut Context<'_>,
        place: V,
        first: Option<V>,
        used: &BTreeSet<usize>,
    ) -> Result<(), Unsupported> {
        let capacity = cx.argument("row_capacity", Scalar::I64, Argument::StateCapacity(self.order));
        let fits = cx.builder.lt(place, capacity);
        cx.begin_if(fits);
        for (index, state) in self.word_states.iter().enumerate() {
            let word = match (index, first) {
                (0, Some(word)) => word,
                _ => self.words.word(cx, index)?,
            };
            let array = cx.argument("sort_word", Type::global(Scalar::U64), Argument::State(*state));
            let pointer = cx.builder.offset(array, place);
            cx.builder.store(pointer, word);
        }
        for (index, column) in self.columns.iter().enumerate().filter(|(_, column)| column.is_used(used)) {
            let value = cx.column(index)?;
            column.store(cx, &value, place)?;
        }
        cx.begin_else();
        let is_first = cx.builder.eq(place, capacity);
        report_growth(cx, is_first);
        cx.end();
        Ok(())
    }
}

impl Dense for SortOperator {
    fn chunks(&self) -> Option<PlaceChunks> {
        self.chunks
    }

    fn reserve(&self, cx: &mut Context<'_>, count: V) -> V {
        let counter = self.counter(cx);
        cx.builder.atomic(AtomicOp::Add, counter, count, Scope::Device)
    }

    fn write(&self, cx: &mut Context<'_>, place: V, used: &BTreeSet<usize>) -> Result<(), Unsupported> {
        let place = cx.builder.bitcast(place, Scalar::I64);
        self.store(cx, place, None, used)
    }
}
