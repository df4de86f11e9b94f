//! Local files and folders as tables.

use std::fs::File;
use std::future::Future;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider, UrlTableFactory};
use datafusion::common::{exec_err, plan_err};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// Formats by the extension of a file's name.
fn format_of(path: &Path) -> Option<(&'static str, Arc<dyn FileFormat>)> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match extension.as_str() {
        "parquet" => ("parquet", Arc::new(ParquetFormat::default())),
        "csv" => ("csv", Arc::new(CsvFormat::default().with_has_header(true))),
        "arrow" => ("arrow", Arc::new(ArrowFormat)),
        "ipc" => ("ipc", Arc::new(ArrowFormat)),
        "feather" => ("feather", Arc::new(ArrowFormat)),
        _ => return None,
    })
}

fn at(path: &Path, error: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("{}: {error}", path.display()))
}

/// Data files of a folder and of its sub-folders, hidden ones left out.
fn data_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            found.extend(data_files(&path)?);
        } else if format_of(&path).is_some() {
            found.push(path);
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| at(folder, error))? {
        let path = entry.map_err(|error| at(folder, error))?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(['.', '_']));
        if !hidden {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A damaged footer is an error that names the file; the reader of Parquet computes with its length unchecked.
fn check_parquet_footer(path: &Path) -> Result<()> {
    const FOOTER_BYTES: u64 = 8;
    const MAGIC_BYTES: u64 = 4;
    let mut file = File::open(path).map_err(|error| at(path, error))?;
    let bytes = file.metadata().map_err(|error| at(path, error))?.len();
    let mut footer = [0; FOOTER_BYTES as usize];
    if bytes >= FOOTER_BYTES + MAGIC_BYTES {
        file.seek(SeekFrom::End(-(FOOTER_BYTES as i64))).map_err(|error| at(path, error))?;
        file.read_exact(&mut footer).map_err(|error| at(path, error))?;
    }
    let [a, b, c, d, magic @ ..] = footer;
    // `PARE` ends a file with an encrypted footer.
    if magic != *b"PAR1" && magic != *b"PARE" {
        return Err(at(path, "not a Parquet file, or cut off: its end is not that of one"));
    }
    match u64::from(u32::from_le_bytes([a, b, c, d])) + FOOTER_BYTES + MAGIC_BYTES <= bytes {
        true => Ok(()),
        false => Err(at(path, "a damaged Parquet file: its metadata is longer than the file")),
    }
}

/// The table of a Parquet, CSV (with header) or Arrow file, or of a folder of files of one format.
pub(crate) async fn table_of(state: &SessionState, path: &Path) -> Result<Arc<dyn TableProvider>> {
    let path = path.canonicalize().map_err(|error| at(path, error))?;
    let example = match path.is_dir() {
        true => data_files(&path)?.into_iter().next(),
        false => Some(path.clone()),
    };
    let Some((extension, format)) = example.as_deref().and_then(format_of) else {
        return Err(at(&path, "no Parquet, CSV or Arrow file (.parquet, .csv, .arrow, .ipc, .feather)"));
    };
    if extension == "parquet" {
        let files = if path.is_dir() { data_files(&path)? } else { vec![path.clone()] };
        files.iter().try_for_each(|file| check_parquet_footer(file))?;
    }
    let mut address = path.to_string_lossy().into_owned();
    if path.is_dir() {
        address.push('/');
    }
    let url = ListingTableUrl::parse(&address).map_err(|error| at(&path, error.strip_backtrace()))?;
    let extension = match path.is_dir() {
        true => format!(".{extension}"),
        // A file is taken whatever the case of its extension.
        false => String::new(),
    };
    let options = ListingOptions::new(format).with_file_extension(extension);
    let config = ListingTableConfig::new(url).with_listing_options(options);
    let config = config.infer_schema(state).await.map_err(|error| at(&path, error.strip_backtrace()))?;
    Ok(Arc::new(LocalTable { path, listing: ListingTable::try_new(config)? }))
}

/// A table of a file or folder that must still be there when it is read: to a listing it would just be empty.
#[derive(Debug)]
struct LocalTable {
    path: PathBuf,
    listing: ListingTable,
}

type PlanFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'a>>;

impl TableProvider for LocalTable {
    fn schema(&self) -> SchemaRef {
        self.listing.schema()
    }

    fn table_type(&self) -> TableType {
        self.listing.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.listing.supports_filters_pushdown(filters)
    }

    fn scan<'a, 'b, 'c, 'd, 'e>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> PlanFuture<'e>
    where
        'a: 'e,
        'b: 'e,
        'c: 'e,
        'd: 'e,
        Self: 'e,
    {
        Box::pin(async move {
            std::fs::metadata(&self.path).map_err(|error| at(&self.path, error))?;
            self.listing.scan(session, projection, filters, limit).await
        })
    }
}

/// Names and paths of the tables of a folder: every data file by its stem, every sub-folder with data by its name.
pub(crate) fn tables_of(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut tables: Vec<(String, PathBuf)> = Vec::new();
    for path in entries(folder)? {
        let name = match path.is_dir() {
            true if !data_files(&path)?.is_empty() => path.file_name(),
            false if format_of(&path).is_some() => path.file_stem(),
            _ => None,
        };
        let Some(name) = name.and_then(|name| name.to_str()) else {
            continue;
        };
        if let Some((_, other)) = tables.iter().find(|(known, _)| known == name) {
            return plan_err!("{} and {}: both are named {name}", other.display(), path.display());
        }
        tables.push((name.into(), path));
    }
    match tables.is_empty() {
        true => Err(at(folder, "no Parquet, CSV or Arrow file in this folder")),
        false => Ok(tables),
    }
}

/// The name of the table of a file or folder.
pub(crate) fn table_name(path: &Path) -> Result<String> {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    match name.and_then(|name| name.to_str()) {
        Some(name) => Ok(name.into()),
        None => exec_err!("{}: a table cannot be named after it", path.display()),
    }
}

/// The session's state, while the session lives.
type StateOf = Box<dyn Fn() -> Option<SessionState> + Send + Sync>;

/// Makes `SELECT … FROM 'file.parquet'` work on local files.
#[derive(Default)]
pub(crate) struct LocalFiles {
    /// Set once the session stands.
    pub state: OnceLock<StateOf>,
}

impl std::fmt::Debug for LocalFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalFiles")
    }
}

type TableFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Arc<dyn TableProvider>>>> + Send + 'a>>;

impl UrlTableFactory for LocalFiles {
    fn try_new<'a, 'b, 'c>(&'a self, name: &'b str) -> TableFuture<'c>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(async move {
            let path = Path::new(name.strip_prefix("file://").unwrap_or(name));
            if name.contains("://") && !name.starts_with("file://") {
                return plan_err!("{name}: only local files can be tables");
            }
            let state = self.state.get().and_then(|state| state());
            // An unknown name that does not look like a file is an unknown table.
            match state {
                Some(state) if format_of(path).is_some() || (name.contains('/') && path.is_dir()) => {
                    table_of(&state, path).await.map(Some)
                }
                _ => Ok(None),
            }
        })
    }
}
