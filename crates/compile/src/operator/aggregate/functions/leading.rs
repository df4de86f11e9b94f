//! Cells of the greatest words of a group: bounds of its least or greatest values.
//!
//! A cell keeps its words from the greatest on, nothing behind. A word that is put in pushes the lesser ones on by one, and the least of
//! all out. In memory that many threads add to, each place takes the maximum of what it has and what comes, and hands on the other of
//! the two: whoever is between, no word is lost or doubled, so that each place ends as the greatest of what the places before it let
//! go on. No thread waits for another, and one whose word is not among the greatest reads the last place and leaves.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scope};

use crate::context::Context;
use crate::plan::Few;

/// Words of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Leading {
    /// How many.
    pub count: Few,
    /// Equal ones are one.
    pub distinct: bool,
}

/// Whose the memory is that words are put into.
#[derive(Debug, Clone, Copy)]
pub(super) enum Memory {
    /// This thread's.
    Own,
    /// That of all threads of a scope.
    Shared(Scope),
}

impl Leading {
    /// What goes on to the next place, of the greater and the lesser of two words.
    fn handed_on(self, cx: &mut Context<'_>, greater: V, lesser: V) -> V {
        if !self.distinct {
            return lesser;
        }
        let b = &mut *cx.builder;
        let (same, nothing) = (b.eq(greater, lesser), b.u64(0));
        b.select(same, nothing, lesser)
    }

    /// What a cell holds once the words `new` are added to the words `old`, both from the greatest on.
    pub(super) fn combine(self, cx: &mut Context<'_>, old: &[V], new: &[V]) -> Vec<V> {
        let mut kept = old.to_vec();
        for (place, word) in new.iter().enumerate() {
            let mut coming = *word;
            // As many words as there are before it are greater, or were found before.
            for own in kept.iter_mut().skip(place) {
                let b = &mut *cx.builder;
                let (greater, lesser) =
                    (b.binary(BinaryOp::Max, *own, coming), b.binary(BinaryOp::Min, *own, coming));
                *own = greater;
                coming = self.handed_on(cx, greater, lesser);
            }
        }
        kept
    }

    /// Puts words, from the greatest on, into the cell at `pointer`.
    pub(super) fn put(self, cx: &mut Context<'_>, pointer: V, words: &[V], memory: Memory) {
        let last = cx.builder.i32(self.count.number() as i32 - 1);
        let last = cx.builder.offset(pointer, last);
        for own in words {
            let least = match memory {
                Memory::Own => cx.builder.load(last),
                Memory::Shared(scope) => cx.builder.atomic_load(last, scope),
            };
            // Where one is too small, so are those behind it.
            let enters = cx.builder.lt(least, *own);
            cx.begin_if(enters);
            self.push(cx, pointer, *own, memory);
        }
        words.iter().for_each(|_| cx.end());
    }

    /// Goes with a word from place to place until it, and what it pushes on, has one.
    fn push(self, cx: &mut Context<'_>, pointer: V, word: V, memory: Memory) {
        let first = cx.builder.i32(0);
        let (coming, place) = (cx.builder.var_of("coming", word), cx.builder.var_of("place", first));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (own, current) = (b.read(coming), b.read(place));
        let at = b.offset(pointer, current);
        let old = match memory {
            Memory::Shared(scope) => b.atomic(AtomicOp::Max, at, own, scope),
            Memory::Own => {
                let old = b.load(at);
                let greater = b.binary(BinaryOp::Max, old, own);
                b.store(at, greater);
                old
            }
        };
        let (greater, lesser) = (b.binary(BinaryOp::Max, old, own), b.binary(BinaryOp::Min, old, own));
        let rest = self.handed_on(cx, greater, lesser);
        let b = &mut *cx.builder;
        let (one, nothing, count) = (b.i32(1), b.u64(0), b.i32(self.count.number() as i32));
        let next = b.add(current, one);
        b.assign(coming, rest);
        b.assign(place, next);
        let (is_nothing, is_last) = (b.eq(rest, nothing), b.ge(next, count));
        let done = b.or(is_nothing, is_last);
        b.break_if(done);
        cx.end();
    }
}
