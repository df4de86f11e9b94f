#![doc = include_str!("../LANGUAGE.md")]

pub mod arena;
pub mod builder;
pub mod meter;
pub mod module;
mod named;
mod operands;
pub mod profile;
pub mod target;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod types;
pub mod typing;
pub mod uses;
pub mod validate;

pub use arena::{Arena, Handle};
pub use builder::Builder;
pub use module::*;
pub use target::{MARGIN_BYTES, Target, VECTOR_BYTES};
pub use types::{Field, LANE_COUNTS, Pointee, Scalar, Space, Struct, Type};
pub use typing::TypeError;
pub use validate::{Uniformity, ValidModule, ValidationError, validate, validate_for};
