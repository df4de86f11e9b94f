//! Look-ups of batches of rows, on a CPU: the rows of a selection vector, or of a piece of a morsel, come to a join together.
//!
//! A row by itself waits for memory at each table that it comes to: for the slot, for the key that it points to, for the columns of the
//! match. A processor goes on with the next rows meanwhile, but with no more of them than fit its window, and all that happens to a row
//! behind the join stands between it and the next one. So the rows of a batch go up to the join, where they are written down with what
//! their search needs; a second loop ends the searches and looks at what is wanted of the matches; then the rows go on to the next join in
//! the same way, or one by one to the sink. What drops rows does so once: those behind see the rows that are left.

mod look_up_keys;

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar};

use self::look_up_keys::{KeptKey, KeyForm, keep_keys, kept_keys};
use super::morsels::Morsels;
use super::selected::Batch;
use super::single::Single;
use super::{Emitted, RowLoopStrategy};
use crate::context::{Context, Lowered, Unsupported};
use crate::operator::Flow;
use crate::operator::roles::{BatchLookUps, Emitter};
use crate::pipeline::Pipeline;
use crate::pipeline::body::Body;
use crate::pipeline::row::{Pass, for_range, mark};
use crate::pipeline::variants::Facts;
use crate::table::probing::Begun;
use crate::variant::axes::{FirstLookUps, WritePlaces};
use crate::variant::estimate;

/// Tables at most that rows are looked up in together: what was found in each is kept in the worker's memory.
const MOST_TABLES: usize = 4;

/// The steps that look up rows of batches.
pub(super) struct Batched {
    /// In their order; none but the last makes several rows of one.
    tables: Vec<Table>,
    /// Rows of a batch, at most.
    pub rows: u64,
}

/// A step that looks rows up.
#[derive(Debug, Clone, Copy)]
struct Table {
    /// Its number.
    step: usize,
    /// Whether all rows of a batch are looked up before one goes on; else each as it comes through.
    is_far: bool,
}

impl Batched {
    /// By which steps rows are looked up together on a CPU, if they are. Rows of a batch are chosen besides.
    pub(super) fn choose(facts: &Facts<'_>) -> Result<Option<Batched>, Unsupported> {
        let Facts { pipeline, environment, .. } = *facts;
        if !pipeline.steps.iter().any(|step| step.batch_look_ups().is_some()) {
            return Ok(None);
        }
        let cache = environment.calibration.index_cache(true);
        let batched = Batched::possible(facts, cache.value);
        let bytes = batched.as_ref().map_or(0, |batched| batched.far_bytes(pipeline));
        let is_far = bytes > cache.value;
        let reason = cache.reason(match is_far {
            true => "a hash table is larger than the last cache",
            false => "no hash table is known to be larger than a cache",
        });
        let why = facts.in_resolution(if is_far { Ok(&*reason) } else { Err(&*reason) });
        let estimate = Some(format!("hash tables of up to {}", estimate::bytes(bytes)));
        let why_not = batched.as_ref().err().map(String::as_str);
        let values = [FirstLookUps::Row, FirstLookUps::Together];
        let takes_them = facts.takes(values, why_not, why, estimate)?;
        Ok(batched.ok().filter(|_| takes_them))
    }

    /// The steps, where tables of more than so many bytes are far, or all if none is; or why there are none.
    fn possible(facts: &Facts<'_>, near_bytes: u64) -> Result<Batched, String> {
        let Facts { pipeline, .. } = *facts;
        match () {
            () if facts.is_counted => return Err("places are counted a row of the table".into()),
            () if pipeline.sink.own_rows().is_some() => return Err("rows come otherwise".into()),
            () if facts.places == WritePlaces::Selection => {
                return Err("the result is written from selections".into());
            }
            () => {}
        }
        let (mut tables, mut why_not) = (Vec::new(), "rows come to no look-up");
        for (step, found) in pipeline.steps.iter().enumerate() {
            let is_plain = found.condition().is_some()
                || found.projection().is_some()
                || found.runtime_filter().is_some();
            match found.batch_look_ups() {
                Some(look_ups) => match look_ups.why_not() {
                    None => tables.push(Table { step, is_far: look_ups.far_bytes() > near_bytes }),
                    Some(why) => {
                        why_not = why;
                        break;
                    }
                },
                None if is_plain => {}
                None => {
                    why_not = "something else comes before the first look-up";
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
            true => Err(why_not.into()),
            false => Ok(Batched { tables, rows: 0 }),
        }
    }

    /// Bytes of the largest of the tables that may be far, about.
    fn far_bytes(&self, pipeline: &Pipeline) -> u64 {
        let of_table = |table: &Table| {
            let look_ups = pipeline.steps.get(table.step).and_then(|step| step.batch_look_ups());
            look_ups.map_or(0, |look_ups| look_ups.far_bytes())
        };
        self.tables.iter().map(of_table).max().unwrap_or(0)
    }

    /// The look-ups in a kernel, if a worker has memory for them: `selection` is the selection vector, where there is one.
    pub(super) fn begin<'b>(
        &'b self,
        body: &'b Body<'b>,
        cx: &mut Context<'_>,
        selection: Option<V>,
    ) -> Option<BatchLoop<'b>> {
        let count = u32::try_from(self.rows).ok()?;
        let arrays = self.tables.len() as u32 + 3;
        let (taken, room) = (cx.builder.shared_bytes(), cx.shape.shared_bytes);
        // Beside an operator that has taken all of it for a table of its own, rows go one by one.
        if taken.saturating_add(count.saturating_mul(arrays * 4)).saturating_add(64) > room {
            return None;
        }
        let mut array = |name: &str| cx.builder.shared(name, Pointee::Scalar(Scalar::U32), count);
        let rows = selection.unwrap_or_else(|| array("batch_rows"));
        let numbers = (0..self.tables.len()).map(|table| array(&format!("batch_found_{table}"))).collect();
        let begun = ["batch_slots", "batch_tags"];
        let is_begun = |table: &Table| {
            let look_ups = body.pipeline.steps.get(table.step).and_then(|step| step.batch_look_ups());
            look_ups.is_some_and(|look_ups| look_ups.has_begun_searches())
        };
        let begun = self.tables.iter().any(is_begun).then(|| begun.map(&mut array));
        let sight = cx.builder.shared("batch_sight", Pointee::Scalar(Scalar::U64), 1);
        let far: Vec<usize> =
            self.tables.iter().filter(|table| table.is_far).map(|table| table.step).collect();
        let keys = look_up_keys::memory(body, cx, &far, count);
        let nothing = cx.builder.u64(0);
        let seen = cx.builder.var_of("seen", nothing);
        let memory = BatchMemory { rows, numbers, begun, keys, sight, seen };
        Some(BatchLoop { batched: self, body, memory })
    }
}

