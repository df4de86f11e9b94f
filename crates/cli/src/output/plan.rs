//! The rows of EXPLAIN on a terminal: plain text.

use std::io::Write;

use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::table::escaped;
use super::{Out, TextWriter};

/// A line that goes on is so much further in.
const FURTHER: usize = 4;

/// A title for each kind of plan, and its lines, which go on in further ones where the terminal ends.
pub struct PlanWriter<W: Write> {
    out: W,
    width: usize,
}

impl<W: Write> PlanWriter<W> {
    /// Whether the columns are those of EXPLAIN.
    pub fn is_for(schema: &SchemaRef) -> bool {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        names == ["plan_type", "plan"]
    }

    pub fn new(out: W, width: usize) -> PlanWriter<W> {
        PlanWriter { out, width }
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = FormatOptions::default();
        let formatters = columns.iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            for (column, formatter) in formatters.iter().enumerate() {
                let text = escaped(&formatter.value(row).try_to_string()?);
                let text = text.trim_end();
                self.text(&if column == 0 { format!("{text}:") } else { text.to_string() })?;
            }
        }
        Ok(())
    }

    /// Writes text line by line.
    pub fn text(&mut self, text: &str) -> Result<()> {
        text.lines().try_for_each(|line| self.line(line))
    }

    /// A line in as many as it takes, cut after blanks where there are some.
    fn line(&mut self, line: &str) -> Result<()> {
        // Bars before a line go on, as they hold together what is compiled.
        let own = line.len() - line.trim_start_matches([' ', '|']).len();
        let further =
            format!("{}{}", &line[..own.min(self.width / 2)], " ".repeat(FURTHER.min(self.width / 4)));
        let mut rest = line.to_string();
        while rest.width() > self.width {
            let end = self.end_of_line(&rest, further.len());
            writeln!(self.out, "{}", rest[..end].trim_end())?;
            rest = format!("{further}{}", rest[end..].trim_start());
        }
        Ok(writeln!(self.out, "{rest}")?)
    }

    /// The bytes of a text that fit: up to the last blank, unless that leaves little.
    fn end_of_line(&self, text: &str, indent: usize) -> usize {
        let (mut used, mut last_blank, mut end) = (0, 0, 0);
        for (position, letter) in text.char_indices() {
            used += letter.width().unwrap_or(0);
            if used > self.width && end > indent {
                break;
            }
            end = position + letter.len_utf8();
            if letter == ' ' {
                last_blank = end;
            }
        }
        if last_blank > (indent + end) / 2 { last_blank } else { end }
    }
}

impl TextWriter for PlanWriter<Out> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        PlanWriter::rows(self, batch)
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, StringArray};
    use std::sync::Arc;

    #[test]
    fn a_plan_is_text_no_wider_than_the_terminal() {
        let kinds: ArrayRef = Arc::new(StringArray::from(vec!["physical_plan"]));
        let plan = "ProjectionExec: expr=[a@0 as a, b@1 as b]\n  DataSourceExec: file_groups={1 group: [[some/folder/table.parquet]]}";
        let plans: ArrayRef = Arc::new(StringArray::from(vec![plan]));
        let batch = RecordBatch::try_from_iter([("plan_type", kinds), ("plan", plans)]).unwrap();
        assert!(PlanWriter::<Vec<u8>>::is_for(&batch.schema()));
        for width in [5, 20, 40, 80] {
            let mut out = Vec::new();
            PlanWriter::new(&mut out, width).rows(&batch).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(width < 20 || text.lines().all(|line| line.width() <= width), "{text}");
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(letters(&text), letters(&format!("physical_plan:{plan}")), "{width}");
        }
    }
}
