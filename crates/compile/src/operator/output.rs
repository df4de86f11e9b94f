//! The result: a dense write of the rows that arrive (`table::places`). On a CPU the prefix sum of A3 is a
//! selection vector in the worker's memory, and there is one atomic a batch.
//!
//! The bytes of a text take their place in the column's heap by an atomic of their own under every micro model: only when
//! a row is written is it known how many there are.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, CompareOp, Expr as Kir, Scalar, Scope, Type};

use crate::context::register_type;
use crate::context::{Argument, Case, Constant, Context, Lowered, Repr, Text, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::copy_exactly;
use crate::operator::Flow;
use crate::operator::dense::DenseEmitter;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::program::States;
use crate::program::{Growth, HostAction, OutputColumn, OutputLayout, OutputStorage, Task, When};
use crate::shape::LaunchShape;
use crate::table::chunks::PlaceChunks;
use crate::table::places::{Dense, DenseTarget};
use crate::table::report_growth;
use crate::types::{DataType, Field};

/// Rows that the result holds at the first launch, at most.
const INITIAL_ROWS: u64 = 1 << 20;
/// Bytes of text a row that a heap holds at the first launch.
const INITIAL_TEXT_BYTES: u64 = 16;

/// The result of a query.
#[derive(Debug, Clone)]
pub struct OutputOperator {
    count: usize,
    rows: usize,
    /// A state of the rows' class, whose capacity is the number of places.
    places: usize,
    columns: Vec<OutputColumn>,
    heaps: Vec<OutputHeap>,
    /// A row's place is its number in the source: the engine says how many there are.
    is_ordered: bool,
    /// At most this many rows are wanted, whichever.
    limit: Option<u64>,
    /// Where workers may take many places at a time.
    chunks: Option<PlaceChunks>,
}

/// The heap of a text column.
#[derive(Debug, Clone)]
struct OutputHeap {
    state: usize,
    class: usize,
    /// State that counts its bytes.
    cursor: usize,
}

impl OutputOperator {
    /// Declares the columns' states. `infos`: what is known of the columns, also where several pipelines write them; `shape`: of the
    /// launches that write them.
    pub(crate) fn plan(
        fields: &[Field],
        infos: &[ColumnInfo],
        (row_bound, shape): (u64, &LaunchShape),
        states: &mut States,
    ) -> Result<OutputOperator, Unsupported> {
        let count = states.counter("row_count");
        let room = (row_bound, PlaceChunks::slack(row_bound, shape));
        let operator = OutputOperator::declare_all(fields, infos, room, count, states)?;
        let chunks = PlaceChunks::plan((row_bound, shape), (count, operator.rows), states);
        Ok(OutputOperator { chunks, ..operator })
    }

    /// As [`OutputOperator::plan`], of at most `limit` rows, whichever.
    pub(crate) fn plan_limited(
        fields: &[Field],
        infos: &[ColumnInfo],
        row_bound: u64,
        limit: u64,
        states: &mut States,
    ) -> Result<OutputOperator, Unsupported> {
        let count = states.counter("row_count");
        let operator = OutputOperator::declare_all(fields, infos, (row_bound.min(limit), 0), count, states)?;
        Ok(OutputOperator { limit: Some(limit), ..operator })
    }

    /// Declares the columns' states of a result in the order of its source, whose rows the state `count` tells.
    pub(crate) fn plan_ordered(
        fields: &[Field],
        infos: &[ColumnInfo],
        row_bound: u64,
        count: usize,
        states: &mut States,
    ) -> Result<OutputOperator, Unsupported> {
        let operator = OutputOperator::declare_all(fields, infos, (row_bound, 0), count, states)?;
        Ok(OutputOperator { is_ordered: true, ..operator })
    }

    fn declare_all(
        fields: &[Field],
        infos: &[ColumnInfo],
        (row_bound, slack): (u64, u64),
        count: usize,
        states: &mut States,
    ) -> Result<OutputOperator, Unsupported> {
        let rows = states.class(row_bound.clamp(1, INITIAL_ROWS) + slack, Growth::Counted(count));
        let places = states.state("places", 1, rows);
        let mut operator = OutputOperator {
            count,
            rows,
            places,
            columns: Vec::new(),
            heaps: Vec::new(),
            is_ordered: false,
            limit: None,
            chunks: None,
        };
        for (field, info) in fields.iter().zip(infos) {
            let column = operator.declare(field, info, states);
            operator.columns.push(column);
        }
        Ok(operator)
    }

    fn declare(&mut self, field: &Field, info: &ColumnInfo, states: &mut States) -> OutputColumn {
        let storage = match (&field.data_type, info.dictionary) {
            (DataType::Null, _) => OutputStorage::Null,
            (DataType::Utf8, Some((scan, column, entries))) => {
                let code = code_type(entries);
                let state = states.state(&field.name, code.bytes(), self.rows);
                OutputStorage::Codes { code, state, scan, column }
            }
            (DataType::Utf8, None) => {
                let cursor = states.counter("heap_cursor");
                let rows = states.classes[self.rows].initial;
                let class = states.class(rows * INITIAL_TEXT_BYTES, Growth::Counted(cursor));
                let heap = states.state(&field.name, 1, class);
                self.heaps.push(OutputHeap { state: heap, class, cursor });
                OutputStorage::Text {
                    offsets: states.state(&field.name, 8, self.rows),
                    lengths: states.state(&field.name, 4, self.rows),
                    heap,
                    used: cursor,
                }
            }
            _ => {
                let scalar = register_type(&info.data_type, info.range);
                OutputStorage::Scalar(scalar, states.state(&field.name, scalar.bytes(), self.rows))
            }
        };
        let validity = info.nullable.then(|| states.state(&field.name, 1, self.rows));
        let (name, data_type) = (field.name.clone(), field.data_type.clone());
        let (range, scattered) = (info.range, info.scattered);
        OutputColumn { name, data_type, validity, storage, range, scattered, order: None }
    }

    /// Where the result lies.
    pub(crate) fn layout(&self) -> OutputLayout {
        OutputLayout { count: self.count, columns: self.columns.clone(), limit: self.limit }
    }

    /// The class of the rows.
    pub(crate) fn class(&self) -> usize {
        self.rows
    }

    /// Writes the current row, which is live, to place `position` (`u64`); where there is none, asks for more.
    pub(crate) fn write_row(&self, cx: &mut Context<'_>, position: V) -> Result<(), Unsupported> {
        let capacity = cx.argument("row_capacity", Scalar::I64, Argument::StateCapacity(self.places));
        if let Some(limit) = self.limit {
            let limit = cx.constant(Constant::Int(Scalar::U64, limit.into()));
            let wanted = cx.builder.lt(position, limit);
            cx.begin_if(wanted);
        }
        let position = cx.builder.bitcast(position, Scalar::I64);
        let fits = cx.builder.lt(position, capacity);
        cx.begin_if(fits);
        for (index, column) in self.columns.iter().enumerate() {
            if let OutputStorage::Codes { code, state, .. } = column.storage {
                write_code(cx, (index, column), (code, state), position)?;
                continue;
            }
            let value = cx.column(index)?;
            write_validity(cx, column, value.valid, position);
            self.write_column(cx, column, &value, position);
        }
        cx.begin_else();
        let is_first = cx.builder.eq(position, capacity);
        report_growth(cx, is_first);
        cx.end();
        if self.limit.is_some() {
            cx.end();
        }
        Ok(())
    }

    fn write_column(&self, cx: &mut Context<'_>, column: &OutputColumn, value: &Lowered, position: V) {
        match (column.storage, &value.repr) {
            (OutputStorage::Scalar(scalar, state), Repr::Scalar(value)) => {
                let array = cx.argument("out", Type::global(scalar), Argument::State(state));
                let pointer = cx.builder.offset(array, position);
                let value = cx.builder.convert(*value, scalar);
                cx.builder.store(pointer, value);
            }
            (OutputStorage::Text { offsets, lengths, heap, .. }, Repr::Text(text)) => {
                let Some(heap) = self.heaps.iter().find(|known| known.state == heap) else {
                    return cx.impossible("a column of text without a heap");
                };
                let (offset, length) = Self::write_text(cx, text, value.valid, heap);
                let array = cx.argument("out_offsets", Type::global(Scalar::U64), Argument::State(offsets));
                let pointer = cx.builder.offset(array, position);
                cx.builder.store(pointer, offset);
                let array = cx.argument("out_lengths", Type::global(Scalar::U32), Argument::State(lengths));
                let pointer = cx.builder.offset(array, position);
                cx.builder.store(pointer, length);
            }
            (OutputStorage::Null, _) => {}
            _ => cx.impossible("a column of the result changed its representation"),
        }
    }

    /// Copies a text into the heap: its offset and length there.
    fn write_text(cx: &mut Context<'_>, text: &Text, valid: Option<V>, heap: &OutputHeap) -> (V, V) {
        let zero = cx.builder.u32(0);
        let length = match valid {
            Some(valid) => cx.builder.select(valid, text.length, zero),
            None => text.length,
        };
        let cursor = cx.argument("heap_cursor", Type::global(Scalar::U64), Argument::State(heap.cursor));
        let bytes = cx.builder.convert(length, Scalar::U64);
        let offset = cx.builder.atomic(AtomicOp::Add, cursor, bytes, Scope::Device);
        let end = cx.builder.add(offset, bytes);
        let capacity = cx.argument("heap_capacity", Scalar::I64, Argument::StateCapacity(heap.state));
        let capacity = cx.builder.bitcast(capacity, Scalar::U64);
        let fits = cx.builder.compare(CompareOp::Le, end, capacity);
        let array = cx.argument("heap", Type::global(Scalar::U8), Argument::State(heap.state));
        cx.begin_if(fits);
        let target = cx.builder.offset(array, offset);
        copy_exactly(cx, target, text, length);
        cx.begin_else();
        let is_first = cx.builder.compare(CompareOp::Le, offset, capacity);
        report_growth(cx, is_first);
        cx.end();
        (offset, length)
    }
}

impl fmt::Display for OutputOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("result")
    }
}