impl RowLoopStrategy for Batched {
    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        let morsels = Morsels::of(body, cx)?;
        let look_ups = self.begin(body, cx, None);
        morsels.each(cx, emitter, &mut |cx, rows, emitter| match &look_ups {
            Some(look_ups) => look_ups.rows_of_range(cx, rows, emitter),
            None => Single::rows_of_range(body, cx, (rows, body.variants.alone.flow()), emitter),
        })
    }
}

/// A worker's memory for the rows of a batch.
struct BatchMemory {
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
pub(super) enum Coming<'b> {
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
type AtEnd<'n> = dyn FnMut(&mut Context<'_>, Flow, &[V]) -> Emitted + 'n;

/// The look-ups of batches in a kernel.
pub(super) struct BatchLoop<'b> {
    batched: &'b Batched,
    body: &'b Body<'b>,
    memory: BatchMemory,
}

/// A far table in a kernel.
struct FarTable<'b> {
    /// Its number among the tables.
    number: usize,
    look_ups: &'b dyn BatchLookUps,
    /// The columns behind it that are read.
    columns: BTreeSet<usize>,
    /// The way to it.
    way: Way,
}

impl BatchLoop<'_> {
    /// The rows of a range in batches, none of which was selected.
    fn rows_of_range(
        &self,
        cx: &mut Context<'_>,
        (start, end): (V, V),
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let batch = cx.builder.var_of("batch", start);
        cx.begin_loop();
        let from = cx.builder.read(batch);
        let done = cx.builder.ge(from, end);
        cx.builder.break_if(done);
        let to = cx.builder.add_int(from, self.batched.rows as i64);
        let to = cx.builder.binary(BinaryOp::Min, to, end);
        self.batch(cx, Coming::Range(from, to), emitter)?;
        cx.builder.assign(batch, to);
        cx.end();
        Ok(())
    }

    /// A batch of rows through all look-ups, then one by one to the sink.
    pub(super) fn batch(
        &self,
        cx: &mut Context<'_>,
        mut coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let pass = match coming {
            Coming::Selected(_) => Pass::Rest,
            _ => Pass::Whole,
        };
        let (mut fresh, mut known) = (0, 0);
        for (number, Table { step, .. }) in
            self.batched.tables.iter().enumerate().filter(|(_, table)| table.is_far)
        {
            let table = FarTable {
                number,
                look_ups: self.batch_look_ups(*step)?,
                columns: self.body.read_behind(*step + 1),
                way: Way { fresh, end: *step, pass },
            };
            let left = self.look_up(cx, (coming, known), &table)?;
            (coming, known, fresh) = (Coming::Left(left), number + 1, step + 1);
        }
        self.memory.keep_seen(cx);
        let Coming::Left(left) = coming else { return Ok(()) };
        let end = self.body.pipeline.steps.len();
        left.each(cx, |cx, place, row| {
            emitter.begin_row(cx);
            let found = self.memory.found(cx, place, known);
            self.body.pipeline.source.bind(cx, row)?;
            self.walk(cx, (0, Way { fresh, end, pass }), &found, &mut |cx, flow, _| {
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
    fn look_up(
        &self,
        cx: &mut Context<'_>,
        (coming, known): (Coming<'_>, usize),
        table: &FarTable<'_>,
    ) -> Result<Batch, Unsupported> {
        let (memory, way) = (&self.memory, table.way);
        let zero = cx.builder.i64(0);
        let count = cx.builder.var_of("batched", zero);
        let mut forms = Vec::new();
        let mut come = |cx: &mut Context<'_>, row: V, from: V, found: &[V]| {
            let at_table = &mut |cx: &mut Context<'_>, _: Flow, found: &[V]| {
                let place = cx.builder.read(count);
                match memory.begun.filter(|_| table.look_ups.has_begun_searches()) {
                    Some([slots, tags]) => {
                        let search = table.look_ups.begin(cx)?;
                        put(cx, slots, place, search.begun.slot);
                        put(cx, tags, place, search.begun.tag);
                        forms = keep_keys(cx, &memory.keys, (way.end, &search.keys), place);
                        let seen = cx.builder.convert(search.seen, Scalar::U64);
                        memory.see(cx, seen);
                    }
                    None => self.find(cx, table, None, place)?,
                }
                // What was read of a place is not needed any more, as no row comes to a place behind its own.
                let distance = cx.builder.sub(row, from);
                memory.keep(cx, place, distance, found);
                let next = cx.builder.add_int(place, 1);
                cx.builder.assign(count, next);
                Ok(())
            };
            let source = &self.body.pipeline.source;
            let live = if way.fresh == 0 { source.live(cx, row) } else { None };
            if let Some(live) = live {
                cx.begin_if(live);
            }
            source.bind(cx, row)?;
            self.walk(cx, (0, way), found, at_table)?;
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
        if let Some(begun) = memory.begun.filter(|_| table.look_ups.has_begun_searches()) {
            self.end_searches(cx, &left, (begun, &forms), table)?;
        }
        Ok(left)
    }

    /// Ends the searches of rows that have begun.
    fn end_searches(
        &self,
        cx: &mut Context<'_>,
        left: &Batch,
        ([slots, tags], forms): ([V; 2], &[KeyForm]),
        table: &FarTable<'_>,
    ) -> Emitted {
        let way = Way { fresh: table.way.end, ..table.way };
        left.each(cx, |cx, place, row| {
            let found = self.memory.found(cx, place, table.number);
            let (slot, tag) = (cx.builder.element(slots, place), cx.builder.element(tags, place));
            self.body.pipeline.source.bind(cx, row)?;
            self.walk(cx, (0, way), &found, &mut |cx, _, _| {
                let begun = Some((Begun { slot, tag }, kept_keys(cx, forms, place)));
                self.find(cx, table, begun, place)
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
        table: &FarTable<'_>,
        begun: Option<(Begun, Vec<(usize, Lowered)>)>,
        place: V,
    ) -> Emitted {
        let number = table.look_ups.find(cx, begun)?;
        if let Some(numbers) = self.memory.numbers.get(table.number) {
            put(cx, *numbers, place, number);
        }
        for seen in table.look_ups.look_at(cx, number, &table.columns) {
            self.memory.see(cx, seen);
        }
        Ok(())
    }

    fn batch_look_ups(&self, step: usize) -> Result<&dyn BatchLookUps, Unsupported> {
        let step = self.body.pipeline.steps.get(step).and_then(|step| step.batch_look_ups());
        step.ok_or_else(|| Unsupported::internal("a step that looks nothing up"))
    }

    /// The way of the current row from a step on. Where it has been before, it has passed what drops rows, and goes on with what was
    /// `found` of it; of tables that are near it is looked up as it comes to them.
    fn walk(
        &self,
        cx: &mut Context<'_>,
        (index, way): (usize, Way),
        found: &[V],
        next: &mut AtEnd<'_>,
    ) -> Emitted {
        let Some(step) = self.body.pipeline.steps.get(index).filter(|_| index < way.end) else {
            return next(cx, Flow::Branch, found);
        };
        let tables = &self.batched.tables;
        if let Some(table) = tables.iter().position(|table| table.step == index) {
            let look_ups = self.batch_look_ups(index)?;
            let number = match found.get(table) {
                Some(number) => *number,
                None => look_ups.find(cx, None)?,
            };
            let found = if table < found.len() { found.to_vec() } else { [found, &[number]].concat() };
            let behind = (index + 1, way);
            return look_ups.go_on_with(cx, number, &mut |cx, _| self.walk(cx, behind, &found, next));
        }
        if index >= way.fresh {
            let later = tables.iter().map(|table| table.step).find(|step| *step > index);
            let end = later.unwrap_or(way.end).min(way.end);
            let mut go_on = |cx: &mut Context<'_>, flow: Flow| match end == way.end {
                true => next(cx, flow, found),
                false => self.walk(cx, (end, way), found, next),
            };
            return self.body.steps_between(cx, (index, end), (Flow::Branch, way.pass), &mut go_on);
        }
        if step.condition().is_some() || step.runtime_filter().is_some() {
            return self.walk(cx, (index + 1, way), found, next);
        }
        step.consume(cx, Flow::Branch, false, &mut |cx, _| self.walk(cx, (index + 1, way), found, next))
    }
}
