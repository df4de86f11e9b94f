//! Trees over the cells of aggregates, from which those of any rows that follow each other are put together.
//!
//! A node of a level stands for sixteen of the level below it, a leaf for a row. A frame's rows are the leaves up to a multiple of
//! sixteen at its left and right end, and whole nodes between them, of which the same holds a level higher. Contributions are combined
//! in the order of the rows, and never taken back: so what a frame gives depends on nothing outside of it, also where values are
//! floats, infinite, or NaN.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::WindowOperator;
use super::frames::RowInRuns;
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::expr::columns_read;
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::aggregate::{
    CellOp, Cells, ContributionForm, combine, parts_of, word_pointer, words_of,
};
use crate::operator::roles::{Emitter, Job, Needs, Sink, Source};
use crate::operator::sort::SortOperator;
use crate::program::{Fill, Growth, RowCount, States};

/// Bits of the number of nodes that one of the next level stands for.
pub(super) const FANOUT_BITS: u32 = 4;

/// How many levels above the leaves a tree of so many rows has: the last one has no more nodes than one of a further level would stand
/// for.
pub(super) fn levels_above(rows: u64) -> usize {
    let bits = u64::BITS - rows.saturating_sub(1).leading_zeros();
    bits.div_ceil(FANOUT_BITS).saturating_sub(1) as usize
}

/// The class of a level of trees over the rows of a sort: level 1 is the one above the leaves.
pub(super) fn level_class(level: usize, sort: &SortOperator, states: &mut States) -> usize {
    let taken = 1 << (FANOUT_BITS as usize * level);
    states.class(1, Growth::Sized(sort.delivered(), Fill { taken, of: 1 }))
}

/// A tree of the aggregates over a frame.
#[derive(Debug)]
pub(super) struct FrameTree {
    pub cells: Cells,
    /// The first word of each cell in a node. What counts rows has none: the frame says how many there are.
    places: Vec<Option<u32>>,
    /// Words of a node.
    words: u32,
    /// State of so many `u64` a node of each level, the leaves' first.
    levels: Vec<usize>,
    /// Where the frame is all of the partition: a state of a node for each partition.
    partitions: Option<usize>,
}

impl FrameTree {
    /// Declares the states of a tree, of which levels above the leaves have these classes. `of_partitions`: what is asked for are
    /// whole partitions alone.
    pub fn plan(
        (cells, of_partitions): (Cells, bool),
        sort: &SortOperator,
        classes: &[usize],
        states: &mut States,
    ) -> FrameTree {
        let mut words = 0;
        let place = |form: &ContributionForm, op: CellOp, words: &mut u32| match form {
            ContributionForm::Row => None,
            _ => {
                *words += op.part_words();
                Some(*words - op.part_words())
            }
        };
        let places = cells.cells.iter().map(|cell| place(&cell.contribution.form, cell.op, &mut words));
        let places = places.collect();
        let levels = match words {
            0 => Vec::new(),
            _ => {
                let classes = [sort.class()].into_iter().chain(classes.iter().copied());
                classes.map(|class| states.state("frame_tree", words * 8, class)).collect()
            }
        };
        let partitions =
            (of_partitions && words > 0).then(|| states.state("partition_cells", words * 8, sort.class()));
        FrameTree { cells, places, words, levels, partitions }
    }

    /// Whether cells are more than the number of a frame's rows.
    pub fn needs_nodes(cells: &Cells) -> bool {
        cells.cells.iter().any(|cell| !matches!(cell.contribution.form, ContributionForm::Row))
    }

    /// Whether it has nodes at all.
    pub fn has_nodes(&self) -> bool {
        self.words > 0
    }

    /// The state of the level above the leaves.
    pub fn first_level(&self) -> Option<usize> {
        self.levels.get(1).copied()
    }

    /// The states of its levels.
    pub fn levels(&self) -> &[usize] {
        &self.levels
    }

    /// The state of partitions, where these are what is asked for.
    pub fn partitions(&self) -> Option<usize> {
        self.partitions
    }

    /// The stored columns that leaves are made of.
    pub fn columns(&self) -> BTreeSet<usize> {
        let arguments = self.cells.cells.iter().flat_map(|cell| &cell.contribution.arguments);
        arguments.flat_map(columns_read).collect()
    }

