//! Files as wholes: `read_text('*.sql')` and `read_blob('a.bin')` have a row for each file, `glob('*.csv')` its name alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::scalar::ScalarValue;

use super::error::at;
use super::patterns::{is_pattern, matches};
use crate::access::Access;

/// Bytes that all files of a call may have: more do not go into a column.
const MOST_BYTES: usize = i32::MAX as usize;

/// Adds the functions to a session.
pub(crate) fn add(state: &mut SessionState) {
    for what in [What::Names, What::Texts, What::Bytes] {
        if !state.table_functions().contains_key(what.name()) {
            state.register_udtf(what.name(), Arc::new(what));
        }
    }
}

/// What is told of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Names,
    Texts,
    Bytes,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Names => "glob",
            What::Texts => "read_text",
            What::Bytes => "read_blob",
        }
    }

    fn schema(self) -> SchemaRef {
        let content = match self {
            What::Names => return Arc::new(Schema::new(vec![Field::new("file", DataType::Utf8, false)])),
            What::Texts => DataType::Utf8,
            What::Bytes => DataType::Binary,
        };
        Arc::new(Schema::new(vec![
            Field::new("filename", DataType::Utf8, false),
            Field::new("content", content, false),
            Field::new("size", DataType::Int64, false),
            Field::new("last_modified", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        ]))
    }
}

impl TableFunctionImpl for What {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let Some(state) = args.session().as_any().downcast_ref::<SessionState>() else {
            return plan_err!("{} needs a session", self.name());
        };
        let named = match args.exprs() {
            [only] => texts_of(only),
            _ => None,
        };
        let Some(named) = named else {
            return plan_err!(
                "{} takes the name of a file, a pattern, or a list of them, written out",
                self.name()
            );
        };
        let access = Access::of(state);
        named.iter().try_for_each(|name| access.check_file(Path::new(name)))?;
        Ok(Arc::new(Files { what: *self, named }))
    }
}

/// A text, or those of a list.
fn texts_of(argument: &Expr) -> Option<Vec<String>> {
    match argument {
        Expr::Literal(ScalarValue::List(list), _) => {
            let texts =
                ScalarValue::convert_array_to_scalar_vec(list.as_ref()).ok()?.into_iter().flatten().flatten();
            texts.map(|text| text.try_as_str().flatten().map(ToString::to_string)).collect()
        }
        Expr::Literal(text, _) => Some(vec![text.try_as_str().flatten()?.to_string()]),
        Expr::ScalarFunction(list) if list.name() == "make_array" => {
            let texts = list.args.iter().map(texts_of).collect::<Option<Vec<_>>>()?;
            Some(texts.concat())
        }
        _ => None,
    }
}

/// The files of a call, which are looked at when it runs.
#[derive(Debug)]
struct Files {
    what: What,
    named: Vec<String>,
}

impl Files {
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for name in &self.named {
            if !is_pattern(Path::new(name)) {
                if self.what != What::Names || Path::new(name).exists() {
                    paths.push(PathBuf::from(name));
                }
                continue;
            }
            let mut found = matches(name)?;
            found.retain(|path| path.is_file());
            found.sort();
            if found.is_empty() && self.what != What::Names {
                return plan_err!("{}: no file matches {name}", self.what.name());
            }
            paths.extend(found);
        }
        Ok(paths)
    }

    fn rows(&self) -> Result<RecordBatch> {
        let paths = self.paths()?;
        let names: ArrayRef =
            Arc::new(StringArray::from_iter_values(paths.iter().map(|path| path.to_string_lossy())));
        if self.what == What::Names {
            return Ok(RecordBatch::try_new(self.what.schema(), vec![names])?);
        }
        let (mut contents, mut times, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        for path in &paths {
            let content = fs::read(path).map_err(|error| at(path, error))?;
            bytes = bytes.saturating_add(content.len());
            if bytes > MOST_BYTES {
                return Err(at(path, "the files of one call have more than 2 GiB"));
            }
            let changed = fs::metadata(path).and_then(|known| known.modified()).ok();
            let changed = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            times.push(changed.and_then(|since| i64::try_from(since.as_micros()).ok()));
            contents.push(content);
        }
        let sizes = Int64Array::from_iter_values(contents.iter().map(|content| content.len() as i64));
        let content: ArrayRef = match self.what {
            What::Bytes => Arc::new(BinaryArray::from_iter_values(&contents)),
            _ => {
                let texts = contents.iter().zip(&paths).map(|(content, path)| {
                    std::str::from_utf8(content)
                        .map_err(|_| at(path, "this is no text in UTF-8: read_blob reads it"))
                });
                Arc::new(StringArray::from_iter_values(texts.collect::<Result<Vec<_>>>()?))
            }
        };
        let times = Arc::new(TimestampMicrosecondArray::from(times));
        Ok(RecordBatch::try_new(self.what.schema(), vec![names, content, Arc::new(sizes), times])?)
    }
}

#[async_trait]
impl TableProvider for Files {
    fn schema(&self) -> SchemaRef {
        self.what.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.rows()?;
        MemTable::try_new(self.what.schema(), vec![vec![rows]])?.scan(state, projection, filters, limit).await
    }
}
