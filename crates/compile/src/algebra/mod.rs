//! Relational algebra on sorted arrays (Diamos, Wu, Lele, Wang and Yalamanchili, “Relational Algorithms for Multi-Bulk-Synchronous
//! Processors”, 2012), as kernels by themselves.
//!
//! A relation is a dense array of tuples in the order of their keys, each packed into a word of 32, 64 or 128 bits ([`Tuples`]), or a list
//! of pages of such ([`pages`]). [`Description`] says what is computed and how, and gives the kernels:
//!
//! | stage | where | what it does |
//! |---|---|---|
//! | partition | [`partition`] | finds sections of the inputs that can be worked on by themselves |
//! | block compute | [`block`] | a block goes through its section tile by tile: loads it, finds matches (`matching`), counts, and writes results |
//! | output | [`output`], [`pages`] | where results go: areas that are gathered, places that look-back finds, or pages |
//!
//! PROJECT and PRODUCT ([`flat`]) know the places of their results, and need no stages.
//!
//! **A tile** is so many tuples of both inputs that follow each other when the inputs are merged, equal keys of the left one first. So the
//! right tuples before a left one with its key lie in its tile, or before it; a left tuple's first match lies in its tile or just behind, a
//! right one's last match in its tile or just before. A tile needs one tuple of each neighbour, and is balanced whatever the keys are.
//!
//! **Limits.** Inputs have less than 2³¹ tuples together, results less than 2³².

pub mod block;
pub mod flat;
mod matching;
mod network;
pub mod output;
pub mod pages;
pub mod partition;
mod search;
mod streamed;
pub mod tile;
pub mod tuples;

use kelpie_kir::{CompareOp, Module, TypeError, named};

pub use self::tuples::{Tuples, Width};
use crate::shape::LaunchShape;

/// Tuples of a tile, at most: their numbers take [`tile::INDEX_BITS`] bits.
pub const MOST_TILE: u32 = 8192;
/// Tuples of a tile of a CPU's worker: its arrays stay in the first-level cache.
const SERIAL_TILE: u32 = 1024;
/// The same where only results are there.
const STREAMED_TILE: u32 = 4096;
/// Bytes of a block's memory that a tile takes, at most, so that several blocks fit a multiprocessor.
const MOST_BYTES: u32 = 48 << 10;
/// Bytes of what is there once a block, or once a warp.
const FEW_BYTES: u32 = 512;

/// What is computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The left tuples of which all comparisons hold (SELECT). There is no right input.
    Select(Vec<Comparison>),
    /// The left tuples whose key a right one has (INTERSECT).
    Intersect,
    /// The left tuples, and the right ones whose key no left one has (UNION).
    Union,
    /// The left tuples whose key no right one has (DIFFERENCE).
    Difference,
    /// Key, left value and right value of each pair with equal keys (JOIN), as [`Description::output`] packs them.
    Join(Outer),
}

/// Of which inputs a join has the tuples without a match too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Outer {
    /// Of the left one.
    pub left: bool,
    /// Of the right one.
    pub right: bool,
}

/// A comparison of a field of a tuple with a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The field.
    pub field: Field,
    /// How it is compared, as an unsigned number.
    pub op: CompareOp,
    /// With what.
    pub value: u64,
}

/// Bits of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field {
    /// The lowest bit.
    pub shift: u32,
    /// How many; at most 64.
    pub bits: u32,
}

/// What becomes of tuples of one input with equal keys in SELECT and the set operations. A join has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Duplicates {
    /// The first of them stands for all: results are sets of keys.
    First,
    /// Each is looked at by itself.
    Each,
}

/// Where a block's results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// To an area of the section; when all are counted, they are gathered (section 4.1).
    Gather,
    /// To their places, which blocks learn from those before them by look-back.
    SinglePass,
    /// To pages of a pool, which are linked (sections 4.3 and 6.1).
    Pages,
}

/// How the inputs are cut into sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Partition {
    /// By pivots of one input that are looked up in the other, in turn (section 4.1; Baeza-Yates 2004). Equal keys stay together, and
    /// sections that cannot have results are dropped.
    BinarySearch,
    /// Into equal parts of what the inputs merged would be (Odeh, Green et al. 2012).
    MergePath,
}