    /// The cells that nodes have, each with the place of its first word.
    fn stored(&self) -> impl Iterator<Item = (usize, CellOp, u32)> {
        let cells = self.cells.cells.iter().zip(&self.places).enumerate();
        cells.filter_map(|(index, (cell, place))| Some((index, cell.op, (*place)?)))
    }

    fn node(&self, cx: &mut Context<'_>, level: usize, index: V) -> Result<V, Unsupported> {
        let state = self.levels.get(level).copied();
        let state = state.ok_or_else(|| Unsupported::internal("a level that a tree does not have"))?;
        Ok(self.node_of(cx, state, index))
    }

    fn node_of(&self, cx: &mut Context<'_>, state: usize, index: V) -> V {
        let array = cx.argument("frame_tree", Type::global(Scalar::U64), Argument::State(state));
        let words = cx.builder.i64(self.words.into());
        let first = cx.builder.mul(index, words);
        cx.builder.offset(array, first)
    }

    /// The cells of a node.
    fn read(&self, cx: &mut Context<'_>, node: V) -> Vec<Vec<V>> {
        let cell = |(_, op, place): (usize, CellOp, u32)| {
            parts_of(cx, op, |cx, word| {
                let pointer = word_pointer(cx, node, place + word);
                cx.builder.load(pointer)
            })
        };
        self.stored().map(cell).collect()
    }

    fn write(&self, cx: &mut Context<'_>, node: V, cells: &[Vec<V>]) {
        for ((_, _, place), parts) in self.stored().zip(cells) {
            store_parts(cx, node, place, parts);
        }
    }

    /// Stores what a partition's rows come to, from its first row to behind its last.
    pub fn store_partition(&self, cx: &mut Context<'_>, number: V, rows: (V, V)) -> Result<(), Unsupported> {
        let Some(state) = self.partitions else { return Ok(()) };
        let cells = self.put_together(cx, rows)?;
        let node = self.node_of(cx, state, number);
        self.write(cx, node, &cells);
        Ok(())
    }

    /// Stores what the current row contributes.
    pub fn store_leaf(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let contributions = self.cells.contributions(cx, None, &[])?;
        let node = self.node(cx, 0, row)?;
        for (cell, _, place) in self.stored() {
            let parts = contributions.get(cell).map_or(&[][..], Vec::as_slice);
            store_parts(cx, node, place, parts);
        }
        Ok(())
    }

    /// Variables for the cells of a node, with nothing in them.
    fn nothing(&self, cx: &mut Context<'_>) -> Vec<Vec<Var>> {
        let cell = |(_, op, _): (usize, CellOp, u32)| {
            let nothing = op.nothing(cx);
            nothing.into_iter().map(|part| cx.builder.var_of("frame_cell", part)).collect()
        };
        self.stored().map(cell).collect()
    }

    /// Adds a node behind what is in variables, or before it.
    fn add(
        &self,
        cx: &mut Context<'_>,
        (level, index): (usize, V),
        cells: &[Vec<Var>],
        behind: bool,
    ) -> Result<(), Unsupported> {
        let node = self.node(cx, level, index)?;
        let added = self.read(cx, node);
        for (((_, op, _), vars), parts) in self.stored().zip(cells).zip(added) {
            let known = read_all(cx, vars);
            let combined = match behind {
                true => combine(cx, op, &known, &parts),
                false => combine(cx, op, &parts, &known),
            };
            for (var, part) in vars.iter().zip(combined) {
                cx.builder.assign(*var, part);
            }
        }
        Ok(())
    }

