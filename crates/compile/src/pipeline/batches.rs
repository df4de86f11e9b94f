//! Look-ups of batches of rows, on a CPU: the rows of a selection vector, or of a piece of a morsel, come to a join together.
//!
//! A row by itself waits for memory at each table that it comes to: for the slot, for the key that it points to, for the columns of the
//! match. A processor goes on with the next rows meanwhile, but with no more of them than fit its window, and all that happens to a row
//! behind the join stands between it and the next one. So the rows of a batch go up to the join, where they are written down with what
//! their search needs; a second loop ends the searches and looks at what is wanted of the matches; then the rows go on to the next join in
//! the same way, or one by one to the sink. What drops rows does so once: those behind see the rows that are left.

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar};

use super::Pipeline;
use super::batch_keys::{KeptKey, KeyForm, keep_keys, kept_keys};
use super::body::Body;
use super::row::{Pass, for_range, mark};
use super::selection::Batch;
use crate::context::{Context, Lowered, Unsupported};
use crate::operator::Flow;
use crate::operator::roles::{BatchLookUps, Emitter};
use crate::table::probing::Begun;

/// Tables at most that rows are looked up in together: what was found in each is kept in the worker's memory.
const MOST_TABLES: usize = 4;

/// The steps that look up rows of batches.
#[derive(Debug, Clone)]
pub(super) struct BatchedSteps {
    /// In their order; none but the last makes several rows of one.
    tables: Vec<Table>,
    /// Rows of a batch, at most.
    rows: u64,
}

/// A step that looks rows up.
#[derive(Debug, Clone, Copy)]
struct Table {
    /// Its number.
    step: usize,
    /// Whether all rows of a batch are looked up before one goes on; else each as it comes through.
    is_far: bool,
}

impl BatchedSteps {
    /// Those of a pipeline, where tables of more than so many bytes are far, or all if none is; or why there are none.
    pub(super) fn of(pipeline: &Pipeline, near_bytes: u64) -> Result<BatchedSteps, String> {
        let (mut tables, mut lacks) = (Vec::new(), "rows come to no look-up");
        for (step, found) in pipeline.steps.iter().enumerate() {
            let is_plain = found.condition().is_some()
                || found.projection().is_some()
                || found.runtime_filter().is_some();
            match found.batch_look_ups() {
                Some(look_ups) => match look_ups.lacks() {
                    None => tables.push(Table { step, is_far: look_ups.far_bytes() > near_bytes }),
                    Some(why) => {
                        lacks = why;
                        break;
                    }
                },
                None if is_plain => {}
                None => {
                    lacks = "something else comes before the first look-up";
                    break;
                }
            }
            if found.expands() || tables.len() == MOST_TABLES {
                break;
            }
        }
        match tables.iter().rposition(|table| table.is_far) {
            Some(last) => tables.truncate(last + 1),
            None => tables.iter_mut().for_each(|table| table.is_far = true),
        }
        match tables.is_empty() {
            true => Err(lacks.into()),
            false => Ok(BatchedSteps { tables, rows: 0 }),
        }
    }

    /// The same in batches of so many rows.
    pub(super) fn of_rows(self, rows: u64) -> BatchedSteps {
        BatchedSteps { rows, ..self }
    }

    /// Bytes of the largest of the tables that may be far, about.
    pub(super) fn far_bytes(&self, pipeline: &Pipeline) -> u64 {
        let of_table = |table: &Table| {
            let look_ups = pipeline.steps.get(table.step).and_then(|step| step.batch_look_ups());
            look_ups.map_or(0, |look_ups| look_ups.far_bytes())
        };
        self.tables.iter().map(of_table).max().unwrap_or(0)
    }
}

/// A worker's memory for the rows of a batch.
pub(super) struct BatchMemory {
    /// Their distances from the first row of the batch.
    rows: V,
    /// What was found of them in each table.
    numbers: Vec<V>,
    /// Where a search has begun: slots and tags.
    begun: Option<[V; 2]>,
    /// Keys that are not computed once more where their searches end.
    keys: Vec<KeptKey>,
    /// Where what was looked at goes, so that no compiler leaves out the look.
    sight: V,
    seen: Var,
}

impl BatchMemory {
    /// Notes what was looked at (`u64`).
    fn see(&self, cx: &mut Context<'_>, seen: V) {
        let before = cx.builder.read(self.seen);
        let all = cx.builder.binary(BinaryOp::Xor, before, seen);
        cx.builder.assign(self.seen, all);
    }