named! {
    /// How a block finds the matches of a tile (section 4.2).
    pub enum BlockJoin {
        /// Each tuple is looked up.
        BinarySearch = "binary_search",
        /// A thread's tuples, which follow each other, are looked up together, and compared with all in between.
        BlockedBinarySearch = "blocked_binary_search",
        /// All are compared with all.
        BruteForce = "brute_force",
        /// A table into which tuples are written whatever is there; who was written over is tried again.
        Hash = "hash",
        /// Halves are compared with halves that overlap; tuples that would have to go to both are looked up.
        JoinNetwork = "join_network",
        /// Each thread merges as many tuples (section 5.1's two-finger join, shared out by merge path).
        TwoFinger = "two_finger",
    }
}

/// What is computed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Description {
    /// What.
    pub operator: Operator,
    /// The tuples of both inputs.
    pub tuples: Tuples,
    /// What becomes of equal keys.
    pub duplicates: Duplicates,
    /// Where results go.
    pub output: Output,
    /// How inputs are cut.
    pub partition: Partition,
    /// How matches are found.
    pub block_join: BlockJoin,
    /// How a block's work is shared out.
    pub tuning: Tuning,
}

/// How a block's work is shared out. Its threads are those of the launch's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Tuples of a tile for each thread, at most; 0 for what suits.
    pub items: u32,
    /// Tuples that a thread holds in registers while it finds their matches.
    pub blocking: u32,
    /// Results that a block collects before it writes them; 0: each is written at once. SELECT, and set operations by two fingers, bring
    /// together those of a tile in any case.
    pub buffer: u32,
    /// Comparisons in one turn of the loops that compare all with all.
    pub unroll: u32,
    /// Tuples of a page.
    pub page: u32,
    /// Sections, at least, that inputs are cut into by search; 0 for what suits. A power of two, or the next one.
    pub sections: u32,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { items: 0, blocking: 4, buffer: 0, unroll: 4, page: 1 << 12, sections: 0 }
    }
}

impl Description {
    /// The algebra's operator over tuples, in the form that suits most.
    pub fn new(operator: Operator, tuples: Tuples) -> Description {
        Description {
            operator,
            tuples,
            duplicates: Duplicates::First,
            output: Output::SinglePass,
            partition: Partition::MergePath,
            block_join: BlockJoin::TwoFinger,
            tuning: Tuning::default(),
        }
    }

    /// Why there is no such kernel for a shape, if there is none.
    pub fn problem(&self, shape: &LaunchShape) -> Option<String> {
        let Tuning { blocking, unroll, page, .. } = self.tuning;
        let known = |(what, value): (&str, u32)| {
            (!(1..=64).contains(&value)).then(|| format!("{what} of {value}: not 1 to 64"))
        };
        let problem = self.tuples.problem().or_else(|| self.results().and_then(|tuples| tuples.problem()));
        problem
            .or_else(|| [("blocking", blocking), ("unrolling", unroll)].into_iter().find_map(known))
            .or_else(|| self.field_problem())
            .or_else(|| (page == 0).then(|| "pages without tuples".into()))
            .or_else(|| {
                let tile = self.tile(shape);
                (tile < shape.block_threads).then(|| {
                    format!(
                        "a block has no memory for a tuple of each of its {} threads",
                        shape.block_threads
                    )
                })
            })
    }

    fn field_problem(&self) -> Option<String> {
        let Operator::Select(comparisons) = &self.operator else { return None };
        let bits = self.tuples.width.bits();
        let is_outside =
            |field: &Field| !(1..=64).contains(&field.bits) || field.shift.saturating_add(field.bits) > bits;
        let fields = comparisons.iter().map(|comparison| comparison.field);
        fields.into_iter().find(is_outside).map(|field| format!("{field:?} is not in a word of {bits} bits"))
    }

    /// The tuples of the result, where they differ from those of the inputs.
    fn results(&self) -> Option<Tuples> {
        let Operator::Join(outer) = self.operator else { return None };
        let [left, right] = self.fields(outer);
        let (key_bits, value_bits) = (self.tuples.key_bits, left + right);
        let width = Width::ALL.into_iter().find(|width| key_bits + value_bits <= width.bits());
        Some(Tuples { width: width.unwrap_or(Width::W128), key_bits, value_bits })
    }

