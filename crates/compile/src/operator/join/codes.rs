//! Texts as keys of a join, encoded by the codes of dictionaries.
//!
//! *Both sides have a dictionary.* Their columns are codes already, each of a dictionary of its own. A small kernel looks each entry of the
//! probe side's dictionary up in the build side's, whose entries are in order, and writes down the code that the text has there. The map is
//! made in each run of the stage: it is of the dictionaries that the run has.
//!
//! *The probe side alone has one*, as unique texts of the build side have none. Then texts of the build side are looked up in it where rows are
//! stored, and the probe side's codes are as they are.
//!
//! So no text is hashed or compared for a row of the probe side: the keys are integers of a small range, which are slots, and have bits in
//! a bitmap. A text that the dictionary does not have gets the number behind the last code. Nothing has the code, so that such a row finds
//! nothing, or is left out of the index; it is no NULL, which kinds that tell NULLs apart would take it for.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::JoinOperator;
use crate::context::{
    Argument, Constant, Context, DictionaryCode, Lowered, Origin, Repr, RowLayer, Text, Unsupported,
};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::{infer_range, lower, text_of, text_order};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink, Source};
use crate::program::{Growth, RowCount, States};
use crate::table::index::KeyEncoding;
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

/// A key of texts that are encoded by codes of a dictionary.
#[derive(Debug, Clone)]
pub(super) struct KeyCodes {
    /// The build side's, or the probe side's where that has the only one.
    dictionary: Dictionary,
    from: CodeSource,
}

/// Where codes come from.
#[derive(Debug, Clone)]
enum CodeSource {
    /// Both sides have the dictionary's.
    Both,
    /// Those of the probe side are mapped to the dictionary's.
    Map(CodeMap),
    /// The build side's texts are looked up.
    LookUp,
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

/// Which of a join's keys are encoded by codes, where that is chosen. Of each side: what is known of the keys, and an upper bound of its rows.
pub(super) fn choose(
    (build, build_rows): (&[ColumnInfo], u64),
    (probe, probe_rows): (&[ColumnInfo], u64),
    site: Site<'_>,
    states: &mut States,
) -> Result<Vec<Option<KeyCodes>>, Unsupported> {
    let none = vec![None; probe.len()];
    let keys = || build.iter().zip(probe);
    let mut texts = keys().filter(|(build, _)| build.data_type == DataType::Utf8).peekable();
    if texts.peek().is_none() {
        return Ok(none);
    }
    let best = texts.map(Pair::of).min().unwrap_or(Pair::Neither);
    let steps = keys().map(|(build, probe)| steps(build, probe, build_rows)).fold(0, u64::saturating_add);
    let gained = build_rows.saturating_add(probe_rows).saturating_mul(STEPS_A_ROW);
    let rule = match best {
        Pair::Both | Pair::Probe if steps > gained => (
            TextJoin::Texts,
            "to look texts up in a dictionary takes longer than to compare those of so few rows",
        ),
        Pair::Both => (TextJoin::Codes, "few texts on both sides are looked up once, not for each row"),
        Pair::Probe => (TextJoin::Codes, "texts of the build side are looked up in the other's dictionary"),
        Pair::Build => (TextJoin::Texts, NO_PROBE_CODES),
        Pair::Neither => (TextJoin::Texts, NO_CODES),
    };
    let chosen = site.choose(rule, |value| match (value, best) {
        (TextJoin::Codes, Pair::Build) => Err(NO_PROBE_CODES.into()),
        (TextJoin::Codes, Pair::Neither) => Err(NO_CODES.into()),
        _ => Ok(()),
    })?;
    match chosen {
        TextJoin::Texts => Ok(none),
        TextJoin::Codes => Ok(keys().map(|(build, probe)| KeyCodes::plan(build, probe, states)).collect()),
    }
}

/// Steps of all searches in a dictionary that a key takes.
fn steps(build: &ColumnInfo, probe: &ColumnInfo, build_rows: u64) -> u64 {
    let of_search = |entries: u32| u64::from(u32::BITS - entries.leading_zeros());
    match (build.dictionary, probe.dictionary) {
        (Some((_, _, to)), Some((_, _, from))) => u64::from(from).saturating_mul(of_search(to)),
        (None, Some((_, _, entries))) if build.data_type == DataType::Utf8 => {
            build_rows.saturating_mul(of_search(entries))
        }
        _ => 0,
    }
}

/// Steps of a search that take as long as to hash and compare the text of a row: about.
const STEPS_A_ROW: u64 = 4;
const NO_PROBE_CODES: &str = "texts of the probe side have no dictionary";
const NO_CODES: &str = "texts have no dictionaries";

/// Which side of a key of texts has a dictionary: what is better for codes comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pair {
    Both,
    Probe,
    Build,
    Neither,
}