    /// The aggregates over the rows from one to another (`i64`, the second not before the first), of the partition with a number.
    pub fn results(
        &self,
        cx: &mut Context<'_>,
        (from, to): (V, V),
        partition: V,
    ) -> Result<Vec<Lowered>, Unsupported> {
        let mut found = match self.partitions {
            Some(state) => {
                let node = self.node_of(cx, state, partition);
                self.read(cx, node)
            }
            None if self.has_nodes() => self.put_together(cx, (from, to))?,
            None => Vec::new(),
        };
        let rows = cx.builder.sub(to, from);
        let rows = cx.builder.bitcast(rows, Scalar::U64);
        let mut cells = Vec::new();
        for (cell, place) in self.cells.cells.iter().zip(&self.places) {
            let parts = match place {
                None => vec![rows],
                Some(_) if found.is_empty() => Vec::new(),
                Some(_) => found.remove(0),
            };
            cells.push((cell.op, parts));
        }
        self.cells.results_of(cx, &mut |_, cell| match cells.get(cell) {
            Some((op, parts)) => (*op, parts.clone()),
            None => (CellOp::Add, Vec::new()),
        })
    }

    /// What the nodes' cells are of the rows from one to another.
    fn put_together(&self, cx: &mut Context<'_>, (from, to): (V, V)) -> Result<Vec<Vec<V>>, Unsupported> {
        let (left, right) = (self.nothing(cx), self.nothing(cx));
        let (first, end) = (cx.builder.var_of("first", from), cx.builder.var_of("end", to));
        let mut opened = 0;
        for level in 0..self.levels.len() {
            if level > 0 {
                let b = &mut *cx.builder;
                let (from, to) = (b.read(first), b.read(end));
                let some = b.lt(from, to);
                cx.begin_if(some);
                opened += 1;
                let b = &mut *cx.builder;
                let bits = b.i64(FANOUT_BITS.into());
                for var in [first, end] {
                    let below = b.read(var);
                    let own = b.binary(BinaryOp::Shr, below, bits);
                    b.assign(var, own);
                }
            }
            let is_last = level + 1 == self.levels.len();
            self.add_left(cx, level, (first, end), (&left, is_last))?;
            if !is_last {
                self.add_right(cx, level, (first, end), &right)?;
            }
        }
        (0..opened).for_each(|_| cx.end());
        let pairs = left.iter().zip(&right).zip(self.stored());
        let joined = pairs.map(|((left, right), (_, op, _))| {
            let (left, right) = (read_all(cx, left), read_all(cx, right));
            combine(cx, op, &left, &right)
        });
        Ok(joined.collect())
    }

    /// Takes nodes of a level off the left end, up to where those begin that one of the next level stands for; all of them on the last.
    fn add_left(
        &self,
        cx: &mut Context<'_>,
        level: usize,
        (first, end): (Var, Var),
        (cells, is_last): (&[Vec<Var>], bool),
    ) -> Result<(), Unsupported> {
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (from, to) = (b.read(first), b.read(end));
        let mut done = b.ge(from, to);
        if !is_last {
            let is_whole = is_multiple(cx, from);
            done = cx.builder.or(done, is_whole);
        }
        cx.builder.break_if(done);
        self.add(cx, (level, from), cells, true)?;
        let one = cx.builder.i64(1);
        let next = cx.builder.add(from, one);
        cx.builder.assign(first, next);
        cx.end();
        Ok(())
    }

    /// The same of the right end.
    fn add_right(
        &self,
        cx: &mut Context<'_>,
        level: usize,
        (first, end): (Var, Var),
        cells: &[Vec<Var>],
    ) -> Result<(), Unsupported> {
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (from, to) = (b.read(first), b.read(end));
        let done = b.ge(from, to);
        let is_whole = is_multiple(cx, to);
        let done = cx.builder.or(done, is_whole);
        cx.builder.break_if(done);
        let one = cx.builder.i64(1);
        let last = cx.builder.sub(to, one);
        self.add(cx, (level, last), cells, false)?;
        cx.builder.assign(end, last);
        cx.end();
        Ok(())
    }
}

/// Whether nodes of the next level begin with this one.
fn is_multiple(cx: &mut Context<'_>, index: V) -> V {
    let b = &mut *cx.builder;
    let (mask, zero) = (b.i64((1 << FANOUT_BITS) - 1), b.i64(0));
    let rest = b.and(index, mask);
    b.eq(rest, zero)
}

fn read_all(cx: &mut Context<'_>, vars: &[Var]) -> Vec<V> {
    vars.iter().map(|var| cx.builder.read(*var)).collect()
}

