//! CSV: a header and a line a row, quoted as RFC 4180 says; also with tabs between the values.

use std::io::Write;

use anyhow::Result;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::ArrayFormatter;
use datafusion::config::FormatOptions;

use super::display::{for_programs, is_null};
use super::{Out, RowWriter};

/// NULL is empty and empty text is `""`, so that readers that look at quotes tell the two apart. Only where a line would
/// be blank, which readers skip, NULL is `""` as well. A session that has a text for NULL gets that.
pub struct CsvWriter<W: Write> {
    out: W,
    separator: char,
    display: FormatOptions,
    line: String,
    value: String,
}

impl<W: Write> CsvWriter<W> {
    pub fn new(
        mut out: W,
        separator: char,
        schema: &SchemaRef,
        display: &FormatOptions,
    ) -> Result<CsvWriter<W>> {
        let mut line = String::new();
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                line.push(separator);
            }
            push_field(&mut line, field.name(), separator);
        }
        writeln!(out, "{line}")?;
        Ok(CsvWriter { out, separator, display: display.clone(), line, value: String::new() })
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = for_programs(&self.display);
        // What is empty says nothing among the elements of a list.
        let nested =
            if self.display.null.is_empty() { options.clone().with_null("NULL") } else { options.clone() };
        let columns = batch
            .columns()
            .iter()
            .map(|column| {
                let options = if column.data_type().is_nested() { &nested } else { &options };
                Ok((column.as_ref(), ArrayFormatter::try_new(column.as_ref(), options)?))
            })
            .collect::<Result<Vec<(&dyn Array, ArrayFormatter<'_>)>>>()?;
        for row in 0..batch.num_rows() {
            self.line.clear();
            for (index, (column, formatter)) in columns.iter().enumerate() {
                if index > 0 {
                    self.line.push(self.separator);
                }
                if !is_null(*column, row) {
                    self.value.clear();
                    formatter.value(row).write(&mut self.value)?;
                    push_field(&mut self.line, &self.value, self.separator);
                } else {
                    self.line.push_str(&self.display.null);
                }
            }
            if self.line.is_empty() {
                self.line.push_str("\"\"");
            }
            writeln!(self.out, "{}", self.line)?;
        }
        Ok(())
    }
}

impl RowWriter for CsvWriter<Out> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows(batch)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

fn push_field(line: &mut String, text: &str, separator: char) {
    if text.is_empty() || text.contains(['"', separator, '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float64Array, ListArray, NullArray, StringArray};
    use datafusion::arrow::datatypes::Int32Type;
    use std::sync::Arc;

    fn csv(batch: &RecordBatch) -> String {
        separated(batch, ',')
    }

    fn separated(batch: &RecordBatch, separator: char) -> String {
        let mut out = Vec::new();
        let (schema, display) = (batch.schema(), FormatOptions::default());
        CsvWriter::new(&mut out, separator, &schema, &display).unwrap().rows(batch).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tabs_may_stand_between_values() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a,b", "c\td"]));
        let number: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.0]));
        let batch = RecordBatch::try_from_iter([("t", text), ("n", number)]).unwrap();
        assert_eq!(separated(&batch, '\t'), "t\tn\na,b\t1.5\n\"c\td\"\t2.0\n");
    }

    #[test]
    fn csv_quotes_as_rfc_4180_and_tells_null_from_empty() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![
            Some("a,b"),
            Some("say \"x\""),
            Some("two\nlines"),
            Some(""),
            None,
            Some("ü"),
        ]));
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(0.5),
            Some(-0.0),
            Some(f64::NAN),
            None,
            Some(1e300),
            Some(2.0),
        ]));
        let nulls: ArrayRef = Arc::new(NullArray::new(6));
        let batch = RecordBatch::try_from_iter([("a \"b\"", text), ("n", numbers), ("z", nulls)]).unwrap();
        let expected = "\"a \"\"b\"\"\",n,z\n\"a,b\",0.5,\n\"say \"\"x\"\"\",-0.0,\n\"two\nlines\",NaN,\n\"\",,\n,1e300,\nü,2.0,\n";
        assert_eq!(csv(&batch), expected);
    }

    #[test]
    fn nulls_within_values_are_named() {
        let lists = vec![Some(vec![Some(1), None]), None];
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        let batch = RecordBatch::try_from_iter([("l", Arc::clone(&list)), ("m", list)]).unwrap();
        assert_eq!(csv(&batch), "l,m\n\"[1, NULL]\",\"[1, NULL]\"\n,\n");
    }

    #[test]
    fn a_lone_null_is_no_blank_line() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![None, Some("x"), Some("")]));
        let batch = RecordBatch::try_from_iter([("a", text)]).unwrap();
        assert_eq!(csv(&batch), "a\n\"\"\nx\n\"\"\n");
    }
}
