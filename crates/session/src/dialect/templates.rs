//! `format('{} {:.2f}', …)` and `printf('%s %.2f', …)`: texts with places for values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::json::shown;
use super::names_of_types::name_of_type;
use super::template_places::{Piece, Style, Template, Written};

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    for (name, style) in
        [("format", Style::Braces), ("printf", Style::Percent), ("format_string", Style::Percent)]
    {
        if !state.scalar_functions().contains_key(name) {
            let signature = Signature::variadic_any(Volatility::Immutable);
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(Format { name, style, signature })))?;
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Format {
    name: &'static str,
    style: Style,
    signature: Signature,
}

/// The values of an argument, as what they are written.
fn value(column: &ArrayRef, row: usize) -> Result<Option<Written>> {
    if column.is_null(row) || column.data_type().is_null() {
        return Ok(None);
    }
    Ok(Some(match column.data_type() {
        DataType::Boolean => Written::Flag(column.as_boolean().value(row)),
        DataType::Float64 => Written::Float(column.as_primitive::<Float64Type>().value(row)),
        data_type => {
            let text = shown(column.as_ref(), row)?;
            let is_whole = data_type.is_integer() || data_type.is_decimal();
            match text.parse().ok().filter(|_| is_whole) {
                Some(number) => Written::Integer(number),
                None => Written::Text(text),
            }
        }
    }))
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(first) if first.is_string() || first.is_null() => Ok(DataType::Utf8),
            Some(first) => {
                plan_err!(
                    "{} takes a text with places for values first, not a {}",
                    self.name,
                    name_of_type(first)
                )
            }
            None => plan_err!("{} takes a text with places for values, and the values", self.name),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { arguments.number_rows };
        let mut columns = Vec::with_capacity(arguments.args.len());
        for value in &arguments.args {
            let column = value.to_array(rows)?;
            columns.push(match column.data_type() {
                DataType::Float16 | DataType::Float32 => cast(&column, &DataType::Float64)?,
                DataType::Decimal32(_, scale)
                | DataType::Decimal64(_, scale)
                | DataType::Decimal128(_, scale)
                | DataType::Decimal256(_, scale)
                    if *scale > 0 =>
                {
                    cast(&column, &DataType::Float64)?
                }
                DataType::Dictionary(_, values) => cast(&column, values)?,
                _ => column,
            });
        }
        let Some((templates, columns)) = columns.split_first() else {
            return plan_err!("{} takes a text with places for values, and the values", self.name);
        };
        let templates = cast(templates, &DataType::Utf8)?;
        let templates = templates.as_string::<i32>();
        let mut known: Option<Template> = None;
        let mut texts = Vec::with_capacity(rows);
        for row in 0..rows {
            let mut values = Vec::with_capacity(columns.len());
            for column in columns {
                values.push(value(column, row)?);
            }
            let Some(values) = values.into_iter().collect::<Option<Vec<Written>>>() else {
                texts.push(None);
                continue;
            };
            if templates.is_null(row) {
                texts.push(None);
                continue;
            }
            let written = templates.value(row);
            let template = match known.take() {
                Some(known) if known.written == written => known,
                _ => Template::parsed(written, self.style, self.name)?,
            };
            texts.push(Some(self.filled(&template, &values)?));
            known = Some(template);
        }
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}

impl Format {
    fn filled(&self, template: &Template, values: &[Written]) -> Result<String> {
        let name = self.name;
        let argument = |place: usize| match values.get(place) {
            Some(value) => Ok(value),
            None => exec_err!(
                "{name}: '{}' has a place for argument {}, and there is none",
                template.written,
                place + 1
            ),
        };
        let mut text = String::new();
        for piece in &template.pieces {
            match piece {
                Piece::Letters(letters) => text.push_str(letters),
                Piece::Place(place) => {
                    let mut layout = place.layout.clone();
                    if let Some(width) = place.width {
                        layout.set_width(argument(width)?, name)?;
                    }
                    layout.write(argument(place.argument)?, name, &mut text)?;
                }
            }
        }
        Ok(text)
    }
}
