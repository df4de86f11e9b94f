//! Functions that make of a row's values one value, and NULL where one of them is NULL.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int64Builder, IntervalMonthDayNanoBuilder, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, Int64Type, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{ScalarValue, exec_datafusion_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use kelpie_datafusion::{CallRows, name_and_signature};
use regex::{Regex, RegexBuilder};

use super::names_of_types::name_of_type;

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Text,
    Integer,
    Flag,
    Time,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Kind::Text => DataType::Utf8,
            Kind::Integer => DataType::Int64,
            Kind::Flag => DataType::Boolean,
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }

    fn takes(self, data_type: &DataType) -> bool {
        let data_type = match data_type {
            DataType::Dictionary(_, values) => values,
            other => other,
        };
        data_type.is_null()
            || match self {
                Kind::Text => data_type.is_string(),
                Kind::Integer => data_type.is_integer(),
                Kind::Flag => *data_type == DataType::Boolean,
                Kind::Time => {
                    data_type.is_string()
                        || matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
                }
            }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Integer => "whole number",
            Kind::Flag => "truth value",
            Kind::Time => "time",
        }
    }
}

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Integer(i64),
    Flag(bool),
}

/// The values of a row, and the regular expressions of the rows before it.
pub(super) struct Row<'a> {
    pub function: &'static str,
    values: Vec<Value<'a>>,
    patterns: HashMap<String, Regex>,
}

