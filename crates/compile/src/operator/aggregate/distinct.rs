//! DISTINCT inside aggregates: beside the groups there is a set of (keys, argument) for each argument, and a row
//! contributes where its pair is new. So any number of arguments, and aggregates without DISTINCT, share one pass.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::groups::See;
use super::hash::{KeyTable, KeyWord};
use super::key_count::KeyCount;
use super::{Input, declare};
use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::lower::lower;
use crate::types::DataType;

/// The values of an argument that the groups have seen.
#[derive(Debug, Clone)]
pub struct DistinctSet {
    argument: Expr,
    table: KeyTable,
}

impl DistinctSet {
    /// Declares the set's states. `keys` are those of the groups.
    pub fn plan(
        argument: &Expr,
        keys: &[ColumnInfo],
        input: &Input<'_>,
        states: &mut declare::States,
    ) -> Result<DistinctSet, Unsupported> {
        let info = column_of(argument, input.columns);
        let data_type = match info.data_type {
            DataType::Float32 => DataType::Int32,
            DataType::Float64 => DataType::Int64,
            other => other,
        };
        // NULL is never put into the set.
        let own = ColumnInfo { data_type, nullable: false, ..info };
        let columns: Vec<ColumnInfo> = keys.iter().cloned().chain([own]).collect();
        let table = KeyTable::plan((&columns, &[]), 0, input, states)?;
        Ok(DistinctSet { argument: argument.clone(), table })
    }

    /// States to clear before the launch.
    pub fn zeroed(&self) -> Vec<usize> {
        self.table.zeroed()
    }

    /// Where the values are.
    pub(super) fn table(&self) -> &KeyTable {
        &self.table
    }

    /// The class that can be too small.
    pub fn class(&self) -> usize {
        self.table.class
    }

    /// What counts the values in a kernel, before its row loop.
    pub(super) fn begin(&self, cx: &mut Context<'_>) -> KeyCount {
        self.table.begin(cx)
    }

    /// The argument, to be replaced by an equal one.
    pub(super) fn argument_mut(&mut self) -> &mut Expr {
        &mut self.argument
    }

    /// The word of the current row's value in its group; where it is NULL, any.
    pub(super) fn word(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<KeyWord, Unsupported> {
        let argument = lower(cx, &self.argument)?;
        let zero = cx.builder.u64(0);
        let (entry, hash) = (cx.builder.var_of("entry", zero), cx.builder.var_of("hash", zero));
        let valid = argument.valid;
        if let Some(valid) = valid {
            cx.begin_if(valid);
        }
        let values = pair(cx, keys, argument);
        let word = self.table.word(cx, &values)?;
        cx.builder.assign(entry, word.entry);
        cx.builder.assign(hash, word.hash);
        if valid.is_some() {
            cx.end();
        }
        Ok(KeyWord { entry: cx.builder.read(entry), hash: cx.builder.read(hash) })
    }

    /// Looks at what a search for a word will look at ([`KeyTable::look_ahead`]).
    pub(super) fn look_ahead(
        &self,
        cx: &mut Context<'_>,
        (word, count): (KeyWord, &KeyCount),
        again: bool,
        see: &mut See<'_>,
    ) {
        self.table.look_ahead(cx, (word, count.capacity), again, see);
    }

    /// Whether a search looks at what keys point to.
    pub(super) fn is_packed(&self) -> bool {
        self.table.is_packed()
    }

    /// Whether the current row's value is new in its group (`bool`); false where it is NULL or the row is not `active`.
    fn insert(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        (keys, active, word): (&[Lowered], Option<V>, Option<KeyWord>),
    ) -> Result<V, Unsupported> {
        let argument = lower(cx, &self.argument)?;
        let live = match (active, argument.valid) {
            (Some(a), Some(b)) => cx.builder.and(a, b),
            (one, other) => match one.or(other) {
                Some(live) => live,
                None => cx.builder.bool(true),
            },
        };
        let values = pair(cx, keys, argument);
        let no = cx.builder.bool(false);
        let is_new = cx.builder.var_of("is_new", no);
        cx.begin_if(live);
        let word = match word {
            Some(word) => word,
            None => self.table.word(cx, &values)?,
        };
        let probe = self.table.insert_word(cx, count, (&values, word), &[])?;
        let new = cx.builder.read(probe.is_new);
        cx.builder.assign(is_new, new);
        cx.end();
        Ok(cx.builder.read(is_new))
    }
}

/// Puts the current row's values into the sets, which are counted by `counts`: whether each is new. `row`: the group's keys, and
/// whether the row is live. `words`: one a set, where they are known.
pub(super) fn insert(
    cx: &mut Context<'_>,
    (sets, counts): (&[DistinctSet], &[KeyCount]),
    (keys, active): (&[Lowered], Option<V>),
    words: &[KeyWord],
) -> Result<Vec<V>, Unsupported> {
    let sets = sets.iter().zip(counts).enumerate();
    sets.map(|(index, (set, count))| set.insert(cx, count, (keys, active, words.get(index).copied())))
        .collect()
}

/// The keys of a set: those of the group, and the argument.
fn pair(cx: &mut Context<'_>, keys: &[Lowered], argument: Lowered) -> Vec<Lowered> {
    let repr = match argument.repr {
        Repr::Scalar(value) => Repr::Scalar(bits_of_float(cx, value)),
        text => text,
    };
    let mut values = keys.to_vec();
    values.push(Lowered { repr, valid: None, range: argument.range });
    values
}

/// Floats are equal where their bits are: -0.0 and 0.0 are two values here, as in DataFusion, though they are one group.
fn bits_of_float(cx: &mut Context<'_>, value: V) -> V {
    match cx.builder.scalar(value) {
        Scalar::F32 => cx.builder.bitcast(value, Scalar::I32),
        Scalar::F64 => cx.builder.bitcast(value, Scalar::I64),
        _ => value,
    }
}
