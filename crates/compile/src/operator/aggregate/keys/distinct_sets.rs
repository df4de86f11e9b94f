//! DISTINCT inside aggregates: beside the groups there is a set of (keys, argument) for each argument, and a row
//! contributes where its pair is new. So any number of arguments, and aggregates without DISTINCT, share one pass.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::input::Input;
use super::key_count::KeyCount;
use super::key_table::{KeyTable, KeyWord, ProbeKeys};
use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::lower::lower;
use crate::program::States;
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
        states: &mut States,
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
        let table = KeyTable::plan(&columns, &[], 0, input, states)?;
        Ok(DistinctSet { argument: argument.clone(), table })
    }

    /// States to clear before the launch.
    pub fn zeroed(&self) -> Vec<usize> {
        self.table.zeroed()
    }

    /// Where the values are.
    pub(crate) fn table(&self) -> &KeyTable {
        &self.table
    }

    /// The class that can be too small.
    pub fn class(&self) -> usize {
        self.table.class
    }

    /// What counts the values in a kernel, before its row loop.
    pub(crate) fn begin(&self, cx: &mut Context<'_>) -> KeyCount {
        self.table.begin(cx)
    }

    pub fn argument(&self) -> &Expr {
        &self.argument
    }

    /// The argument, to be replaced by an equal one.
    pub(crate) fn argument_mut(&mut self) -> &mut Expr {
        &mut self.argument
    }

    /// The word of the current row's value in its group; where it is NULL, any.
    pub(crate) fn word(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<KeyWord, Unsupported> {
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

    /// Whether the current row's value is new in its group (`bool`); false where it is NULL or the row is not `active`.
    fn insert(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        row: &GroupRow<'_>,
        word: Option<KeyWord>,
    ) -> Result<V, Unsupported> {
        let argument = lower(cx, &self.argument)?;
        let live = match (row.active, argument.valid) {
            (Some(a), Some(b)) => cx.builder.and(a, b),
            (one, other) => match one.or(other) {
                Some(live) => live,
                None => cx.builder.bool(true),
            },
        };
        let values = pair(cx, row.keys, argument);
        let no = cx.builder.bool(false);
        let is_new = cx.builder.var_of("is_new", no);
        cx.begin_if(live);
        let word = match word {
            Some(word) => word,
            None => self.table.word(cx, &values)?,
        };
        let keys = ProbeKeys { values: &values, word, dependent: &[] };
        let probe = self.table.insert(cx, count, keys)?;
        let new = cx.builder.read(probe.is_new);
        cx.builder.assign(is_new, new);
        cx.end();
        Ok(cx.builder.read(is_new))
    }
}

/// The current row, of which the group is known.
pub(crate) struct GroupRow<'r> {
    /// The keys of its group.
    pub keys: &'r [Lowered],
    /// Whether it is live (`bool`); `None`: it is.
    pub active: Option<V>,
}

/// Puts the current row's values into the sets, which are counted by `counts`: whether each is new. `words`: one a set, where they are known.
pub(crate) fn insert_values(
    cx: &mut Context<'_>,
    sets: &[DistinctSet],
    counts: &[KeyCount],
    row: &GroupRow<'_>,
    words: &[KeyWord],
) -> Result<Vec<V>, Unsupported> {
    let sets = sets.iter().zip(counts).enumerate();
    sets.map(|(index, (set, count))| set.insert(cx, count, row, words.get(index).copied())).collect()
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
