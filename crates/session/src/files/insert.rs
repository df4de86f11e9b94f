//! INSERT into a table of files: the rows become another file of its folder.

use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{SchemaExt, not_impl_err, plan_err};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::physical_plan::{FileGroup, FileOutputMode, FileSinkConfig};
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::physical_plan::ExecutionPlan;

use super::error::at;
use super::format::{Kind, begins_with_bracket};
use super::source::{DataFile, Source};
use super::table::LocalTable;

impl LocalTable {
    /// Writes rows into the table's folder, in the format of the files that are there.
    pub(super) async fn insert(
        &self,
        session: &dyn Session,
        rows: Arc<dyn ExecutionPlan>,
        mode: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if mode != InsertOp::Append && !matches!(self.source, Source::Kept(_)) {
            return not_impl_err!("{mode} of a table of files: only INSERT INTO");
        }
        let folder = match &self.source {
            Source::Folder(folder) => folder,
            Source::File(path) => return plan_err!("{}", alternatives(path, "one file")),
            Source::Pipe(pipe) => return plan_err!("{}", alternatives(&pipe.name, "a pipe")),
            Source::Pattern(pattern) => {
                return plan_err!("{}", alternatives(Path::new(pattern), "a pattern"));
            }
            Source::Kept(table) => {
                self.schema().logically_equivalent_names_and_types(&rows.schema())?;
                return crate::database::insert(table, self.schema(), rows, mode);
            }
            Source::Chosen(chosen) => {
                return plan_err!("{}", alternatives(chosen.path(), "a call of a function"));
            }
        };
        self.schema().logically_equivalent_names_and_types(&rows.schema())?;
        let files = self.source.files()?;
        let Some(first) = files.first() else { return Err(at(folder, "there is no file")) };
        // Such a file cannot be told from the others before it is read.
        if first.format.kind == Kind::Json && begins_with_bracket(&first.path)? {
            return Err(at(&first.path, "INSERT writes a value a line, and this file is one array"));
        }
        let url =
            url::Url::from_directory_path(folder).map_err(|()| at(folder, "the path is not absolute"))?;
        let url = ListingTableUrl::try_new(url, None)?;
        let config = FileSinkConfig {
            original_url: String::new(),
            object_store_url: url.object_store(),
            table_paths: vec![url],
            file_group: FileGroup::default(),
            output_schema: self.schema(),
            table_partition_cols: self
                .partitions
                .iter()
                .map(|field| (field.name().clone(), field.data_type().clone()))
                .collect(),
            insert_op: mode,
            // They stand in the names of folders.
            keep_partition_by_columns: false,
            file_extension: extension(first),
            file_output_mode: FileOutputMode::Directory,
        };
        self.format.create_writer_physical_plan(rows, session, config, None).await
    }
}

/// What works for a table that takes no other file.
fn alternatives(path: &Path, what: &str) -> String {
    format!(
        "INSERT adds a file to the folder of a table, and this table is {what}: {path}. Make it a folder, or write a new file: \
         COPY (SELECT … FROM table UNION ALL SELECT …) TO 'file'",
        path = path.display(),
    )
}

/// What says how a file is read: `csv.gz`, `parquet`.
fn extension(file: &DataFile) -> String {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parts: Vec<&str> = name.split('.').collect();
    let kept = if file.format.compression.is_compressed() { 2 } else { 1 };
    parts[parts.len().saturating_sub(kept)..].join(".")
}
