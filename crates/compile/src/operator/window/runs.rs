//! Runs of rows that agree in the first keys of their order: partitions, and groups of peers.
//!
//! The first pass notes for each row whether the next one is of another run. The exclusive prefix sum of that is how many runs end
//! before a row, which is the number of its own; so runs and their rows know of each other without a search.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::valid_rows::ValidRows;
use super::{WindowOperator, number_at, store_number};
use crate::context::{Argument, Context, Repr, Unsupported};
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::lower::lower;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::operator::sort::SortOperator;
use crate::program::{HostAction, States, Task, When};
use crate::table::joined::Joined;
use crate::types::{DataType, Literal};

/// Runs of rows that agree in some first keys.
#[derive(Debug)]
pub(super) struct KeyRuns {
    /// So many.
    pub keys: usize,
    /// The stored columns of those keys; where the two zeros are one value, with `true`.
    columns: Vec<RunKey>,
    /// State of one `u32` a row: first whether the next row is of another run, later the number of its own.
    numbers: usize,
    /// States of one `u32` a run: its first row, and the row behind its last.
    starts: usize,
    ends: usize,
    /// State that counts the runs, one `u64`, where they are groups.
    count: Option<usize>,
}

/// A key of runs.
#[derive(Debug, Clone)]
pub(super) struct RunKey {
    /// Over the stored columns.
    pub column: Expr,
    /// Rows are partitioned by it: the two zeros are one value.
    pub is_partition: bool,
}

/// The run of a row: its number, its first row and the row behind its last, `i64` each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub number: V,
    pub start: V,
    pub end: V,
}

impl KeyRuns {
    /// Declares the states of runs by some first keys.
    pub fn plan(keys: &[RunKey], are_groups: bool, sort: &SortOperator, states: &mut States) -> KeyRuns {
        KeyRuns {
            keys: keys.len(),
            columns: keys.to_vec(),
            numbers: sort.numbers("run_numbers", states),
            starts: sort.numbers("run_starts", states),
            ends: sort.numbers("run_ends", states),
            count: are_groups.then(|| states.counter("run_count")),
        }
    }

    /// The state that counts the runs, where they are groups.
    pub fn count(&self) -> Option<usize> {
        self.count
    }

    /// The number of a row's run, which is no greater than the row's.
    pub fn number(&self, cx: &mut Context<'_>, row: V) -> V {
        let number = number_at(cx, ("run_numbers", self.numbers), row);
        cx.builder.binary(BinaryOp::Min, number, row)
    }

    /// Where a run begins.
    pub fn start(&self, cx: &mut Context<'_>, number: V) -> V {
        number_at(cx, ("run_starts", self.starts), number)
    }

    /// Where a run ends.
    pub fn end(&self, cx: &mut Context<'_>, number: V) -> V {
        number_at(cx, ("run_ends", self.ends), number)
    }

    pub fn states(&self) -> [usize; 3] {
        [self.numbers, self.starts, self.ends]
    }
}

/// Whether a key of a row differs from that of the next one, `bool`. Rows of the sort are on the row, and behind their columns those
/// of the next one begin at column `next`.
fn differs(cx: &mut Context<'_>, key: &RunKey, next: usize) -> Result<V, Unsupported> {
    let float = key.column.data_type.is_float() && key.is_partition;
    let side = |place: usize| {
        let column = Expr { kind: ExprKind::Column(place), ..key.column.clone() };
        if !float {
            return Box::new(column);
        }
        // -0.0 + 0.0 is 0.0, and every other value stays what it is.
        let (data_type, nullable) = (column.data_type.clone(), column.nullable);
        let zero = Expr::literal(Literal::Float(0.0), data_type.clone());
        let kind = ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(column), Box::new(zero));
        Box::new(Expr { kind, data_type, nullable })
    };
    let ExprKind::Column(own) = key.column.kind else {
        return Err(Unsupported::internal("a key of a window that is not stored"));
    };
    let kind = ExprKind::Distinct(false, side(own), side(next));
    let differs = lower(cx, &Expr { kind, data_type: DataType::Boolean, nullable: false })?;
    match differs.repr {
        Repr::Scalar(value) => Ok(value),
        Repr::Text(_) => Err(Unsupported::internal("a text where a truth value is expected")),
    }
}

/// The first pass: each row notes whether the next one differs from it, and leaves what it contributes to trees.
#[derive(Debug)]
pub(crate) struct RunEnds(pub Arc<WindowOperator>);

displayed!(RunEnds = "ends of runs");

impl Sink for RunEnds {
    fn needs(&self) -> Needs {
        // Whoever looks at the rows asks how many of them trees have room for.
        let levels = HostAction::each(When::BeforeGroup, self.0.levels.clone(), Task::Size);
        Needs { around: levels, ..Needs::default() }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let window = &*self.0;
        let mut columns: BTreeSet<usize> = window.runs.iter().flat_map(KeyRuns::columns).collect();
        columns.extend(window.valid_rows.iter().map(|rows| rows.column));
        columns.extend(window.range_keys.iter().map(|key| key.column));
        columns.extend(window.trees().flat_map(|tree| tree.columns()));
        // Those of the next row are looked up.
        window.sort.read_columns(columns.iter().copied(), states);
        states.insert(window.sort.delivered());
        columns
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(EndEmitter(&self.0)))
    }
}

