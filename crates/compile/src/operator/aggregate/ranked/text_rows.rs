//! The texts of groups strung together by all rows at once, where a group may have so many that they are no work for one thread
//! (`group_text`): the rows of a sort are gone through twice. First each notes how many bytes it has, its text's and the delimiter's
//! before it; the prefix sum of these is where its bytes begin, and their sum how many there are. Then each copies its bytes there. The
//! rows of a group follow each other, and so do their bytes: a group's text begins behind the delimiter of its first row and ends with
//! its last one.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, CompareOp, Scalar, Scope, Type};

use super::group_text::stored_value;
use crate::context::{Argument, Case, Context, Lowered, Moved, Repr, Status, Text, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::lower::{copy_exactly, lower, text_of};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::operator::sort::SortOperator;
use crate::program::{Fill, Growth, HostAction, States, Task, When};
use crate::table::joined::Made;

/// Bytes of the longest text.
const LENGTH_LIMIT: u64 = i32::MAX as u64;

/// Where the texts of the rows of a sort are strung together.
#[derive(Debug, Clone)]
pub(crate) struct TextRows {
    /// The stored column of the texts.
    column: usize,
    delimiter: Expr,
    /// State of one `u32` a row, in their order: how many bytes it has, later where they begin.
    places: usize,
    /// State of one `u64`: how many bytes all have.
    total: usize,
    /// State of the bytes, and its class.
    bytes: usize,
    class: usize,
}

impl TextRows {
    /// Declares the states for the texts that an expression over the rows of a sort is.
    pub fn plan(
        sort: &SortOperator,
        argument: &Expr,
        delimiter: &Expr,
        states: &mut States,
    ) -> Result<TextRows, Unsupported> {
        let ExprKind::Column(column) = argument.kind else {
            return Err(Unsupported::internal("texts of rows that are not stored"));
        };
        let total = states.counter("text_total");
        let class = states.class(1, Growth::Sized(total, Fill { taken: 1, of: 1 }));
        let places = states.state("text_places", 4, sort.class());
        let bytes = states.state("texts", 1, class);
        Ok(TextRows { column, delimiter: delimiter.clone(), places, total, bytes, class })
    }

    /// The states that whoever reads the texts reads.
    pub fn states(&self) -> [usize; 2] {
        [self.places, self.bytes]
    }

    fn delimiter(&self, cx: &mut Context<'_>) -> Result<Text, Unsupported> {
        let delimiter = lower(cx, &self.delimiter)?;
        text_of(&delimiter)
    }

    /// The bytes of the delimiter and the text of a row (`u32` each): none where the text is NULL.
    fn lengths(cx: &mut Context<'_>, delimiter: &Text, value: &Lowered) -> Result<(V, V), Unsupported> {
        let text = text_of(value)?;
        let Some(valid) = value.valid else { return Ok((delimiter.length, text.length)) };
        let b = &mut *cx.builder;
        let none = b.u32(0);
        Ok((b.select(valid, delimiter.length, none), b.select(valid, text.length, none)))
    }

    fn places(&self, cx: &mut Context<'_>) -> V {
        cx.argument("text_places", Type::global(Scalar::U32), Argument::State(self.places))
    }

    fn bytes(&self, cx: &mut Context<'_>) -> V {
        cx.argument("texts", Type::global(Scalar::U8), Argument::State(self.bytes))
    }
}

/// Notes how many bytes each row has.
#[derive(Debug)]
pub(crate) struct TextLengths(pub Arc<[TextRows]>);

displayed!(TextLengths = "lengths of texts");

impl Sink for TextLengths {
    fn needs(&self) -> Needs {
        let zeroed = self.0.iter().map(|texts| texts.total).collect();
        Needs { zeroed, produced: None, around: Vec::new() }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.0.iter().map(|texts| texts.column).collect()
    }

    fn keeps_text(&self) -> bool {
        false
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let total = |_: &TextRows| {
            let nothing = cx.builder.u64(0);
            cx.builder.var_of("text_bytes", nothing)
        };
        let totals = self.0.iter().map(total).collect();
        Ok(Box::new(LengthEmitter { texts: &self.0, totals }))
    }
}

struct LengthEmitter<'s> {
    texts: &'s [TextRows],
    /// The bytes of the thread's rows.
    totals: Vec<Var>,
}

impl Emitter for LengthEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        for (texts, total) in self.texts.iter().zip(&self.totals) {
            let delimiter = texts.delimiter(cx)?;
            let value = cx.column(texts.column)?;
            let (between, length) = TextRows::lengths(cx, &delimiter, &value)?;
            let places = texts.places(cx);
            let b = &mut *cx.builder;
            // Where the sum is beyond 32 bits, so is that of all rows, and nobody reads this.
            let bytes = b.add(between, length);
            let place = b.offset(places, row);
            b.store(place, bytes);
            for bytes in [between, length] {
                let (before, bytes) = (b.read(*total), b.convert(bytes, Scalar::U64));
                let after = b.add(before, bytes);
                b.assign(*total, after);
            }
        }
        Ok(())
    }

    /// Places have 32 bits.
    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        for (texts, total) in self.texts.iter().zip(&self.totals) {
            let counter = cx.argument("text_total", Type::global(Scalar::U64), Argument::State(texts.total));
            let own = cx.builder.read(*total);
            let before = cx.builder.atomic(AtomicOp::Add, counter, own, Scope::Device);
            let b = &mut *cx.builder;
            let (after, most) = (b.add(before, own), b.u64(u32::MAX.into()));
            let too_many = b.compare(CompareOp::Gt, after, most);
            cx.begin_if(too_many);
            cx.builder.report(Status::Fallback as u32);
            cx.end();
        }
        Ok(())
    }
}

