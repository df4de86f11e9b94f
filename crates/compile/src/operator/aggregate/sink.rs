//! The sink of an aggregation: rows into the cells of their groups.

mod prepared;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use self::prepared::{PreparedRow, add, prepare};
use super::batch::BatchMemory;
use super::cells::CellOp;
use super::functions::{Cell, Cells};
use super::groups::{GroupEmitter, Located};
use super::hash::KeyWord;
use super::key_count::KeyCount;
use super::near::NearTable;
use super::part_groups::{PartPlace, PartWindow};
use super::run_accumulator::RunAccumulator;
use super::segments::{Round, Segments};
use super::{AggregateOperator, distinct, key_values};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::expr::{Expr, columns_read};
use crate::lower::lower;
use crate::operator::Flow;
use crate::operator::key_texts::KeySearch;
use crate::operator::roles::{Arrival, Emitter, Job, Needs, Piece, Sink, Sketch};
use crate::program::{HostAction, Task, When};
use crate::shape::LaunchShape;
use crate::table::together::Found;
use crate::variant::axes::RunAccumulator as AccumulatedGroup;

/// Adds rows to groups. With the state that has the hash of the keys of each of the source's rows, where one does.
#[derive(Debug)]
pub(crate) struct AddToGroups(pub Arc<AggregateOperator>, pub Option<usize>);

impl fmt::Display for AddToGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Sink for AddToGroups {
    fn needs(&self) -> Needs {
        let AggregateOperator { table, sets, .. } = &*self.0;
        let mut zeroed = table.zeroed();
        zeroed.extend(sets.iter().flat_map(distinct::DistinctSet::zeroed));
        let mut grows = table.grows();
        grows.extend(sets.iter().map(distinct::DistinctSet::class));
        Needs { zeroed, produced: table.count(), around: HostAction::each(When::OnGrow, grows, Task::Grow) }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.0.expressions().into_iter().flat_map(columns_read).collect()
    }

    fn takes_flags(&self, is_speculative: &dyn Fn(&Expr) -> bool) -> bool {
        let AggregateOperator { table, sets, .. } = &*self.0;
        let window = self.0.window();
        // A row has a place in the window of a direct-addressed table whatever its flag is.
        let takes = table.takes_flags() || window.is_some() && !table.has_words();
        sets.is_empty() && takes && self.0.expressions().into_iter().all(is_speculative)
    }

    /// As many groups as there are combinations of their keys' values, where these are known.
    fn estimated_rows(&self, rows: u64) -> Option<u64> {
        let keys = self.0.telling_keys().filter_map(|key| self.0.key_columns.get(key));
        let mut values = keys.map(key_values);
        let groups = values.try_fold(1, |groups: u64, values| Some(groups.saturating_mul(values?)))?;
        Some(if self.0.key_columns.is_empty() { 1 } else { groups.min(rows) })
    }

    fn takes_prefetched(&self) -> bool {
        true
    }

    fn waits_in_blocks(&self) -> bool {
        self.0.segments.as_ref().is_some_and(Segments::is_of_block)
    }

    fn block_bytes(&self) -> u64 {
        self.0.table.block_bytes() + self.0.parts.as_ref().map_or(0, PartPlace::bytes)
    }

    fn waits_at_the_end(&self) -> bool {
        let AggregateOperator { cells, table, near, .. } = &*self.0;
        (near.is_some() || table.is_near()) && cells.have_locks()
    }

    fn passes(&self) -> u32 {
        self.0.table.passes()
    }

    fn fits(&self, shape: &LaunchShape, thread_rows: u64) -> Result<(), String> {
        let AggregateOperator { cells, table, segments, .. } = &*self.0;
        table.admits(cells, shape, thread_rows)?;
        segments.as_ref().map_or(Ok(()), |segments| segments.admits(cells, shape))
    }

    /// Wide keys of many groups. Rows of few groups come to near copies, or are added up by their warps before.
    fn is_costly(&self) -> bool {
        self.0.table.has_pointers() && self.0.near.is_none() && self.0.segments.is_none()
    }

    fn takes_wide_rows(&self) -> Result<(), String> {
        let AggregateOperator { cells, table, sets, segments, .. } = &*self.0;
        table.takes_wide_rows()?;
        if !sets.is_empty() || segments.is_some() {
            return Err("values are looked at row by row".into());
        }
        match cells.cells.iter().find(|cell| !cell.op.is_wide()) {
            Some(cell) if cell.op == CellOp::AddFloat => Err("a sum of floats depends on its order".into()),
            Some(cell) => Err(format!("no vectors for {:?}", cell.op)),
            None => Ok(()),
        }
    }

