//! The extension module `kelpie._kelpie`: sessions, streams of rows and tables for the Python package beside it, which has all that
//! needs no Rust.
//!
//! Python's lock is never held while a query is planned or runs, and no thread of the engine calls Python without it.

mod capsules;
#[cfg(feature = "datafusion-package")]
mod datafusion_package;
mod errors;
mod functions;
mod parameters;
mod rows;
mod runtime;
mod session;
mod tables;
mod values;

use pyo3::prelude::*;

/// As the program has it: it keeps the pages of large pieces, where the system's own takes new ones all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule]
fn _kelpie(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(runtime::end, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    #[cfg(feature = "datafusion-package")]
    module.add_class::<datafusion_package::DataFusionExtension>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<rows::Batches>()?;
    module.add_class::<tables::Table>()?;
    module.add_class::<capsules::Array>()?;
    module.add_class::<capsules::Type>()
}
