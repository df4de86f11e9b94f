//! What a call of a function says of how files are read.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use serde_json::Value;

use super::format::Kind;
use super::forms::Forms;
use super::reader::NamedEncoding;

/// How files are read, as far as it is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Given {
    pub kind: Option<Kind>,
    pub header: Option<bool>,
    pub delimiter: Option<u8>,
    /// No sign where values are never between quotes.
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    pub comment: Option<u8>,
    /// Lines before the header; found out where nothing is said.
    pub skip: Option<usize>,
    pub encoding: Option<NamedEncoding>,
    /// How values are written.
    pub forms: Forms,
    /// Whether rows that do not fit are left out.
    pub ignores_errors: bool,
    /// What stands for NULL; an empty value where nothing is said.
    pub nulls: Vec<String>,
    /// Names of the first columns.
    pub names: Vec<String>,
    /// All columns, with their types.
    pub columns: Vec<(String, DataType)>,
    /// Types of columns, by name or from the first one on.
    pub types: Vec<(Option<String>, DataType)>,
    pub all_text: bool,
    /// Whether values may be missing at the end of a line.
    pub may_be_short: bool,
    /// Rows that types come from; all of them where there is no number.
    pub sample: Option<Option<usize>>,
    pub folders: bool,
    pub filename: Option<String>,
}

impl Given {
    /// What options say.
    pub fn of(function: &str, kind: Kind, options: &[(String, Value)]) -> Result<Given> {
        let mut given = Given { kind: Some(kind), folders: true, ..Given::default() };
        for (name, value) in options {
            let option = GivenOption { function, name, value };
            let is_known = given.add_for_all(&option)? || kind == Kind::Csv && given.add_for_csv(&option)?;
            if !is_known {
                return plan_err!("{function} has no option {name}{}", known(kind));
            }
        }
        given.check(function)?;
        let types = given.columns.iter().map(|(_, data_type)| data_type);
        let mut types = types.chain(given.types.iter().map(|(_, data_type)| data_type));
        given.forms.wide =
            types.any(|data_type| matches!(data_type, DataType::Boolean | DataType::Timestamp(..)));
        Ok(given)
    }

    /// Whether the type of a column is given, by its place or name.
    pub fn has_type_of(&self, place: usize, name: &str) -> bool {
        let is_it = |other: &String| other.eq_ignore_ascii_case(name);
        let mut types = self.types.iter().enumerate();
        self.columns.iter().any(|(other, _)| is_it(other))
            || types.any(|(at, (other, _))| other.as_ref().map_or(at == place, is_it))
    }

    /// Signs that mean two things.
    fn check(&self, function: &str) -> Result<()> {
        let Forms { decimal_separator, thousands, .. } = self.forms;
        if thousands.is_some() && thousands == Some(decimal_separator.unwrap_or(b'.')) {
            return plan_err!("{function}: thousands and decimal_separator are the same sign");
        }
        Ok(())
    }

