//! The few rows of a table that simple filters leave, by the bounds of its columns.
//!
//! A filter that leaves a row of many thousands (an order of one customer) needs the columns that it looks at, and of the others a few
//! pages. Where many others are wanted, and none of them is in memory, the table is narrowed to these rows as it is read.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::logical_expr::Operator;
use datafusion::parquet::basic::Encoding;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::split_conjunction;
use kelpie_compile::types::Range;
use kelpie_engine::source::Expected;

use crate::derived::Derived;
use crate::expected::integer;
use crate::source::{Data, ScanTable};

/// The share of the rows that filters leave at most. Pages have some ten thousand rows: where most pages have a row that is left, all of
/// them are decompressed after all.
pub(crate) const MOST_SHARE: f64 = 1.0 / 16_384.0;
/// Fewer rows are read as a whole where nothing but their encoding tells that few of them are left.
const LEAST_ROWS: u64 = 1 << 18;
/// Columns that are wanted beside those of the filters, at least, for each of these.
const LEAST_OTHERS: usize = 2;

/// Filters that leave few rows.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) conditions: Vec<Derived>,
    /// Positions of the columns that these look at, ascending.
    columns: Vec<usize>,
    /// Of texts that are compared with a constant: few rows are left only where one of these has many values. Empty where bounds tell.
    texts: Vec<usize>,
    /// What bounds a float: unlike filters that people write it holds for NaN of either sign in the files, if for any.
    float_bound: Option<Arc<dyn PhysicalExpr>>,
}

impl Selection {
    /// That of a filter over a table, if it leaves few rows, by what is known of the table's columns.
    pub(crate) fn of(
        source: &Arc<dyn FileSource>,
        filter: &Arc<dyn PhysicalExpr>,
        expected: &[Option<Expected>],
    ) -> Option<Selection> {
        source.downcast_ref::<ParquetSource>()?;
        let schema = source.table_schema().table_schema();
        let in_files = source.table_schema().file_schema().fields().len();
        let simple: Vec<_> =
            split_conjunction(filter).into_iter().filter(|conjunct| is_simple(conjunct, in_files)).collect();
        let by_bounds = share(&simple, expected) <= MOST_SHARE;
        let texts =
            if by_bounds { Vec::new() } else { simple.iter().filter_map(|it| asked_text(it)).collect() };
        if !by_bounds && texts.is_empty() {
            return None;
        }
        let condition = |conjunct: &Arc<dyn PhysicalExpr>| Derived::of_this_query(conjunct, schema).ok();
        let conditions = simple.into_iter().map(condition).collect::<Option<Vec<_>>>()?;
        let mut columns: Vec<usize> = conditions.iter().flat_map(Derived::columns).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        Some(Selection { conditions, columns, texts, float_bound: None })
    }

    /// That of rows whose values of a column are within bounds that are known to leave few, and that simple filters leave.
    pub(crate) fn of_key(table: &ScanTable, column: usize, bounds: Derived) -> Option<Selection> {
        let in_files = columns_in_files(table)?;
        let filters = table.filter().into_iter().flat_map(split_conjunction);
        let filters = filters.filter(|conjunct| is_simple(conjunct, in_files));
        let filters = filters.filter_map(|conjunct| Derived::of_this_query(conjunct, table.stored()).ok());
        let is_float = table.stored().fields().get(column)?.data_type().is_floating();
        let float_bound = is_float.then(|| Arc::clone(bounds.expr()));
        let conditions = filters.chain([bounds]).collect();
        Some(Selection { conditions, columns: vec![column], texts: Vec::new(), float_bound })
    }

    /// What bounds a float, where that leaves few rows.
    pub(crate) fn float_bound(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.float_bound.as_ref()
    }

    /// Whether few of so many rows are left, by the footers of the table's files.
    pub(crate) fn leaves_few(
        &self,
        table: &SchemaRef,
        rows: u64,
        footers: impl Fn() -> Option<Vec<Arc<ParquetMetaData>>>,
    ) -> bool {
        if self.texts.is_empty() {
            return true;
        }
        let Some(footers) = (rows >= LEAST_ROWS).then(footers).flatten() else { return false };
        self.texts
            .iter()
            .filter_map(|column| table.fields().get(*column))
            .any(|field| footers.iter().all(|footer| have_many_values(footer, field.name())))
    }

    /// How much of so many rows has to be read to narrow some columns to what it leaves, in rows of all of them; `None` where too few
    /// others are wanted.
    pub(crate) fn rows_to_read(&self, columns: &[usize], rows: u64) -> Option<u64> {
        let others = columns.iter().filter(|column| self.columns.binary_search(column).is_err()).count();
        let all = others + self.columns.len();
        (others >= LEAST_OTHERS * self.columns.len()).then(|| rows * self.columns.len() as u64 / all as u64)
    }

