//! Columns in device memory, and the cache that keeps them.

mod bounds;
mod cache;
mod coding;
mod copied;
mod encoded;
mod glance;
mod integers;
mod key;
mod load;
mod narrowed;
mod order;
mod placing;
mod read;
mod reading;
mod resident;
mod sample;
mod settled;
mod spacing;
mod spread;
mod store;
mod text;
mod width;
mod wish;

pub(crate) use self::bounds::bounds;
pub use self::cache::ColumnCache;
pub use self::glance::{Watch, expected_layouts, is_looked_at};
pub(crate) use self::narrowed::Narrowed;
pub use self::resident::ResidentColumn;
pub(crate) use self::resident::multi_column_distinct;
pub use self::spread::Zone;
pub(crate) use self::spread::distinct;
pub(crate) use self::width::Width;
pub use self::wish::{LoadReport, Placement, Wish};

#[cfg(test)]
mod tests;