    /// Keeps what was looked at.
    fn keep_seen(&self, cx: &mut Context<'_>) {
        let seen = cx.builder.read(self.seen);
        cx.builder.store(self.sight, seen);
    }

    /// Keeps a row at a place: its distance (`i64`), and what was found of it.
    fn keep(&self, cx: &mut Context<'_>, place: V, distance: V, found: &[V]) {
        let distance = cx.builder.convert(distance, Scalar::U32);
        put(cx, self.rows, place, distance);
        self.numbers.iter().zip(found).for_each(|(numbers, number)| put(cx, *numbers, place, *number));
    }

    /// What was found of the row at a place in the first tables.
    fn found(&self, cx: &mut Context<'_>, place: V, tables: usize) -> Vec<V> {
        self.numbers.iter().take(tables).map(|numbers| cx.builder.element(*numbers, place)).collect()
    }
}

/// A value of an array becomes another one.
fn put(cx: &mut Context<'_>, array: V, place: V, value: V) {
    let pointer = cx.builder.offset(array, place);
    cx.builder.store(pointer, value);
}

/// The rows that come to a table.
enum Coming<'b> {
    /// Those of a range, which begins with the batch.
    Range(V, V),
    /// Selected rows, of which nothing was looked up yet.
    Selected(&'b Batch),
    /// Rows that have come through a table.
    Left(Batch),
}

/// Which part of the way a row goes: to the step of number `end`. It has been at those before `fresh` already, and at none behind.
#[derive(Clone, Copy)]
struct Way {
    fresh: usize,
    end: usize,
    pass: Pass,
}

/// What comes at the end of a way, where so much was found of the row, in one table after the other.
type AtEnd<'n> = dyn FnMut(&mut Context<'_>, Flow, &[V]) -> Result<(), Unsupported> + 'n;

