//! Columns of Parquet files whose names differ from the table's in case.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};

use super::unite::places;

/// DataFusion's way from a table's columns to a file's, for files whose names differ in case: it takes those for missing columns.
#[derive(Debug)]
pub(super) struct ByName;

impl PhysicalExprAdapterFactory for ByName {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let places = places(&table, &file);
        let named = file.fields().iter().enumerate().map(|(place, field)| {
            let column = places.iter().position(|known| *known == Some(place));
            match column {
                Some(column) => Arc::new(field.as_ref().clone().with_name(table.field(column).name())),
                None => Arc::clone(field),
            }
        });
        let named = Schema::new_with_metadata(named.collect::<Vec<_>>(), file.metadata().clone());
        let inner = DefaultPhysicalExprAdapterFactory.create(table, Arc::new(named))?;
        Ok(Arc::new(Renaming { inner, file }))
    }
}

/// Expressions over a file's columns under the table's names, which get the file's.
#[derive(Debug)]
struct Renaming {
    inner: Arc<dyn PhysicalExprAdapter>,
    file: SchemaRef,
}

impl PhysicalExprAdapter for Renaming {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let rewritten = self.inner.rewrite(expr)?.transform(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
            let name = self.file.field(column.index()).name();
            match column.name() == name {
                true => Ok(Transformed::no(expr)),
                false => Ok(Transformed::yes(Arc::new(Column::new(name, column.index())) as _)),
            }
        })?;
        Ok(rewritten.data)
    }
}
