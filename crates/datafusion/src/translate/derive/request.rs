//! Expressions that are to be columns of their tables, and what asks for them.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use kelpie_compile::types::Field;

use crate::node::Node;

/// Positions from here on stand for requests.
pub(in crate::translate) const REQUESTS: usize = 1 << 40;

type PhysicalRef = Arc<dyn PhysicalExpr>;

/// An expression that is to be a column.
#[derive(Debug)]
pub(in crate::translate) struct Request {
    /// The address of the scan's node.
    pub scan: usize,
    /// The address of the node over whose rows the expression is.
    pub below: usize,
    /// Over the scan's table.
    pub expr: PhysicalRef,
    /// What holds for the few rows that come to it, over the table too; nothing where it is computed for all.
    pub conditions: Vec<PhysicalRef>,
    /// Whether it is an element of a list that becomes rows: a column of the table as it is.
    pub is_element: bool,
    pub field: Field,
    /// Why the expression does not compile.
    pub reasons: Vec<String>,
}

/// What expressions are computed over.
#[derive(Debug, Clone, Copy)]
pub(in crate::translate) enum Below<'a> {
    /// The rows of a node.
    Node(&'a Node),
    /// Columns that a join takes from both sides.
    Sides(&'a Node, &'a Node, &'a [ColumnIndex]),
    /// The columns of a scan's table.
    Table(&'a DataSourceExec),
}

/// What an expression that does not compile asks.
#[derive(Debug)]
pub(in crate::translate) struct Deriver<'a> {
    pub(in crate::translate) below: Below<'a>,
    pub(in crate::translate) requests: &'a mut Vec<Request>,
    pub(in crate::translate) checked: bool,
}