impl Body<'_> {
    /// Memory for batches, if rows are looked up in such and there is enough: `selection` is the selection vector, where there is one.
    pub(super) fn batch_memory(&self, cx: &mut Context<'_>, selection: Option<V>) -> Option<BatchMemory> {
        let batched = self.variants.batched.as_ref()?;
        let count = u32::try_from(batched.rows).ok()?;
        let arrays = batched.tables.len() as u32 + 3;
        let (taken, room) = (cx.builder.shared_bytes(), cx.shape.shared_bytes);
        // Beside an operator that has taken all of it for a table of its own, rows go one by one.
        if taken.saturating_add(count.saturating_mul(arrays * 4)).saturating_add(64) > room {
            return None;
        }
        let mut array = |name: &str| cx.builder.shared(name, Pointee::Scalar(Scalar::U32), count);
        let rows = selection.unwrap_or_else(|| array("batch_rows"));
        let numbers = (0..batched.tables.len()).map(|table| array(&format!("batch_found_{table}"))).collect();
        let begun = ["batch_slots", "batch_tags"];
        let is_begun = |table: &Table| {
            let look_ups = self.pipeline.steps.get(table.step).and_then(|step| step.batch_look_ups());
            look_ups.is_some_and(|look_ups| look_ups.has_begun_searches())
        };
        let begun = batched.tables.iter().any(is_begun).then(|| begun.map(&mut array));
        let sight = cx.builder.shared("batch_sight", Pointee::Scalar(Scalar::U64), 1);
        let far: Vec<usize> =
            batched.tables.iter().filter(|table| table.is_far).map(|table| table.step).collect();
        let keys = self.key_memory(cx, &far, count);
        let nothing = cx.builder.u64(0);
        let seen = cx.builder.var_of("seen", nothing);
        Some(BatchMemory { rows, numbers, begun, keys, sight, seen })
    }

    /// The rows of a range in batches, none of which was selected.
    pub(super) fn range_in_batches(
        &self,
        cx: &mut Context<'_>,
        (start, end): (V, V),
        memory: &BatchMemory,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let batch = cx.builder.var_of("batch", start);
        cx.begin_loop();
        let from = cx.builder.read(batch);
        let done = cx.builder.ge(from, end);
        cx.builder.break_if(done);
        let size = cx.builder.i64(self.variants.batched.as_ref().map_or(1, |batched| batched.rows) as i64);
        let to = cx.builder.add(from, size);
        let to = cx.builder.binary(BinaryOp::Min, to, end);
        self.batch(cx, Coming::Range(from, to), memory, emitter)?;
        cx.builder.assign(batch, to);
        cx.end();
        Ok(())
    }

    /// The rows of a selection vector.
    pub(super) fn selected_batch(
        &self,
        cx: &mut Context<'_>,
        batch: &Batch,
        memory: &BatchMemory,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        self.batch(cx, Coming::Selected(batch), memory, emitter)
    }

    /// A batch of rows through all look-ups, then one by one to the sink.
    fn batch(
        &self,
        cx: &mut Context<'_>,
        mut coming: Coming<'_>,
        memory: &BatchMemory,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let Some(batched) = &self.variants.batched else { return Ok(()) };
        let pass = match coming {
            Coming::Selected(_) => Pass::Rest,
            _ => Pass::Whole,
        };
        let (mut fresh, mut known) = (0, 0);
        for (table, Table { step, .. }) in batched.tables.iter().enumerate().filter(|(_, table)| table.is_far)
        {
            let way = Way { fresh, end: *step, pass };
            let left = self.look_up_batch(cx, (coming, known), (table, way), memory)?;
            (coming, known, fresh) = (Coming::Left(left), table + 1, step + 1);
        }
        memory.keep_seen(cx);
        let Coming::Left(left) = coming else { return Ok(()) };
        let end = self.pipeline.steps.len();
        left.each(cx, |cx, place, row| {
            emitter.begin_row(cx);
            let found = memory.found(cx, place, known);
            self.pipeline.source.bind(cx, row)?;
            self.walk(cx, 0, Way { fresh, end, pass }, &found, &mut |cx, flow, _| {
                mark(cx, end, flow);
                emitter.row(cx, row, flow)
            })?;
            cx.end_row();
            emitter.end_row(cx, row);
            cx.end_scratch_row();
            Ok(())
        })
    }

    /// Rows of which something is `known` of so many tables come to the next far one, and are looked up in it: those that came so far.
    fn look_up_batch(
        &self,
        cx: &mut Context<'_>,
        (coming, known): (Coming<'_>, usize),
        (table, way): (usize, Way),
        memory: &BatchMemory,
    ) -> Result<Batch, Unsupported> {
        let look_ups = self.batch_look_ups(way.end)?;
        let columns = self.read_behind(way.end + 1);
        let zero = cx.builder.i64(0);
        let count = cx.builder.var_of("batched", zero);
        let mut forms = Vec::new();
        let mut come = |cx: &mut Context<'_>, row: V, from: V, found: &[V]| {
            let at_table = &mut |cx: &mut Context<'_>, _: Flow, found: &[V]| {
                let place = cx.builder.read(count);
                match memory.begun.filter(|_| look_ups.has_begun_searches()) {
                    Some([slots, tags]) => {
                        let search = look_ups.begin(cx)?;
                        put(cx, slots, place, search.begun.slot);
                        put(cx, tags, place, search.begun.tag);
                        forms = keep_keys(cx, &memory.keys, (way.end, &search.keys), place);
                        let seen = cx.builder.convert(search.seen, Scalar::U64);
                        memory.see(cx, seen);
                    }
                    None => self.find(cx, (look_ups, &columns), None, (table, place), memory)?,
                }
                // What was read of a place is not needed any more, as no row comes to a place behind its own.
                let distance = cx.builder.sub(row, from);
                memory.keep(cx, place, distance, found);
                let one = cx.builder.i64(1);
                let next = cx.builder.add(place, one);
                cx.builder.assign(count, next);
                Ok(())
            };
            let live = if way.fresh == 0 { self.pipeline.source.live(cx, row) } else { None };
            if let Some(live) = live {
                cx.begin_if(live);
            }
            self.pipeline.source.bind(cx, row)?;
            self.walk(cx, 0, way, found, at_table)?;
            if live.is_some() {
                cx.end();
            }
            cx.end_row();
            cx.end_scratch_row();
            Ok(())
        };
        let from = match coming {
            Coming::Range(from, to) => {
                for_range(cx, "row", from, to, |cx, row| come(cx, row, from, &[]))?;
                from
            }
            Coming::Selected(batch) => {
                batch.each(cx, |cx, _, row| come(cx, row, batch.from, &[]))?;
                batch.from
            }
            Coming::Left(batch) => {
                batch.each(cx, |cx, place, row| {
                    let found = memory.found(cx, place, known);
                    come(cx, row, batch.from, &found)
                })?;
                batch.from
            }
        };
        let left = Batch { from, selection: memory.rows, count: cx.builder.read(count) };
        if let Some(begun) = memory.begun.filter(|_| look_ups.has_begun_searches()) {
            let way = Way { fresh: way.end, ..way };
            self.end_searches(cx, (&left, begun, &forms), (look_ups, &columns), (table, way), memory)?;
        }
        Ok(left)
    }

    /// Ends the searches of rows that have begun.
    fn end_searches(
        &self,
        cx: &mut Context<'_>,
        (left, [slots, tags], forms): (&Batch, [V; 2], &[KeyForm]),
        (look_ups, columns): (&dyn BatchLookUps, &BTreeSet<usize>),
        (table, way): (usize, Way),
        memory: &BatchMemory,
    ) -> Result<(), Unsupported> {
        left.each(cx, |cx, place, row| {
            let found = memory.found(cx, place, table);
            let (slot, tag) = (cx.builder.element(slots, place), cx.builder.element(tags, place));
            self.pipeline.source.bind(cx, row)?;
            self.walk(cx, 0, way, &found, &mut |cx, _, _| {
                let begun = Some((Begun { slot, tag }, kept_keys(cx, forms, place)));
                self.find(cx, (look_ups, columns), begun, (table, place), memory)
            })?;
            cx.end_row();
            cx.end_scratch_row();
            Ok(())
        })
    }

    /// Looks the current row up, keeps what was found, and looks at what is wanted of it.
    fn find(
        &self,
        cx: &mut Context<'_>,
        (look_ups, columns): (&dyn BatchLookUps, &BTreeSet<usize>),
        begun: Option<(Begun, Vec<(usize, Lowered)>)>,
        (table, place): (usize, V),
        memory: &BatchMemory,
    ) -> Result<(), Unsupported> {
        let number = look_ups.find(cx, begun)?;
        if let Some(numbers) = memory.numbers.get(table) {
            put(cx, *numbers, place, number);
        }
        for seen in look_ups.look_at(cx, number, columns) {
            memory.see(cx, seen);
        }
        Ok(())
    }

    fn batch_look_ups(&self, step: usize) -> Result<&dyn BatchLookUps, Unsupported> {
        let step = self.pipeline.steps.get(step).and_then(|step| step.batch_look_ups());
        step.ok_or_else(|| Unsupported::internal("a step that looks nothing up"))
    }

    /// The way of the current row from step `index` on. Where it has been before, it has passed what drops rows, and goes on with what was
    /// `found` of it; of tables that are near it is looked up as it comes to them.
    fn walk(
        &self,
        cx: &mut Context<'_>,
        index: usize,
        way: Way,
        found: &[V],
        next: &mut AtEnd<'_>,
    ) -> Result<(), Unsupported> {
        let Some(step) = self.pipeline.steps.get(index).filter(|_| index < way.end) else {
            return next(cx, Flow::Branch, found);
        };
        let tables = self.variants.batched.as_ref().map_or(&[][..], |batched| &batched.tables);
        if let Some(table) = tables.iter().position(|table| table.step == index) {
            let look_ups = self.batch_look_ups(index)?;
            let number = match found.get(table) {
                Some(number) => *number,
                None => look_ups.find(cx, None)?,
            };
            let found = if table < found.len() { found.to_vec() } else { [found, &[number]].concat() };
            return look_ups.go_on_with(cx, number, &mut |cx, _| self.walk(cx, index + 1, way, &found, next));
        }
        if index >= way.fresh {
            let later = tables.iter().map(|table| table.step).find(|step| *step > index);
            let end = later.unwrap_or(way.end).min(way.end);
            let mut go_on = |cx: &mut Context<'_>, flow: Flow| match end == way.end {
                true => next(cx, flow, found),
                false => self.walk(cx, end, way, found, next),
            };
            return self.steps_until(cx, (index, end), Flow::Branch, way.pass, &mut go_on);
        }
        if step.condition().is_some() || step.runtime_filter().is_some() {
            return self.walk(cx, index + 1, way, found, next);
        }
        step.consume(cx, Flow::Branch, false, &mut |cx, _| self.walk(cx, index + 1, way, found, next))
    }
}