impl Dense for OutputOperator {
    fn chunks(&self) -> Option<PlaceChunks> {
        self.chunks
    }

    fn reserve(&self, cx: &mut Context<'_>, count: V) -> V {
        let counter = cx.argument("row_count", Type::global(Scalar::U64), Argument::State(self.count));
        cx.builder.atomic(AtomicOp::Add, counter, count, Scope::Device)
    }

    fn write(&self, cx: &mut Context<'_>, place: V, _needed: &BTreeSet<usize>) -> Result<(), Unsupported> {
        self.write_row(cx, place)
    }

    fn is_done(&self, cx: &mut Context<'_>) -> Option<V> {
        let limit = cx.constant(Constant::Int(Scalar::U64, self.limit?.into()));
        let counter = cx.argument("row_count", Type::global(Scalar::U64), Argument::State(self.count));
        let count = cx.builder.atomic_load(counter, Scope::Device);
        let done = cx.builder.ge(count, limit);
        Some(if cx.shape.lanes > 1 { cx.builder.value(Kir::Any(done)) } else { done })
    }
}

impl Sink for OutputOperator {
    fn needs(&self) -> Needs {
        let mut zeroed: Vec<usize> = (!self.is_ordered).then_some(self.count).into_iter().collect();
        zeroed.extend(self.heaps.iter().map(|heap| heap.cursor));
        let classes = [self.rows].into_iter().chain(self.heaps.iter().map(|heap| heap.class)).collect();
        let around = HostAction::each(When::OnGrow, classes, Task::Grow);
        Needs { zeroed, produced: Some(self.count), around }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        (0..self.columns.len()).collect()
    }

