//! Checks of launches that every device makes before it trusts a pointer.

use kelpie_kir::{Type, ValidModule};

use crate::{DeviceError, KernelArgument};

/// Types of a kernel's parameters.
pub(crate) fn kernel_params(
    device: &str,
    module: &ValidModule,
    kernel: &str,
) -> Result<Vec<Type>, DeviceError> {
    let found = module.kernels.iter().find(|(_, function)| function.name == kernel);
    match found {
        Some((_, function)) => Ok(function.params.iter().map(|param| param.ty).collect()),
        None => Err(DeviceError::Compile {
            device: device.into(),
            kernel: kernel.into(),
            message: "the module has no such kernel".into(),
        }),
    }
}

/// One argument a parameter, of its type; offsets inside the buffers.
pub(crate) fn check_arguments(
    device: &str,
    kernel: &str,
    params: &[Type],
    arguments: &[KernelArgument],
) -> Result<(), DeviceError> {
    let error = |message: String| DeviceError::Failed {
        device: device.into(),
        operation: format!("launch of kernel {kernel}"),
        message,
    };
    if params.len() != arguments.len() {
        return Err(error(format!("{} arguments for {} parameters", arguments.len(), params.len())));
    }
    for (index, (param, argument)) in params.iter().zip(arguments).enumerate() {
        match (param, argument) {
            (Type::Scalar(expected), KernelArgument::Scalar(given, _)) if expected == given => {}
            (Type::Ptr(..), KernelArgument::Buffer(buffer, offset)) => {
                if *offset > buffer.bytes() as u64 {
                    let bytes = buffer.bytes();
                    return Err(error(format!(
                        "argument {index} is at byte {offset} of a buffer of {bytes}"
                    )));
                }
            }
            (Type::Ptr(..), KernelArgument::Window(..)) => {}
            _ => {
                return Err(error(format!(
                    "argument {index} is {argument:?} for a parameter of type {param:?}"
                )));
            }
        }
    }
    Ok(())
}
