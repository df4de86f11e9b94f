//! What vectors have beyond the operations on each of their slots.

use kelpie_kir::{ReduceOp, Scalar};

use super::values::{Row, atomic_add, less};

/// The slots of a vector's elements: the warp's lanes of the first element, then those of the second.
#[derive(Clone, Copy)]
pub(super) struct Vector<'a> {
    pub(super) cells: &'a Row,
    /// Of the warp.
    pub(super) lanes: usize,
}

impl<'a> Vector<'a> {
    /// A slot for each element.
    fn rows(self) -> impl DoubleEndedIterator<Item = &'a Row> {
        self.cells.chunks_exact(self.lanes)
    }

    /// The elements of one lane.
    fn of(self, lane: usize) -> impl DoubleEndedIterator<Item = u64> {
        self.rows().map(move |row| row[lane].get())
    }
}

/// Several slots to one.
pub(super) fn reduce(op: ReduceOp, scalar: Scalar, to: &Row, vector: Vector<'_>) {
    for (lane, to) in to.iter().enumerate() {
        let is_set = |element: &u64| *element != 0;
        to.set(match op {
            ReduceOp::Any => u64::from(vector.of(lane).any(|element| is_set(&element))),
            ReduceOp::All => u64::from(vector.of(lane).all(|element| is_set(&element))),
            ReduceOp::Count => vector.of(lane).filter(is_set).count() as u64,
            ReduceOp::Add | ReduceOp::Min | ReduceOp::Max => {
                let element = |index: usize| vector.cells[index * vector.lanes + lane].get();
                let elements = vector.cells.len() / vector.lanes;
                halves(&element, 0, 1, elements, &|a, b| combine(op, scalar, a, b))
            }
        });
    }
}

/// One value of all `elements`, of which the upper half is combined with the lower half until one is left: what is at
/// `index` when `left` are.
fn halves(
    element: &impl Fn(usize) -> u64,
    index: usize,
    left: usize,
    elements: usize,
    combine: &impl Fn(u64, u64) -> u64,
) -> u64 {
    if left >= elements {
        return element(index);
    }
    let half = |index| halves(element, index, 2 * left, elements, combine);
    combine(half(index), half(index + left))
}

fn combine(op: ReduceOp, scalar: Scalar, a: u64, b: u64) -> u64 {
    match op {
        ReduceOp::Min if less(scalar, b, a) => b,
        ReduceOp::Max if less(scalar, a, b) => b,
        ReduceOp::Min | ReduceOp::Max => a,
        _ => atomic_add(scalar, a, b),
    }
}

/// Truth values to the bits of one slot.
pub(super) fn mask_bits(to: &Row, mask: Vector<'_>) {
    for (lane, to) in to.iter().enumerate() {
        to.set(mask.of(lane).rev().fold(0, |bits, element| bits << 1 | u64::from(element != 0)));
    }
}

/// The bits of a slot to truth values.
pub(super) fn bits_mask(to: Vector<'_>, bits: &Row) {
    for (element, row) in to.rows().enumerate() {
        row.iter().zip(bits).for_each(|(to, bits)| to.set(bits.get() >> element & 1));
    }
}

/// Whether an element's number is below a slot's.
pub(super) fn first_lanes(to: Vector<'_>, count: &Row) {
    for (element, row) in to.rows().enumerate() {
        row.iter().zip(count).for_each(|(to, count)| to.set(u64::from((element as u64) < count.get())));
    }
}
