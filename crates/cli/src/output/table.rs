//! A table of any width.

use std::io::Write;

use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::arrow::util::display::ArrayFormatter;
use datafusion::config::FormatOptions;
use unicode_width::UnicodeWidthStr;

use super::display::for_people;
use super::{Out, RowWriter};

/// Rows that are looked at before the width of the columns is fixed.
pub(super) const SAMPLE_ROWS: usize = 1000;
/// The same, in bytes of text.
pub(super) const SAMPLE_BYTES: usize = 1 << 20;

/// The columns are as wide as the first rows need; a wider value that comes later sticks out. Rows beyond `limit` are
/// counted and not shown.
pub struct TableWriter<W: Write> {
    out: W,
    display: FormatOptions,
    header: Vec<String>,
    limit: Option<usize>,
    sample: Vec<Vec<String>>,
    sample_bytes: usize,
    /// Set once the header is written.
    widths: Option<Vec<usize>>,
    rows: usize,
    shown: usize,
}

impl<W: Write> TableWriter<W> {
    pub fn new(out: W, schema: &SchemaRef, limit: Option<usize>, display: &FormatOptions) -> TableWriter<W> {
        let header = |field: &FieldRef| match display.types_info {
            true => format!("{}\n{}", escaped(field.name()), field.data_type()),
            false => escaped(field.name()),
        };
        TableWriter {
            header: schema.fields().iter().map(header).collect(),
            out,
            display: display.clone(),
            limit,
            sample: Vec::new(),
            sample_bytes: 0,
            widths: None,
            rows: 0,
            shown: 0,
        }
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        let left = self.limit.map_or(usize::MAX, |limit| limit - self.shown);
        if left == 0 {
            return Ok(());
        }
        let batch = batch.slice(0, batch.num_rows().min(left));
        let display = self.display.clone();
        let options = for_people(&display)?;
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| Ok(escaped(&column.value(row).try_to_string()?)));
            self.row(cells.collect::<Result<_>>()?)?;
        }
        self.shown += batch.num_rows();
        if self.limit == Some(self.shown) {
            // Counting the rest may take long.
            self.end_sample()?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn row(&mut self, cells: Vec<String>) -> Result<()> {
        if let Some(widths) = &self.widths {
            return write_row(&mut self.out, widths, &cells);
        }
        self.sample_bytes += cells.iter().map(String::len).sum::<usize>();
        self.sample.push(cells);
        if self.sample.len() >= SAMPLE_ROWS || self.sample_bytes >= SAMPLE_BYTES {
            self.end_sample()?;
        }
        Ok(())
    }

    /// Fixes the widths, and writes what has waited for them.
    fn end_sample(&mut self) -> Result<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let mut widths = vec![0; self.header.len()];
        for cells in std::iter::once(&self.header).chain(&self.sample) {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = cell.lines().map(|line| line.width()).max().unwrap_or(0).max(*width);
            }
        }
        write_border(&mut self.out, &widths)?;
        write_row(&mut self.out, &widths, &self.header)?;
        write_border(&mut self.out, &widths)?;
        for cells in std::mem::take(&mut self.sample) {
            write_row(&mut self.out, &widths, &cells)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.end_sample()?;
        if let (Some(widths), true) = (&self.widths, self.shown > 0) {
            write_border(&mut self.out, widths)?;
        }
        write_count(&mut self.out, self.rows, self.shown, "")
    }
}

impl RowWriter for TableWriter<Out> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows(batch)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}

/// The last line of a table: its rows, those that are shown where these are fewer, and what else is to be said.
pub(super) fn write_count(out: &mut impl Write, rows: usize, shown: usize, more: &str) -> Result<()> {
    let plural = if rows == 1 { "" } else { "s" };
    match rows > shown {
        true => writeln!(out, "… {rows} row{plural}, {shown} shown{more}")?,
        false => writeln!(out, "{rows} row{plural}{more}")?,
    }
    Ok(out.flush()?)
}