fn store_parts(cx: &mut Context<'_>, node: V, place: u32, parts: &[V]) {
    for (index, word) in (0..).zip(words_of(cx, parts)) {
        let pointer = word_pointer(cx, node, place + index);
        cx.builder.store(pointer, word);
    }
}

/// The nodes of a level of a window's trees, as places without columns.
#[derive(Debug)]
pub(crate) struct TreeLevel {
    pub window: Arc<WindowOperator>,
    /// 1 is the one above the leaves.
    pub level: usize,
}

impl fmt::Display for TreeLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nodes of level {}", self.level)
    }
}

impl Source for TreeLevel {
    fn rows(&self) -> RowCount {
        RowCount::Class(self.window.levels.get(self.level - 1).copied().unwrap_or_default())
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        Vec::new()
    }

    /// Whether a row is below the node.
    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        let rows = self.window.rows(cx);
        let bits = cx.builder.i64(i64::from(FANOUT_BITS) * self.level as i64);
        let first = cx.builder.binary(BinaryOp::Shl, row, bits);
        Some(cx.builder.lt(first, rows))
    }

    fn bind(&self, cx: &mut Context<'_>, _row: V) -> Result<(), Unsupported> {
        cx.begin_values(Vec::new());
        Ok(())
    }

    fn read(&self, _columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        states.insert(self.window.sort.delivered());
    }
}

/// Puts the nodes of a level together from those below.
#[derive(Debug)]
pub(crate) struct TreeNodes {
    pub window: Arc<WindowOperator>,
    pub level: usize,
}

displayed!(TreeNodes = "tree of frames");

impl Sink for TreeNodes {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        states.extend(self.window.trees().flat_map(|tree| tree.levels().iter().copied()));
        BTreeSet::new()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(NodeEmitter(self)))
    }
}

struct NodeEmitter<'s>(&'s TreeNodes);

impl Emitter for NodeEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let TreeNodes { window, level } = self.0;
        let rows = window.rows(cx);
        // Nodes of the level below: those of rows are as many as rows.
        let b = &mut *cx.builder;
        let below = FANOUT_BITS * (*level as u32 - 1);
        let (more, bits) = (b.i64((1 << below) - 1), b.i64(below.into()));
        let nodes = b.add(rows, more);
        let nodes = b.binary(BinaryOp::Shr, nodes, bits);
        let (bits, size) = (b.i64(FANOUT_BITS.into()), b.i64(1 << FANOUT_BITS));
        let first = b.binary(BinaryOp::Shl, row, bits);
        let end = b.add(first, size);
        let end = b.binary(BinaryOp::Min, end, nodes);
        for tree in window.trees() {
            let cells = tree.nothing(cx);
            let (from, to) = (cx.builder.var_of("first", first), cx.builder.var_of("end", end));
            tree.add_left(cx, level - 1, (from, to), (&cells, true))?;
            let node = tree.node(cx, *level, row)?;
            let cells: Vec<Vec<V>> = cells.iter().map(|vars| read_all(cx, vars)).collect();
            tree.write(cx, node, &cells);
        }
        Ok(())
    }
}

/// Puts together what the rows of each partition come to, where that is what functions ask for.
#[derive(Debug)]
pub(crate) struct PartitionCells(pub Arc<WindowOperator>);

displayed!(PartitionCells = "cells of partitions");

impl Sink for PartitionCells {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        states.extend(self.0.trees().flat_map(|tree| tree.levels().iter().copied()));
        states.extend(self.0.runs.iter().flat_map(|runs| runs.states()));
        states.insert(self.0.sort.delivered());
        BTreeSet::new()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(PartitionEmitter(&self.0)))
    }
}

struct PartitionEmitter<'s>(&'s WindowOperator);

impl Emitter for PartitionEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let mut own = RowInRuns::new(cx, self.0, row);
        for frame in &self.0.frames {
            let Some(tree) = frame.tree.as_ref().filter(|tree| tree.partitions.is_some()) else { continue };
            let partition = own.run(cx, frame.partition);
            let is_first = cx.builder.eq(partition.start, row);
            cx.begin_if(is_first);
            tree.store_partition(cx, partition.number, (partition.start, partition.end))?;
            cx.end();
        }
        Ok(())
    }
}
