//! A bitmap of the rows where a predicate holds (section 2.1, appendix A), as a kernel by itself.
//!
//! | kernel | parameters |
//! |---|---|
//! | [`SELECT`] | those of the [`Predicate`], `rows: u32`, `validity` (where values may be NULL), `bitmap` |
//!
//! Bit r % b of element r / b, of b bits, tells of row r, so that the bitmap's bytes are the same whatever its elements are (memory is
//! little-endian). Elements up to the last row are written, each once but for the zeros of [`Kind::AtomicGlobal`]; bits behind the last row are 0. `validity` is such a bitmap of the rows that
//! have values, and has whole words of 64 bits.
//!
//! **The kinds** (figure 1). A block makes so many *rounds* as a thread has elements; what a round has of the rows lies side by side.
//!
//! | kind | a thread's rows | how bits come together |
//! |---|---|---|
//! | [`Kind::Sequential`] | neighbours | in a register |
//! | [`Kind::AtomicGlobal`] | one of as many as there are threads | atomics on the bitmap, which was set to 0 before |
//! | [`Kind::AtomicLocal`] | the same | atomics in the block's memory, from where the bitmap is written |
//! | [`Kind::Reduce`] | the same | each an element with one bit in the block's memory; these are put together two by two |
//! | [`Kind::Collect`] | an element's bits, as far apart as there are threads | each thread gathers the bits of one element from the block's memory |
//! | [`Kind::Transpose`] | the same | the block's memory as squares of bits, which are transposed by halves |
//!
//! Rounds that the rows do not fill are done row by row, without the block.

mod atomic;
mod rounds;
mod rows;

use kelpie_kir::{Builder, Module, Target, Type, TypeError, named};

use self::rows::Rows;
use super::group::{Group, param};
use super::{MOST_THREADS_POWER, Predicate, Space, Variable, powers};
use crate::shape::LaunchShape;

/// The kernel.
pub const SELECT: &str = "select_bitmap";

/// Rows of a launch, at most.
pub const MOST_ROWS: u32 = i32::MAX as u32;
/// Elements of a thread, at most, as a power of two.
const MOST_ELEMENTS_POWER: u32 = 10;
/// Threads of a block that are chosen where none are asked for: no fewer than an element may have bits.
const CHOSEN_THREADS: u32 = 64;

named! {
    /// How bits come together.
    pub enum Kind {
        /// Each thread makes elements of neighbouring rows.
        Sequential = "sequential",
        /// Threads set bits of the bitmap.
        AtomicGlobal = "interleaved-atomic-global",
        /// Threads set bits of the block's memory.
        AtomicLocal = "interleaved-atomic-local",
        /// Elements with a bit each are put together.
        Reduce = "interleaved-reduce",
        /// Each thread gathers the bits of an element.
        Collect = "interleaved-collect",
        /// Squares of bits are transposed.
        Transpose = "interleaved-transpose",
    }
}

impl Kind {
    /// Whether threads set bits by atomics.
    pub fn is_atomic(self) -> bool {
        matches!(self, Kind::AtomicGlobal | Kind::AtomicLocal)
    }
}

/// A variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selection {
    /// How bits come together.
    pub kind: Kind,
    /// Bits of an element of the bitmap: 8, 16, 32 or 64.
    pub element_bits: u32,
    /// Whether a bit is set behind a branch, or computed.
    pub branched: bool,
    /// Whether there is code for each bit of an element, and each step of putting elements together, or a loop.
    pub unrolled: bool,
    /// Elements that a thread makes, or rows that it looks at where an element's bits are those of several threads.
    pub elements: u32,
    /// Threads of a block.
    pub threads: u32,
}

impl Selection {
    /// Rows of a round of a block.
    pub fn round_rows(&self) -> u32 {
        match self.kind {
            Kind::Sequential | Kind::Collect | Kind::Transpose => self.threads * self.element_bits,
            Kind::Reduce | Kind::AtomicGlobal | Kind::AtomicLocal => self.threads,
        }
    }

    /// Rows of a block.
    pub fn block_rows(&self) -> u32 {
        self.round_rows() * self.elements
    }

