//! Texts as keys of a join, told by the codes of dictionaries.
//!
//! Both sides' columns are codes already, each of a dictionary of its own. A small kernel looks each entry of the probe side's
//! dictionary up in the build side's, whose entries are in order, and writes down the code that the text has there. So no text is
//! hashed or compared for a row: the keys are integers of a small range, which are slots, and have bits in a bitmap. A text that the
//! build side's dictionary does not have gets the number behind its last code, which no build row has: such a row finds nothing, and
//! is no NULL, which kinds that tell NULLs apart would take it for.
//!
//! The map is made in each run of the stage: it is of the dictionaries that the run has.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::JoinOperator;
use crate::context::{Argument, Constant, Context, DictionaryCode, Lowered, Repr, Text, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::text_order;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink, Source};
use crate::program::{Growth, RowCount, States};
use crate::types::{DataType, Range};
use crate::variant::Site;
use crate::variant::axes::TextJoin;

/// The dictionary of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dictionary {
    /// The scan of the query that has the column.
    scan: usize,
    /// Its position in the scan.
    column: usize,
    entries: u32,
}

impl Dictionary {
    fn of(info: &ColumnInfo) -> Option<Dictionary> {
        info.dictionary.map(|(scan, column, entries)| Dictionary { scan, column, entries })
    }

    /// The entry with a code (`u32`, within the dictionary).
    fn entry(&self, cx: &mut Context<'_>, value: V) -> Text {
        let Dictionary { scan, column, entries } = *self;
        cx.dictionary_entry(DictionaryCode { value, entries, scan, column })
    }
}

/// A key of texts that are told by codes of the build side's dictionary.
#[derive(Debug, Clone)]
pub(crate) struct KeyCodes {
    build: Dictionary,
    /// From the probe side's codes; `None` where both sides have one dictionary.
    map: Option<CodeMap>,
}

/// The code in one dictionary of each entry of another.
#[derive(Debug, Clone)]
pub(crate) struct CodeMap {
    from: Dictionary,
    to: Dictionary,
    /// Its class has as many elements as `from` has entries.
    class: usize,
    state: usize,
    /// Of an element: also holds the number behind the last code.
    scalar: Scalar,
}

/// Which of a join's keys are told by codes, where that is chosen. What is known of the keys is that of the first `build` columns, and of
/// the probe side's `probe`.
pub(super) fn choose(
    build: &[ColumnInfo],
    probe: &[ColumnInfo],
    site: Site<'_>,
    states: &mut States,
) -> Result<Vec<Option<KeyCodes>>, Unsupported> {
    let none = vec![None; probe.len()];
    let keys = || build.iter().zip(probe);
    let mut texts = keys().filter(|(build, _)| build.data_type == DataType::Utf8).peekable();
    if texts.peek().is_none() {
        return Ok(none);
    }
    let lacks = texts.map(lacks_codes).min_by_key(Option::is_some).flatten();
    let rule = match lacks {
        Some(lacks) => (TextJoin::Texts, lacks),
        None => (TextJoin::Codes, "few texts on both sides are looked up once, not for each row"),
    };
    let chosen = site.choose(rule, |value| match (value, lacks) {
        (TextJoin::Codes, Some(lacks)) => Err(lacks.into()),
        _ => Ok(()),
    })?;
    match chosen {
        TextJoin::Texts => Ok(none),
        TextJoin::Codes => Ok(keys().map(|(build, probe)| KeyCodes::plan(build, probe, states)).collect()),
    }
}

/// What a pair of texts lacks to be told by codes.
fn lacks_codes((build, probe): (&ColumnInfo, &ColumnInfo)) -> Option<&'static str> {
    match (build.dictionary, probe.dictionary) {
        (Some(_), Some(_)) => None,
        (None, Some(_)) => Some("texts of the build side have no dictionary"),
        (Some(_), None) => Some("texts of the probe side have no dictionary"),
        (None, None) => Some("texts have no dictionaries"),
    }
}

