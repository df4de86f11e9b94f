//! Prints KIR as PTX, the assembly of NVIDIA's GPUs, which the driver itself assembles: without a C++ front end, whose time is
//! most of a compiler's, and without any library beside the driver.
//!
//! A kernel has the symbol, parameters and gate that the CUDA back end gives it ([`crate::cuda`]), so that a launch is the same
//! for both. Device functions are printed where they are called. Values are virtual registers, each written once; variables are
//! registers that are written again. Pointers are addresses of their own space: nothing is loaded by a generic address.
//!
//! What PTX has no instruction for (division of 128 bits, `fmod`) is written in KIR itself (`helpers.kir`).
//! Source: NVIDIA, *PTX ISA*; every instruction here is known from version 6.3 and compute capability 7.0 on.

mod arithmetic;
mod atomics;
mod call;
mod convert;
mod division;
mod expr;
mod memory;
mod printer;
mod registers;
mod stmt;
#[cfg(test)]
mod tests;
mod vectors;
mod warp;
mod wide;

use kelpie_kir::ValidModule;

use crate::BackendError;
use crate::cuda::Options;

/// Prints the kernels of a module that `options` asks for, for an architecture such as `sm_90`.
pub fn print_with(
    module: &ValidModule,
    options: &Options,
    architecture: &str,
) -> Result<String, BackendError> {
    let mut text = format!(".version {}\n.target {architecture}\n.address_size 64\n", version(architecture));
    let wanted = |name: &str| options.kernel.as_deref().is_none_or(|only| only == name);
    let kernels: Vec<_> = module.kernels.iter().filter(|(_, kernel)| wanted(&kernel.name)).collect();
    let is_dynamic = |kernel| crate::cuda::dynamic_shared_bytes(module, kernel) > 0;
    if kernels.iter().any(|(_, kernel)| is_dynamic(kernel)) {
        text.push_str(&format!(".extern .shared .align 16 .b8 {}[];\n", printer::DYNAMIC_SHARED));
    }
    for (_, kernel) in kernels {
        text.push('\n');
        text.push_str(&call::print_kernel(module, kernel, options)?);
    }
    Ok(text)
}

/// The oldest version of the language that knows an architecture, so that old drivers take the text.
fn version(architecture: &str) -> &'static str {
    let digits: String = architecture.chars().filter(char::is_ascii_digit).collect();
    match digits.parse::<u32>().unwrap_or(u32::MAX) {
        ..=75 => "6.3",
        76..=80 => "7.0",
        81..=87 => "7.4",
        88..=90 => "7.8",
        91..=101 => "8.6",
        102..=120 => "8.7",
        _ => "9.0",
    }
}
