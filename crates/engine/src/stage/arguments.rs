//! From what a kernel asks for to what it is given.

use std::ops::Range;
use std::sync::Arc;

use kelpie_compile::context::{Argument, ColumnPart, Constant};
use kelpie_device::{Buffer, KernelArgument};
use kelpie_kir::Scalar;

use super::run::Run;
use crate::columns::ResidentColumn;
use crate::error::EngineError;

impl<'a> Run<'a> {
    pub fn arguments(
        &mut self,
        arguments: &[Argument],
        rows: &Range<u64>,
    ) -> Result<Vec<KernelArgument>, EngineError> {
        arguments.iter().map(|argument| self.argument(argument, rows)).collect()
    }

    fn argument(&mut self, argument: &Argument, rows: &Range<u64>) -> Result<KernelArgument, EngineError> {
        let whole = |buffer: &Buffer| KernelArgument::Buffer(Arc::clone(buffer), 0);
        Ok(match argument {
            Argument::Column { scan, column, part } => {
                if let Some(window) = self.windows.get(&(*scan, *column, *part)) {
                    return Ok(window.clone());
                }
                let resident = self.column(*scan, *column)?;
                let buffer = part_of(resident, *part);
                let missing = || EngineError::Internal(format!("column {column} has no {part:?}"));
                whole(buffer.ok_or_else(missing)?)
            }
            Argument::ColumnBase { scan, column, scalar } => {
                KernelArgument::Scalar(*scalar, self.column(*scan, *column)?.base)
            }
            Argument::RowCount => KernelArgument::Scalar(Scalar::I64, i128::from(rows.end)),
            Argument::FirstRow => KernelArgument::Scalar(Scalar::I64, i128::from(rows.start)),
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
            Argument::Bytes(bytes) => match self.constants.get(bytes.as_ref()) {
                Some(buffer) => whole(buffer),
                None => {
                    let buffer = self.allocate(bytes.len())?;
                    self.setting.stream.upload(&buffer, 0, bytes)?;
                    self.constants.insert(bytes.to_vec(), Arc::clone(&buffer));
                    whole(&buffer)
                }
            },
            Argument::Heap(part) => self.heap.argument(*part, rows.end, self.device, self.setting.cache)?,
            Argument::Scratch { words, .. } => {
                let bytes = *words as usize * 4;
                let buffer = self.allocate(bytes)?;
                self.device.fill(&buffer, 0, bytes, 0)?;
                whole(&buffer)
            }
            Argument::State(state) => whole(&self.buffer(*state)?),
            Argument::StateCapacity(state) => {
                let class = self.prepared.program.states[*state].class;
                KernelArgument::Scalar(Scalar::I64, i128::from(self.capacities[class]))
            }
        })
    }

    pub fn column(&self, scan: usize, column: usize) -> Result<&'a ResidentColumn, EngineError> {
        let found = self.setting.loaded.get(scan).and_then(|data| data.columns.get(column));
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
    }
}