impl KeyCodes {
    /// Those of a key, where both sides have a dictionary.
    fn plan(build: &ColumnInfo, probe: &ColumnInfo, states: &mut States) -> Option<KeyCodes> {
        let (to, from) = (Dictionary::of(build)?, Dictionary::of(probe)?);
        if to == from {
            return Some(KeyCodes { build: to, map: None });
        }
        let scalar = match to.entries {
            0..=0xff => Scalar::U8,
            0x100..=0xffff => Scalar::U16,
            _ => Scalar::U32,
        };
        let class = states.class(from.entries.into(), Growth::Fixed);
        let state = states.state("text_codes", scalar.bytes(), class);
        Some(KeyCodes { build: to, map: Some(CodeMap { from, to, class, state, scalar }) })
    }

    /// The bounds of what [`KeyCodes::of`] gives: the last number is that of a text that the build side's dictionary does not have.
    fn range(&self) -> Range {
        let codes = i128::from(self.build.entries);
        Range { min: 0, max: if self.map.is_some() { codes } else { codes - 1 } }
    }

    /// The build side's code of a text of the probe side, as a number: of a column of the current row, an unchanged dictionary column.
    fn of(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        if cx.wide().is_some() {
            return Err(Unsupported("texts are not mapped several at once".into()));
        }
        let code = cx.dictionary_code(column);
        let (code, valid) = code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
        let from = self.map.as_ref().map_or(self.build, |map| map.from);
        if (code.scan, code.column) != (from.scan, from.column) {
            return Err(Unsupported::internal("codes of another dictionary"));
        }
        let value = match &self.map {
            Some(map) => map.element(cx, code.value),
            None => code.value,
        };
        let value = cx.builder.convert(value, Scalar::I32);
        Ok(Lowered { repr: Repr::Scalar(value), valid, range: Some(self.range()) })
    }
}

impl CodeMap {
    /// What the map has for a code (`u32`).
    fn element(&self, cx: &mut Context<'_>, code: V) -> V {
        let map = cx.argument("text_codes", Type::global(self.scalar), Argument::State(self.state));
        cx.builder.element(map, code)
    }

    /// The entries that are looked up, as the source of a pipeline.
    pub fn entries(&self) -> Entries {
        Entries { dictionary: self.from, class: self.class }
    }
}

impl JoinOperator {
    /// What one of the probe side's keys is told by, where these are codes; `key` is over the current row.
    pub(super) fn code_of_probe(
        &self,
        cx: &mut Context<'_>,
        (number, key): (usize, &Expr),
    ) -> Result<Option<Lowered>, Unsupported> {
        match (self.codes.get(number), &key.kind) {
            (Some(Some(codes)), ExprKind::Column(column)) => codes.of(cx, *column).map(Some),
            (Some(Some(_)), _) => Err(Unsupported::internal("codes of a text that is no column")),
            _ => Ok(None),
        }
    }

    /// The same of the only key, which is a column of the current row.
    pub(super) fn code_of_column(
        &self,
        cx: &mut Context<'_>,
        column: usize,
    ) -> Result<Option<Lowered>, Unsupported> {
        match self.codes.as_slice() {
            [Some(codes)] => codes.of(cx, column).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the only key is told by codes of which a bitmap says if a build row has them.
    pub(super) fn sifts_codes(&self) -> bool {
        matches!(self.codes.as_slice(), [Some(_)]) && self.index.has_bitmap()
    }

    /// The maps that are to be made before the probe side's rows come.
    pub(crate) fn code_maps(&self) -> impl Iterator<Item = &CodeMap> {
        self.codes.iter().flatten().filter_map(|codes| codes.map.as_ref())
    }
}

/// The entries of a dictionary as rows of one text.
#[derive(Debug)]
pub(crate) struct Entries {
    dictionary: Dictionary,
    class: usize,
}

impl Entries {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.dictionary.entries.into()
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dictionary entries")
    }
}

impl Source for Entries {
    fn rows(&self) -> RowCount {
        RowCount::Class(self.class)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        vec![ColumnInfo {
            data_type: DataType::Utf8,
            nullable: false,
            range: None,
            dictionary: None,
            scattered: None,
        }]
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let code = cx.builder.convert(row, Scalar::U32);
        let text = Text { code: None, ..self.dictionary.entry(cx, code) };
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

    fn rows_foreseen(&self, _rows: u64) -> Option<u64> {
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
fn code_in(cx: &mut Context<'_>, dictionary: Dictionary, text: &Text) -> V {
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
