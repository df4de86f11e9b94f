//! The passes that bring a join's build side into an order: its stored rows that a search may be for go into a sort with their keys, and
//! what comes out of it in order is noted row by row.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::JoinOperator;
use super::methods::SortedOrder;
use crate::context::{Context, Lowered, Repr, Unsupported, register_of};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Next, Sink, Source, Step};
use crate::program::{HostAction, RowCount, Task, When};
use crate::table::array;
use crate::table::joined::Joined;
use crate::table::probing::report_not_unique;
use crate::types::{DataType, Range};

/// The stored rows of a build side, with their places as the last column.
#[derive(Debug)]
pub(crate) struct IndexedRows(pub Arc<JoinOperator>);

displayed!(IndexedRows = "build side");

/// The places of a store, which has less than 2³¹.
const PLACES: Range = Range { min: 0, max: i32::MAX as i128 };

/// What is known of the places of rows.
pub(super) fn place_info() -> ColumnInfo {
    ColumnInfo::new(DataType::Int64, false, Some(PLACES))
}

impl Source for IndexedRows {
    fn rows(&self) -> RowCount {
        self.0.index.store.rows()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let mut columns = self.0.index.store.infos();
        columns.push(place_info());
        columns
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        self.0.index.store.is_taken(cx, row)
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let stored = self.0.index.store.columns().iter();
        let mut columns: Vec<Joined> = stored.map(|column| Joined::stored(column, row, None)).collect();
        let place = cx.builder.convert(row, register_of(PLACES));
        columns.push(Joined::Value(Lowered { repr: Repr::Scalar(place), valid: None, range: Some(PLACES) }));
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.0.index.store.read(columns, states);
    }
}

/// Lets the rows go on that a search may find: as their places, and the keys by which they are sorted.
#[derive(Debug)]
pub(crate) struct IndexedKeys(pub Arc<JoinOperator>);

displayed!(IndexedKeys = "keys");

impl IndexedKeys {
    /// The columns of the rows before that are read: keys, the order, and the place.
    fn columns_before(&self) -> BTreeSet<usize> {
        let join = &*self.0;
        let ordered = join.index.path.sorted().and_then(|sorted| sorted.ordered_columns);
        let ordered =
            ordered.into_iter().flat_map(|columns| [columns.order].into_iter().chain(columns.second));
        (0..join.probe_keys.len()).chain(ordered).chain([join.index.store.columns().len()]).collect()
    }
}

impl Step for IndexedKeys {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        _speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let index = &self.0.index;
        let ordered = index.path.sorted().and_then(|sorted| sorted.ordered_columns);
        let mut opened = 0;
        if let Some(active) = flow.active() {
            cx.begin_if(active);
            opened += 1;
        }
        let keys = index.keys_of_row(cx)?;
        let order = ordered.map(|columns| cx.column(columns.order)).transpose()?;
        let second = ordered.and_then(|columns| columns.second);
        let second = second.map(|column| cx.column(column)).transpose()?;
        let place = cx.column(index.store.columns().len())?;
        let valid = |order: &Option<Lowered>| order.as_ref().and_then(|order| order.valid);
        let guards = [index.is_indexed(cx, &keys)?, valid(&order), valid(&second)];
        for guard in guards.into_iter().flatten() {
            cx.begin_if(guard);
            opened += 1;
        }
        let columns = [place].into_iter().chain(second).chain(keys).chain(order);
        cx.push_joined(columns.map(Joined::Value).collect());
        next(cx, Flow::Branch)?;
        for _ in 0..opened {
            cx.end();
        }
        Ok(())
    }

    fn columns(&self, _below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        self.0.index.path.sorted().map(|sorted| sorted.columns.clone())
    }

    fn below(&self, _column: usize) -> Option<usize> {
        None
    }

    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.columns_before()
    }

    fn diverges(&self) -> bool {
        true
    }

    fn drops(&self) -> bool {
        true
    }
}

/// Notes the place of each row of the sort, and the words of its keys, in their order.
#[derive(Debug)]
pub(crate) struct NoteOrder(pub Arc<JoinOperator>);

impl fmt::Display for NoteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index ({})", self.0.index)
    }
}

impl NoteOrder {
    fn sorted(&self) -> Result<&SortedOrder, Unsupported> {
        self.0.index.path.sorted().ok_or_else(|| Unsupported::internal("an index without its order"))
    }
}

impl Sink for NoteOrder {
    fn needs(&self) -> Needs {
        let mut around = HostAction::each(When::OnNotUnique, vec![self.0.assumption], Task::DropAssumption);
        let mut zeroed = self.0.index.zeroed();
        let samples = self.0.index.path.sorted().map(|sorted| sorted.sample_class);
        around.extend(HostAction::each(When::BeforeGroup, samples.into_iter().collect(), Task::Size));
        if let Some(tree) = self.0.index.path.sorted().and_then(SortedOrder::tree) {
            around.extend(HostAction::each(When::BeforeGroup, tree.sized(), Task::Size));
            zeroed.extend(tree.zeroed());
        }
        Needs { zeroed, produced: None, around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        if let Some(sorted) = self.0.index.path.sorted() {
            states.extend(sorted.sort.ordered_words());
        }
        let second = self.0.index.path.sorted().and_then(SortedOrder::tree).map(|_| 1);
        [0].into_iter().chain(second).collect()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(OrderEmitter(self)))
    }
}

struct OrderEmitter<'s>(&'s NoteOrder);

impl Emitter for OrderEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let (sorted, index) = (self.0.sorted()?, &self.0.0.index);
        let Repr::Scalar(place) = cx.column(0)?.repr else {
            return Err(Unsupported::internal("a place that is no number"));
        };
        let place = cx.builder.convert(place, Scalar::U32);
        let entries = array(cx, "sorted_rows", sorted.entries);
        let entry = cx.builder.offset(entries, row);
        cx.builder.store(entry, place);
        sorted.note_words(cx, row);
        sorted.note_second(cx, row)?;
        let Some(state) = index.not_unique else { return Ok(()) };
        let (zero, one) = (cx.builder.i64(0), cx.builder.i64(1));
        let before = cx.builder.sub(row, one);
        let before = cx.builder.binary(BinaryOp::Max, before, zero);
        let mut same = cx.builder.ne(row, zero);
        for word in 0..sorted.sort.word_count() {
            let (own, other) = (sorted.sort.word_at(cx, word, row), sorted.sort.word_at(cx, word, before));
            let equal = cx.builder.eq(own, other);
            same = cx.builder.and(same, equal);
        }
        cx.begin_if(same);
        report_not_unique(cx, state);
        cx.end();
        Ok(())
    }
}
