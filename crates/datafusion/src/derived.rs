//! Derived columns: scalar expressions over one table's columns that Kelpie does not compile, computed by DataFusion's own
//! expressions as the table is read, and encoded and cached like any column.
//!
//! A column that is kept is computed again from nothing but its expression, so only expressions whose every part always
//! gives the same value qualify. In the cache an expression is a number, which the [`Registry`] gives to expressions that
//! DataFusion holds for equal: the function itself counts, not its name, and so do the session's options. What was once
//! given out and is forgotten meanwhile gets another number, and the old column is never asked for again.

mod dictionaries;
pub(crate) mod reading;
mod repeated;
pub(crate) mod sharing;

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LambdaExpr,
    LambdaVariable, LikeExpr, Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{HigherOrderFunctionExpr, PhysicalExpr, ScalarFunctionExpr};
use parking_lot::Mutex;

use self::repeated::Finest;
use crate::corrections::null_fields::with_null_fields;

/// Expressions that are remembered.
const KNOWN_EXPRESSIONS: usize = 2048;
/// An expression that filters leave many rows for is computed for these alone where they are of so many parts at most, and then for all
/// rows.
const MOST_PARTS: usize = 2;
/// Tables on which an expression failed that are remembered with it.
const KNOWN_FAILURES: usize = 16;
type Expr = Arc<dyn PhysicalExpr>;

/// A column that is computed from others of its table.
#[derive(Debug, Clone)]
pub(crate) struct Derived {
    /// Over the table's columns.
    expr: Expr,
    /// The same over `columns` only.
    local: Expr,
    /// Positions in the table of what it reads, ascending.
    columns: Vec<usize>,
    /// Their types.
    inputs: Vec<DataType>,
    field: FieldRef,
    /// Its number; none where it is computed for each query.
    key: Option<u64>,
    /// The finest part of a time that it looks at, where it reads nothing but times and that is known.
    finest: Option<Finest>,
}

impl Derived {
    /// The column of an expression over a table's columns, or why it cannot be one.
    pub(crate) fn new(expr: &Expr, schema: &Schema) -> Result<Derived, String> {
        let mut derived = Derived::of_this_query(expr, schema)?;
        if !has_moment(&derived.expr) {
            derived.key = Some(REGISTRY.lock().number(&derived.expr));
        }
        Ok(derived)
    }

    /// The same of which nothing is kept.
    pub(crate) fn of_this_query(expr: &Expr, schema: &Schema) -> Result<Derived, String> {
        is_deterministic(expr)?;
        let expr = canonical(expr, schema)?;
        let mut columns: Vec<usize> = collect_columns(&expr).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            return Err("it reads no column".into());
        }
        let local = mapped(&expr, &|column| {
            let position = columns.binary_search(&column.index()).ok()?;
            Some(Arc::new(Column::new(column.name(), position)) as Expr)
        });
        let local = local.ok_or("a column is out of range")?;
        let data_type = expr.data_type(schema).map_err(|error| error.strip_backtrace())?;
        let nullable = expr.nullable(schema).unwrap_or(true);
        let field = Arc::new(Field::new(expr.to_string(), data_type, nullable));
        let finest = repeated::finest(&expr);
        let inputs = columns.iter().map(|column| schema.field(*column).data_type().clone()).collect();
        Ok(Derived { expr, local, columns, inputs, field, key: None, finest })
    }

    /// The column's name (its expression, for people), type and nullability.
    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Over the table's columns.
    pub(crate) fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Positions in the table of what it reads, ascending.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The types of what it reads.
    pub(crate) fn inputs(&self) -> &[DataType] {
        &self.inputs
    }

    /// Whether all that it reads are texts, which it takes in whatever form they are read.
    pub(crate) fn reads_texts(&self) -> bool {
        self.inputs.iter().all(DataType::is_string)
    }

    /// What it is cached under beside the identity of its table's data.
    pub(crate) fn key(&self) -> Option<u64> {
        self.key
    }

    /// Notes that it is asked for of a part of its table's rows, and says whether these were so few parts that it may be computed for this one
    /// alone.
    pub(crate) fn is_seldom_asked_for(&self, part: &str) -> bool {
        REGISTRY.lock().is_one_of_few(&self.expr, part)
    }

    /// Notes that it is computed for all rows of its table.
    pub(crate) fn is_computed_whole(&self) {
        REGISTRY.lock().computed_whole(&self.expr);
    }

    /// Why it, or a part of it, failed on this data before.
    pub(crate) fn failure(&self, identity: Option<&str>) -> Option<String> {
        REGISTRY.lock().failure(&self.expr, identity?)
    }

    /// Remembers that it fails on this data.
    pub(crate) fn failed(&self, identity: Option<&str>, reason: &str) {
        if let (Some(key), Some(identity)) = (self.key, identity) {
            REGISTRY.lock().failed(key, identity, reason);
        }
    }

    /// Its values over a batch that has exactly `columns`, in the types that the table has or, of texts, others. Where one column is read
    /// and its values repeat, each is computed once.
    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let batch = &with_null_fields(self.in_types(batch)?)?;
        if let [column] = batch.columns()
            && let Some((rows, places)) = repeated::representatives(column, self.finest)
        {
            let few = RecordBatch::try_new(batch.schema(), vec![take(column, &rows, None)?])?;
            return Ok(take(&self.evaluate_all(&few)?, &places, None)?);
        }
        self.evaluate_all(batch)
    }

    fn in_types(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if batch.columns().iter().map(Array::data_type).eq(&self.inputs) {
            return Ok(batch.clone());
        }
        let schema = batch.schema();
        let fields = schema.fields().iter().zip(&self.inputs);
        let fields: Vec<_> =
            fields.map(|(field, own)| field.as_ref().clone().with_data_type(own.clone())).collect();
        let columns = batch.columns().iter().zip(&self.inputs).map(|(column, own)| cast(column, own));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    fn evaluate_all(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let values = self.local.evaluate(batch)?.into_array(batch.num_rows())?;
        if values.data_type() != self.field.data_type() || values.len() != batch.num_rows() {
            let (rows, data_type) = (values.len(), values.data_type());
            return internal_err!("{} gave {rows} values of type {data_type}", self.field.name());
        }
        Ok(values)
    }
}

