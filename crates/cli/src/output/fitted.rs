//! A table for people, as wide as their terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::util::display::ArrayFormatter;
use datafusion::config::FormatOptions;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::display::{for_people, is_null, type_name};
use super::layout::{Slot, Wanted, fitted};
use super::table::{SAMPLE_BYTES, SAMPLE_ROWS, escaped, write_count};
use super::{Out, RowWriter};

/// What is shown of a value that is longer than its column, and of columns that are left out.
const CUT: &str = "…";
/// Rows that come so long after the first are not waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Faint, and plain again.
const FAINT: [&str; 2] = ["\x1b[2m", "\x1b[0m"];

/// How a table is fitted.
#[derive(Debug, Clone, Copy)]
pub struct Fit {
    /// Places of the terminal, or what the user wants.
    pub width: usize,
    /// Rows that are shown; the others are counted.
    pub row_limit: Option<usize>,
    /// Whether types and NULL are faint.
    pub is_coloured: bool,
}

struct Column {
    name: String,
    type_name: String,
    is_number: bool,
    /// Whether a part of a value is another value.
    is_whole: bool,
}

/// A value as it is shown.
struct Cell {
    text: String,
    is_null: bool,
}

/// The columns are as wide as the first rows need and the terminal has room for: long texts are cut, columns in the middle are
/// left out, and both are said. A row is one line.
pub struct FittedWriter<W: Write> {
    out: W,
    display: FormatOptions,
    columns: Vec<Column>,
    fit: Fit,
    sample: Vec<Vec<Cell>>,
    sample_bytes: usize,
    /// When the first row came.
    first: Option<Instant>,
    /// Set once the header is written.
    slots: Option<Vec<Slot>>,
    rows: usize,
    shown: usize,
}

impl<W: Write> FittedWriter<W> {
    pub fn new(out: W, schema: &SchemaRef, fit: Fit, display: &FormatOptions) -> FittedWriter<W> {
        let columns = schema.fields().iter().map(|field| {
            let data_type = field.data_type();
            let is_whole =
                data_type.is_numeric() || data_type.is_temporal() || *data_type == DataType::Boolean;
            Column {
                name: on_one_line(field.name()),
                type_name: type_name(data_type),
                is_number: data_type.is_numeric(),
                is_whole,
            }
        });
        let mut display = display.clone();
        if display.null.is_empty() {
            display.null = "NULL".into();
        }
        FittedWriter {
            out,
            display,
            columns: columns.collect(),
            fit,
            sample: Vec::new(),
            sample_bytes: 0,
            first: None,
            slots: None,
            rows: 0,
            shown: 0,
        }
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        let left = self.fit.row_limit.map_or(usize::MAX, |limit| limit - self.shown);
        if left == 0 || batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = batch.slice(0, batch.num_rows().min(left));
        let display = self.display.clone();
        let options = for_people(&display)?;
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column.as_ref(), ArrayFormatter::try_new(column.as_ref(), &options)?)));
        let columns = columns.collect::<Result<Vec<(&dyn Array, _)>>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|(column, formatter)| {
                let text = on_one_line(&formatter.value(row).try_to_string()?);
                Ok(Cell { text, is_null: is_null(*column, row) })
            });
            self.row(cells.collect::<Result<_>>()?)?;
        }
        self.shown += batch.num_rows();
        let is_late = self.first.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
        // Whoever looks on sees what there is; counting the rest may take long.
        if self.fit.row_limit == Some(self.shown) || is_late || self.slots.is_some() {
            self.end_sample()?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn row(&mut self, cells: Vec<Cell>) -> Result<()> {
        if self.slots.is_some() {
            return self.write_cells(&cells, false);
        }
        self.sample_bytes += cells.iter().map(|cell| cell.text.len()).sum::<usize>();
        self.sample.push(cells);
        if self.sample.len() >= SAMPLE_ROWS || self.sample_bytes >= SAMPLE_BYTES {
            self.end_sample()?;
        }
        Ok(())
    }

    /// Fixes the widths, and writes what has waited for them.
    fn end_sample(&mut self) -> Result<()> {
        if self.slots.is_some() {
            return Ok(());
        }
        let wanted = self.columns.iter().enumerate().map(|(index, column)| Wanted {
            header: column.name.width().max(column.type_name.width()),
            values: self.sample.iter().map(|cells| cells[index].text.width()).max().unwrap_or(0),
            is_whole: column.is_whole,
        });
        self.slots = Some(fitted(&wanted.collect::<Vec<_>>(), self.fit.width));
        self.write_border()?;
        let cell = |text: &String, is_null| Cell { text: text.clone(), is_null };
        let names: Vec<Cell> = self.columns.iter().map(|column| cell(&column.name, false)).collect();
        let types: Vec<Cell> = self.columns.iter().map(|column| cell(&column.type_name, true)).collect();
        self.write_cells(&names, true)?;
        self.write_cells(&types, true)?;
        self.write_border()?;
        for cells in std::mem::take(&mut self.sample) {
            self.write_cells(&cells, false)?;
        }
        Ok(())
    }

    fn write_border(&mut self) -> Result<()> {
        for slot in self.slots.iter().flatten() {
            let width = if let Slot::Column { width, .. } = slot { *width } else { CUT.width() };
            write!(self.out, "+{}", "-".repeat(width + 2))?;
        }
        Ok(writeln!(self.out, "+")?)
    }

    fn write_cells(&mut self, cells: &[Cell], is_header: bool) -> Result<()> {
        for slot in self.slots.iter().flatten() {
            let Slot::Column { index, width } = *slot else {
                write!(self.out, "| {CUT} ")?;
                continue;
            };
            let (Some(cell), Some(column)) = (cells.get(index), self.columns.get(index)) else { continue };
            // A number that is cut is no number: one that comes late, and is wider than all before, sticks out.
            let text = match column.is_whole && !is_header {
                true => cell.text.clone(),
                false => cut(&cell.text, width),
            };
            let blanks = " ".repeat(width.saturating_sub(text.width()));
            let (before, after) =
                if column.is_number { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
            let [faint, plain] = if cell.is_null && self.fit.is_coloured { FAINT } else { ["", ""] };
            write!(self.out, "| {before}{faint}{text}{plain}{after} ")?;
        }
        Ok(writeln!(self.out, "|")?)
    }

    fn end(&mut self) -> Result<()> {
        self.end_sample()?;
        if self.shown > 0 {
            self.write_border()?;
        }
        let slots = self.slots.iter().flatten();
        let shown = slots.filter(|slot| matches!(slot, Slot::Column { .. })).count();
        let all = self.columns.len();
        let of_columns = if shown < all { format!("; {all} columns, {shown} shown") } else { String::new() };
        write_count(&mut self.out, self.rows, self.shown, &of_columns)
    }
}

impl RowWriter for FittedWriter<Out> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows(batch)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}

