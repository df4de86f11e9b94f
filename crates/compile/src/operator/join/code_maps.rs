//! The pass that maps the codes of one dictionary to those of another, once an entry and run of the stage.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use crate::context::{Argument, Constant, Context, DictionaryCode, Lowered, Repr, Text, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::text_order;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink, Source};
use crate::program::{Growth, RowCount, States};
use crate::types::DataType;

/// The dictionary of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dictionary {
    /// The scan of the query that has the column.
    pub scan: usize,
    /// Its position in the scan.
    pub column: usize,
    pub entries: u32,
}

impl Dictionary {
    pub fn of(info: &ColumnInfo) -> Option<Dictionary> {
        info.dictionary.map(|(scan, column, entries)| Dictionary { scan, column, entries })
    }

    /// The entry with a code (`u32`, within the dictionary).
    pub fn entry(&self, cx: &mut Context<'_>, value: V) -> Text {
        let Dictionary { scan, column, entries } = *self;
        cx.dictionary_entry(DictionaryCode { value, entries, scan, column })
    }
}

/// The code in one dictionary of each entry of another.
#[derive(Debug, Clone)]
pub(crate) struct CodeMap {
    pub(super) from: Dictionary,
    to: Dictionary,
    /// Its class has as many elements as `from` has entries.
    class: usize,
    state: usize,
    /// Of an element: also holds the number behind the last code.
    scalar: Scalar,
}

impl CodeMap {
    pub(super) fn plan(from: Dictionary, to: Dictionary, states: &mut States) -> CodeMap {
        let scalar = match to.entries {
            0..=0xff => Scalar::U8,
            0x100..=0xffff => Scalar::U16,
            _ => Scalar::U32,
        };
        let class = states.class(from.entries.into(), Growth::Fixed);
        let state = states.state("text_codes", scalar.bytes(), class);
        CodeMap { from, to, class, state, scalar }
    }

    /// What the map has for a code (`u32`).
    pub fn element(&self, cx: &mut Context<'_>, code: V) -> V {
        let map = cx.argument("text_codes", Type::global(self.scalar), Argument::State(self.state));
        cx.builder.element(map, code)
    }

    /// How many entries are looked up.
    pub fn count(&self) -> u64 {
        self.from.entries.into()
    }
}

/// The entries of the dictionary that is looked up, as rows of one text.
#[derive(Debug)]
pub(crate) struct Entries(pub CodeMap);

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dictionary entries")
    }
}

impl Source for Entries {
    fn rows(&self) -> RowCount {
        RowCount::Class(self.0.class)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        vec![ColumnInfo::new(DataType::Utf8, false, None)]
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let code = cx.builder.convert(row, Scalar::U32);
        let text = Text { code: None, ..self.0.from.entry(cx, code) };
        cx.begin_values(vec![Lowered { repr: Repr::Text(text), valid: None, range: None }]);
        Ok(())
    }

    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) {}
}

/// Looks texts up in a dictionary, and writes down their codes.
#[derive(Debug)]
pub(crate) struct MapEntries(pub CodeMap);

impl fmt::Display for MapEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("codes of the build side")
    }
}

impl Sink for MapEntries {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::from([0])
    }

    fn keeps_text(&self) -> bool {
        false
    }

    fn estimated_rows(&self, _rows: u64) -> Option<u64> {
        None
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(MapEmitter(&self.0)))
    }
}

struct MapEmitter<'s>(&'s CodeMap);

impl Emitter for MapEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let CodeMap { to, state, scalar, .. } = *self.0;
        let Repr::Text(text) = cx.column(0)?.repr else {
            return Err(Unsupported::internal("an entry of a dictionary is a text"));
        };
        let code = code_in(cx, to, &text);
        let map = cx.argument("text_codes", Type::global(scalar), Argument::State(state));
        let pointer = cx.builder.offset(map, row);
        let code = cx.builder.convert(code, scalar);
        cx.builder.store(pointer, code);
        Ok(())
    }
}

/// The code (`u32`) that a text has in a dictionary, found by halving; the number of its entries where it is none of them.
pub(super) fn code_in(cx: &mut Context<'_>, dictionary: Dictionary, text: &Text) -> V {
    let entries = cx.constant(Constant::Int(Scalar::U32, dictionary.entries.into()));
    let (zero, one) = (cx.builder.u32(0), cx.builder.u32(1));
    let (low, high) = (cx.builder.var_of("low", zero), cx.builder.var_of("high", entries));
    let code = cx.builder.var_of("code", entries);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let (first, end) = (b.read(low), b.read(high));
    let done = b.ge(first, end);
    b.break_if(done);
    // There are at most 65,536 entries: the sum does not overflow.
    let sum = b.add(first, end);
    let middle = b.binary(BinaryOp::Shr, sum, one);
    let entry = dictionary.entry(cx, middle);
    let order = text_order(cx, &entry, text);
    let nothing = cx.builder.i32(0);
    let is_it = cx.builder.eq(order, nothing);
    cx.begin_if(is_it);
    cx.builder.assign(code, middle);
    cx.builder.break_loop();
    cx.end();
    let is_below = cx.builder.lt(order, nothing);
    let behind = cx.builder.add(middle, one);
    let from = cx.builder.select(is_below, behind, first);
    let to = cx.builder.select(is_below, end, middle);
    cx.builder.assign(low, from);
    cx.builder.assign(high, to);
    cx.end();
    cx.builder.read(code)
}
