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

use std::rc::Rc;

use kelpie_kir::Scalar;

use super::code_maps::{CodeMap, Dictionary, code_in};
use super::{JoinInput, JoinOperator};
use crate::context::{Constant, Context, Lowered, Origin, Repr, RowLayer, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::{infer_range, lower, text_of};
use crate::program::States;
use crate::types::{DataType, Range};
use crate::variant::axes::TextJoin;

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

/// Which of a join's keys are encoded by codes, where that is chosen. Of each side: what is known of the keys.
pub(super) fn choose(
    input: &JoinInput<'_>,
    build: &[ColumnInfo],
    probe: &[ColumnInfo],
    states: &mut States,
) -> Result<Vec<Option<KeyCodes>>, Unsupported> {
    let (build_rows, probe_rows) = (input.build.rows.bound, input.probe.rows.bound);
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
    let chosen = input.site.choose(rule, |value| match (value, best) {
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

/// How a key is encoded where it is put into an index, and for searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyEncoding {
    /// As its value.
    Value,
    /// Texts, as the codes in their dictionary, which is the build side's.
    Code,
    /// Texts, as the codes that equal texts have in the probe side's dictionary of so many entries, which is what is stored of them. That
    /// of a text that is none of them is the number behind the last code: no search may find its row.
    LookedUp(u32),
}

impl KeyEncoding {
    /// What is known of a stored key as a number that a search may be for.
    pub fn numbers(self, key: &ColumnInfo) -> ColumnInfo {
        let range = match self {
            KeyEncoding::Value => return key.clone(),
            KeyEncoding::Code => key.dictionary.map(|(_, _, entries)| code_range(entries)),
            KeyEncoding::LookedUp(entries) => Some(code_range(entries)),
        };
        ColumnInfo::new(DataType::Int32, key.nullable, range)
    }

    /// A stored key as it is put into the index.
    pub fn encode(self, cx: &mut Context<'_>, key: Lowered) -> Result<Lowered, Unsupported> {
        let KeyEncoding::Code = self else { return Ok(key) };
        let code = match &key.repr {
            Repr::Text(text) => text.code,
            Repr::Scalar(_) => None,
        };
        let code = code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
        let value = cx.builder.convert(code.value, Scalar::I32);
        Ok(Lowered { repr: Repr::Scalar(value), valid: key.valid, range: Some(code_range(code.entries)) })
    }
}

/// The codes of a dictionary of so many entries.
fn code_range(entries: u32) -> Range {
    Range { min: 0, max: i128::from(entries.max(1)) - 1 }
}

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
        let map = CodeMap::plan(from, to, states);
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

impl JoinOperator {
    /// What one of the probe side's keys is encoded by, where these are codes; `key` is over the current row.
    pub(super) fn code_of_probe(
        &self,
        cx: &mut Context<'_>,
        (number, key): (usize, &Expr),
    ) -> Result<Option<Lowered>, Unsupported> {
        match key.kind {
            ExprKind::Column(column) => self.code_of_column(cx, (number, column)),
            _ if matches!(self.codes.get(number), Some(Some(_))) => {
                Err(Unsupported::internal("codes of a text that is no column"))
            }
            _ => Ok(None),
        }
    }

    /// The same of a key that is a column of the current row.
    pub(super) fn code_of_column(
        &self,
        cx: &mut Context<'_>,
        (number, column): (usize, usize),
    ) -> Result<Option<Lowered>, Unsupported> {
        let codes = self.codes.get(number).and_then(Option::as_ref);
        codes.map(|codes| codes.of(cx, column)).transpose()
    }

    /// Whether the only key is encoded by codes of which a bitmap says if a build row has them.
    pub(super) fn has_code_filter(&self) -> bool {
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