    /// Not where each row has its hash.
    fn shared_texts(&self) -> Option<Vec<usize>> {
        if self.1.is_some() {
            return None;
        }
        self.0.table.shared_texts(&self.0.group_keys)
    }

    fn sketch(&self) -> Option<&dyn Sketch> {
        self.0.sketch.as_ref().map(|sketch| sketch as &dyn Sketch)
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let AggregateOperator { cells, table, segments, near, parts, batch, sets, .. } = &*self.0;
        // Rows that come sorted have their texts stored.
        if segments.is_none() && cells.cells.iter().any(Cell::takes_texts) {
            cx.declare_scratch();
        }
        let batch = batch.as_ref().map(|batch| batch.begin(cx, 1 + sets.len()));
        if segments.is_none() {
            cx.make_rows_scratch(batch.as_ref().map(BatchMemory::waiting));
        }
        let mut groups = table.begin(cx, cells, job.thread_rows);
        let counts = self.0.sets.iter().map(|set| set.begin(cx)).collect();
        let near = match near.map(|near| near.begin(cx, cells)) {
            Some(near) if near.is_by_key => {
                groups.take_near(near);
                None
            }
            near => near,
        };
        let window = self.0.window().map(|window| window.begin(cx));
        if let Some(keys) = window.as_ref().and_then(|window| window.keys) {
            groups.take_window(keys);
        }
        let alone = matches!(parts, Some(PartPlace::Alone)).then(|| {
            let no = cx.builder.bool(false);
            cx.builder.var_of("is_alone", no)
        });
        if let Some(alone) = alone {
            groups.take_alone(alone);
        }
        let last = (self.0.last != AccumulatedGroup::Off).then(|| {
            // In parts it is said of each piece.
            let yes = cx.builder.bool(true);
            (RunAccumulator::begin(cx, cells, self.0.last), cx.builder.var_of("suits_last", yes))
        });
        let groups = Adder { groups, near, last, alone, window, cells };
        let round = segments.map(|segments| segments.begin(cx, cells));
        let strides = job.arrival == Arrival::Flags && !cx.shape.is_serial();
        let rows_at_once = if strides { cx.shape.rows_per_thread.into() } else { 1 };
        Ok(Box::new(AggregateEmitter {
            plan: &self.0,
            hashes: self.1,
            groups,
            counts,
            round,
            rows_at_once,
            prepared: Vec::new(),
            batch,
        }))
    }
}

/// An aggregation in one kernel.
struct AggregateEmitter<'s> {
    plan: &'s AggregateOperator,
    /// State of the hash of each row's keys.
    hashes: Option<usize>,
    groups: Adder<'s>,
    /// What counts the values of the sets.
    counts: Vec<KeyCount>,
    /// What neighbours have for the same groups, where they add it up before.
    round: Option<Round>,
    /// Rows that a thread prepares before it adds the first to its group: their loads are in flight together.
    rows_at_once: i64,
    prepared: Vec<PreparedRow>,
    /// Rows that wait for each other.
    batch: Option<BatchMemory<'s>>,
}

/// The groups in one kernel, and near copies of some, or a window over those of a part, and what a thread has of one.
struct Adder<'s> {
    groups: Box<dyn GroupEmitter + 's>,
    near: Option<NearTable>,
    /// The group that a thread met last, and whether rows are such that it is worth while (`bool`).
    last: Option<(RunAccumulator, Var)>,
    /// Whether nobody else adds to the groups of the part that rows are of (`bool`), where they come in parts to one worker each.
    alone: Option<Var>,
    window: Option<PartWindow>,
    cells: &'s Cells,
}

impl Adder<'_> {
    /// Adds contributions to the group in `slot`: to the thread's last group where it has one and rows are such as follow each other.
    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return self.groups.add(cx, None, values) };
        let Some((last, suits)) = &self.last else { return self.add_behind(cx, slot, values) };
        let suits = cx.builder.read(*suits);
        cx.begin_if(suits);
        last.add(cx, self.cells, slot, values, &|cx, slot, values| self.add_behind(cx, slot, values));
        cx.begin_else();
        self.add_behind(cx, slot, values);
        cx.end();
    }

    /// The same in the window, else to its near copy, else to the table of all groups.
    fn add_behind(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        match &self.window {
            Some(window) => {
                window
                    .add(cx, self.cells, slot, values, &|cx, slot, values| self.add_shared(cx, slot, values));
            }
            None => self.add_shared(cx, slot, values),
        }
    }

    /// The same of a group that is in no window.
    fn add_shared(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        match &self.near {
            Some(near) => near.add(cx, self.cells, slot, values, &self.far()),
            None => self.groups.add(cx, Some(slot), values),
        }
    }

    /// After the last row.
    fn end(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.hand_over_last(cx);
        if let Some(near) = &self.near {
            near.end(cx, self.cells, &self.far());
        }
        self.groups.end(cx)
    }

    /// Adds what the thread has of its last group, where all add.
    fn hand_over_last(&self, cx: &mut Context<'_>) {
        if let Some((last, _)) = &self.last {
            last.end(cx, &|cx, slot, values| self.add_behind(cx, slot, values));
        }
    }

    fn far(&self) -> impl Fn(&mut Context<'_>, V, &[Vec<V>]) {
        |cx, slot, values| self.groups.add(cx, Some(slot), values)
    }
}

