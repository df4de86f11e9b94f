//! The validator: what it accepts, no back end can stumble over.
//!
//! `declarations` checks names, structs, parameters and arrays; `body` checks scopes and types of statements;
//! `uniformity` checks that barriers and lane operations are reached by all the threads that they need.

mod body;
mod declarations;
mod uniformity;

use crate::arena::Handle;
use crate::module::*;
use crate::target::Target;
use crate::text;
use crate::types::Type;
pub use uniformity::Uniformity;

/// Why a module is rejected: the place and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ValidationError {
    /// Function and statement, as the text form numbers them.
    pub place: String,
    /// What is wrong there.
    pub message: String,
}

/// A module that passed [`validate`]: the proof that back ends take.
#[derive(Debug, Clone)]
pub struct ValidModule {
    module: Module,
    /// Of every value of every kernel.
    kernels: Vec<Vec<Uniformity>>,
}

impl std::ops::Deref for ValidModule {
    type Target = Module;
    fn deref(&self) -> &Module {
        &self.module
    }
}

impl ValidModule {
    /// Which threads are known to agree on a value of a kernel.
    pub fn uniformity(&self, kernel: Handle<Function>, value: Handle<Value>) -> Uniformity {
        let levels = self.kernels.get(kernel.index());
        levels.and_then(|levels| levels.get(value.index())).copied().unwrap_or(Uniformity::Divergent)
    }

    /// The module, to be changed and validated again.
    pub fn into_module(self) -> Module {
        self.module
    }
}

/// Checks every rule of the language; the first offence in the order of the text is the error.
pub fn validate(module: Module) -> Result<ValidModule, ValidationError> {
    declarations::check(&module)?;
    let mut summaries = Vec::new();
    for (handle, function) in module.functions.iter() {
        declarations::check_function(&module, function, false)?;
        body::check(&module, function, Some(handle))?;
        summaries.push(uniformity::analyse(&module, function, &summaries)?.result);
    }
    let mut kernels = Vec::new();
    for (_, kernel) in module.kernels.iter() {
        declarations::check_function(&module, kernel, true)?;
        body::check(&module, kernel, None)?;
        kernels.push(uniformity::analyse(&module, kernel, &summaries)?.values);
    }
    Ok(ValidModule { module, kernels })
}

/// As [`validate()`], and checks that `target` has what the module uses.
pub fn validate_for(module: Module, target: &Target) -> Result<ValidModule, ValidationError> {
    if !target.has_vectors() {
        let is_vector = |ty: Type| ty.lanes().is_some();
        for (_, function) in module.functions.iter().chain(module.kernels.iter()) {
            let in_values = function.values.iter().any(|(_, value)| is_vector(value.ty));
            if in_values || function.vars.iter().any(|(_, var)| is_vector(var.ty)) {
                let message = "uses vectors, which the device does not have".to_string();
                return Err(ValidationError { place: function_place(&module, function), message });
            }
        }
    }
    validate(module)
}

/// "kernel sum" or "function hash".
fn function_place(module: &Module, function: &Function) -> String {
    let kernel = module.kernels.iter().any(|(_, kernel)| std::ptr::eq(kernel, function));
    format!("{} {}", if kernel { "kernel" } else { "function" }, function.name)
}

/// An error at a statement, counted from 0 in the order of the text.
fn statement_error(
    module: &Module,
    function: &Function,
    statement: usize,
    message: impl Into<String>,
) -> ValidationError {
    let mut place = function_place(module, function);
    if let Some((line, text)) = text::print_statement(module, function, statement) {
        place.push_str(&format!(", line {line} (`{}`)", text.trim_end_matches(" {")));
    }
    ValidationError { place, message: message.into() }
}