/// Whether an expression gives NULL where every column that it reads is NULL.
pub(crate) fn keeps_null(expr: &Expr, schema: &SchemaRef) -> bool {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let value = RecordBatch::try_new(schema, nulls)
        .map_err(Into::into)
        .and_then(|batch| expr.evaluate(&batch))
        .and_then(|value| value.into_array(1));
    value.is_ok_and(|value| value.len() == 1 && value.logical_nulls().is_some_and(|nulls| nulls.is_null(0)))
}

/// The expression with each column replaced; `None` where one has no replacement.
pub(crate) fn mapped(expr: &Expr, replace: &dyn Fn(&Column) -> Option<Expr>) -> Option<Expr> {
    let mut whole = true;
    let made = Arc::clone(expr).transform_down(|e| {
        let Some(column) = e.downcast_ref::<Column>() else { return Ok(Transformed::no(e)) };
        match replace(column) {
            // What replaces a column is not looked into again.
            Some(new) => Ok(Transformed::new(new, true, TreeNodeRecursion::Jump)),
            None => {
                whole = false;
                Ok(Transformed::no(e))
            }
        }
    });
    made.ok().filter(|_| whole).map(|made| made.data)
}

/// The expression with the names that its columns have in the table.
fn canonical(expr: &Expr, schema: &Schema) -> Result<Expr, String> {
    let named = mapped(expr, &|column| {
        let field = schema.fields().get(column.index())?;
        Some(Arc::new(Column::new(field.name(), column.index())) as Expr)
    });
    named.ok_or_else(|| "a column is out of range".into())
}

/// Whether every part always gives the same value for the same input, or the first that does not.
fn is_deterministic(expr: &Expr) -> Result<(), String> {
    are_deterministic(expr, false)
}

/// The same, also of what is within a lambda, whose parameters have no values outside of it.
fn are_deterministic(expr: &Expr, is_in_lambda: bool) -> Result<(), String> {
    let mut refused = None;
    let walked = expr.apply(|e| {
        let volatility = match e.downcast_ref::<ScalarFunctionExpr>() {
            Some(call) => Some((call.fun().signature().volatility, call.name())),
            None => {
                let call = e.downcast_ref::<HigherOrderFunctionExpr>();
                call.map(|call| (call.fun().signature().volatility, call.name()))
            }
        };
        let lambda = e.downcast_ref::<LambdaExpr>();
        refused = match (volatility, lambda) {
            (Some((Volatility::Immutable, _)), _) => None,
            (Some((Volatility::Stable, name)), _) => Some(format!("{name} differs from query to query")),
            (Some((Volatility::Volatile, name)), _) => Some(format!("{name} is volatile")),
            (None, Some(lambda)) => are_deterministic(lambda.body(), true).err(),
            _ if is_plain(e) || is_in_lambda && e.is::<LambdaVariable>() => None,
            _ => Some(format!("{e} is of a kind that is not computed apart from its operator")),
        };
        Ok(match (&refused, lambda) {
            (Some(_), _) => TreeNodeRecursion::Stop,
            (None, Some(_)) => TreeNodeRecursion::Jump,
            (None, None) => TreeNodeRecursion::Continue,
        })
    });
    match (walked, refused) {
        (Err(error), _) => Err(error.strip_backtrace()),
        (_, Some(reason)) => Err(reason),
        (_, None) => Ok(()),
    }
}

