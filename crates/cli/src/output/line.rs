//! A line a value, for rows of many columns.

use std::io::Write;

use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::ArrayFormatter;
use datafusion::config::FormatOptions;
use unicode_width::UnicodeWidthStr;

use super::display::for_people;
use super::table::escaped;
use super::{Out, TextWriter};

/// `name = value`, and an empty line between rows.
pub struct LineWriter<W: Write> {
    out: W,
    display: FormatOptions,
    names: Vec<String>,
    is_first: bool,
}

impl<W: Write> LineWriter<W> {
    pub fn new(out: W, schema: &SchemaRef, display: &FormatOptions) -> LineWriter<W> {
        let names: Vec<String> = schema.fields().iter().map(|field| escaped(field.name())).collect();
        let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let padded = |name: &String| format!("{}{name}", " ".repeat(width - name.width()));
        let mut display = display.clone();
        if display.null.is_empty() {
            display.null = "NULL".into();
        }
        LineWriter { out, display, names: names.iter().map(padded).collect(), is_first: true }
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = for_people(&self.display)?;
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            if !std::mem::take(&mut self.is_first) {
                writeln!(self.out)?;
            }
            for (name, column) in self.names.iter().zip(&columns) {
                writeln!(self.out, "{name} = {}", escaped(&column.value(row).try_to_string()?))?;
            }
        }
        Ok(())
    }
}

impl TextWriter for LineWriter<Out> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        LineWriter::rows(self, batch)
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn a_row_is_a_line_a_value() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["", "a\tb"]));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap();
        let mut out = Vec::new();
        LineWriter::new(&mut out, &batch.schema(), &FormatOptions::default()).rows(&batch).unwrap();
        let expected = "   n = 1\ntext = \n\n   n = NULL\ntext = a\\tb\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
