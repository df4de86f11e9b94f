//! Sessions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{ParamValues, TableReference};
use datafusion::datasource::MemTable;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use kelpie_session::{KelpieSession, RunningQuery, SessionOptions, Stage};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::RwLock;

use crate::capsules::{self, Type};
use crate::errors::{Kind, of_query, raised};
use crate::functions::PythonFunction;
use crate::parameters;
use crate::rows::Rows;
use crate::runtime::{shared, wait};
use crate::tables::Table;

/// A session, which any number of threads may use at once.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct Session {
    /// Nothing when it is closed.
    session: Mutex<Option<Arc<Open>>>,
}

struct Open {
    session: KelpieSession,
    /// Taken for writing by a statement whose tables are there while it is planned.
    names: RwLock<()>,
}

/// A statement with all that it needs.
struct Statement {
    sql: String,
    parameters: Option<ParamValues>,
    /// Variables of Python that it names.
    tables: Tables,
}

type Tables = Vec<(String, Arc<MemTable>)>;

fn providers(tables: HashMap<String, Py<Table>>) -> Tables {
    tables.into_iter().map(|(name, table)| (name, Arc::clone(&table.get().provider))).collect()
}

impl Open {
    async fn start(&self, statement: Statement) -> QueryResult<RunningQuery> {
        if statement.tables.is_empty() {
            let _names = self.names.read().await;
            return self.session.start_with(&statement.sql, statement.parameters).await;
        }
        let _names = self.names.write().await;
        let _added = Added::to(self.session.context(), statement.tables)?;
        self.session.start_with(&statement.sql, statement.parameters).await
    }

    /// A table of a path in place of one of that name, which stays where the path is none.
    async fn replace_by_path(&self, name: &str, path: PathBuf) -> QueryResult<()> {
        let (context, table) = (self.session.context(), TableReference::bare(name));
        let old = context.deregister_table(table.clone())?;
        let added = self.session.register_path(name, path).await;
        if let (Err(_), Some(old)) = (&added, old) {
            context.register_table(table, old)?;
        }
        added
    }

    async fn explain(&self, statement: Statement, stage: Stage) -> QueryResult<String> {
        let _names = self.names.write().await;
        let _added = Added::to(self.session.context(), statement.tables)?;
        self.session.explain(&statement.sql, stage).await
    }
}

/// Tables that are there for one statement. They go with this, also where planning was cancelled.
struct Added<'a> {
    context: &'a SessionContext,
    names: Vec<String>,
}

impl Added<'_> {
    fn to(context: &SessionContext, tables: Tables) -> QueryResult<Added<'_>> {
        let mut added = Added { context, names: Vec::new() };
        for (name, table) in tables {
            context.register_table(TableReference::bare(name.as_str()), table)?;
            added.names.push(name);
        }
        Ok(added)
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            // One that the statement itself has dropped is gone already.
            let _ = self.context.deregister_table(TableReference::bare(name.as_str()));
        }
    }
}

impl Session {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let open = self.session.lock().clone();
        open.ok_or_else(|| raised(py, Kind::Interface, "the session is closed"))
    }
}

#[pymethods]
impl Session {
    /// A session with settings, pairs of a name and a value.
    #[new]
    fn new(py: Python<'_>, settings: Vec<(String, String)>) -> PyResult<Session> {
        let options = SessionOptions::default().with_engine(Arc::clone(&shared(py)?.engine));
        let session = wait(py, None, async { KelpieSession::new(options.with_settings(settings)) })?;
        let session = session.map_err(|error| of_query(py, &error))?;
        Ok(Session { session: Mutex::new(Some(Arc::new(Open { session, names: RwLock::new(()) }))) })
    }

    /// Ends the session; queries that run go on.
    fn close(&self, py: Python<'_>) {
        let open = self.session.lock().take();
        py.detach(|| drop(open));
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.session.lock().is_none()
    }

    /// Sets an option.
    fn set(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        self.open(py)?.session.set(name, value).map_err(|error| of_query(py, &error))
    }

    /// Adds tables of files: one in place of one of that name, or those that a path has. What cannot be read is given back.
    #[pyo3(signature = (path, name = None))]
    fn add_path(&self, py: Python<'_>, path: PathBuf, name: Option<String>) -> PyResult<Vec<String>> {
        let open = self.open(py)?;
        let added = wait(py, None, async move {
            match name {
                Some(name) => open.replace_by_path(&name, path).await.map(|()| Vec::new()),
                None => open.session.register_data(path).await.map(|registered| registered.problems),
            }
        })?;
        added.map_err(|error| of_query(py, &error))
    }

    /// Adds a table in memory, in place of one of that name.
    fn add_table(&self, py: Python<'_>, name: &str, table: &Table) -> PyResult<()> {
        let (open, provider) = (self.open(py)?, table.own_provider(py)?);
        let name = TableReference::bare(name);
        let context = open.session.context();
        let _ = context.deregister_table(name.clone()).map_err(|error| of_query(py, &error))?;
        context.register_table(name, provider).map_err(|error| of_query(py, &error))?;
        Ok(())
    }