impl Pair {
    fn of((build, probe): (&ColumnInfo, &ColumnInfo)) -> Pair {
        match (build.dictionary, probe.dictionary) {
            (Some(_), Some(_)) => Pair::Both,
            (None, Some(_)) => Pair::Probe,
            (Some(_), None) => Pair::Build,
            (None, None) => Pair::Neither,
        }
    }
}

/// How an index encodes a key.
pub(super) fn encoding_of(codes: &Option<KeyCodes>) -> KeyEncoding {
    match codes {
        None => KeyEncoding::Value,
        Some(KeyCodes { from: CodeSource::LookUp, dictionary }) => KeyEncoding::LookedUp(dictionary.entries),
        Some(_) => KeyEncoding::Code,
    }
}

/// Makes of what is known of a key what is known of what a store has of it.
pub(super) fn looked_up(key: &mut ColumnInfo, encoding: KeyEncoding) {
    if let KeyEncoding::LookedUp(entries) = encoding {
        let (data_type, nullable, range) = (DataType::Int32, key.nullable, Some(numbers(entries)));
        *key = ColumnInfo::new(data_type, nullable, range);
    }
}

/// The codes of a dictionary of so many entries, and the number behind them, of a text that is no entry.
fn numbers(entries: u32) -> Range {
    Range { min: 0, max: entries.into() }
}

impl KeyCodes {
    /// Those of a key, where the probe side has a dictionary.
    fn plan(build: &ColumnInfo, probe: &ColumnInfo, states: &mut States) -> Option<KeyCodes> {
        let from = Dictionary::of(probe)?;
        let Some(to) = Dictionary::of(build) else {
            return Some(KeyCodes { dictionary: from, from: CodeSource::LookUp });
        };
        if to == from {
            return Some(KeyCodes { dictionary: to, from: CodeSource::Both });
        }
        let scalar = match to.entries {
            0..=0xff => Scalar::U8,
            0x100..=0xffff => Scalar::U16,
            _ => Scalar::U32,
        };
        let class = states.class(from.entries.into(), Growth::Fixed);
        let state = states.state("text_codes", scalar.bytes(), class);
        let map = CodeMap { from, to, class, state, scalar };
        Some(KeyCodes { dictionary: to, from: CodeSource::Map(map) })
    }

    /// The code of a text of the probe side, as a number: of a column of the current row, an unchanged dictionary column.
    fn of(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        if cx.wide().is_some() {
            return Err(Unsupported("texts are not mapped several at once".into()));
        }
        let code = cx.dictionary_code(column);
        let (code, valid) = code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
        let (own, codes) = match &self.from {
            CodeSource::Map(map) => (map.from, numbers(self.dictionary.entries)),
            CodeSource::Both | CodeSource::LookUp => {
                (self.dictionary, Range { min: 0, max: i128::from(self.dictionary.entries) - 1 })
            }
        };
        if (code.scan, code.column) != (own.scan, own.column) {
            return Err(Unsupported::internal("codes of another dictionary"));
        }
        let value = match &self.from {
            CodeSource::Map(map) => map.element(cx, code.value),
            CodeSource::Both | CodeSource::LookUp => code.value,
        };
        let value = cx.builder.convert(value, Scalar::I32);
        Ok(Lowered { repr: Repr::Scalar(value), valid, range: Some(codes) })
    }