fn write_border(out: &mut impl Write, widths: &[usize]) -> Result<()> {
    for width in widths {
        write!(out, "+")?;
        repeat(out, b'-', width + 2)?;
    }
    Ok(writeln!(out, "+")?)
}

/// Writes a byte as often as is asked; formatting has no widths beyond 65,535.
fn repeat(out: &mut impl Write, byte: u8, mut count: usize) -> Result<()> {
    let line = [byte; 256];
    while count > 0 {
        let written = count.min(line.len());
        out.write_all(&line[..written])?;
        count -= written;
    }
    Ok(())
}

/// A row is as high as its highest cell.
fn write_row(out: &mut impl Write, widths: &[usize], cells: &[String]) -> Result<()> {
    let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
    let mut lines: Vec<_> = cells.iter().map(|cell| cell.lines()).collect();
    for _ in 0..height {
        for (lines, width) in lines.iter_mut().zip(widths) {
            let text = lines.next().unwrap_or("");
            write!(out, "| {text}")?;
            repeat(out, b' ', width.saturating_sub(text.width()) + 1)?;
        }
        writeln!(out, "|")?;
    }
    Ok(())
}

/// Control characters would move the cursor or change the terminal, so they are shown as `\x1b`, `\t` and the like;
/// characters that turn the direction of text as `\u{202e}`. Line feeds stay: a cell may have lines.
pub fn escaped(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(|c: char| (c.is_control() && c != '\n') || turns(c)) {
        return text.to_string();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push(c),
            '\t' | '\r' => shown.extend(c.escape_default()),
            c if turns(c) => shown.extend(c.escape_unicode()),
            c if c.is_control() => shown.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use std::sync::Arc;

    fn table(batches: &[RecordBatch], limit: Option<usize>) -> String {
        let mut out = Vec::new();
        let mut writer = TableWriter::new(&mut out, &batches[0].schema(), limit, &FormatOptions::default());
        for batch in batches {
            writer.rows(batch).unwrap();
        }
        writer.end().unwrap();
        drop(writer);
        String::from_utf8(out).unwrap()
    }

    fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    #[test]
    fn a_table_looks_as_arrow_prints_it() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(-300)]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["two\nlines", "日本", ""]));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("text", text)]).unwrap();
        let expected = format!("{}\n3 rows\n", pretty_format_batches(std::slice::from_ref(&batch)).unwrap());
        assert_eq!(table(std::slice::from_ref(&batch), None), expected);
        assert_eq!(table(&[batch.slice(0, 0)], None), "+---+------+\n| n | text |\n+---+------+\n0 rows\n");
    }

    #[test]
    fn rows_beyond_the_limit_are_counted() {
        for (limit, shown) in [(Some(3), 3), (Some(4), 4), (Some(5), 5), (None, 5), (Some(9), 5)] {
            let text = table(&[numbers(0..4), numbers(4..5)], limit);
            assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), shown + 1, "{text}");
            let end = if shown == 5 { "5 rows\n".into() } else { format!("… 5 rows, {shown} shown\n") };
            assert!(text.ends_with(&end), "{text}");
        }
    }

    #[test]
    fn widths_are_fixed_after_the_first_rows() {
        let text = table(&[numbers(0..1000), numbers(1000..1001), numbers(1_000_000..1_000_001)], None);
        assert!(text.contains("| 999 |\n| 1000 |\n| 1000000 |\n+-----+\n1002 rows"), "{text}");
    }

    #[test]
    fn a_cell_may_be_wider_than_formatting_knows() {
        for width in [65_533, 65_536, 200_000] {
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(width), "y".into()]));
            let text = table(&[RecordBatch::try_from_iter([("text", texts)]).unwrap()], None);
            assert!(text.lines().take(6).all(|line| line.len() == width + 4), "{width}");
        }
    }

    #[test]
    fn what_would_change_the_terminal_is_shown() {
        assert_eq!(escaped("a\u{1b}[31mb\tc\r\nd\u{202e}é\u{7}"), "a\\x1b[31mb\\tc\\r\nd\\u{202e}é\\x07");
    }
}
