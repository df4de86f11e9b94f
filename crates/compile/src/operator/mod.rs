//! Operators, one file each. They emit KIR through the context and know neither device nor text form.
//!
//! An operator plays the roles (`roles.rs`) of a source, a step or a sink. The kernel's row loop binds a row, each step consumes it and
//! leaves it to the next, and the sink consumes it last (produce/consume, Neumann 2011; compound kernels, HorseQC section
//! 5.2).
//! - The [`Flow`] says which rows are live. Under [`Flow::Branch`] everything emitted stands inside the `if`s of the
//!   filters before, so every row is live. Under [`Flow::Flag`] control flow is uniform, and `active` tells whether
//!   this lane's row is live; expressions that can fail must then be put inside `if active`.
//! - A step may read columns (`Context::column`) and replace them (`Context::push_projection`, `Context::push_joined`). A
//!   step that makes several rows of one opens a loop; what follows stands in it.
//! - A sink declares its state when it is planned, emits what precedes the loop (`begin`), what happens to a row
//!   (`row`) and what follows the loop (`end`). `begin` and `end` stand at uniform control flow.

/// What people are told of operators that are called the same in any case.
macro_rules! displayed {
    ($type:ty = $text:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($text)
            }
        }
    };
}

pub mod aggregate;
pub(crate) mod block_refill;
pub(crate) mod count;
mod dense;
pub(crate) mod expand;
pub(crate) mod filter;
pub(crate) mod join;
pub(crate) mod key_texts;
pub(crate) mod match_refill;
pub(crate) mod matches;
pub(crate) mod materialize;
pub mod output;
pub(crate) mod partition;
pub(crate) mod project;
pub(crate) mod queue;
pub(crate) mod refill;
pub(crate) mod roles;
pub(crate) mod scan;
pub mod sort;
pub(crate) mod staged;
pub(crate) mod step_forms;
pub(crate) mod text_runs;
pub(crate) mod texts;
pub(crate) mod walk;
pub(crate) mod window;

use kelpie_kir::builder::V;

/// Which rows are live; see the contract.
#[derive(Debug, Clone, Copy)]
pub enum Flow {
    /// All that reach this place.
    Branch,
    /// Those where the flag (`bool`) is true.
    Flag {
        /// The flag; `None`: all.
        active: Option<V>,
    },
}

impl Flow {
    /// The flag, where there is one.
    pub fn active(self) -> Option<V> {
        match self {
            Flow::Branch => None,
            Flow::Flag { active } => active,
        }
    }
}