    /// The dictionary that the build side's texts are looked up in, where they are.
    fn looked_up_in(&self) -> Option<Dictionary> {
        matches!(self.from, CodeSource::LookUp).then_some(self.dictionary)
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
    /// What one of the probe side's keys is encoded by, where these are codes; `key` is over the current row.
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

    /// The same of a key that is a column of the current row.
    pub(super) fn code_of_column(
        &self,
        cx: &mut Context<'_>,
        (number, column): (usize, usize),
    ) -> Result<Option<Lowered>, Unsupported> {
        match self.codes.get(number) {
            Some(Some(codes)) => codes.of(cx, column).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the only key is encoded by codes of which a bitmap says if a build row has them.
    pub(super) fn sifts_codes(&self) -> bool {
        matches!(self.codes.as_slice(), [Some(_)]) && self.index.has_filter()
    }

    /// The maps that are to be made before the probe side's rows come.
    pub(crate) fn code_maps(&self) -> impl Iterator<Item = &CodeMap> {
        self.codes.iter().flatten().filter_map(|codes| match &codes.from {
            CodeSource::Map(map) => Some(map),
            CodeSource::Both | CodeSource::LookUp => None,
        })
    }

    /// Puts what the store has of a row of the build side on it.
    pub(super) fn push_stored(&self, cx: &mut Context<'_>) {
        let dictionary = |codes: &Option<KeyCodes>| codes.as_ref().and_then(KeyCodes::looked_up_in);
        let dictionaries: Vec<_> = self.codes.iter().map(dictionary).collect();
        if dictionaries.iter().all(Option::is_none) {
            return cx.push_projection(&self.stored);
        }
        cx.push_layer(Rc::new(LookedUpKeys { stored: self.stored.clone(), dictionaries }));
    }
}

/// What a store has of a row of the build side, where some keys are texts that are looked up: each is when it is first asked for.
#[derive(Debug)]
struct LookedUpKeys {
    stored: Vec<Expr>,
    /// Of each key, where it is looked up.
    dictionaries: Vec<Option<Dictionary>>,
}

impl LookedUpKeys {
    fn dictionary(&self, column: usize) -> Option<Dictionary> {
        self.dictionaries.get(column).copied().flatten()
    }
}

impl RowLayer for LookedUpKeys {
    fn origin(&self, column: usize) -> Option<Origin<'_>> {
        let expr = self.stored.get(column)?;
        Some(match (self.dictionary(column), &expr.kind) {
            (None, ExprKind::Column(below)) => Origin::Below(*below),
            _ => Origin::Computed(expr),
        })
    }

    fn load(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        let expr = self.stored.get(column);
        let value = lower(cx, expr.ok_or_else(|| Unsupported(format!("column {column} is out of range")))?)?;
        match self.dictionary(column) {
            Some(dictionary) => look_up(cx, dictionary, &value),
            None => Ok(value),
        }
    }

    fn range(&self, column: usize, below: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
        match self.dictionary(column) {
            Some(dictionary) => Some(numbers(dictionary.entries)),
            None => infer_range(self.stored.get(column)?, below),
        }
    }
}

/// The code of a text in a dictionary, as a number; of a NULL it is that of no entry.
fn look_up(cx: &mut Context<'_>, dictionary: Dictionary, value: &Lowered) -> Result<Lowered, Unsupported> {
    let text = text_of(value)?;
    let code = match value.valid {
        None => code_in(cx, dictionary, &text),
        Some(valid) => {
            let none = cx.constant(Constant::Int(Scalar::U32, dictionary.entries.into()));
            let code = cx.builder.var_of("key_code", none);
            cx.begin_if(valid);
            let found = code_in(cx, dictionary, &text);
            cx.builder.assign(code, found);
            cx.end();
            cx.builder.read(code)
        }
    };
    let code = cx.builder.convert(code, Scalar::I32);
    Ok(Lowered { repr: Repr::Scalar(code), valid: value.valid, range: Some(numbers(dictionary.entries)) })
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
