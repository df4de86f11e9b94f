//! `format('{} {:.2f}', …)` and `printf('%s %.2f', …)`: texts with places for values.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, StringArray, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::{CallRows, name_and_signature};

use super::json::{shown, text_of};
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
enum Values {
    Flags(BooleanArray),
    Floats(Float64Array),
    /// Whole numbers and decimals without digits behind the point.
    Whole(StringArray),
    Texts(StringArray),
    None,
}

impl Values {
    fn of(column: &ArrayRef) -> Result<Values> {
        Ok(match column.data_type() {
            DataType::Null => Values::None,
            DataType::Boolean => Values::Flags(column.as_boolean().clone()),
            DataType::Float64 => Values::Floats(column.as_primitive::<Float64Type>().clone()),
            DataType::Utf8 => Values::Texts(column.as_string::<i32>().clone()),
            data_type if data_type.is_integer() || data_type.is_decimal() => {
                Values::Whole(shown(column.as_ref())?)
            }
            _ => Values::Texts(shown(column.as_ref())?),
        })
    }

    fn value(&self, row: usize) -> Result<Written> {
        Ok(match self {
            Values::Flags(flags) => Written::Flag(flags.value(row)),
            Values::Floats(floats) => Written::Float(floats.value(row)),
            Values::Texts(texts) => Written::Text(text_of(texts, row)?.to_string()),
            Values::Whole(texts) => {
                let text = text_of(texts, row)?;
                text.parse().map_or_else(|_| Written::Text(text.to_string()), Written::Integer)
            }
            Values::None => return internal_err!("NULL is written"),
        })
    }
}

impl ScalarUDFImpl for Format {
    name_and_signature!();

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
        let rows = CallRows::of(&arguments);
        let mut columns = Vec::with_capacity(arguments.args.len());
        for value in &arguments.args {
            let column = value.to_array(rows.count)?;
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
        let written = columns.iter().map(Values::of).collect::<Result<Vec<_>>>()?;
        let mut known: Option<Template> = None;
        let mut texts = StringBuilder::with_capacity(rows.count, 0);
        let (mut values, mut text) = (Vec::with_capacity(columns.len()), String::new());
        for row in 0..rows.count {
            let is_null = |column: &ArrayRef| column.is_null(row) || column.data_type().is_null();
            if templates.is_null(row) || columns.iter().any(is_null) {
                texts.append_null();
                continue;
            }
            values.clear();
            for column in &written {
                values.push(column.value(row)?);
            }
            let letters = templates.value(row);
            let template = match known.take() {
                Some(known) if known.written == letters => known,
                _ => Template::parsed(letters, self.style, self.name)?,
            };
            text.clear();
            self.fill(&template, &values, &mut text)?;
            texts.append_value(&text);
            known = Some(template);
        }
        rows.answer(Arc::new(texts.finish()))
    }
}

impl Format {
    fn fill(&self, template: &Template, values: &[Written], text: &mut String) -> Result<()> {
        let name = self.name;
        let argument = |place: usize| match values.get(place) {
            Some(value) => Ok(value),
            None => exec_err!(
                "{name}: '{}' has a place for argument {}, and there is none",
                template.written,
                place + 1
            ),
        };
        for piece in &template.pieces {
            match piece {
                Piece::Letters(letters) => text.push_str(letters),
                Piece::Place(place) => {
                    let value = argument(place.argument)?;
                    match place.width {
                        Some(width) => {
                            let mut layout = place.layout.clone();
                            layout.set_width(argument(width)?, name)?;
                            layout.write(value, name, text)?;
                        }
                        None => place.layout.write(value, name, text)?,
                    }
                }
            }
        }
        Ok(())
    }
}
