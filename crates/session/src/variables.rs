//! Variables of a session: `SET VARIABLE v = (SELECT max(i) FROM t)`, then `getvariable('v')`.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr, Statement as Sql};
use kelpie_datafusion::name_and_signature;
use parking_lot::RwLock;

/// What the only column of a query is called whose value a variable gets, before the variable's name.
pub(crate) const VARIABLE: &str = "kelpie: variable ";

/// The values of a session's variables.
#[derive(Debug, Default)]
pub(crate) struct Variables(RwLock<HashMap<String, ScalarValue>>);

impl Variables {
    /// Adds them to a session, with the function that reads them.
    pub fn add(state: &mut SessionState) -> Result<()> {
        let variables = Arc::new(Variables::default());
        state.config_mut().set_extension(Arc::clone(&variables));
        if !state.scalar_functions().contains_key(NAME) {
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(GetVariable::of(variables))))?;
        }
        Ok(())
    }

    /// Sets one to the value of a query's row; without a row it is NULL.
    pub fn set(&self, name: &str, rows: &[RecordBatch]) -> Result<()> {
        let rows: Vec<&RecordBatch> = rows.iter().filter(|rows| rows.num_rows() > 0).collect();
        let value = match rows.as_slice() {
            [] => ScalarValue::Null,
            [row] if row.num_rows() == 1 && row.num_columns() == 1 => {
                ScalarValue::try_from_array(row.column(0), 0)?
            }
            _ => return exec_err!("SET VARIABLE {name} takes one value"),
        };
        self.0.write().insert(name.to_lowercase(), value);
        Ok(())
    }

    fn get(&self, name: &str) -> ScalarValue {
        self.0.read().get(&name.to_lowercase()).cloned().unwrap_or(ScalarValue::Null)
    }
}

/// The variable that a statement sets.
pub(crate) fn assigned(statement: &Statement) -> Option<String> {
    let Statement::Statement(statement) = statement else { return None };
    let Sql::Query(query) = statement.as_ref() else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match select.projection.as_slice() {
        [SelectItem::ExprWithAlias { alias, .. }] => {
            alias.value.strip_prefix(VARIABLE).map(ToString::to_string)
        }
        _ => None,
    }
}

const NAME: &str = "getvariable";

/// The function that reads a variable: its value when the statement is planned.
#[derive(Debug)]
struct GetVariable {
    variables: Arc<Variables>,
    signature: Signature,
}

impl GetVariable {
    fn of(variables: Arc<Variables>) -> GetVariable {
        GetVariable { variables, signature: Signature::any(1, Volatility::Stable) }
    }

    fn value(&self, name: Option<&ScalarValue>) -> Result<ScalarValue> {
        match name.and_then(ScalarValue::try_as_str) {
            Some(Some(name)) => Ok(self.variables.get(name)),
            Some(None) => Ok(ScalarValue::Null),
            None => plan_err!("{NAME} takes the name of a variable as a text that is written out"),
        }
    }
}

impl PartialEq for GetVariable {
    fn eq(&self, other: &GetVariable) -> bool {
        Arc::ptr_eq(&self.variables, &other.variables)
    }
}

impl Eq for GetVariable {}

impl Hash for GetVariable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        NAME.hash(state);
    }
}

impl ScalarUDFImpl for GetVariable {
    name_and_signature!(NAME);

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of a variable goes by its name")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let value = self.value(args.scalar_arguments.first().copied().flatten())?;
        Ok(Arc::new(Field::new(NAME, value.data_type(), true)))
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match args.as_slice() {
            [Expr::Literal(name, _)] => Ok(ExprSimplifyResult::Simplified(lit(self.value(Some(name))?))),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(name)] => Ok(ColumnarValue::Scalar(self.value(Some(name))?)),
            _ => plan_err!("{NAME} takes the name of a variable as a text that is written out"),
        }
    }
}
