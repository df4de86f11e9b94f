//! CREATE EXTERNAL TABLE of local files: the same table as that of their path, read and checked as that is.
//!
//! What a statement says of its own (columns, partitions, an order, options) is DataFusion's to follow.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::CreateExternalTable;
use kelpie_datafusion::KelpieOptions;

use super::format::Kind;
use super::options::ReadOptions;
use super::source::{DataFile, Source};
use super::table::LocalTable;

/// Lets a session's external tables of local files be those of their paths.
pub(crate) fn read_external_tables(builder: &mut SessionStateBuilder) {
    for factory in builder.table_factories().iter_mut().flat_map(|factories| factories.values_mut()) {
        *factory = Arc::new(ExternalTables(Arc::clone(factory)));
    }
}

/// Makes external tables.
#[derive(Debug)]
struct ExternalTables(Arc<dyn TableProviderFactory>);

type Made<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn TableProvider>>> + Send + 'a>>;

impl ExternalTables {
    /// What [`TableProviderFactory::create`] gives. That the future may go to another thread is proven here, as in `LocalFiles::found`.
    fn made<'a>(&'a self, state: &'a dyn Session, table: &'a CreateExternalTable) -> Made<'a> {
        Box::pin(async move {
            match of_local_files(state, table) {
                Some((state, source, files)) => {
                    let made = LocalTable::of(state, &source, &files, &ReadOptions::of(state)).await?;
                    Ok(Arc::new(made) as Arc<dyn TableProvider>)
                }
                None => self.0.create(state, table).await,
            }
        })
    }
}

impl TableProviderFactory for ExternalTables {
    fn create<'a, 'b, 'c, 'd>(&'a self, state: &'b dyn Session, table: &'c CreateExternalTable) -> Made<'d>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        self.made(state, table)
    }
}

/// The files of a table of which a statement says where they are, and no more.
fn of_local_files<'a>(
    state: &'a dyn Session,
    table: &CreateExternalTable,
) -> Option<(&'a SessionState, Source, Vec<DataFile>)> {
    let state = state.as_any().downcast_ref::<SessionState>()?;
    let [location] = table.locations.as_slice() else { return None };
    let says_more = !table.schema.fields().is_empty()
        || !table.table_partition_cols.is_empty()
        || !table.order_exprs.is_empty()
        || !table.options.is_empty()
        || !table.column_defaults.is_empty()
        || table.unbounded;
    if says_more || !KelpieOptions::of(state.config_options()).corrections {
        return None;
    }
    let path = location.strip_prefix("file://").unwrap_or(location);
    if path.contains("://") {
        return None;
    }
    let kind = match table.file_type.to_ascii_lowercase().as_str() {
        "parquet" => Kind::Parquet,
        "csv" => Kind::Csv,
        "json" | "ndjson" => Kind::Json,
        "arrow" => Kind::Arrow,
        _ => return None,
    };
    // Files of other names are of the format that the statement says.
    let source = Source::of(Path::new(path)).ok()?;
    let files = source.files().ok()?;
    files.iter().all(|file| file.format.kind == kind).then_some((state, source, files))
}
