//! The rows of a key, once an index has found the first of them: a *cursor* (`u32`) says which one is next and is 0 where none is left.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Scalar, Scope};

use super::array;
use super::buckets::Buckets;
use super::probing::{number_of, place_of, set_next};
use super::rows::RowStore;
use crate::context::Context;

/// How the rows of a key follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyRows {
    /// Every row of the store is a candidate, from the last to the first: the cursor is the place of a row + 1.
    All,
    /// There is one at most, or one is enough: the cursor is its place + 1.
    One,
    /// Each has the number of the next, in a state of one `u32` a row: the cursor is a place + 1.
    Chained(usize),
    /// They stand in a bucket: the cursor is a position + 1.
    Buckets(Buckets),
    /// They stand one after the other in an order of all rows: state of one `u32` a row, their places. The cursor is a position, and those
    /// of a search have an end.
    Sorted(usize),
}

/// Positions of rows that stand one after the other: the first one, and how many there are, `u32`.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    /// The first one.
    pub begin: Var,
    /// How many.
    pub count: Var,
}

impl Positions {
    /// Sets them to those of a slot's (`i64`) bucket.
    pub(crate) fn set(self, cx: &mut Context<'_>, buckets: Buckets, slot: V) {
        let (begin, end) = buckets.bounds(cx, slot);
        let count = cx.builder.sub(end, begin);
        cx.builder.assign(self.begin, begin);
        cx.builder.assign(self.count, count);
    }
}

impl KeyRows {
    pub fn buckets(self) -> Option<Buckets> {
        match self {
            KeyRows::Buckets(buckets) => Some(buckets),
            KeyRows::All | KeyRows::One | KeyRows::Chained(_) | KeyRows::Sorted(_) => None,
        }
    }

    /// The same where rows lie at the positions of their buckets, if there are buckets.
    pub fn in_buckets(&mut self) {
        if let KeyRows::Buckets(buckets) = self {
            *buckets = buckets.with_rows();
        }
    }

    /// The place (`i64`) of the row at a cursor that is not 0.
    pub fn place(self, cx: &mut Context<'_>, cursor: V) -> V {
        match self {
            KeyRows::Buckets(buckets) => buckets.place_at(cx, cursor),
            KeyRows::Sorted(entries) => entry_at(cx, entries, cursor),
            KeyRows::All | KeyRows::One | KeyRows::Chained(_) => place_of(cx, cursor),
        }
    }

    /// The place (`i64`) of the row at a cursor that is not 0, and the cursor behind it; `none`: a cursor where nothing is left.
    pub fn step(self, cx: &mut Context<'_>, store: &RowStore, (cursor, none): (V, V)) -> (V, V) {
        if let KeyRows::Buckets(buckets) = self {
            return buckets.step(cx, cursor);
        }
        let place = place_of(cx, cursor);
        let following = match self {
            KeyRows::All => store.taken_before(cx, place),
            KeyRows::Chained(next) => {
                let next = array(cx, "next", next);
                cx.builder.element(next, place)
            }
            KeyRows::One | KeyRows::Buckets(_) | KeyRows::Sorted(_) => none,
        };
        (place, following)
    }
}

/// The place (`i64`) of the row at a position (`u32`) of an order.
pub(crate) fn entry_at(cx: &mut Context<'_>, entries: usize, position: V) -> V {
    let entries = array(cx, "sorted_rows", entries);
    let position = cx.builder.convert(position, Scalar::I64);
    let place = cx.builder.element(entries, position);
    cx.builder.convert(place, Scalar::I64)
}

/// Puts the row at `place` (`i64`) before those that a head (`ptr<global, u32>`) leads to; `next`: the state by which they are chained.
pub(crate) fn put_first(cx: &mut Context<'_>, head: V, next: usize, place: V) {
    let number = number_of(cx, place);
    let old = cx.builder.atomic(AtomicOp::Exchange, head, number, Scope::Device);
    set_next(cx, next, place, old);
}