    /// Options that all functions have.
    fn add_for_all(&mut self, option: &GivenOption<'_>) -> Result<bool> {
        match option.name {
            "hive_partitioning" => self.folders = option.bool()?,
            "union_by_name" => {
                if !option.bool()? {
                    return plan_err!("{}: columns of several files always meet by name", option.function);
                }
            }
            "filename" => {
                self.filename = match option.value {
                    Value::String(name) => Some(name.clone()),
                    _ => option.bool()?.then(|| "filename".to_string()),
                };
            }
            "sample_size" if self.kind != Some(Kind::Parquet) => {
                self.sample = Some(match option.value.as_i64() {
                    Some(-1) => None,
                    Some(rows) if rows > 0 => usize::try_from(rows).ok(),
                    _ => return option.wrong("a number of rows, or -1 for all"),
                });
            }
            "format" if self.kind == Some(Kind::Json) => match option.text()? {
                "auto" | "newline_delimited" | "nd" | "array" | "unstructured" => {}
                _ => return option.wrong("auto, newline_delimited, array or unstructured: it is found out"),
            },
            "maximum_object_size" if self.kind == Some(Kind::Json) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add_for_csv(&mut self, option: &GivenOption<'_>) -> Result<bool> {
        match option.name {
            "delim" | "delimiter" | "sep" => self.delimiter = Some(option.sign()?),
            "header" => self.header = Some(option.bool()?),
            "quote" => self.quote = Some(option.sign_or_none()?),
            "escape" => self.escape = Some(option.sign_or_none()?),
            "comment" => self.comment = Some(option.sign()?),
            "skip" => match option.value.as_u64().and_then(|lines| usize::try_from(lines).ok()) {
                Some(lines) => self.skip = Some(lines),
                None => return option.wrong("a number of lines"),
            },
            "nullstr" | "null" => self.nulls = option.texts()?,
            "names" | "column_names" => self.names = option.texts()?,
            "columns" => {
                self.columns = option
                    .types()?
                    .into_iter()
                    .map(|(name, data_type)| match name {
                        Some(name) => Ok((name, data_type)),
                        None => option.wrong("names with types, such as {'a': 'INTEGER'}"),
                    })
                    .collect::<Result<_>>()?;
            }
            "types" | "dtypes" | "column_types" => self.types = option.types()?,
            "all_varchar" => self.all_text = option.bool()?,
            "null_padding" => self.may_be_short = option.bool()?,
            "ignore_errors" => self.ignores_errors = option.bool()?,
            "dateformat" | "date_format" => self.forms.date = Some(option.format()?),
            "timestampformat" | "timestamp_format" => self.forms.timestamp = Some(option.format()?),
            "decimal_separator" => match option.sign()? {
                b'.' => {}
                sign @ b',' => self.forms.decimal_separator = Some(sign),
                _ => return option.wrong("a point or a comma"),
            },
            "thousands" => match option.sign()? {
                sign if sign.is_ascii_alphanumeric() => return option.wrong("no letter or digit"),
                sign => self.forms.thousands = Some(sign),
            },
            // What says how fast files are read, and what is found out, changes no answer.
            "auto_detect" | "parallel" => {
                option.bool()?;
            }
            "buffer_size" | "max_line_size" | "maximum_line_size" => {}
            "encoding" => match NamedEncoding::of(option.text()?) {
                Some(encoding) => self.encoding = Some(encoding),
                None => return option.wrong(NamedEncoding::KNOWN),
            },
            "compression" => match option.text()? {
                "auto" | "auto_detect" => {}
                _ => return option.wrong("auto: the name of a file says how it is compressed"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn known(kind: Kind) -> &'static str {
    match kind {
        Kind::Csv => {
            ": it has delim (sep), header, quote, escape, comment, skip, nullstr, names, columns, types, all_varchar, null_padding, \
             ignore_errors, dateformat, timestampformat, decimal_separator, thousands, encoding, sample_size, filename, \
             hive_partitioning, union_by_name"
        }
        Kind::Json => ": it has sample_size, format, filename, hive_partitioning, union_by_name",
        _ => ": it has filename, hive_partitioning, union_by_name",
    }
}

/// An option, and what it says.
struct GivenOption<'a> {
    function: &'a str,
    name: &'a str,
    value: &'a Value,
}

impl GivenOption<'_> {
    fn wrong<T>(&self, wanted: &str) -> Result<T> {
        plan_err!("{}: {} is {}, and may be {wanted}", self.function, self.name, self.value)
    }

    fn bool(&self) -> Result<bool> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Value::Number(number) if number.as_u64() == Some(1) => Ok(true),
            Value::Number(number) if number.as_u64() == Some(0) => Ok(false),
            _ => self.wrong("true or false"),
        }
    }

    fn text(&self) -> Result<&str> {
        match self.value {
            Value::String(text) => Ok(text),
            _ => self.wrong("a text"),
        }
    }

    /// A format of dates or times, as `strptime` has them.
    fn format(&self) -> Result<String> {
        use chrono::format::{Item, StrftimeItems};
        let format = self.text()?;
        match format.is_empty() || StrftimeItems::new(format).any(|item| item == Item::Error) {
            true => self.wrong("a format such as '%d.%m.%Y'"),
            false => Ok(format.to_string()),
        }
    }

    fn texts(&self) -> Result<Vec<String>> {
        let texts = match self.value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(all) => all.iter().map(|text| text.as_str().map(ToString::to_string)).collect(),
            _ => None,
        };
        texts.map_or_else(|| self.wrong("a text, or a list of texts"), Ok)
    }

    /// A sign of one byte.
    fn sign(&self) -> Result<u8> {
        match self.text()?.as_bytes() {
            [sign] => Ok(*sign),
            b"\\t" => Ok(b'\t'),
            _ => self.wrong("one ASCII character"),
        }
    }

    /// A sign, or one that stands in no text where there is none.
    fn sign_or_none(&self) -> Result<u8> {
        if self.text()?.is_empty() { Ok(0) } else { self.sign() }
    }

    /// Types as [`DataType`] writes itself, with names or without.
    fn types(&self) -> Result<Vec<(Option<String>, DataType)>> {
        let known = |text: Option<&str>| text.and_then(|text| text.parse::<DataType>().ok());
        let all = match self.value {
            Value::Array(all) => all.iter().map(|one| match one {
                Value::Array(pair) => match pair.as_slice() {
                    [Value::String(name), data_type] => {
                        Some((Some(name.clone()), known(data_type.as_str())?))
                    }
                    _ => None,
                },
                data_type => Some((None, known(data_type.as_str())?)),
            }),
            _ => return self.wrong("names with types, such as {'a': 'INTEGER'}"),
        };
        match all.collect::<Option<Vec<_>>>() {
            Some(all) => Ok(all),
            None => self.wrong("names with types, such as {'a': 'INTEGER'}"),
        }
    }
}
