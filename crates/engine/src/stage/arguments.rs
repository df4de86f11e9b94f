//! From what a kernel asks for to what it is given.

use std::ops::Range;
use std::sync::Arc;

use kelpie_compile::context::{Argument, ColumnPart, Constant};
use kelpie_device::{Buffer, KernelArgument};
use kelpie_kir::Scalar;

use super::launcher::Launcher;
use super::setting::Setting;
use super::store::StateStore;
use crate::columns::ResidentColumn;
use crate::error::EngineError;

impl Launcher<'_> {
    /// What a kernel is given for the arguments that it declares.
    pub fn arguments(
        &mut self,
        arguments: &[Argument],
        rows: &Range<u64>,
        store: &mut StateStore<'_>,
    ) -> Result<Vec<KernelArgument>, EngineError> {
        arguments.iter().map(|argument| self.argument(argument, rows, store)).collect()
    }

    fn argument(
        &mut self,
        argument: &Argument,
        rows: &Range<u64>,
        store: &mut StateStore<'_>,
    ) -> Result<KernelArgument, EngineError> {
        let whole = |buffer: &Buffer| KernelArgument::Buffer(Arc::clone(buffer), 0);
        Ok(match argument {
            Argument::Column { scan, column, part } => {
                if let Some(window) = self.windows.get(&(*scan, *column, *part)) {
                    return Ok(window.clone());
                }
                let resident = self.setting.column(*scan, *column)?;
                let buffer = part_of(resident, *part);
                let missing = || EngineError::Internal(format!("column {column} has no {part:?}"));
                whole(buffer.ok_or_else(missing)?)
            }
            Argument::ColumnBase { scan, column, scalar } => {
                KernelArgument::Scalar(*scalar, self.setting.column(*scan, *column)?.base)
            }
            Argument::RowCount => KernelArgument::Scalar(Scalar::I64, i128::from(rows.end)),
            Argument::FirstRow => KernelArgument::Scalar(Scalar::I64, i128::from(rows.start)),
            Argument::Drains => KernelArgument::Scalar(Scalar::Bool, i128::from(self.drains)),
            Argument::Constant(Constant::Int(scalar, value)) => KernelArgument::Scalar(*scalar, *value),
            Argument::Constant(Constant::F32(value)) => {
                KernelArgument::Scalar(Scalar::F32, i128::from(value.to_bits()))
            }
            Argument::Constant(Constant::F64(value)) => {
                KernelArgument::Scalar(Scalar::F64, i128::from(value.to_bits()))
            }
            Argument::Constant(Constant::Bool(value)) => {
                KernelArgument::Scalar(Scalar::Bool, i128::from(*value))
            }
            Argument::Bytes(bytes) => whole(&self.constant(bytes, store)?),
            Argument::Heap(part) => store.heap_argument(*part, rows.end)?,
            Argument::Scratch { words, .. } => {
                let bytes = *words as usize * 4;
                let buffer = store.allocate(bytes)?;
                self.setting.stream.fill(&buffer, 0, bytes, 0)?;
                whole(&buffer)
            }
            Argument::State(state) => {
                let (buffer, offset) = store.place(*state)?;
                if store.page.has(*state) {
                    store.page.changed(*state);
                }
                KernelArgument::Buffer(buffer, offset as u64)
            }
            Argument::StateCapacity(state) => {
                KernelArgument::Scalar(Scalar::I64, i128::from(store.capacity_of(*state)))
            }
        })
    }

    /// The buffer with a constant of a kernel: it stays on the device as long as the program is kept.
    fn constant(&self, bytes: &Arc<[u8]>, store: &StateStore<'_>) -> Result<Buffer, EngineError> {
        if let Some(buffer) = self.constants.lock().get(bytes) {
            return Ok(Arc::clone(buffer));
        }
        let buffer = store.allocate(bytes.len())?;
        // Not in this query's stream: others use it too.
        self.setting.stream.device().upload(&buffer, 0, bytes)?;
        self.constants.lock().insert(Arc::clone(bytes), Arc::clone(&buffer));
        Ok(buffer)
    }
}

impl<'a> Setting<'a> {
    /// A column of a scan.
    pub fn column(&self, scan: usize, column: usize) -> Result<&'a ResidentColumn, EngineError> {
        let found = self.loaded.get(scan).and_then(|data| data.columns.get(column));
        found
            .map(AsRef::as_ref)
            .ok_or_else(|| EngineError::Internal(format!("column {column} of scan {scan}")))
    }
}

/// A buffer of a column, where the column has it.
pub fn part_of(column: &ResidentColumn, part: ColumnPart) -> Option<&Buffer> {
    match part {
        ColumnPart::Data => Some(&column.data),
        ColumnPart::Validity => column.validity.as_ref(),
        ColumnPart::Offsets => column.offsets.as_ref(),
        ColumnPart::DictionaryOffsets => column.dictionary.as_ref().map(|(offsets, _)| offsets),
        ColumnPart::DictionaryBytes => column.dictionary.as_ref().map(|(_, bytes)| bytes),
        ColumnPart::Codes => column.codes().map(|coded| &coded.codes),
        ColumnPart::Entries => column.codes().map(|coded| &coded.entries),
    }
}
