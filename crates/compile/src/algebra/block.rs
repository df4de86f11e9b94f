//! The second stage: blocks compute the results of sections (sections 4.1 and 5.1, “block streaming”).
//!
//! | kernel | parameters |
//! |---|---|
//! | [`COMPUTE`] | `left`, `right`, `left_rows: u32`, `right_rows: u32`, `sections: u32[]`, `section_count: u32`, `tiles: u32`, `per_section: u32`, and those of the [`output`](super::output) |
//!
//! `sections` are the splits of [`SPLITS`](super::partition::SPLITS), of which a section has `per_section` tiles, or the sections of
//! [`SECTIONS`](super::partition::SECTIONS), which a block cuts into tiles as it goes; SELECT has no use for it. In a section that was found
//! by search a block looks before it loads whether the next tuples of one input are all less than the first of the other: where they have
//! no results without a match, they are skipped.
//!
//! Single pass over sections that are more than a tile goes through each twice: results are counted before their places are known.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, Pointee, Scalar, Type};

use super::output::{Target, Writer, add_total};
use super::partition::{Inputs, param};
use super::search::{add_to, merge_path};
use super::tile::{Block, Bounds, Tile};
use super::{Description, Output, Partition, matching, streamed};
use crate::primitives::for_range;
use crate::primitives::look_back::Chain;
use crate::shape::LaunchShape;

/// Computes the results of sections.
pub const COMPUTE: &str = "algebra_compute";

/// What is done with a tile and its results (`u64`).
type OfTile<'a> = &'a dyn Fn(&mut Builder, &Tile, V);

/// What the kernel is made of.
struct Compute<'d> {
    block: Block<'d>,
    target: Target,
    sections: V,
    tiles: V,
    per_section: V,
    arrays: (Option<V>, Option<V>),
    chain: Option<Chain>,
    /// Shared: the sum of all sections before, `u32`.
    before: Option<V>,
    /// Shared: the next tile of a section that was found by search, `u32`: from and to, of the left and the right input.
    next: Option<V>,
}

/// The kernel.
pub(super) fn kernel(b: &mut Builder, description: &Description, shape: &LaunchShape) {
    b.begin_kernel(COMPUTE);
    let inputs = Inputs::begin(b, description.tuples);
    let sections = param(b, "sections", Type::global(Scalar::U32));
    let [count, tiles, per_section] =
        ["section_count", "tiles", "per_section"].map(|name| param(b, name, Scalar::U32));
    let block = Block::begin(b, description, shape, inputs);
    let target = Target::begin(b, &block);
    let arrays = Writer::arrays(b, &block);
    let chain = target.states.map(|states| Chain::begin(b, states, 1));
    let mut words = |name, count| b.shared(name, Pointee::Scalar(Scalar::U32), count);
    let before = chain.is_some().then(|| words("sum_before", 1));
    let next = (description.cut() == Partition::BinarySearch).then(|| words("next_tile", 4));
    let compute = Compute { block, target, sections, tiles, per_section, arrays, chain, before, next };
    match &compute.chain {
        Some(chain) => {
            b.begin_loop();
            let section = chain.take_tile(b);
            let section = b.convert(section, Scalar::U32);
            let done = b.ge(section, count);
            b.break_if(done);
            compute.section(b, section);
            b.end();
        }
        None => {
            let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
            for_range(b, block, count, blocks, |b, section| compute.section(b, section));
        }
    }
    b.end_kernel();
}

