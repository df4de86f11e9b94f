//! A table of Markdown.

use std::io::Write;

use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::ArrayFormatter;
use datafusion::config::FormatOptions;

use super::display::for_people;
use super::table::escaped;
use super::{Out, TextWriter};

/// Rows between bars, numbers to the right; a bar in a text is `\|`, and a line feed `<br>`.
pub struct MarkdownWriter<W: Write> {
    out: W,
    display: FormatOptions,
}

impl<W: Write> MarkdownWriter<W> {
    pub fn new(mut out: W, schema: &SchemaRef, display: &FormatOptions) -> Result<MarkdownWriter<W>> {
        let fields = schema.fields();
        write_row(&mut out, fields.iter().map(|field| Ok(field.name().clone())))?;
        let line = |is_number: bool| if is_number { "--:" } else { "---" };
        let lines: Vec<&str> = fields.iter().map(|field| line(field.data_type().is_numeric())).collect();
        writeln!(out, "| {} |", lines.join(" | "))?;
        Ok(MarkdownWriter { out, display: display.clone() })
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = for_people(&self.display)?;
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            write_row(&mut self.out, columns.iter().map(|column| Ok(column.value(row).try_to_string()?)))?;
        }
        Ok(())
    }
}

fn write_row(out: &mut impl Write, cells: impl Iterator<Item = Result<String>>) -> Result<()> {
    for cell in cells {
        let cell = escaped(&cell?).replace('\\', "\\\\").replace('|', "\\|").replace('\n', "<br>");
        write!(out, "| {cell} ")?;
    }
    Ok(writeln!(out, "|")?)
}

impl TextWriter for MarkdownWriter<Out> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        MarkdownWriter::rows(self, batch)
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
    fn bars_and_lines_in_texts_do_not_break_a_table() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a|b", "c\nd"]));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("a|b", texts)]).unwrap();
        let mut out = Vec::new();
        MarkdownWriter::new(&mut out, &batch.schema(), &FormatOptions::default())
            .unwrap()
            .rows(&batch)
            .unwrap();
        let expected = "| n | a\\|b |\n| --: | --- |\n| 1 | a\\|b |\n|  | c<br>d |\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
