//! The greatest numbers of rows in an order, as a tree: a node has the greatest of those of the 32 nodes, or rows, that it stands for. So the
//! first row whose number is not below another is found by looking at 32 nodes a level, at most (a priority search tree over an array;
//! McCreight, “Priority Search Trees”, 1985).

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use crate::context::{Argument, Context};
use crate::program::{Fill, Growth, States};

/// Bits of the number of nodes that one of the next level stands for.
const FANOUT_BITS: u32 = 5;

/// The tree.
#[derive(Debug)]
pub(crate) struct MaxTree {
    /// State of one `u64` a row: its number.
    rows: usize,
    /// The levels above, from the lowest on.
    levels: Vec<Level>,
}

/// A level of nodes.
#[derive(Debug)]
struct Level {
    /// State of one `u64` a node.
    nodes: usize,
    class: usize,
}

impl MaxTree {
    /// Declares the states of a tree over at most `bound` rows, which have a class of their own and are counted by the state `count`.
    pub fn plan(bound: u64, (class, count): (usize, usize), states: &mut States) -> MaxTree {
        let bits = u64::BITS - bound.saturating_sub(1).leading_zeros();
        let level = |level: u32, states: &mut States| {
            let class =
                states.class(1, Growth::Sized(count, Fill { taken: 1 << (FANOUT_BITS * level), of: 1 }));
            Level { nodes: states.state("greatest_words", 8, class), class }
        };
        let rows = states.state("greatest_words", 8, class);
        let levels = (1..bits.div_ceil(FANOUT_BITS)).map(|number| level(number, states)).collect();
        MaxTree { rows, levels }
    }

    /// The states to clear before rows are put in.
    pub fn zeroed(&self) -> Vec<usize> {
        self.levels.iter().map(|level| level.nodes).collect()
    }

    /// The classes that take their size from the rows that there are.
    pub fn sized(&self) -> Vec<usize> {
        self.levels.iter().map(|level| level.class).collect()
    }

    /// Puts in the number (`u64`) of a row (`i64`).
    pub fn put(&self, cx: &mut Context<'_>, row: V, number: V) {
        let rows = nodes_of(cx, self.rows);
        let place = cx.builder.offset(rows, row);
        cx.builder.store(place, number);
        for (level, shift) in self.levels.iter().zip((1..).map(|level| FANOUT_BITS * level)) {
            let nodes = nodes_of(cx, level.nodes);
            let node = cx.builder.shr_int(row, shift);
            let place = cx.builder.offset(nodes, node);
            // Most rows are not the greatest so far: they need not wait for those that are.
            let known = cx.builder.atomic_load(place, Scope::Device);
            let is_greater = cx.builder.lt(known, number);
            cx.begin_if(is_greater);
            cx.builder.atomic_discard(AtomicOp::Max, place, number, Scope::Device);
        }
        // A node has at least what those below it have: where one is not raised, none above it is.
        self.levels.iter().for_each(|_| cx.end());
    }

    /// The first of so many rows (`i64`) whose number is not below another (`u64`); the number of rows where there is none.
    pub fn first_from(&self, cx: &mut Context<'_>, rows: V, least: V) -> V {
        let zero = cx.builder.i64(0);
        let node = cx.builder.var_of("node", zero);
        let states = self.levels.iter().rev().map(|level| level.nodes).chain([self.rows]);
        for (state, level) in states.zip((0..=self.levels.len() as u32).rev()) {
            let nodes = nodes_of(cx, state);
            let b = &mut *cx.builder;
            // So many nodes stand for the rows.
            let (shift, most) =
                (b.i64((FANOUT_BITS * level).into()), b.i64((1i64 << (FANOUT_BITS * level)) - 1));
            let padded = b.add(rows, most);
            let count = b.binary(BinaryOp::Shr, padded, shift);
            if level < self.levels.len() as u32 {
                let (above, fanout) = (b.read(node), b.i64(FANOUT_BITS.into()));
                let first = b.binary(BinaryOp::Shl, above, fanout);
                b.assign(node, first);
            }
            cx.begin_loop();
            let b = &mut *cx.builder;
            let current = b.read(node);
            let is_beyond = b.ge(current, count);
            b.break_if(is_beyond);
            let greatest = b.element(nodes, current);
            let is_found = b.ge(greatest, least);
            b.break_if(is_found);
            let next = b.add_int(current, 1);
            b.assign(node, next);
            cx.end();
        }
        let found = cx.builder.read(node);
        cx.builder.binary(BinaryOp::Min, found, rows)
    }
}

fn nodes_of(cx: &mut Context<'_>, state: usize) -> V {
    cx.argument("greatest_words", Type::global(Scalar::U64), Argument::State(state))
}
