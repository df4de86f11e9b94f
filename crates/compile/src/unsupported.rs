//! Why something is not compiled.

/// Why something cannot be compiled: shown to the user beside the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

impl Unsupported {
    /// What the reason of a broken invariant begins with.
    const INTERNAL: &'static str = "internal error: ";

    /// An invariant of the compiler is broken: a defect of Kelpie, whatever the query.
    pub fn internal(what: impl std::fmt::Display) -> Unsupported {
        Unsupported(format!("{}{what}", Unsupported::INTERNAL))
    }

    /// What is broken, if this is about a broken invariant and not about the query.
    pub fn broken_invariant(&self) -> Option<&str> {
        self.0.strip_prefix(Unsupported::INTERNAL)
    }
}