impl KeyRuns {
    fn columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().filter_map(|key| match key.column.kind {
            ExprKind::Column(column) => Some(column),
            _ => None,
        })
    }
}

struct EndEmitter<'s>(&'s WindowOperator);

impl Emitter for EndEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let window = self.0;
        for tree in window.trees() {
            tree.store_leaf(cx, row)?;
        }
        for key in &window.range_keys {
            key.store(cx, row)?;
        }
        if !window.has_numbers() {
            return Ok(());
        }
        let rows = window.rows(cx);
        let b = &mut *cx.builder;
        let one = b.i64(1);
        let (next, last) = (b.add(row, one), b.sub(rows, one));
        let is_last = b.ge(next, rows);
        let next = b.binary(BinaryOp::Min, next, last);
        let zero = cx.builder.i64(0);
        let next = cx.builder.binary(BinaryOp::Max, next, zero);
        window.note_next(cx, row, (next, is_last))
    }
}

impl WindowOperator {
    /// Notes what of the next row (`i64`, readable) tells runs and rows with values apart; nothing where `is_last`.
    fn note_next(&self, cx: &mut Context<'_>, row: V, (next, is_last): (V, V)) -> Result<(), Unsupported> {
        let width = self.sort.infos().len();
        let compared: BTreeSet<usize> = self.runs.iter().flat_map(KeyRuns::columns).collect();
        let compared = compared.into_iter().chain(self.valid_rows.iter().map(|rows| rows.column));
        let compared: BTreeSet<usize> = compared.collect();
        let mut columns: Vec<Joined> = (0..width).map(Joined::Below).collect();
        columns.extend(self.sort.columns_at(cx, compared.iter().copied(), next, None));
        cx.push_joined(columns);
        let place = |column: usize| {
            let place = compared.iter().position(|other| *other == column);
            place
                .map(|place| width + place)
                .ok_or_else(|| Unsupported::internal("a key that was not looked up"))
        };
        // Runs by more keys end wherever those by fewer do: keys are compared once.
        let mut known = (0, cx.builder.bool(false));
        for runs in &self.runs {
            for key in runs.columns.iter().skip(known.0) {
                let ExprKind::Column(column) = key.column.kind else { continue };
                let differs = differs(cx, key, place(column)?)?;
                known.1 = cx.builder.or(known.1, differs);
            }
            known.0 = known.0.max(runs.keys);
            let more = cx.builder.not(is_last);
            let ends = cx.builder.and(known.1, more);
            let ends = cx.builder.convert(ends, Scalar::I64);
            store_number(cx, ("run_numbers", runs.numbers), row, ends);
        }
        for rows in &self.valid_rows {
            rows.note_next(cx, row, (place(rows.column)?, is_last))?;
        }
        cx.pop_layer();
        Ok(())
    }
}

/// The second pass: where runs begin and end, and the rows that have values.
#[derive(Debug)]
pub(crate) struct RunPlaces(pub Arc<WindowOperator>);

displayed!(RunPlaces = "runs");

impl Sink for RunPlaces {
    fn needs(&self) -> Needs {
        let numbers = self.0.runs.iter().map(|runs| runs.numbers);
        let counts = self.0.valid_rows.iter().map(|rows| rows.counts);
        let sums = HostAction::each(When::BeforeGroup, numbers.chain(counts).collect(), Task::PrefixSum);
        let zeroed = self.0.runs.iter().filter_map(KeyRuns::count).collect();
        Needs { zeroed, around: sums, ..Needs::default() }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        states.extend(self.0.runs.iter().map(|runs| runs.numbers));
        states.extend(self.0.valid_rows.iter().flat_map(ValidRows::counted));
        states.insert(self.0.sort.delivered());
        self.0.valid_rows.iter().map(|rows| rows.column).collect()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(PlaceEmitter(&self.0)))
    }
}

struct PlaceEmitter<'s>(&'s WindowOperator);

impl Emitter for PlaceEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let window = self.0;
        let rows = window.rows(cx);
        for runs in &window.runs {
            let b = &mut *cx.builder;
            let (one, zero) = (b.i64(1), b.i64(0));
            let (before, behind, last) = (b.sub(row, one), b.add(row, one), b.sub(rows, one));
            let (is_first, is_last) = (b.eq(row, zero), b.ge(row, last));
            let before = b.binary(BinaryOp::Max, before, zero);
            let next = b.binary(BinaryOp::Min, behind, last);
            let next = b.binary(BinaryOp::Max, next, zero);
            let own = runs.number(cx, row);
            let (left, right) = (runs.number(cx, before), runs.number(cx, next));
            let begins = cx.builder.ne(left, own);
            let begins = cx.builder.or(begins, is_first);
            cx.begin_if(begins);
            store_number(cx, ("run_starts", runs.starts), own, row);
            cx.end();
            let ends = cx.builder.ne(right, own);
            let ends = cx.builder.or(ends, is_last);
            cx.begin_if(ends);
            store_number(cx, ("run_ends", runs.ends), own, behind);
            cx.end();
            if let Some(count) = runs.count {
                cx.begin_if(is_last);
                let counter = cx.argument("run_count", Type::global(Scalar::U64), Argument::State(count));
                let all = cx.builder.add(own, one);
                let all = cx.builder.bitcast(all, Scalar::U64);
                cx.builder.store(counter, all);
                cx.end();
            }
        }
        window.valid_rows.iter().try_for_each(|rows| rows.place(cx, row))
    }
}
