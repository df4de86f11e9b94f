//! What a session has, as tables: `duckdb_tables()`, `duckdb_columns()`, `duckdb_views()`, `pragma_table_info('t')`. Types have their names
//! in SQL, where `information_schema` has those of Arrow.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{
    CatalogProviderList, MemTable, Session, TableFunctionArgs, TableFunctionImpl, TableProvider,
};
use datafusion::common::{ScalarValue, TableReference, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::names_of_types::name_of_type;
use crate::constraints::rules::Rules;

/// The schema of DataFusion's own views.
const OF_VIEWS: &str = "information_schema";

/// Adds the functions to a session.
pub(super) fn add(state: &mut SessionState) {
    for what in [What::Tables, What::Views, What::Columns, What::TableInfo] {
        if !state.table_functions().contains_key(what.name()) {
            state.register_udtf(what.name(), Arc::new(what));
        }
    }
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Tables,
    Views,
    Columns,
    /// The columns of one table.
    TableInfo,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Tables => "duckdb_tables",
            What::Views => "duckdb_views",
            What::Columns => "duckdb_columns",
            What::TableInfo => "pragma_table_info",
        }
    }

    fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let number = |name: &str| Field::new(name, DataType::Int64, true);
        let flag = |name: &str| Field::new(name, DataType::Boolean, true);
        let of_schema = || vec![text("database_name"), text("schema_name")];
        let fields = match self {
            What::Tables => [
                of_schema(),
                vec![text("table_name"), text("comment"), flag("internal"), flag("temporary")],
                vec![flag("has_primary_key"), number("estimated_size"), number("column_count")],
            ]
            .concat(),
            What::Views => [
                of_schema(),
                vec![
                    text("view_name"),
                    flag("internal"),
                    flag("temporary"),
                    number("column_count"),
                    text("sql"),
                ],
            ]
            .concat(),
            What::Columns => [
                of_schema(),
                vec![text("table_name"), text("column_name"), number("column_index"), text("comment")],
                vec![flag("internal"), text("column_default"), flag("is_nullable"), text("data_type")],
            ]
            .concat(),
            What::TableInfo => {
                vec![
                    number("cid"),
                    text("name"),
                    text("type"),
                    flag("notnull"),
                    text("dflt_value"),
                    flag("pk"),
                ]
            }
        };
        Arc::new(Schema::new(fields))
    }

    /// The rows of a table.
    fn rows_of(self, table: &Named) -> Vec<Vec<ScalarValue>> {
        let text = |text: &str| ScalarValue::Utf8(Some(text.into()));
        let number = |number: usize| ScalarValue::Int64(i64::try_from(number).ok());
        let flag = |flag: bool| ScalarValue::Boolean(Some(flag));
        let own = || vec![text(&table.catalog), text(&table.schema), text(&table.name)];
        let columns = table.provider.schema();
        let count = columns.fields().len();
        let is_view = table.provider.table_type() == TableType::View;
        let rules = Rules::of(table.provider.as_ref());
        let comment = |comment: Option<&String>| ScalarValue::Utf8(comment.cloned());
        match self {
            What::Tables if !is_view => {
                let rows = table.provider.statistics().and_then(|known| known.num_rows.get_value().copied());
                let rows = rows.map_or(ScalarValue::Int64(None), number);
                let of_table = vec![
                    comment(rules.comment.as_ref()),
                    flag(false),
                    flag(false),
                    flag(rules.primary_key().is_some()),
                    rows,
                    number(count),
                ];
                vec![[own(), of_table].concat()]
            }
            What::Views if is_view => {
                let sql = ScalarValue::Utf8(table.provider.get_table_definition().map(Into::into));
                vec![[own(), vec![flag(false), flag(false), number(count), sql]].concat()]
            }
            What::Tables | What::Views => vec![],
            What::Columns | What::TableInfo => {
                let of = |(place, field): (usize, &Arc<Field>)| {
                    let default = table.provider.get_column_default(field.name());
                    let default = ScalarValue::Utf8(default.map(|default| default.to_string()));
                    let (name, kind) = (text(field.name()), text(&name_of_type(field.data_type())));
                    let is_key = rules.primary_key().is_some_and(|key| key.columns.contains(field.name()));
                    let nullable = field.is_nullable() && !is_key;
                    match self {
                        What::TableInfo => {
                            vec![number(place), name, kind, flag(!nullable), default, flag(is_key)]
                        }
                        _ => {
                            let (place, said) =
                                (number(place + 1), comment(rules.comments.get(field.name())));
                            let of_column =
                                vec![name, place, said, flag(false), default, flag(nullable), kind];
                            [own(), of_column].concat()
                        }
                    }
                };
                columns.fields().iter().enumerate().map(of).collect()
            }
        }
    }
}

