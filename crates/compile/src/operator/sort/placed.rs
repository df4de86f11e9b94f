//! Rows that are stored with the word of their keys and never sorted: each comes with a number that has this word above the row's
//! place. The least of these numbers in a group is its first row in the order of the keys, and tells where that row is; the
//! greatest is its last one. Where 63 bits hold both, the numbers are `Int64`, else decimals of 128 bits.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::SortOperator;
use super::words::Words;
use crate::context::{Argument, Context, Lowered, Repr, Unsupported, register_of};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::program::RowCount;
use crate::table::joined::Joined;
use crate::types::{DataType, Range};

/// Bits of a number that is an `Int64`: it is never negative.
const INTEGER_BITS: u32 = 63;

/// Bits of a number, at most: those that 38 digits hold.
const NUMBER_BITS: u32 = 126;

/// How a row's word and its place are one number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedWord {
    /// Bits of the keys, which are the upper ones.
    keys: u32,
    /// Bits of the place.
    place: u32,
}

impl PlacedWord {
    /// Of at most `bound` rows; the reason where there is no such number.
    pub fn plan(words: &Words, bound: u64) -> Result<PlacedWord, String> {
        let place = u64::BITS - bound.saturating_sub(1).leading_zeros();
        let keys = words.bits();
        match () {
            () if !words.is_exact() => Err("texts that may have the same word decide the order".into()),
            () if place >= INTEGER_BITS => Err("how many rows there are is not known".into()),
            () if keys + place > NUMBER_BITS => {
                Err(format!("the order has {keys} bits and a row's place {place}, more than one number"))
            }
            () => Ok(PlacedWord { keys, place }),
        }
    }

    fn range(self) -> Range {
        Range { min: 0, max: (1i128 << self.bits()) - 1 }
    }

    fn bits(self) -> u32 {
        self.keys + self.place
    }

    /// The type of numbers.
    pub fn data_type(self) -> DataType {
        match self.bits() {
            ..=INTEGER_BITS => DataType::Int64,
            _ => DataType::Decimal128 { precision: 38, scale: 0 },
        }
    }

    /// The number of the row at a place (`i64`), by its words, of which there are as many as the keys have bits for.
    fn number(self, cx: &mut Context<'_>, words: &[V], place: V) -> V {
        let b = &mut *cx.builder;
        match *words {
            [] => place,
            [word] if self.bits() <= INTEGER_BITS => {
                let distance = b.u64(u64::from(u64::BITS - self.bits()));
                let keys = b.binary(BinaryOp::Shr, word, distance);
                let keys = b.bitcast(keys, Scalar::I64);
                b.or(keys, place)
            }
            [first, ..] => {
                let mut keys = b.convert(first, Scalar::I128);
                if let Some(second) = words.get(1) {
                    let (above, second) = (b.shl_int(keys, u64::BITS), b.convert(*second, Scalar::I128));
                    keys = b.or(above, second);
                }
                // The first bits of all words are the keys'.
                let moved = self.place + self.keys;
                let bits = u64::BITS * words.len() as u32;
                keys = match moved.checked_sub(bits) {
                    Some(up) => b.shl_int(keys, up),
                    // The first of two words may have its uppermost bit, which is no sign.
                    None => {
                        let down = b.shr_int(keys, bits - moved);
                        b.and_int(down, (1i128 << moved) - 1)
                    }
                };
                let place = b.convert(place, Scalar::I128);
                b.or(keys, place)
            }
        }
    }

    /// The place (`i64`) that a number (`i64`) has.
    pub fn place(self, cx: &mut Context<'_>, number: V) -> V {
        let mask = cx.builder.i64((1i64 << self.place) - 1);
        cx.builder.and(number, mask)
    }
}

/// The rows of a sort in the order of their places, with their numbers as the last column.
#[derive(Debug)]
pub(crate) struct PlacedRows {
    sort: Arc<SortOperator>,
    word: PlacedWord,
}

impl PlacedRows {
    /// Of rows that are stored by one word, if any.
    pub fn new(sort: Arc<SortOperator>, word: PlacedWord) -> PlacedRows {
        PlacedRows { sort, word }
    }

    /// The column of the numbers.
    pub fn number(&self) -> Expr {
        Expr::column(self.sort.columns.len(), self.word.data_type(), false)
    }
}

impl fmt::Display for PlacedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stored rows")
    }
}

impl Source for PlacedRows {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.sort.count)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let number = ColumnInfo::new(self.word.data_type(), false, Some(self.word.range()));
        self.sort.infos().into_iter().chain([number]).collect()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let states = self.sort.word_states.iter().take(self.word.keys.div_ceil(u64::BITS) as usize);
        let word = |state: &usize| {
            let words = cx.argument("sort_word", Type::global(Scalar::U64), Argument::State(*state));
            cx.builder.element(words, row)
        };
        let words: Vec<V> = states.map(word).collect();
        let range = self.word.range();
        let number = self.word.number(cx, &words, row);
        let number = cx.builder.convert(number, register_of(range));
        let mut columns = self.sort.stored_at(0..self.sort.columns.len(), row, None);
        columns.push(Joined::Value(Lowered { repr: Repr::Scalar(number), valid: None, range: Some(range) }));
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.sort.read_columns(columns.iter().copied(), states);
    }
}