    fn target(&self) -> Option<DenseTarget> {
        let (total, class, limit, chunks) = (self.count, self.rows, self.limit, self.chunks);
        (!self.is_ordered).then_some(DenseTarget { total, class, limit, keeps_places: false, chunks })
    }

    fn takes_places(&self) -> Option<(usize, bool)> {
        Some((self.rows, self.limit.is_some()))
    }

    fn staged(&self) -> Option<&dyn Dense> {
        (!self.is_ordered).then_some(self)
    }

    fn keeps_text(&self) -> bool {
        false
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        // Texts of the result are copied.
        cx.make_rows_scratch(None);
        Ok(match self.is_ordered {
            true => Box::new(InOrder(self)),
            false => Box::new(DenseEmitter::begin(self, cx, job)),
        })
    }
}

/// Writes rows to the places of the source's.
struct InOrder<'s>(&'s OutputOperator);

impl Emitter for InOrder<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let place = cx.builder.bitcast(row, Scalar::U64);
        self.0.write_row(cx, place)
    }
}

/// The type of the codes of so many entries: that of the column whose dictionary it is.
fn code_type(entries: u32) -> Scalar {
    match entries {
        0..=0x100 => Scalar::U8,
        0x101..=0x1_0000 => Scalar::U16,
        _ => Scalar::U32,
    }
}

fn write_validity(cx: &mut Context<'_>, column: &OutputColumn, valid: Option<V>, position: V) {
    let Some(state) = column.validity else { return };
    let array = cx.argument("out_validity", Type::global(Scalar::U8), Argument::State(state));
    let pointer = cx.builder.offset(array, position);
    // Declared nullable, but this pipeline's rows may never be NULL.
    let valid = match valid {
        Some(valid) => cx.builder.convert(valid, Scalar::U8),
        None => cx.builder.int(Scalar::U8, 1),
    };
    cx.builder.store(pointer, valid);
}

/// Writes the code of column `index`. Who scans the rows looks entries up under NULLs too, so that there has to be a code.
fn write_code(
    cx: &mut Context<'_>,
    (index, column): (usize, &OutputColumn),
    (scalar, state): (Scalar, usize),
    position: V,
) -> Result<(), Unsupported> {
    let found = cx.dictionary_code(index);
    let (code, valid) = found.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
    write_validity(cx, column, valid, position);
    let array = cx.argument("out_codes", Type::global(scalar), Argument::State(state));
    let pointer = cx.builder.offset(array, position);
    let zero = cx.builder.u32(0);
    let code = match valid {
        Some(valid) => cx.builder.select(valid, code.value, zero),
        None => code.value,
    };
    let code = cx.builder.convert(code, scalar);
    cx.builder.store(pointer, code);
    Ok(())
}

/// An ASCII byte in the case asked for.
pub fn map_case(cx: &mut Context<'_>, byte: V, case: Case) -> V {
    let first = match case {
        Case::Keep => return byte,
        Case::Upper => b'a',
        Case::Lower => b'A',
    };
    let b = &mut *cx.builder;
    let distance = b.sub_int(byte, first);
    let is_letter = b.lt_int(distance, 26);
    let flipped = b.xor_int(byte, 0x20);
    b.select(is_letter, flipped, byte)
}
