//! Columns of Parquet files whose names differ from the table's in case, or whose values are made of their bytes.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};

use super::odd_columns::{OfBytes, is_made_of};
use super::unite::places;

/// DataFusion's way from a table's columns to a file's, for files whose names differ in case: it takes those for missing columns.
#[derive(Debug)]
pub(super) struct ByName;

impl PhysicalExprAdapterFactory for ByName {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let places = places(&table, &file);
        let named = file.fields().iter().enumerate().map(|(place, field)| {
            let column = places.iter().position(|known| *known == Some(place));
            match column.map(|column| table.field(column)) {
                Some(column) if is_made_of(column.data_type(), field.data_type()) => {
                    Arc::new(Field::new(column.name(), column.data_type().clone(), field.is_nullable()))
                }
                Some(column) => Arc::new(field.as_ref().clone().with_name(column.name())),
                None => Arc::clone(field),
            }
        });
        let named = Arc::new(Schema::new_with_metadata(named.collect::<Vec<_>>(), file.metadata().clone()));
        let inner = DefaultPhysicalExprAdapterFactory.create(table, Arc::clone(&named))?;
        Ok(Arc::new(Renaming { inner, named, file }))
    }
}

/// Expressions over a file's columns under the table's names, which get the file's.
#[derive(Debug)]
struct Renaming {
    inner: Arc<dyn PhysicalExprAdapter>,
    /// The file's columns with the names and types that the table has.
    named: SchemaRef,
    file: SchemaRef,
}

impl PhysicalExprAdapter for Renaming {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let rewritten = self.inner.rewrite(expr)?.transform(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
            let (field, named) = (self.file.field(column.index()), self.named.field(column.index()));
            let own: Arc<dyn PhysicalExpr> = match column.name() == field.name() {
                true => Arc::clone(&expr),
                false => Arc::new(Column::new(field.name(), column.index())),
            };
            if is_made_of(named.data_type(), field.data_type()) {
                let made = OfBytes { bytes: own, data_type: named.data_type().clone() };
                return Ok(Transformed::yes(Arc::new(made) as _));
            }
            Ok(match column.name() == field.name() {
                true => Transformed::no(own),
                false => Transformed::yes(own),
            })
        })?;
        Ok(rewritten.data)
    }
}
