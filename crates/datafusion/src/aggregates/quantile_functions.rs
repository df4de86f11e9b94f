//! `quantile_disc`, `percentile_cont` and `median`.
//!
//! DataFusion's `percentile_cont` cuts the weight between two values off to six digits, so that 370.399999 comes where 370.4 is meant; and
//! neither it nor `median` knows times and texts.

use datafusion::arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::{median, percentile_cont};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;

use super::quantiles::{ManyGroups, OneGroup, Place, Quantile};

/// The share of all values that a call asks for, which must be written out.
fn share_of(arguments: &AccumulatorArgs, name: &str) -> Result<f64> {
    let share = arguments.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
    let number = match share.map(|share| share.value().cast_to(&DataType::Float64)) {
        Some(Ok(ScalarValue::Float64(number))) => number,
        _ => None,
    };
    match number.filter(|number| (0.0..=1.0).contains(number)) {
        Some(share) => Ok(share),
        None => {
            let shown = share.map_or_else(|| "the fraction".to_string(), |known| known.value().to_string());
            plan_err!("{name}: {shown} is no fraction between 0 and 1 that is written out")
        }
    }
}

fn value_of(arguments: &AccumulatorArgs) -> Result<DataType> {
    match arguments.expr_fields.first() {
        Some(field) => Ok(field.data_type().clone()),
        None => exec_err!("a quantile of nothing"),
    }
}

fn all_values(arguments: &StateFieldsArgs) -> Result<Vec<FieldRef>> {
    match arguments.input_fields.first() {
        Some(field) => Ok(Quantile::state_fields(arguments, field.data_type())),
        None => exec_err!("a quantile of nothing"),
    }
}

/// Whether values of a type lie between others as their numbers do.
fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Date64
            | DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_)
    )
}

/// What lies between two values is of this type: between two days lie hours.
fn type_between(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Null => DataType::Float64,
        other => other.clone(),
    }
}

/// Whole numbers and decimals as floats.
fn number(data_type: &DataType) -> Option<DataType> {
    match data_type {
        data_type if data_type.is_floating() => Some(data_type.clone()),
        data_type if data_type.is_numeric() || data_type.is_null() => Some(DataType::Float64),
        _ => None,
    }
}

fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain(values),
        data_type => data_type,
    }
}

/// `quantile_disc(x, fraction)`: the first value in their order up to which there is that fraction of all.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct QuantileDisc {
    signature: Signature,
    aliases: Vec<String>,
}

impl Default for QuantileDisc {
    fn default() -> QuantileDisc {
        let signature = Signature::any(2, Volatility::Immutable);
        QuantileDisc { signature, aliases: vec!["quantile".into()] }
    }
}

impl QuantileDisc {
    fn quantile(arguments: &AccumulatorArgs) -> Result<Quantile> {
        if arguments.is_distinct {
            return plan_err!("quantile_disc takes no DISTINCT");
        }
        let place = Place::Discrete(share_of(arguments, "quantile_disc")?);
        let value = value_of(arguments)?;
        Ok(Quantile { place, result: value.clone(), value, is_distinct: false })
    }
}

impl AggregateUDFImpl for QuantileDisc {
    fn name(&self) -> &str {
        "quantile_disc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, _] if value.is_nested() => {
                plan_err!("quantile_disc: values of type {value} have no order")
            }
            [value, _] => Ok(value.clone()),
            _ => plan_err!("quantile_disc takes a value and a fraction"),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroup::new(QuantileDisc::quantile(&arguments)?)))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        QuantileDisc::quantile(&arguments).is_ok_and(|quantile| !quantile.value.is_null())
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ManyGroups::new(QuantileDisc::quantile(&arguments)?)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        all_values(&arguments)
    }
}

/// `percentile_cont(x, fraction)`: what lies at that fraction of the way through all values in their order, between two of them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PercentileCont {
    usual: percentile_cont::PercentileCont,
    signature: Signature,
}

impl Default for PercentileCont {
    fn default() -> PercentileCont {
        let signature = Signature::user_defined(Volatility::Immutable);
        PercentileCont { usual: percentile_cont::PercentileCont::new(), signature }
    }
}