/// Text as one line: line feeds are shown as `\n`, as other control characters are.
fn on_one_line(text: &str) -> String {
    let text = escaped(text);
    if text.contains('\n') { text.replace('\n', "\\n") } else { text }
}

/// A text in a width, with a sign at its end where it is cut.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let (mut kept, mut used) = (String::new(), CUT.width());
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(letter);
    }
    kept + CUT
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn table(batch: &RecordBatch, width: usize, row_limit: Option<usize>) -> String {
        let (mut out, fit) = (Vec::new(), Fit { width, row_limit, is_coloured: false });
        let mut writer = FittedWriter::new(&mut out, &batch.schema(), fit, &FormatOptions::default());
        writer.rows(batch).unwrap();
        writer.end().unwrap();
        drop(writer);
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
        text
    }

    fn people() -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(-1234)]));
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("日本"), Some(""), None]));
        let notes: ArrayRef = Arc::new(StringArray::from(vec![
            "two\nlines",
            "a note that is so long that nobody would want to read all of it in a table",
            "x",
        ]));
        let shares: ArrayRef = Arc::new(Float64Array::from(vec![0.25, f64::NAN, 1e300]));
        RecordBatch::try_from_iter([("id", ids), ("name", names), ("note", notes), ("share", shares)])
            .unwrap()
    }

    #[test]
    fn a_table_fits_into_its_width() {
        let expected = "\
+--------+---------+-----------------+--------+
|     id | name    | note            |  share |
| bigint | varchar | varchar         | double |
+--------+---------+-----------------+--------+
|      7 | 日本    | two\\nlines      |   0.25 |
|   NULL |         | a note that is… |    NaN |
|  -1234 | NULL    | x               |  1e300 |
+--------+---------+-----------------+--------+
3 rows
";
        assert_eq!(table(&people(), 47, None), expected);
        let wide = table(&people(), 120, Some(2));
        assert!(
            wide.contains("read all of it in a table |") && wide.ends_with("… 3 rows, 2 shown\n"),
            "{wide}"
        );
        assert_eq!(table(&people().slice(0, 0), 80, None).lines().last(), Some("0 rows"));
    }

    #[test]
    fn columns_that_do_not_fit_are_said() {
        let column = |number: usize| -> (String, ArrayRef) {
            (format!("column_{number}"), Arc::new(Int64Array::from(vec![number as i64 * 1_000_000])))
        };
        let batch = RecordBatch::try_from_iter((1..=30).map(column)).unwrap();
        for (width, shown) in [(40, 3), (80, 6), (100, 8)] {
            let text = table(&batch, width, None);
            assert!(text.contains("| … |") && text.contains("30000000"), "{text}");
            assert!(text.ends_with(&format!("1 row; 30 columns, {shown} shown\n")), "{text}");
        }
    }

    #[test]
    fn texts_are_cut_by_their_width() {
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 1), "…");
    }
}
