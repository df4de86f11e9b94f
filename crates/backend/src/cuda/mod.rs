//! Prints KIR as CUDA C++ for NVRTC: one translation unit without includes.
//!
//! A kernel `name` becomes `extern "C" __global__ void kernel_name(…, u32* kelpie_status, const u32* kelpie_before)`. The
//! launcher zeroes the status word before and reads it after. `kelpie_before` is the status word of the launch before it, which
//! has ended: where that is not 0, the kernel takes it as its own status and does nothing. So launches may follow each other
//! before anybody has looked at their status. Device functions and structs are prefixed
//! too (`fn_name`, `struct_name`), so that no name of a module meets one of CUDA; parameters and variables keep theirs.
//!
//! The text must be compiled with `--device-int128 --fmad=false`: a contracted `a * b + c` would not equal the CPU's.
//!
//! Plain loads are plain: a loop that waits for another thread must poll with an atomic or `Status`, since the compiler
//! may keep a loaded value in a register. Where CUDA differs from the other back ends: NaNs are canonical (payloads are
//! lost), and `f32` atomics on global memory flush subnormal numbers.

mod atomics;
mod expr;
mod function;
mod helpers;
mod literals;
mod names;
mod stmt;
#[cfg(test)]
pub(crate) mod tests;
mod types;
mod uses;
mod vectors;
mod warp;

use kelpie_kir::{Function, Handle, Module, Stmt, ValidModule};

use crate::BackendError;

/// Shared memory that a kernel may declare statically, in bytes (CUDA C++ Programming Guide, compute capabilities).
pub const STATIC_SHARED_LIMIT: u32 = 48 << 10;

/// What the module itself does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Threads of a block in every launch, for `__launch_bounds__`; `None` leaves it to the compiler.
    pub block_threads: Option<u32>,
    /// Beside `block_threads`: blocks that are to fit on a multiprocessor at the same time; `None` leaves it to the compiler.
    pub resident_blocks: Option<u32>,
    /// The only kernel to print; `None` prints all.
    pub kernel: Option<String>,
}

/// Prints a module.
pub fn print(module: &ValidModule) -> Result<String, BackendError> {
    print_with(module, &Options::default())
}

/// Prints a module for launches that `options` describes.
pub fn print_with(module: &ValidModule, options: &Options) -> Result<String, BackendError> {
    let status = functions_with_status(module);
    let mut helpers = helpers::Helpers::default();
    let mut code = String::new();
    for (_, structure) in module.structs.iter() {
        code.push_str(&types::structure(module, structure));
        code.push('\n');
    }
    for (handle, function) in module.functions.iter() {
        let has_status = status.get(handle.index()).copied().unwrap_or(false);
        code.push_str(&function::print_function(module, function, has_status, &status, &mut helpers));
        code.push('\n');
    }
    let wanted = |name: &str| options.kernel.as_deref().is_none_or(|only| only == name);
    for (_, kernel) in module.kernels.iter().filter(|(_, kernel)| wanted(&kernel.name)) {
        code.push_str(&function::print_kernel(module, kernel, options, &status, &mut helpers));
        code.push('\n');
    }
    let trimmed = code.trim_end();
    Ok(format!("{}\n{}{trimmed}\n", types::PRELUDE, helpers.text()))
}

/// The symbol of a kernel in the compiled code.
pub fn symbol(kernel: &str) -> String {
    format!("kernel_{}", names::identifier(kernel))
}

/// Bytes of shared memory that a launch of `kernel` must ask for; 0 where the kernel declares its arrays itself.
pub fn dynamic_shared_bytes(module: &Module, kernel: &Function) -> u32 {
    let bytes = kernel.shared_layout(&module.structs).bytes;
    if bytes > STATIC_SHARED_LIMIT { bytes } else { 0 }
}

/// Which device functions read or write the status word, and so need its address.
fn functions_with_status(module: &Module) -> Vec<bool> {
    let mut status: Vec<bool> = Vec::with_capacity(module.functions.len());
    for (_, function) in module.functions.iter() {
        let reads = function.values.iter().any(|(_, value)| uses::reads_status(&value.expr));
        let writes = uses::any_stmt(&function.body, &mut |stmt| match stmt {
            Stmt::Report { .. } | Stmt::Trap { .. } => true,
            Stmt::Call { function, .. } => needs_status(&status, *function),
            _ => false,
        });
        status.push(reads || writes);
    }
    status
}

fn needs_status(status: &[bool], function: Handle<Function>) -> bool {
    status.get(function.index()).copied().unwrap_or(false)
}