impl PercentileCont {
    fn quantile(arguments: &AccumulatorArgs) -> Result<Quantile> {
        let share = share_of(arguments, "percentile_cont")?;
        let is_descending = arguments.order_bys.first().is_some_and(|key| key.options.descending);
        let place = Place::Continuous(if is_descending { 1.0 - share } else { share });
        let value = value_of(arguments)?;
        Ok(Quantile { place, result: type_between(&value), value, is_distinct: arguments.is_distinct })
    }
}

impl AggregateUDFImpl for PercentileCont {
    fn name(&self) -> &str {
        self.usual.name()
    }

    fn aliases(&self) -> &[String] {
        self.usual.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [value, share] = arguments else {
            return plan_err!(
                "percentile_cont takes a value and a fraction, such as percentile_cont(x, 0.5)"
            );
        };
        if !share.is_numeric() && !share.is_null() {
            return plan_err!("percentile_cont: a {share} is no fraction between 0 and 1");
        }
        let value = plain(value);
        match number(value).or_else(|| is_time(value).then(|| value.clone())) {
            Some(value) => Ok(vec![value, DataType::Float64]),
            None => plan_err!("percentile_cont: nothing lies between values of type {value}"),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(value) => Ok(type_between(value)),
            None => plan_err!("percentile_cont takes a value and a fraction"),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroup::new(PercentileCont::quantile(&arguments)?)))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        PercentileCont::quantile(&arguments).is_ok()
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ManyGroups::new(PercentileCont::quantile(&arguments)?)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        all_values(&arguments)
    }

    /// The first and the last value are the least and the greatest, where these are of the type that lies between two.
    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let usual = self.usual.simplify()?;
        Some(Box::new(move |call: AggregateFunction, info: &SimplifyContext| {
            let is_float = match call.params.args.first() {
                Some(value) => info.get_data_type(value)?.is_floating(),
                None => false,
            };
            if is_float { usual(call, info) } else { Ok(Expr::AggregateFunction(call)) }
        }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.usual.documentation()
    }
}

/// `median(x)`: of numbers DataFusion's; of times what lies in the middle, and of texts and truth values `quantile_disc(x, 0.5)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Median {
    usual: median::Median,
    signature: Signature,
}

impl Default for Median {
    fn default() -> Median {
        Median { usual: median::Median::new(), signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl Median {
    /// Nothing of values of which DataFusion has the median.
    fn quantile(arguments: &AccumulatorArgs) -> Result<Option<Quantile>> {
        let value = value_of(arguments)?;
        let place = match &value {
            value if value.is_numeric() || value.is_null() => return Ok(None),
            value if is_time(value) => Place::Continuous(0.5),
            _ => Place::Discrete(0.5),
        };
        let result = if let Place::Continuous(_) = place { type_between(&value) } else { value.clone() };
        Ok(Some(Quantile { place, result, value, is_distinct: arguments.is_distinct }))
    }
}

impl AggregateUDFImpl for Median {
    fn name(&self) -> &str {
        self.usual.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [value] = arguments else { return plan_err!("median takes one argument") };
        let value = plain(value);
        if value.is_nested() {
            return plan_err!("median: values of type {value} have no order");
        }
        if value.is_decimal() {
            return Ok(vec![value.clone()]);
        }
        Ok(vec![number(value).unwrap_or_else(|| value.clone())])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(value) => Ok(type_between(value)),
            None => plan_err!("median takes one argument"),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Median::quantile(&arguments)? {
            Some(quantile) => Ok(Box::new(OneGroup::new(quantile))),
            None => self.usual.accumulator(arguments),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        match Median::quantile(&arguments) {
            Ok(Some(_)) => true,
            _ => self.usual.groups_accumulator_supported(arguments),
        }
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match Median::quantile(&arguments)? {
            Some(quantile) => Ok(Box::new(ManyGroups::new(quantile))),
            None => self.usual.create_groups_accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match arguments.input_fields.first() {
            Some(field) if field.data_type().is_numeric() || field.data_type().is_null() => {
                self.usual.state_fields(arguments)
            }
            _ => all_values(&arguments),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.usual.documentation()
    }
}