impl Emitter for AggregateEmitter<'_> {
    fn rows_at_once(&self) -> i64 {
        self.rows_at_once
    }

    /// Where a table is full. Not where threads of a block wait for each other in a round.
    fn is_done(&self, cx: &mut Context<'_>) -> Option<V> {
        if self.round.as_ref().is_some_and(Round::is_of_block) {
            return None;
        }
        let groups = self.groups.groups.is_full(cx);
        let sets: Vec<V> = self.counts.iter().map(|count| count.is_full(cx)).collect();
        groups.into_iter().chain(sets).reduce(|a, b| cx.builder.or(a, b))
    }

    fn begin_pass(&mut self, cx: &mut Context<'_>, pass: V) {
        self.groups.groups.begin_pass(cx, pass);
    }

    fn end_pass(&mut self, cx: &mut Context<'_>) {
        self.groups.groups.end_pass(cx);
    }

    fn begin_part(&mut self, cx: &mut Context<'_>, piece: &Piece) {
        let Adder { window, alone, last, .. } = &self.groups;
        if let Some(window) = window {
            window.open(cx, &*self.plan.table, (piece.part, piece.is_alone));
        }
        if let Some(alone) = alone {
            cx.builder.assign(*alone, piece.is_alone);
        }
        if let Some((_, suits)) = last {
            // Where a part has more rows than places nearly all are of frequent groups; a worker's own groups wait for nobody.
            let is_shared = cx.builder.not(piece.is_alone);
            let is_worth_it = if alone.is_some() { is_shared } else { piece.is_crowded };
            cx.builder.assign(*suits, is_worth_it);
        }
    }

    fn end_part(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        if self.groups.alone.is_some() {
            // Rows that wait are added before the groups are no longer the worker's own.
            self.take_batch(cx)?;
        }
        // Its place may be one in the window.
        self.groups.hand_over_last(cx);
        let Some(window) = &self.groups.window else { return Ok(()) };
        let AggregateOperator { cells, table, .. } = self.plan;
        window.close(cx, (cells, &**table), &*self.groups.groups, &self.groups.far())
    }

    fn begin_rows(&mut self, cx: &mut Context<'_>, rows: u32) {
        self.groups.groups.begin_rows(cx, rows);
    }

    fn end_rows(&mut self, cx: &mut Context<'_>) {
        self.groups.groups.end_rows(cx);
    }

    fn begin_round(&mut self, cx: &mut Context<'_>) {
        if self.rows_at_once > 1 {
            cx.clear_scratch();
        }
        if let Some(round) = &self.round {
            round.open(cx);
        }
    }

    fn row(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<(), Unsupported> {
        let Some(batch) = &mut self.batch else {
            let mut words = Words::default();
            if let Some(hashes) = self.hashes {
                let hashes = cx.argument("hashes", Type::global(Scalar::U64), Argument::State(hashes));
                let hash = cx.builder.element(hashes, row);
                words.group = self.groups.groups.word_of_hash(cx, hash);
            }
            return self.take(cx, flow, &words);
        };
        let is_full = batch.keep(cx)?;
        cx.begin_if(is_full);
        self.take_batch(cx)?;
        cx.end();
        Ok(())
    }

    fn key_search(&self) -> Option<&dyn KeySearch> {
        let finds = self.batch.is_none() && self.hashes.is_none() && self.groups.groups.finds_together();
        finds.then_some(self)
    }

    fn row_found(&mut self, cx: &mut Context<'_>, _row: V, found: Found) -> Result<(), Unsupported> {
        self.take(cx, Flow::Branch, &Words { found: Some(found), ..Words::default() })
    }

    fn end_round(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let (groups, cells) = (&self.groups, &self.plan.cells);
        for row in std::mem::take(&mut self.prepared) {
            add(cx, self.plan, (groups, self.round.as_ref()), &row)?;
        }
        if let Some(round) = &self.round {
            round.close(cx, cells, |cx, slot, values| groups.add(cx, Some(slot), values));
        }
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        if self.batch.is_some() {
            self.take_batch(cx)?;
        }
        let groups = &self.groups;
        if let Some(round) = &self.round {
            round.end(cx, |cx, slot, values| groups.add(cx, Some(slot), values));
        }
        groups.end(cx)?;
        self.counts.iter().for_each(|count| count.end(cx));
        Ok(())
    }
}