/// A table with its names.
struct Named {
    catalog: String,
    schema: String,
    name: String,
    provider: Arc<dyn TableProvider>,
}

impl TableFunctionImpl for What {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let any = args.session().as_any();
        let Some(state) = any.downcast_ref::<SessionState>() else {
            return plan_err!("{} needs a session", self.name());
        };
        let of = match (self, args.exprs()) {
            (What::TableInfo, [Expr::Literal(name, _)]) => match name.try_as_str().flatten() {
                Some(name) => {
                    let names = &state.config_options().catalog;
                    let name = TableReference::from(name);
                    Some(name.resolve(&names.default_catalog, &names.default_schema).into())
                }
                None => return plan_err!("{} takes the name of a table", self.name()),
            },
            (What::TableInfo, _) => return plan_err!("{} takes the name of a table", self.name()),
            (_, []) => None,
            _ => return plan_err!("{} takes no arguments", self.name()),
        };
        Ok(Arc::new(Listed { what: *self, of, catalogs: Arc::clone(state.catalog_list()) }))
    }
}

/// A list, which is made when it is read.
#[derive(Debug)]
struct Listed {
    what: What,
    /// The only table of which something is listed.
    of: Option<TableReference>,
    catalogs: Arc<dyn CatalogProviderList>,
}

impl Listed {
    async fn tables(&self) -> Result<Vec<Named>> {
        let mut tables = Vec::new();
        for catalog in self.catalogs.catalog_names() {
            let Some(of_catalog) = self.catalogs.catalog(&catalog) else { continue };
            for schema in of_catalog.schema_names() {
                let Some(of_schema) = of_catalog.schema(&schema).filter(|_| schema != OF_VIEWS) else {
                    continue;
                };
                let mut names = of_schema.table_names();
                names.sort();
                for name in names {
                    let full = TableReference::full(catalog.as_str(), schema.as_str(), name.as_str());
                    if self.of.as_ref().is_some_and(|of| *of != full) {
                        continue;
                    }
                    // One that cannot be read says so where it is read.
                    if let Ok(Some(provider)) = of_schema.table(&name).await {
                        tables.push(Named {
                            catalog: catalog.clone(),
                            schema: schema.clone(),
                            name,
                            provider,
                        });
                    }
                }
            }
        }
        match &self.of {
            Some(name) if tables.is_empty() => plan_err!("there is no table {name}"),
            _ => Ok(tables),
        }
    }
}

#[async_trait]
impl TableProvider for Listed {
    fn schema(&self) -> SchemaRef {
        self.what.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows: Vec<Vec<ScalarValue>> =
            self.tables().await?.iter().flat_map(|table| self.what.rows_of(table)).collect();
        let schema = self.what.schema();
        let columns = schema.fields().iter().enumerate().map(|(place, field)| match rows.is_empty() {
            true => Ok(new_empty_array(field.data_type())),
            false => ScalarValue::iter_to_array(rows.iter().map(|row| row[place].clone())),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        MemTable::try_new(schema, vec![vec![rows]])?.scan(state, projection, filters, limit).await
    }
}