    /// The same in the words of a table's schema: what tells tables apart that are narrowed in other ways.
    pub(crate) fn text(&self, schema: &SchemaRef) -> String {
        let conditions = self.conditions.iter().map(|condition| condition.expr().to_string());
        let names =
            self.columns.iter().filter_map(|column| Some(schema.fields().get(*column)?.name().as_str()));
        format!(
            "{} of {}",
            conditions.collect::<Vec<_>>().join(" and "),
            names.collect::<Vec<_>>().join(", ")
        )
    }
}

/// Whether a table may be narrowed by a column, and enough others are asked for beside it.
pub(crate) fn may_be_narrowed(table: &ScanTable, column: usize, columns: &[usize]) -> bool {
    let others = columns.iter().filter(|other| **other != column).count();
    let are_stored = columns.iter().all(|column| *column < table.stored().fields().len());
    are_stored && others >= LEAST_OTHERS && columns_in_files(table).is_some_and(|in_files| column < in_files)
}

/// How many columns a table has that are in files which may be read in part.
fn columns_in_files(table: &ScanTable) -> Option<usize> {
    let Data::Files(config) = table.data() else { return None };
    config.file_source().downcast_ref::<ParquetSource>()?;
    Some(config.file_source().table_schema().file_schema().fields().len())
}

