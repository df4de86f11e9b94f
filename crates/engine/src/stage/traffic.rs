//! What a metered launch accessed, by what the memory is for.

use kelpie_compile::context::Argument;
use kelpie_compile::pipeline::Purpose;
use kelpie_device::{Accessed, KernelArgument};

use super::launcher::Launcher;
use crate::meter::{Region, Traffic};

impl Launcher<'_> {
    /// `declared`: the kernel's arguments. `accessed`: one an argument, then addresses that are no argument's.
    pub fn traffic(&self, declared: &[Argument], given: &[KernelArgument], accessed: &[Accessed]) -> Traffic {
        let mut traffic = Traffic::default();
        let mut accessed = accessed.iter();
        for ((argument, given), accessed) in declared.iter().zip(given).zip(&mut accessed) {
            traffic.add(self.region(argument, given), *accessed);
        }
        // Text that is kept by address is that of columns.
        accessed.for_each(|text| traffic.add(Region::Input, *text));
        traffic
    }

    fn region(&self, argument: &Argument, given: &KernelArgument) -> Region {
        match argument {
            Argument::Column { scan, column, .. } => {
                let on_host = self.setting.column(*scan, *column).is_ok_and(|column| column.on_host);
                // A window is a copy of a block.
                match on_host && !matches!(given, KernelArgument::Window(..)) {
                    true => Region::Link,
                    false => Region::Input,
                }
            }
            Argument::State(state) => Region::State(self.program.states[*state].purpose),
            Argument::Heap(_) | Argument::Scratch { .. } => Region::State(Purpose::Store),
            Argument::Bytes(_)
            | Argument::ColumnBase { .. }
            | Argument::RowCount
            | Argument::FirstRow
            | Argument::Drains
            | Argument::Constant(_)
            | Argument::StateCapacity(_) => Region::Input,
        }
    }
}