/// Copies the bytes of each row to their place.
#[derive(Debug)]
pub(crate) struct TextCopies(pub Arc<[TextRows]>);

displayed!(TextCopies = "texts");

impl Sink for TextCopies {
    fn needs(&self) -> Needs {
        let of = |number: fn(&TextRows) -> usize| self.0.iter().map(number).collect();
        let mut around = HostAction::each(When::BeforeGroup, of(|texts| texts.class), Task::Size);
        around.extend(HostAction::each(When::BeforeGroup, of(|texts| texts.places), Task::PrefixSum));
        Needs { zeroed: Vec::new(), produced: None, around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        states.extend(self.0.iter().map(|texts| texts.places));
        self.0.iter().map(|texts| texts.column).collect()
    }

    fn keeps_text(&self) -> bool {
        false
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(CopyEmitter(&self.0)))
    }
}

struct CopyEmitter<'s>(&'s [TextRows]);

impl Emitter for CopyEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        for texts in self.0 {
            let delimiter = texts.delimiter(cx)?;
            let value = cx.column(texts.column)?;
            let (between, length) = TextRows::lengths(cx, &delimiter, &value)?;
            let text = text_of(&value)?;
            let (places, target) = (texts.places(cx), texts.bytes(cx));
            let capacity = cx.argument("text_capacity", Scalar::I64, Argument::StateCapacity(texts.bytes));
            let b = &mut *cx.builder;
            let place = b.element(places, row);
            let place = b.convert(place, Scalar::U64);
            let (wide, more) = (b.convert(between, Scalar::U64), b.convert(length, Scalar::U64));
            let middle = b.add(place, wide);
            let (end, capacity) = (b.add(middle, more), b.bitcast(capacity, Scalar::U64));
            let fits = b.compare(CompareOp::Le, end, capacity);
            cx.begin_if(fits);
            for (from, text, length) in [(place, &delimiter, between), (middle, &text, length)] {
                let to = cx.builder.offset(target, from);
                copy_exactly(cx, to, text, length);
            }
            // There may be more bytes than were foreseen where nobody has waited for their number: the stage runs again, and no kernel
            // after this one looks for bytes that are not there.
            cx.begin_else();
            cx.builder.report(Status::Grow as u32);
            cx.end();
        }
        Ok(())
    }
}

/// The text of the current group, where the texts of all rows are strung together.
#[derive(Debug, Clone)]
pub(crate) struct PlacedText {
    pub sort: Arc<SortOperator>,
    pub texts: TextRows,
    /// The number of the group's first row in the order, `i64`.
    pub first: V,
    /// How many rows it has, and how many of them have a text, `i64` each.
    pub rows: V,
    pub present: V,
}

impl Made for PlacedText {
    fn make(&self, cx: &mut Context<'_>) -> Result<Lowered, Unsupported> {
        let delimiter = self.texts.delimiter(cx)?;
        let (places, bytes) = (self.texts.places(cx), self.texts.bytes(cx));
        let b = &mut *cx.builder;
        let (none, one) = (b.i64(0), b.i64(1));
        let (has_rows, has_text) = (b.lt(none, self.rows), b.lt(none, self.present));
        let valid = b.and(has_rows, has_text);
        // Where there is no row, that of the first place can be read all the same.
        let first = b.select(valid, self.first, none);
        let behind = b.add(self.first, self.rows);
        let last = b.sub(behind, one);
        let last = b.select(valid, last, none);
        let value = stored_value(cx, &self.sort, self.texts.column, last, Some(valid))?;
        let (between, length) = TextRows::lengths(cx, &delimiter, &value)?;
        let b = &mut *cx.builder;
        let [begin, mut end] = [first, last].map(|row| {
            let place = b.element(places, row);
            b.convert(place, Scalar::U64)
        });
        for more in [between, length] {
            let more = b.convert(more, Scalar::U64);
            end = b.add(end, more);
        }
        let (skipped, nothing) = (b.convert(delimiter.length, Scalar::U64), b.u64(0));
        let begin = b.add(begin, skipped);
        let length = b.sub(end, begin);
        let (begin, length) = (b.select(valid, begin, nothing), b.select(valid, length, nothing));
        let too_long = b.gt_int(length, LENGTH_LIMIT);
        cx.begin_if(too_long);
        cx.builder.report(Status::Fallback as u32);
        cx.end();
        let b = &mut *cx.builder;
        let (data, length) = (b.offset(bytes, begin), b.convert(length, Scalar::U32));
        let text = Text { data, length, case: Case::Keep, code: None };
        Ok(Lowered { repr: Repr::Text(text), valid: Some(valid), range: None })
    }

    fn registers(&self) -> Vec<V> {
        vec![self.first, self.rows, self.present]
    }

    fn moved(&self, moved: &Moved) -> Rc<dyn Made> {
        let [first, rows, present] = [self.first, self.rows, self.present].map(|own| moved.of(own));
        Rc::new(PlacedText { first, rows, present, ..self.clone() })
    }
}