/// The kinds of expressions that depend on nothing but their inputs.
fn is_plain(e: &Expr) -> bool {
    e.is::<Column>()
        || e.is::<Literal>()
        || e.is::<BinaryExpr>()
        || e.is::<CastExpr>()
        || e.is::<TryCastExpr>()
        || e.is::<CaseExpr>()
        || e.is::<IsNullExpr>()
        || e.is::<IsNotNullExpr>()
        || e.is::<NotExpr>()
        || e.is::<NegativeExpr>()
        || e.is::<InListExpr>()
        || e.is::<LikeExpr>()
}

/// Whether a constant may come from `now()`, which the planner has replaced by its value: a time of day or a time stamp that
/// is not midnight. Such a column would be asked for once. Days change slowly enough that their columns age out.
fn has_moment(expr: &Expr) -> bool {
    let mut found = false;
    let walked = expr.apply(|e| {
        found = e.downcast_ref::<Literal>().is_some_and(|literal| is_moment(literal.value()));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || walked.is_err()
}

fn is_moment(value: &ScalarValue) -> bool {
    let within_day = |value: &i64, unit| {
        let per_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        value % (86_400 * per_second) != 0
    };
    match value {
        ScalarValue::TimestampSecond(Some(v), _) => within_day(v, TimeUnit::Second),
        ScalarValue::TimestampMillisecond(Some(v), _) => within_day(v, TimeUnit::Millisecond),
        ScalarValue::TimestampMicrosecond(Some(v), _) => within_day(v, TimeUnit::Microsecond),
        ScalarValue::TimestampNanosecond(Some(v), _) => within_day(v, TimeUnit::Nanosecond),
        _ => matches!(value.data_type(), DataType::Time32(_) | DataType::Time64(_)),
    }
}

/// The numbers of expressions.
#[derive(Default)]
struct Registry {
    /// Most recently used last.
    known: VecDeque<Known>,
    next: u64,
}

struct Known {
    expr: Expr,
    number: u64,
    /// The parts of its table's rows that it was asked for; nothing where these were too many, or all.
    parts: Option<Vec<String>>,
    /// Data on which the expression fails, and how.
    failures: VecDeque<(String, String)>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

impl Registry {
    fn number(&mut self, expr: &Expr) -> u64 {
        let found = self.known.iter().position(|known| known.expr.as_ref() == expr.as_ref());
        if let Some(known) = found.and_then(|place| self.known.remove(place)) {
            let number = known.number;
            self.known.push_back(known);
            return number;
        }
        if self.known.len() >= KNOWN_EXPRESSIONS {
            self.known.pop_front();
        }
        self.next += 1;
        self.known.push_back(Known {
            expr: Arc::clone(expr),
            number: self.next,
            parts: Some(Vec::new()),
            failures: VecDeque::new(),
        });
        self.next
    }

    /// Whether an expression was asked for of few parts, with this one.
    fn is_one_of_few(&mut self, expr: &Expr, part: &str) -> bool {
        let Some(known) = self.known.iter_mut().find(|known| known.expr.as_ref() == expr.as_ref()) else {
            return false;
        };
        match &mut known.parts {
            Some(parts) if parts.iter().any(|known| known == part) => true,
            Some(parts) if parts.len() < MOST_PARTS => {
                parts.push(part.into());
                true
            }
            _ => {
                known.parts = None;
                false
            }
        }
    }

    fn computed_whole(&mut self, expr: &Expr) {
        if let Some(known) = self.known.iter_mut().find(|known| known.expr.as_ref() == expr.as_ref()) {
            known.parts = None;
        }
    }

    fn failure(&self, expr: &Expr, identity: &str) -> Option<String> {
        self.known.iter().find_map(|known| {
            let (_, reason) = known.failures.iter().find(|(data, _)| data == identity)?;
            let part = expr.exists(|part| Ok(part.as_ref() == known.expr.as_ref()));
            part.is_ok_and(|part| part).then(|| reason.clone())
        })
    }

    fn failed(&mut self, number: u64, identity: &str, reason: &str) {
        let Some(known) = self.known.iter_mut().find(|known| known.number == number) else { return };
        if known.failures.iter().all(|(data, _)| data != identity) {
            known.failures.push_back((identity.into(), reason.into()));
            if known.failures.len() > KNOWN_FAILURES {
                known.failures.pop_front();
            }
        }
    }
}