    /// The tuples of the result: the inputs', and those of a join the narrowest that have the key, the left value and the right one. A
    /// value that may be missing has a bit more, its highest, which is set where it is (the others are 0 then).
    pub fn output(&self) -> Tuples {
        self.results().unwrap_or(self.tuples)
    }

    /// Bits of the left and the right value in a join's result.
    fn fields(&self, outer: Outer) -> [u32; 2] {
        let of = |may_miss: bool| self.tuples.value_bits + u32::from(may_miss);
        [of(outer.right), of(outer.left)]
    }

    /// Whether right tuples are among the results by themselves.
    fn has_right(&self) -> bool {
        matches!(self.operator, Operator::Union | Operator::Join(Outer { right: true, .. }))
    }

    /// Whether a tuple without a match is in no result: then sections without common keys have none.
    fn needs_both(&self) -> bool {
        matches!(self.operator, Operator::Intersect | Operator::Join(Outer { left: false, right: false }))
    }

    fn is_join(&self) -> bool {
        matches!(self.operator, Operator::Join(_))
    }

    /// Whether results are brought together as their tuples are gone through, of which each has one at most.
    fn is_streamed(&self) -> bool {
        self.is_select() || (!self.is_join() && self.block_join == BlockJoin::TwoFinger)
    }

    fn is_select(&self) -> bool {
        matches!(self.operator, Operator::Select(_))
    }

    /// How inputs are cut: those of SELECT, of which there is one, into equal parts.
    pub fn cut(&self) -> Partition {
        if self.is_select() { Partition::MergePath } else { self.partition }
    }

    /// Bytes of a block's memory for a tile of so many tuples.
    fn bytes(&self, tile: u32) -> u32 {
        let width = self.tuples.width.bytes();
        if self.is_streamed() {
            let loaded = if self.is_select() { 0 } else { tile + 2 };
            return width * (loaded + tile + streamed::LANES) + FEW_BYTES;
        }
        let tables = if self.block_join == BlockJoin::Hash { 4 * 4 + 8 } else { 0 };
        let of_result = self.output().width.bytes();
        (width + 4 + 4 + tables) * (tile + 2) + of_result * self.tuning.buffer + FEW_BYTES
    }

    /// Tuples of a tile: a multiple of the block's threads; 0 where there is no memory for one of each.
    pub fn tile(&self, shape: &LaunchShape) -> u32 {
        let threads = shape.block_threads;
        let wanted = match (shape.is_serial(), self.tuning.items) {
            (true, 0) if self.is_streamed() => STREAMED_TILE,
            (true, 0) => SERIAL_TILE,
            // A bit a tuple.
            (false, 64..) if self.is_streamed() => 64,
            (false, 0) if self.is_select() => 16,
            // Odd, so that threads whose tuples follow each other begin in different banks.
            (false, 0) => 15,
            (_, items) => items,
        };
        let room = shape.shared_bytes.min(MOST_BYTES);
        let fits = |items: &u32| {
            let tile = items.saturating_mul(threads);
            tile <= MOST_TILE && self.bytes(tile) <= room
        };
        (1..=wanted.min(MOST_TILE)).rev().find(fits).unwrap_or(0) * threads
    }

    /// The kernels of the partition, of the block compute and of what gathers results, of which [`Description::problem`] finds none.
    pub fn module(&self, shape: &LaunchShape) -> Result<Module, TypeError> {
        let mut b = kelpie_kir::Builder::new();
        if !self.is_select() {
            match self.partition {
                Partition::MergePath => partition::splits(&mut b, self, shape),
                Partition::BinarySearch => partition::sections(&mut b, self),
            }
        }
        block::kernel(&mut b, self, shape);
        match self.output {
            Output::SinglePass => {}
            Output::Gather => pages::gather(&mut b, self.output().width),
            Output::Pages => {
                pages::link(&mut b);
                pages::to_dense(&mut b, self.output().width, self.tuning.page);
            }
        }
        b.finish()
    }
}