/// Whether a condition compares columns of files with constants, so that it fails on no row.
fn is_simple(conjunct: &Arc<dyn PhysicalExpr>, in_files: usize) -> bool {
    let (mut simple, mut looks_at_columns) = (true, false);
    let walked = conjunct.apply(|expr| {
        simple &= if let Some(column) = expr.downcast_ref::<Column>() {
            looks_at_columns = true;
            column.index() < in_files
        } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
            matches!(binary.op(), And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq)
        } else {
            expr.is::<Literal>()
                || expr.is::<InListExpr>()
                || expr.is::<NotExpr>()
                || expr.is::<IsNullExpr>()
                || expr.is::<IsNotNullExpr>()
                || expr.is::<LikeExpr>()
        };
        Ok(if simple { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    walked.is_ok() && simple && looks_at_columns
}

/// The share of the rows that conditions leave at most, if values are spread over the bounds of their columns: by those that compare an
/// integer, a day, a time or a decimal with a constant.
fn share(conditions: &[&Arc<dyn PhysicalExpr>], expected: &[Option<Expected>]) -> f64 {
    let bounds = |column: usize| expected.get(column).copied().flatten().and_then(|expected| expected.range);
    let mut left: HashMap<usize, (Range, f64)> = HashMap::new();
    for condition in conditions {
        let Some((column, range, values)) = asked(condition) else { continue };
        let Some(all) = bounds(column) else { continue };
        let (known, most) = left.entry(column).or_insert((all, f64::INFINITY));
        *known = Range { min: known.min.max(range.min), max: known.max.min(range.max) };
        *most = most.min(values);
    }
    let width = |range: Range| (range.max.saturating_sub(range.min).saturating_add(1)).max(0) as f64;
    let of_column = |(column, (range, most)): (&usize, &(Range, f64))| {
        Some(width(*range).min(*most) / width(bounds(*column)?).max(1.0))
    };
    left.iter().filter_map(of_column).product()
}

/// The values that a condition asks of a column: between which bounds, and how many at most.
fn asked(condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, Range, f64)> {
    const ALL: Range = Range { min: i128::MIN, max: i128::MAX };
    let column = |expr: &Arc<dyn PhysicalExpr>| Some(expr.downcast_ref::<Column>()?.index());
    let constant = |expr: &Arc<dyn PhysicalExpr>| integer(expr.downcast_ref::<Literal>()?.value());
    if let Some(list) = condition.downcast_ref::<InListExpr>() {
        return (!list.negated()).then_some((column(list.expr())?, ALL, list.list().len() as f64));
    }
    let binary = condition.downcast_ref::<BinaryExpr>()?;
    let (column, value, op) = match column(binary.left()) {
        Some(column) => (column, constant(binary.right())?, *binary.op()),
        None => (column(binary.right())?, constant(binary.left())?, binary.op().swap()?),
    };
    let (range, values) = match op {
        Operator::Eq => (Range { min: value, max: value }, 1.0),
        Operator::Lt | Operator::LtEq => (Range { max: value, ..ALL }, f64::INFINITY),
        Operator::Gt | Operator::GtEq => (Range { min: value, ..ALL }, f64::INFINITY),
        _ => return None,
    };
    Some((column, range, values))
}

/// The column of texts of which a condition asks for one.
fn asked_text(condition: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let binary = condition.downcast_ref::<BinaryExpr>().filter(|binary| *binary.op() == Operator::Eq)?;
    let (left, right) = (binary.left(), binary.right());
    let (column, constant) = match left.downcast_ref::<Column>() {
        Some(column) => (column, right),
        None => (right.downcast_ref::<Column>()?, left),
    };
    constant.downcast_ref::<Literal>()?.value().data_type().is_string().then_some(column.index())
}

/// Whether a column of a file has many values, as its writer found that a dictionary does not pay, or that it got full.
fn have_many_values(footer: &ParquetMetaData, name: &str) -> bool {
    let columns = footer.file_metadata().schema_descr().columns();
    let Some(leaf) = columns.iter().position(|column| column.path().parts() == [name]) else { return false };
    footer.row_groups().iter().map(|group| group.column(leaf)).all(|chunk| {
        match chunk.page_encoding_stats_mask() {
            Some(pages) => pages
                .encodings()
                .any(|encoding| !matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY)),
            None => chunk.dictionary_page_offset().is_none(),
        }
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{binary, cast, col, in_list, is_null, lit};

    use super::*;

    fn schema() -> SchemaRef {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let fields =
            vec![field("a", DataType::Int64), field("day", DataType::Date32), field("t", DataType::Utf8)];
        Arc::new(Schema::new(fields))
    }

    fn compared(column: &str, op: Operator, value: ScalarValue) -> Arc<dyn PhysicalExpr> {
        let schema = schema();
        binary(col(column, &schema).unwrap(), op, lit(value), &schema).unwrap()
    }

    fn expected() -> Vec<Option<Expected>> {
        let of = |min, max| Some(Expected { range: Some(Range { min, max }), has_nulls: true });
        vec![of(0, 999_999), of(-5_000, 4_999), None]
    }

    fn share_of(conditions: &[Arc<dyn PhysicalExpr>]) -> f64 {
        share(&conditions.iter().collect::<Vec<_>>(), &expected())
    }

    #[test]
    fn shares_follow_from_bounds() {
        let a = |op, value: i64| compared("a", op, value.into());
        let day = |op, value| compared("day", op, ScalarValue::Date32(Some(value)));
        assert_eq!(share_of(&[]), 1.0);
        assert_eq!(share_of(&[a(Operator::Eq, 5)]), 1e-6);
        assert_eq!(share_of(&[a(Operator::Eq, -5)]), 0.0);
        assert_eq!(share_of(&[a(Operator::NotEq, 5)]), 1.0);
        assert_eq!(share_of(&[a(Operator::GtEq, 100), a(Operator::LtEq, 199)]), 1e-4);
        assert_eq!(share_of(&[a(Operator::Gt, 499_999), day(Operator::Lt, -4_000)]), 0.500_001 * 0.1001);
        let schema = schema();
        let list = [1i64, 7, 9].map(lit).to_vec();
        let within = in_list(col("a", &schema).unwrap(), list.clone(), &false, &schema).unwrap();
        assert_eq!(share_of(&[within]), 3e-6);
        let outside = in_list(col("a", &schema).unwrap(), list, &true, &schema).unwrap();
        assert_eq!(share_of(&[outside]), 1.0);
        // The constant first, and texts, of which no bounds are known.
        let swapped = binary(lit(10i64), Operator::Gt, col("a", &schema).unwrap(), &schema).unwrap();
        assert_eq!(share_of(&[swapped]), 1.1e-5);
        assert_eq!(share_of(&[compared("t", Operator::Eq, "x".into())]), 1.0);
    }

    #[test]
    fn texts_that_are_asked_for_are_found() {
        assert_eq!(asked_text(&compared("t", Operator::Eq, "x".into())), Some(2));
        assert_eq!(asked_text(&compared("t", Operator::Lt, "x".into())), None);
        assert_eq!(asked_text(&compared("a", Operator::Eq, 5i64.into())), None);
        let schema = schema();
        let swapped = binary(lit("x"), Operator::Eq, col("t", &schema).unwrap(), &schema).unwrap();
        assert_eq!(asked_text(&swapped), Some(2));
    }

    #[test]
    fn conditions_that_may_fail_are_not_simple() {
        let schema = schema();
        let a = || col("a", &schema).unwrap();
        assert!(is_simple(&compared("t", Operator::Eq, "x".into()), 3));
        assert!(is_simple(&is_null(a()).unwrap(), 3));
        let either = binary(
            compared("a", Operator::Eq, 1i64.into()),
            Operator::Or,
            compared("t", Operator::Lt, "y".into()),
            &schema,
        );
        assert!(is_simple(&either.unwrap(), 3));
        // A column that is a folder's name, a division, a conversion, and no column at all.
        assert!(!is_simple(&compared("t", Operator::Eq, "x".into()), 2));
        let divided = binary(lit(1i64), Operator::Divide, a(), &schema).unwrap();
        assert!(!is_simple(&binary(divided, Operator::Eq, lit(1i64), &schema).unwrap(), 3));
        let number = cast(col("t", &schema).unwrap(), &schema, DataType::Int64).unwrap();
        assert!(!is_simple(&binary(number, Operator::Eq, lit(1i64), &schema).unwrap(), 3));
        assert!(!is_simple(&lit(true), 3));
    }
}