impl KeySearch for AggregateEmitter<'_> {
    fn keys(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        self.plan.group_keys.iter().map(|key| lower(cx, key)).collect()
    }

    fn find(
        &self,
        cx: &mut Context<'_>,
        keys: (&[Lowered], V),
        (_, mark): (V, u32),
    ) -> Result<Found, Unsupported> {
        self.groups.groups.find_together(cx, keys, mark)
    }
}

/// The words of a row's keys, where they are known: of its group, and of its values in the sets. Or its group.
#[derive(Default)]
struct Words {
    group: Option<KeyWord>,
    sets: Vec<KeyWord>,
    found: Option<Found>,
}

impl AggregateEmitter<'_> {
    /// Takes the current row.
    fn take(&mut self, cx: &mut Context<'_>, flow: Flow, words: &Words) -> Result<(), Unsupported> {
        if self.rows_at_once == 1 && !cx.scratch_of_rows() {
            cx.clear_scratch();
        }
        let is_first = !cx.uses_scratch();
        let (plan, rows_at_once) = (self.plan, self.rows_at_once);
        let (groups, round, prepared) = (&self.groups, &self.round, &mut self.prepared);
        let counts = &self.counts;
        let next = &mut |cx: &mut Context<'_>, located: Located| {
            let row = prepare(cx, (plan, counts), located, words)?;
            match rows_at_once {
                1 => add(cx, plan, (groups, round.as_ref()), &row),
                _ => {
                    prepared.push(row);
                    Ok(())
                }
            }
        };
        match words.found {
            Some(found) => groups.groups.locate_found(cx, found, next)?,
            None => {
                let keys = (plan.group_keys.as_slice(), plan.group_carried.as_slice(), words.group);
                groups.groups.locate(cx, keys, flow, next)?;
            }
        }
        // Nothing but this row has text in the memory of the source's row, which may become many.
        if is_first {
            cx.end_scratch_row();
        }
        Ok(())
    }

    /// Takes the rows that wait.
    fn take_batch(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        self.look_ahead(cx, &batch)?;
        batch.each(cx, &mut |cx, number| {
            batch.bind(cx, number);
            let mut words = Words::default();
            if self.plan.table.has_words() {
                words.group = batch.word(cx, 0, number);
            }
            words.sets =
                (0..self.plan.sets.len()).filter_map(|set| batch.word(cx, 1 + set, number)).collect();
            self.take(cx, Flow::Branch, &words)?;
            cx.pop_layer();
            Ok(())
        })?;
        batch.clear(cx);
        self.batch = Some(batch);
        Ok(())
    }

    /// Keeps the words of the keys of the rows that wait, then looks at what the searches for them will look at: in loops of their own,
    /// which are so short that a processor is ahead by many rows.
    fn look_ahead(&self, cx: &mut Context<'_>, batch: &BatchMemory<'_>) -> Result<(), Unsupported> {
        let AggregateOperator { group_keys: keys, sets, .. } = self.plan;
        let groups = &*self.groups.groups;
        batch.each(cx, &mut |cx, number| {
            batch.bind(cx, number);
            let keys = keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
            if let Some(word) = groups.word(cx, &keys)? {
                batch.store_word(cx, 0, number, word);
            }
            for (index, set) in sets.iter().enumerate() {
                let word = set.word(cx, &keys)?;
                batch.store_word(cx, 1 + index, number, word);
            }
            cx.pop_layer();
            Ok(())
        })?;
        let see = &mut |cx: &mut Context<'_>, seen| batch.see(cx, seen);
        for again in [false, true] {
            let table = &self.plan.table;
            if if again { table.has_pointers() } else { table.has_words() } {
                groups.look_ahead(cx, again, see, &mut |cx, look| {
                    batch.each(cx, &mut |cx, number| {
                        if let Some(word) = batch.word(cx, 0, number) {
                            look(cx, word);
                        }
                        Ok(())
                    })
                })?;
            }
            for (index, (set, count)) in sets.iter().zip(&self.counts).enumerate() {
                if again && set.is_packed() {
                    continue;
                }
                batch.each(cx, &mut |cx, number| {
                    if let Some(word) = batch.word(cx, 1 + index, number) {
                        set.look_ahead(cx, (word, count), again, see);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}
