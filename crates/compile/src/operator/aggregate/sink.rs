//! The sink of an aggregation: rows into the cells of their groups.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::adder::Adder;
use super::functions::{Cell, CellOp};
use super::keys::{DistinctSet, KeyCount, key_values};
use super::local::{BatchMemory, RunAccumulator};
use super::operator::AggregateOperator;
use super::ordered::{Round, Segments};
use super::parts::{AllGroups, PartGroups, PartPlace};
use super::prepared_row::{PreparedRow, Words, add, prepare};
use super::tables::{HashEmitter, Located};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::expr::{Expr, columns_read};
use crate::lower::lower;
use crate::operator::Flow;
use crate::operator::key_texts::KeySearch;
use crate::operator::roles::{Arrival, Emitter, Job, Needs, Piece, Sink, Sketch};
use crate::program::{HostAction, Task, When};
use crate::shape::LaunchShape;
use crate::table::shared_keys::Found;
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
        zeroed.extend(sets.iter().flat_map(DistinctSet::zeroed));
        let mut grows = table.grows();
        grows.extend(sets.iter().map(DistinctSet::class));
        Needs { zeroed, produced: table.count(), around: HostAction::each(When::OnGrow, grows, Task::Grow) }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.0.expressions().into_iter().flat_map(columns_read).collect()
    }

    fn takes_flags(&self, is_speculative: &dyn Fn(&Expr) -> bool) -> bool {
        let AggregateOperator { table, sets, .. } = &*self.0;
        let window = self.0.window();
        // A row has a place in the window of a direct-addressed table whatever its flag is.
        let takes = table.takes_flags() || window.is_some() && table.key_table().is_none();
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
        self.0.table.block_bytes() + self.0.window().map_or(0, PartGroups::bytes)
    }

    fn waits_at_the_end(&self) -> bool {
        let AggregateOperator { cells, table, preaggregation, key_columns, .. } = &*self.0;
        // The only group's are in registers.
        let is_near = preaggregation.is_some() || !key_columns.is_empty() && table.is_local();
        is_near && cells.have_locks()
    }

    fn passes(&self) -> u32 {
        self.0.table.passes()
    }

    fn fits(&self, shape: &LaunchShape, thread_rows: u64) -> Result<(), String> {
        let AggregateOperator { cells, table, segments, .. } = &*self.0;
        table.fits(cells, shape, thread_rows)?;
        segments.as_ref().map_or(Ok(()), |segments| segments.fits(cells, shape))
    }

    /// Wide keys of many groups. Rows of few groups come to near copies, or are added up by their warps before.
    fn is_costly(&self) -> bool {
        self.0.table.facts().compares_stored && self.0.preaggregation.is_none() && self.0.segments.is_none()
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
        self.0.table.key_table()?.shared_texts(&self.0.group_keys.telling)
    }

    fn sketch(&self) -> Option<&dyn Sketch> {
        self.0.sketch.as_ref().map(|sketch| sketch as &dyn Sketch)
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let AggregateOperator { cells, table, segments, preaggregation, parts, batch, sets, .. } = &*self.0;
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
        let near = match preaggregation.map(|near| near.begin(cx, cells)) {
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
        let last = (self.0.run_accumulator != AccumulatedGroup::Off).then(|| {
            // In parts it is said of each piece.
            let yes = cx.builder.bool(true);
            let last = RunAccumulator::begin(cx, cells, self.0.run_accumulator);
            (last, cx.builder.var_of("suits_last", yes))
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

impl Emitter for AggregateEmitter<'_> {
    fn rows_at_once(&self) -> i64 {
        self.rows_at_once
    }

    /// Where a table is full. Not where threads of a block wait for each other in a round.
    fn is_done(&self, cx: &mut Context<'_>) -> Option<V> {
        if self.round.as_ref().is_some_and(Round::is_of_block) {
            return None;
        }
        let groups = self.hashed().map(|groups| groups.is_full(cx));
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
            window.open(cx, &*self.plan.table, piece.part, piece.is_alone);
        }
        if let Some(alone) = alone {
            cx.builder.assign(*alone, piece.is_alone);
        }
        if let Some((_, is_used)) = last {
            // Where a part has more rows than places nearly all are of frequent groups; a worker's own groups wait for nobody.
            let is_shared = cx.builder.not(piece.is_alone);
            let is_worth_it = if alone.is_some() { is_shared } else { piece.is_crowded };
            cx.builder.assign(*is_used, is_worth_it);
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
        let (groups, far) = (&*self.groups.groups, &self.groups.far());
        window.close(cx, &AllGroups { cells, table: &**table, groups, far })
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
                words.group = self.hashed().and_then(|groups| groups.word_of_hash(cx, hash));
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
        let is_free = self.batch.is_none() && self.hashes.is_none();
        (is_free && self.hashed()?.finds_together()).then_some(self)
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
        self.plan.group_keys.telling.iter().map(|key| lower(cx, key)).collect()
    }

    fn find(
        &self,
        cx: &mut Context<'_>,
        (keys, live): (&[Lowered], V),
        (_, mark): (V, u32),
    ) -> Result<Found, Unsupported> {
        self.groups.found_by_keys()?.find_together(cx, keys, live, mark)
    }
}

impl AggregateEmitter<'_> {
    /// The groups that are found by hashing, where they are.
    fn hashed(&self) -> Option<&HashEmitter<'_>> {
        self.groups.groups.hashed()
    }

    fn take(&mut self, cx: &mut Context<'_>, flow: Flow, words: &Words) -> Result<(), Unsupported> {
        if self.rows_at_once == 1 && !cx.scratch_of_rows() {
            cx.clear_scratch();
        }
        let is_first = !cx.uses_scratch();
        let (plan, rows_at_once) = (self.plan, self.rows_at_once);
        let (groups, round, prepared) = (&self.groups, &self.round, &mut self.prepared);
        let counts = &self.counts;
        let next = &mut |cx: &mut Context<'_>, located: Located| {
            let row = prepare(cx, plan, counts, located, words)?;
            match rows_at_once {
                1 => add(cx, plan, (groups, round.as_ref()), &row),
                _ => {
                    prepared.push(row);
                    Ok(())
                }
            }
        };
        match words.found {
            Some(found) => groups.found_by_keys()?.locate_found(cx, found, next)?,
            None => {
                groups.groups.locate(cx, &plan.group_keys, words.group, flow, next)?;
            }
        }
        // Nothing but this row has text in the memory of the source's row, which may become many.
        if is_first {
            cx.end_scratch_row();
        }
        Ok(())
    }

    fn take_batch(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        self.look_ahead(cx, &batch)?;
        batch.each(cx, &mut |cx, number| {
            batch.bind(cx, number);
            let mut words = Words::default();
            if self.plan.is_hashed() {
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
        let groups = self.hashed();
        batch.each(cx, &mut |cx, number| {
            batch.bind(cx, number);
            let keys = keys.telling.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
            if let Some(groups) = groups {
                let word = groups.word(cx, &keys)?;
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
            let looks = !again || self.plan.table.facts().compares_stored;
            if let Some(groups) = groups.filter(|_| looks) {
                groups.unless_near(cx, |cx| {
                    batch.each(cx, &mut |cx, number| {
                        if let Some(word) = batch.word(cx, 0, number) {
                            groups.look_ahead(cx, word, again, see);
                        }
                        Ok(())
                    })
                })?;
            }
            for (index, (set, count)) in sets.iter().zip(&self.counts).enumerate() {
                if again && set.table().is_packed() {
                    continue;
                }
                batch.each(cx, &mut |cx, number| {
                    if let Some(word) = batch.word(cx, 1 + index, number) {
                        set.table().look_ahead(cx, word, count, again, see);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}