    /// Bytes of the block's memory.
    pub fn shared_bytes(&self) -> u32 {
        match self.kind {
            Kind::Sequential | Kind::AtomicGlobal => 0,
            Kind::AtomicLocal => self.block_rows() / 8,
            Kind::Reduce | Kind::Collect | Kind::Transpose => self.threads * self.element_bits / 8,
        }
    }

    /// Whether there is such a kernel where a block may have so much memory (the exclusions of section 2.1.3).
    fn exists(&self, shared_bytes: u32) -> bool {
        let (bits, whole) = (self.element_bits, self.threads.is_multiple_of(self.element_bits));
        let of_kind = match self.kind {
            Kind::Sequential | Kind::Collect => true,
            // Elements are put together within a round.
            Kind::Reduce => !self.branched && whole,
            Kind::Transpose => whole,
            // Atomics are of 32 and 64 bits, and no block shares an element with another.
            Kind::AtomicGlobal | Kind::AtomicLocal => {
                bits >= 32 && self.branched && !self.unrolled && self.block_rows().is_multiple_of(bits)
            }
        };
        of_kind && self.shared_bytes() <= shared_bytes
    }

    /// The kernel, for launches of blocks of this shape (of as many threads, or a CPU's). `nullable`: whether values may be NULL.
    ///
    /// # Errors
    /// Where the predicate's code is wrong.
    pub fn module(
        &self,
        shape: &LaunchShape,
        predicate: &dyn Predicate,
        nullable: bool,
    ) -> Result<Module, TypeError> {
        let mut b = Builder::new();
        b.begin_kernel(SELECT);
        let params = predicate.begin(&mut b);
        let element = Type::global(super::group::element_scalar(self.element_bits));
        let rows = param(&mut b, "rows", kelpie_kir::Scalar::U32);
        let validity = nullable.then(|| param(&mut b, "validity", element));
        let bitmap = param(&mut b, "bitmap", element);
        let group = Group::new(shape, self.threads);
        let all = Rows { selection: *self, group, predicate, params, rows, validity, bitmap };
        match self.kind {
            Kind::Sequential => all.sequential(&mut b),
            Kind::AtomicGlobal | Kind::AtomicLocal => all.atomic(&mut b),
            Kind::Reduce | Kind::Collect | Kind::Transpose => all.in_rounds(&mut b),
        }
        b.end_kernel();
        b.finish()
    }
}

/// All variants of a device (listing 1, with predication as `branched`).
#[derive(Debug, Clone)]
pub struct SelectionSpace {
    variables: Vec<Variable>,
    shared_bytes: u32,
    chosen_threads: u32,
}

impl SelectionSpace {
    /// Bits of elements.
    pub const ELEMENT_BITS: [u32; 4] = [8, 16, 32, 64];

    /// The variants for a device.
    pub fn new(target: &Target) -> SelectionSpace {
        let sizes = std::iter::once(0).chain(powers(MOST_THREADS_POWER));
        let variables = vec![
            Variable::new("kind", Kind::ALL.map(Kind::name)),
            Variable::new("element_bits", SelectionSpace::ELEMENT_BITS),
            Variable::new("branched", [false, true]),
            Variable::new("unrolled", [false, true]),
            Variable::new("elements", powers(MOST_ELEMENTS_POWER)),
            Variable::new("threads", sizes),
        ];
        let chosen = target.block_threads.next_power_of_two();
        let chosen_threads = chosen.clamp(CHOSEN_THREADS, 1 << MOST_THREADS_POWER);
        SelectionSpace { variables, shared_bytes: target.shared_bytes, chosen_threads }
    }
}

impl Space for SelectionSpace {
    type Variant = Selection;

    fn variables(&self) -> &[Variable] {
        &self.variables
    }

    fn variant(&self, genome: &[u16]) -> Option<Selection> {
        let [kind, bits, branched, unrolled, elements, threads] = *genome else { return None };
        if !self.has_values(genome) {
            return None;
        }
        let selection = Selection {
            kind: *Kind::ALL.get(usize::from(kind))?,
            element_bits: *SelectionSpace::ELEMENT_BITS.get(usize::from(bits))?,
            branched: branched == 1,
            unrolled: unrolled == 1,
            elements: 1 << elements,
            threads: if threads == 0 { self.chosen_threads } else { 1 << (threads - 1) },
        };
        selection.exists(self.shared_bytes).then_some(selection)
    }
}
