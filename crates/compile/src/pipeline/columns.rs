//! What is known at compile time of the columns that flow through a pipeline.

use crate::expr::{Expr, ExprKind, infer_range};
use crate::layout::Storage;
use crate::pipeline::ScanInfo;
use crate::plan::Scan;
use crate::types::{DataType, Range};

/// What is known of a column.
#[derive(Debug, Clone)]
pub struct ColumnInfo {
    /// Type.
    pub data_type: DataType,
    /// Whether NULL is possible.
    pub nullable: bool,
    /// Bounds of its values, where they are integers inside.
    pub range: Option<Range>,
    /// The scan, column and entries of the dictionary where it is an unchanged dictionary column.
    pub dictionary: Option<(usize, usize, u32)>,
}

/// The columns of a scan.
pub(crate) fn of_scan(scan: usize, node: &Scan, info: &ScanInfo) -> Vec<ColumnInfo> {
    let describe =
        |(column, (field, layout)): (usize, (&crate::types::Field, &crate::layout::ColumnLayout))| {
            let dictionary = match layout.storage {
                Storage::Dictionary { entries, .. } => Some((scan, column, entries)),
                _ => None,
            };
            let range = if field.data_type.is_float() { None } else { layout.range };
            ColumnInfo { data_type: field.data_type.clone(), nullable: layout.has_nulls, range, dictionary }
        };
    node.fields.iter().zip(&info.layouts).enumerate().map(describe).collect()
}

/// The columns of a projection over `input`.
pub(crate) fn of_projection(exprs: &[Expr], input: &[ColumnInfo]) -> Vec<ColumnInfo> {
    exprs.iter().map(|expr| of_expr(expr, input)).collect()
}

/// What is known of an expression over `input`.
pub(crate) fn of_expr(expr: &Expr, input: &[ColumnInfo]) -> ColumnInfo {
    if let ExprKind::Column(index) = expr.kind
        && let Some(column) = input.get(index)
    {
        return column.clone();
    }
    let range = infer_range(expr, &|index| input.get(index).and_then(|column| column.range));
    ColumnInfo { data_type: expr.data_type.clone(), nullable: expr.nullable, range, dictionary: None }
}

/// What is known of a column whose rows come from several pipelines.
pub(crate) fn unify(a: &ColumnInfo, b: &ColumnInfo) -> ColumnInfo {
    let range = match (a.range, b.range) {
        (Some(a), Some(b)) => Some(Range { min: a.min.min(b.min), max: a.max.max(b.max) }),
        _ => None,
    };
    // Codes are of use only where no other rows are among them.
    ColumnInfo { data_type: a.data_type.clone(), nullable: a.nullable || b.nullable, range, dictionary: None }
}