impl Compute<'_> {
    fn section(&self, b: &mut Builder, section: V) {
        let writer = Writer::begin(b, (&self.block, &self.target), self.arrays, section);
        let none = b.u64(0);
        let total = b.var_of("total", none);
        match (&self.chain, self.next) {
            (Some(_), Some(_)) => {
                self.for_tiles(b, section, &|b, tile, results| {
                    let _ = tile;
                    add_to(b, total, results);
                });
                let results = b.read(total);
                self.look_back(b, section, (results, &writer));
                self.for_tiles(b, section, &|b, tile, results| self.write(b, &writer, tile, results));
            }
            (Some(_), None) => {
                self.for_tiles(b, section, &|b, tile, results| {
                    b.assign(total, results);
                    self.look_back(b, section, (results, &writer));
                    self.write(b, &writer, tile, results);
                });
            }
            (None, _) => {
                if let Some(areas) = self.target.areas {
                    let one = b.u32(1);
                    let after = b.add(section, one);
                    let (place, end) = (b.element(areas, section), b.element(areas, after));
                    b.assign(writer.place, place);
                    b.assign(writer.end, end);
                }
                self.for_tiles(b, section, &|b, tile, results| {
                    add_to(b, total, results);
                    self.write(b, &writer, tile, results);
                });
            }
        }
        let total = b.read(total);
        let narrow = b.convert(total, Scalar::U32);
        writer.finish(b, narrow);
        let leads = self.block.leads(b);
        b.begin_if(leads);
        add_total(b, &self.target, (0, total));
        b.end();
    }

    /// Writes the results of a tile, unless there is no room for so many at all.
    fn write(&self, b: &mut Builder, writer: &Writer<'_, '_>, tile: &Tile, results: V) {
        let capacity = b.convert(self.target.capacity, Scalar::U64);
        let fits = b.ge(capacity, results);
        b.begin_if(fits);
        let results = b.convert(results, Scalar::U32);
        writer.write(b, tile, results);
        b.end();
    }

    /// Learns how many results (`u64`) come before those of a section.
    fn look_back(&self, b: &mut Builder, section: V, (results, writer): (V, &Writer<'_, '_>)) {
        let (Some(chain), Some(before)) = (&self.chain, self.before) else { return };
        let number = b.convert(section, Scalar::I64);
        let results = b.convert(results, Scalar::U32);
        b.begin_if(chain.leads);
        chain.announce(b, (number, None), results);
        if self.block.shape.is_serial() {
            let sum = chain.look_back(b, (number, None), results);
            b.store(before, sum);
        }
        b.end();
        if !self.block.shape.is_serial() {
            let (lanes, first) = (b.builtin(Builtin::Lanes), b.u32(0));
            let warp = b.div(self.block.thread, lanes);
            let is_first = b.eq(warp, first);
            b.begin_if(is_first);
            let sum = chain.look_back_by_warp(b, self.block.shape, (number, results));
            b.begin_if(chain.leads);
            b.store(before, sum);
            b.end();
            b.end();
        }
        let sum = b.uniform_load(before);
        b.assign(writer.place, sum);
        b.assign(writer.end, self.target.capacity);
    }

    /// Goes through the tiles of a section: `body` is given each with its results (`u64`).
    fn for_tiles(&self, b: &mut Builder, section: V, body: OfTile<'_>) {
        match self.next {
            Some(next) => self.tiles_by_search(b, section, (next, body)),
            None => self.tiles_by_splits(b, section, body),
        }
    }

    fn tile(&self, b: &mut Builder, bounds: Bounds, body: OfTile<'_>) {
        let block = &self.block;
        if let Some(staged) = self.arrays.0.filter(|_| block.description.is_streamed()) {
            let (tile, results) = streamed::stage(b, block, bounds, staged);
            let results = b.convert(results, Scalar::U64);
            return body(b, &tile, results);
        }
        let tile = block.load(b, bounds);
        matching::find(b, block, &tile);
        if block.description.has_right() {
            block.set_rights(b, &tile);
        }
        let results = block.add_up(b);
        body(b, &tile, results);
    }

    fn tiles_by_splits(&self, b: &mut Builder, section: V, body: OfTile<'_>) {
        let one = b.u32(1);
        let first = b.mul(section, self.per_section);
        let end = b.add(first, self.per_section);
        let end = b.binary(BinaryOp::Min, end, self.tiles);
        let inputs = &self.block.inputs;
        for_range(b, first, end, one, |b, tile| {
            let size = b.u32(self.block.description.tile(self.block.shape));
            let after = b.add(tile, one);
            let all = b.add(inputs.left_rows, inputs.right_rows);
            let mut diagonal = |number: V| {
                let tuples = b.mul(number, size);
                b.binary(BinaryOp::Min, tuples, all)
            };
            let (from, to) = (diagonal(tile), diagonal(after));
            let bounds = match self.block.description.is_select() {
                true => {
                    let zero = b.u32(0);
                    Bounds { left: from, left_end: to, right: zero, right_end: zero }
                }
                false => {
                    let (left, left_end) = (b.element(self.sections, tile), b.element(self.sections, after));
                    let (right, right_end) = (b.sub(from, left), b.sub(to, left_end));
                    Bounds { left, left_end, right, right_end }
                }
            };
            self.tile(b, bounds, body);
        });
    }

    fn tiles_by_search(&self, b: &mut Builder, section: V, (next, body): (V, OfTile<'_>)) {
        let two = b.u32(2);
        let first = b.binary(BinaryOp::Shl, section, two);
        let mut bound = |number: u32| {
            let number = b.u32(number);
            let index = b.add(first, number);
            b.element(self.sections, index)
        };
        let [left, left_end, right, right_end] = [0, 1, 2, 3].map(&mut bound);
        let cursor = (b.var_of("left", left), b.var_of("right", right));
        b.begin_loop();
        let leads = self.block.leads(b);
        b.begin_if(leads);
        self.choose(b, cursor, (left_end, right_end), next);
        b.end();
        let mut chosen = |number: u32| {
            let number = b.u32(number);
            let pointer = b.offset(next, number);
            b.uniform_load(pointer)
        };
        let [left, left_to, right, right_to] = [0, 1, 2, 3].map(&mut chosen);
        let bounds = Bounds { left, left_end: left_to, right, right_end: right_to };
        let (none_left, none_right) = (b.eq(left, left_to), b.eq(right, right_to));
        let done = b.and(none_left, none_right);
        b.break_if(done);
        self.tile(b, bounds, body);
        b.assign(cursor.0, left_to);
        b.assign(cursor.1, right_to);
        b.end();
    }

    /// Chooses the next tile of a section, by one thread.
    fn choose(&self, b: &mut Builder, cursor: (Var, Var), (left_end, right_end): (V, V), next: V) {
        let (left, right) = (b.read(cursor.0), b.read(cursor.1));
        let (left, right) = (b.var_of("next_left", left), b.var_of("next_right", right));
        if self.block.description.needs_both() {
            self.skip(b, (left, right), (left_end, right_end));
        }
        let (left, right) = (b.read(left), b.read(right));
        let (lefts, rights) = (b.sub(left_end, left), b.sub(right_end, right));
        let size = b.u32(self.block.description.tile(self.block.shape));
        let all = b.add(lefts, rights);
        let size = b.binary(BinaryOp::Min, size, all);
        let taken = merge_path(b, size, (lefts, rights), &mut |b, index, is_left| {
            let position = b.add(if is_left { left } else { right }, index);
            self.block.inputs.key(b, is_left, position)
        });
        let others = b.sub(size, taken);
        let (left_to, right_to) = (b.add(left, taken), b.add(right, others));
        for (number, value) in (0..).zip([left, left_to, right, right_to]) {
            let number = b.u32(number);
            let pointer = b.offset(next, number);
            b.store(pointer, value);
        }
    }

    /// Skips tuples that are less than all of the other input, a tile at a time; all, where the other one has no more.
    fn skip(&self, b: &mut Builder, (left, right): (Var, Var), (left_end, right_end): (V, V)) {
        let begin = (b.read(left), b.read(right));
        b.begin_loop();
        let (from, other) = (b.read(left), b.read(right));
        let (no_left, no_right) = (b.ge(from, left_end), b.ge(other, right_end));
        let over = b.or(no_left, no_right);
        b.begin_if(over);
        b.assign(left, left_end);
        b.assign(right, right_end);
        b.break_loop();
        b.end();
        let (size, one, inputs) =
            (b.u32(self.block.description.tile(self.block.shape)), b.u32(1), &self.block.inputs);
        let mut ahead = |is_left: bool, from: V, end: V, other: V| {
            let left = b.sub(end, from);
            let step = b.binary(BinaryOp::Min, size, left);
            let to = b.add(from, step);
            let last = b.sub(to, one);
            let (last, first) = (inputs.key(b, is_left, last), inputs.key(b, !is_left, other));
            (to, b.lt(last, first))
        };
        let (left_to, skips_left) = ahead(true, from, left_end, other);
        let (right_to, skips_right) = ahead(false, other, right_end, from);
        let (new_left, new_right) =
            (b.select(skips_left, left_to, from), b.select(skips_right, right_to, other));
        b.assign(left, new_left);
        b.assign(right, new_right);
        let any = b.or(skips_left, skips_right);
        let none = b.not(any);
        b.break_if(none);
        b.end();
        let (end, other_end) = (b.read(left), b.read(right));
        let (lefts, rights) = (b.sub(end, begin.0), b.sub(other_end, begin.1));
        let skipped = b.add(lefts, rights);
        let skipped = b.convert(skipped, Scalar::U64);
        // Twice over, single pass goes through a section.
        let counted = match self.block.description.output {
            Output::SinglePass => {
                let one = b.u64(1);
                b.binary(BinaryOp::Shr, skipped, one)
            }
            _ => skipped,
        };
        add_total(b, &self.target, (1, counted));
    }
}