    /// Removes a table; whether there was one.
    fn remove_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let open = self.open(py)?;
        let removed = open.session.context().deregister_table(TableReference::bare(name));
        removed.map(|table| table.is_some()).map_err(|error| of_query(py, &error))
    }

    /// The names of the tables.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.open(py)?.session.tables())
    }

    /// Whether a statement only asks, and the tables that it names and that are not there.
    fn needs(&self, py: Python<'_>, sql: &str) -> PyResult<(bool, Vec<String>)> {
        let (open, sql) = (self.open(py)?, parameters::numbered(sql));
        let needs = wait(py, None, async move {
            let _names = open.names.read().await;
            open.session.needs(&sql).await
        })?;
        needs.map(|needs| (needs.is_query, needs.missing_tables)).map_err(|error| of_query(py, &error))
    }

    /// Plans a statement and starts it.
    #[pyo3(signature = (sql, parameters = None, tables = HashMap::new(), progress = None))]
    fn start(
        &self,
        py: Python<'_>,
        sql: &str,
        parameters: Option<Bound<'_, PyAny>>,
        tables: HashMap<String, Py<Table>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Rows> {
        let open = self.open(py)?;
        let (parameters, sql) = match parameters {
            Some(values) => (Some(parameters::of(&values)?), parameters::numbered(sql)),
            None => (None, sql.to_string()),
        };
        let statement = Statement { sql, parameters, tables: providers(tables) };
        let query = wait(py, progress.as_ref(), async move { open.start(statement).await })?;
        Ok(Rows::new(query.map_err(|error| of_query(py, &error))?, progress))
    }

    /// What the last query took whose rows all have come: milliseconds by their names, the device, and what was not compiled, and why.
    fn last_timing<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(timing) = self.open(py)?.session.last_metrics() else { return Ok(None) };
        let found = PyDict::new(py);
        let times = [
            ("total", timing.total_ns),
            ("planning", timing.plan_ns),
            ("compiling", timing.compile_ns),
            ("transfer", timing.transfer_ns),
            ("kernels", timing.kernel_ns),
            ("result", timing.result_ns),
        ];
        for (name, ns) in times {
            found.set_item(name, ns as f64 / 1e6)?;
        }
        found.set_item("device", timing.device)?;
        found.set_item("not_compiled", timing.reasons)?;
        Ok(Some(found))
    }

    /// A stage of a query's compilation: `plan`, `variants`, `pipelines`, `kir` or `code`.
    fn explain(
        &self,
        py: Python<'_>,
        sql: String,
        stage: &str,
        tables: HashMap<String, Py<Table>>,
    ) -> PyResult<String> {
        let stage = match stage {
            "plan" => Stage::Plan,
            "variants" => Stage::Variants,
            "pipelines" => Stage::Pipelines,
            "kir" => Stage::Kir,
            "code" => Stage::Code,
            other => {
                let message =
                    format!("there is no stage {other}: plan, variants, pipelines, kir and code are");
                return Err(raised(py, Kind::Programming, &message));
            }
        };
        let (open, statement) =
            (self.open(py)?, Statement { sql, parameters: None, tables: providers(tables) });
        let text = wait(py, None, async move { open.explain(statement, stage).await })?;
        text.map_err(|error| of_query(py, &error))
    }

    /// Adds a scalar function over arrays, in place of one of that name.
    fn add_function(
        &self,
        py: Python<'_>,
        name: &str,
        function: Py<PyAny>,
        types: (Vec<Py<PyAny>>, Py<PyAny>),
        is_volatile: bool,
    ) -> PyResult<()> {
        let open = self.open(py)?;
        let arguments = types.0.iter().map(|kind| data_type(py, &open, kind)).collect::<PyResult<_>>()?;
        let returns = data_type(py, &open, &types.1)?;
        let function = PythonFunction::new(name, function, (arguments, returns), is_volatile);
        open.session.context().register_udf(ScalarUDF::new_from_impl(function));
        Ok(())
    }

    /// The Arrow type of an object with `__arrow_c_schema__`, or of a name in SQL.
    fn type_of(&self, py: Python<'_>, kind: Py<PyAny>) -> PyResult<Type> {
        let open = self.open(py)?;
        Ok(Type { field: Arc::new(Field::new("", data_type(py, &open, &kind)?, true)) })
    }
}

fn data_type(py: Python<'_>, open: &Arc<Open>, kind: &Py<PyAny>) -> PyResult<DataType> {
    let kind = kind.bind(py);
    let Ok(name) = kind.extract::<String>() else { return capsules::type_of(kind) };
    let (open, sql) = (Arc::clone(open), format!("SELECT CAST(NULL AS {name}) AS value"));
    let query = wait(py, None, async move { open.session.start(&sql).await })?;
    match query.map(|query| query.schema()) {
        // Few functions of other packages take views.
        Ok(schema) if schema.fields().len() == 1 => Ok(match schema.field(0).data_type() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            other => other.clone(),
        }),
        _ => Err(raised(py, Kind::Programming, &format!("there is no type {name}"))),
    }
}
