//! What vectors have beyond the operations on each of their slots.

use kelpie_kir::{ReduceOp, Scalar};

use super::values::{Row, atomic_add, less};

/// Several slots to one.
pub(super) fn reduce(op: ReduceOp, scalar: Scalar, to: &Row, elements: &[&Row]) {
    for (lane, to) in to.iter().enumerate() {
        let mut values: Vec<u64> = elements.iter().map(|row| row[lane].get()).collect();
        let set = values.iter().filter(|value| **value != 0).count();
        to.set(match op {
            ReduceOp::Any => u64::from(set > 0),
            ReduceOp::All => u64::from(set == values.len()),
            ReduceOp::Count => set as u64,
            ReduceOp::Add | ReduceOp::Min | ReduceOp::Max => {
                // The upper half to the lower half, until one is left.
                while values.len() > 1 {
                    let upper = values.split_off(values.len() / 2);
                    for (low, high) in values.iter_mut().zip(upper) {
                        *low = combine(op, scalar, *low, high);
                    }
                }
                values.first().copied().unwrap_or(0)
            }
        });
    }
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
pub(super) fn mask_bits(to: &Row, elements: &[&Row]) {
    for (lane, to) in to.iter().enumerate() {
        let bits = elements.iter().rev().fold(0, |bits, row| bits << 1 | u64::from(row[lane].get() != 0));
        to.set(bits);
    }
}

/// The bits of a slot to truth values.
pub(super) fn bits_mask(to: &[&Row], bits: &Row) {
    for (element, row) in to.iter().enumerate() {
        row.iter().zip(bits).for_each(|(to, bits)| to.set(bits.get() >> element & 1));
    }
}

/// Whether an element's number is below a slot's.
pub(super) fn first_lanes(to: &[&Row], count: &Row) {
    for (element, row) in to.iter().enumerate() {
        row.iter().zip(count).for_each(|(to, count)| to.set(u64::from((element as u64) < count.get())));
    }
}
