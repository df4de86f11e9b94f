//! How large states are when a stage begins: as earlier runs have found to fit, else as the program says.

use kelpie_compile::pipeline::{CapacityClass, Growth, Program};

/// Slots of a hash table where memory is short, at least.
const LEAST_SLOTS: u64 = 64;

/// What is known of the capacities that fit.
#[derive(Debug)]
pub(super) struct Known {
    /// Of this program.
    pub own: Option<Vec<u64>>,
    /// Of one that differs in constants only.
    pub alike: Option<Vec<u64>>,
}

impl Known {
    /// The capacities of a program's classes, with no more than `most` bytes for what can grow, on a device with so many bytes of
    /// memory.
    pub fn capacities(self, program: &Program, most: Option<u64>, memory: u64) -> Vec<u64> {
        if let Some(own) = self.own {
            return own;
        }
        let mut capacities = initial(program, most);
        // Where memory is short, tables are only as large as they must be.
        let alike = self.alike.filter(|alike| most.is_none() && alike.len() == capacities.len());
        let classes = program.classes.iter().enumerate().zip(&mut capacities);
        for (((index, class), capacity), alike) in classes.zip(alike.into_iter().flatten()) {
            if is_possible(class, alike) && alike <= memory / element_bytes(program, index) {
                *capacity = (*capacity).max(alike);
            }
        }
        capacities
    }
}

/// Bytes of an element of all states of a class together.
pub(super) fn element_bytes(program: &Program, class: usize) -> u64 {
    let of_class = program.states.iter().filter(|state| state.class == class);
    of_class.map(|state| u64::from(state.element_bytes)).sum::<u64>().max(1)
}

/// Whether a class that grows may have such a capacity: what is known of other runs may be from a file, which another build has written.
fn is_possible(class: &CapacityClass, capacity: u64) -> bool {
    match class.growth {
        Growth::Table(_) => capacity > 0,
        Growth::Counted(_) => true,
        Growth::Fixed | Growth::Sized(..) => false,
    }
}

/// Where capacities start, with no more than `most` bytes for what can grow.
fn initial(program: &Program, most: Option<u64>) -> Vec<u64> {
    let element_bytes = |class| element_bytes(program, class);
    let classes = program.classes.iter().enumerate();
    let initial = classes.map(|(index, class)| match (class.growth, most) {
        (Growth::Counted(_), Some(most)) => class.initial.min(most / element_bytes(index)).max(1),
        (Growth::Table(..), Some(most)) => {
            let slots = (most / element_bytes(index)).max(LEAST_SLOTS);
            class.initial.min(slots.next_power_of_two() / 2).max(LEAST_SLOTS)
        }
        _ => class.initial,
    });
    initial.collect()
}

#[cfg(test)]
mod tests {
    use kelpie_compile::pipeline::{Fill, TableGrowth};

    use super::*;

    #[test]
    fn what_is_no_size_of_a_class_is_not_taken() {
        let table = TableGrowth { count: 0, fill: Fill { taken: 1, of: 2 }, least: 1 };
        let table = CapacityClass { initial: 64, growth: Growth::Table(table) };
        let fixed = CapacityClass { initial: 1, growth: Growth::Fixed };
        let counted = CapacityClass { initial: 1, growth: Growth::Counted(0) };
        let possible = |class: &CapacityClass| -> Vec<u64> {
            [0, 1, 4, 12, 24, 64, u64::MAX].into_iter().filter(|own| is_possible(class, *own)).collect()
        };
        assert_eq!(possible(&table).len(), 6);
        assert_eq!(possible(&fixed), [0_u64; 0]);
        assert_eq!(possible(&counted).len(), 7);
    }
}