impl<'a> Row<'a> {
    /// A text, or nothing where the argument is not given.
    pub fn text(&self, place: usize) -> &'a str {
        match self.values.get(place) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    pub fn integer(&self, place: usize) -> Option<i64> {
        match self.values.get(place) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn flag(&self, place: usize) -> Option<bool> {
        match self.values.get(place) {
            Some(Value::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }

    /// The regular expression at a place, with options such as 'i' at another.
    pub fn pattern(&mut self, place: usize, options: usize) -> Result<&Regex> {
        let (pattern, options) = (self.text(place), self.text(options));
        let key = format!("{options} {pattern}");
        if !self.patterns.contains_key(&key) {
            let mut builder = RegexBuilder::new(pattern);
            for option in options.chars() {
                match option {
                    'i' => builder.case_insensitive(true),
                    'c' => builder.case_insensitive(false),
                    's' => builder.dot_matches_new_line(true),
                    'm' | 'n' | 'p' => builder.multi_line(true),
                    'g' => &mut builder,
                    other => {
                        return Err(exec_datafusion_err!("{}: there is no option '{other}'", self.function));
                    }
                };
            }
            let made = builder.build().map_err(|error| exec_datafusion_err!("{}: {error}", self.function))?;
            self.patterns.insert(key.clone(), made);
        }
        self.patterns
            .get(&key)
            .ok_or_else(|| exec_datafusion_err!("{}: the pattern '{pattern}' is gone", self.function))
    }
}

/// What a function makes of a row.
pub(super) type Body = fn(&mut Row<'_>) -> Result<ScalarValue>;

/// What a function is, without what follows from it.
pub(super) struct Definition {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub parameters: &'static [Kind],
    /// How many of them must be given.
    pub least: usize,
    pub result: DataType,
    pub body: Body,
}

/// Such a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ByRow {
    name: &'static str,
    aliases: Vec<String>,
    parameters: &'static [Kind],
    least: usize,
    result: DataType,
    body: ByName,
    signature: Signature,
}

/// A body, which is what the name of its function says.
#[derive(Debug, Clone, Copy)]
struct ByName(Body);

impl PartialEq for ByName {
    fn eq(&self, _: &ByName) -> bool {
        true
    }
}

impl Eq for ByName {}

impl std::hash::Hash for ByName {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl From<Definition> for ByRow {
    fn from(definition: Definition) -> ByRow {
        ByRow {
            name: definition.name,
            aliases: definition.aliases.iter().map(ToString::to_string).collect(),
            parameters: definition.parameters,
            least: definition.least,
            result: definition.result,
            body: ByName(definition.body),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

/// A list of texts, as a type and as a value.
pub(super) fn texts_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

pub(super) fn texts<'a>(all: impl IntoIterator<Item = &'a str>) -> ScalarValue {
    let all: Vec<ScalarValue> = all.into_iter().map(ScalarValue::from).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&all, &DataType::Utf8))
}

fn value<'a>(column: &'a ArrayRef, row: usize) -> Option<Value<'a>> {
    if column.is_null(row) {
        return None;
    }
    Some(match column.data_type() {
        DataType::Utf8 => Value::Text(column.as_string::<i32>().value(row)),
        DataType::Int64 => Value::Integer(column.as_primitive::<Int64Type>().value(row)),
        DataType::Boolean => Value::Flag(column.as_boolean().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Value::Integer(column.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        _ => return None,
    })
}

impl ScalarUDFImpl for ByRow {
    name_and_signature!(with aliases);

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if !(self.least..=self.parameters.len()).contains(&arguments.len()) {
            let names: Vec<&str> = self.parameters.iter().map(|kind| kind.name()).collect();
            let others = if self.least < names.len() { ", the last of which may be left out" } else { "" };
            return plan_err!("{} takes {} arguments: {}{others}", self.name, names.len(), names.join(", "));
        }
        for (kind, data_type) in self.parameters.iter().zip(arguments) {
            if !kind.takes(data_type) {
                return plan_err!("{}: a {} is no {}", self.name, name_of_type(data_type), kind.name());
            }
        }
        Ok(self.parameters.iter().take(arguments.len()).map(|kind| kind.data_type()).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = CallRows::of(&arguments);
        let mut columns = Vec::with_capacity(arguments.args.len());
        for (value, kind) in arguments.args.iter().zip(self.parameters) {
            columns.push(cast(&value.to_array(rows.count)?, &kind.data_type())?);
        }
        let mut answers = Answers::of(&self.result, rows.count)?;
        let mut row = Row { function: self.name, values: Vec::new(), patterns: HashMap::new() };
        for place in 0..rows.count {
            row.values.clear();
            row.values.extend(columns.iter().map_while(|column| value(column, place)));
            match row.values.len() == columns.len() {
                true => answers.add((self.body.0)(&mut row)?)?,
                false => answers.add_null(),
            }
        }
        rows.answer(answers.finish()?)
    }
}

/// The answers of rows, of the common types in arrays at once.
enum Answers {
    Texts(StringBuilder),
    Numbers(Int64Builder),
    Flags(BooleanBuilder),
    Intervals(IntervalMonthDayNanoBuilder),
    Others { none: ScalarValue, all: Vec<ScalarValue> },
}

impl Answers {
    fn of(data_type: &DataType, rows: usize) -> Result<Answers> {
        Ok(match data_type {
            DataType::Utf8 => Answers::Texts(StringBuilder::with_capacity(rows, 0)),
            DataType::Int64 => Answers::Numbers(Int64Builder::with_capacity(rows)),
            DataType::Boolean => Answers::Flags(BooleanBuilder::with_capacity(rows)),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Answers::Intervals(IntervalMonthDayNanoBuilder::with_capacity(rows))
            }
            other => Answers::Others { none: ScalarValue::try_from(other)?, all: Vec::with_capacity(rows) },
        })
    }

    fn add(&mut self, answer: ScalarValue) -> Result<()> {
        match (self, answer) {
            (Answers::Texts(all), ScalarValue::Utf8(text)) => all.append_option(text),
            (Answers::Numbers(all), ScalarValue::Int64(number)) => all.append_option(number),
            (Answers::Flags(all), ScalarValue::Boolean(flag)) => all.append_option(flag),
            (Answers::Intervals(all), ScalarValue::IntervalMonthDayNano(interval)) => {
                all.append_option(interval);
            }
            (Answers::Others { all, .. }, answer) => all.push(answer),
            (_, answer) => return internal_err!("{} is of another type than was said", answer.data_type()),
        }
        Ok(())
    }

    fn add_null(&mut self) {
        match self {
            Answers::Texts(all) => all.append_null(),
            Answers::Numbers(all) => all.append_null(),
            Answers::Flags(all) => all.append_null(),
            Answers::Intervals(all) => all.append_null(),
            Answers::Others { none, all } => all.push(none.clone()),
        }
    }

    fn finish(self) -> Result<ArrayRef> {
        Ok(match self {
            Answers::Texts(mut all) => Arc::new(all.finish()),
            Answers::Numbers(mut all) => Arc::new(all.finish()),
            Answers::Flags(mut all) => Arc::new(all.finish()),
            Answers::Intervals(mut all) => Arc::new(all.finish()),
            Answers::Others { none, all } if all.is_empty() => none.to_array_of_size(0)?,
            Answers::Others { all, .. } => ScalarValue::iter_to_array(all)?,
        })
    }
}
