//! Back ends of Kelpie's kernel IR: Cranelift machine code, CUDA C and PTX text, and a SIMT interpreter.

pub mod cpu;
pub mod cuda;
pub mod ptx;
pub mod simt;

/// Why a back end gives no code for a module that is valid. A bug of Kelpie, or a host that Kelpie cannot compile for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The code generator failed.
    #[error("kernel {kernel} does not compile: {message}")]
    Compile {
        /// The kernel or function.
        kernel: String,
        /// The code generator's words.
        message: String,
    },
    /// The back end cannot do this here.
    #[error("{backend}: {what} is not supported")]
    Unsupported {
        /// Which back end.
        backend: &'static str,
        /// What it lacks.
        what: String,
    },
}
