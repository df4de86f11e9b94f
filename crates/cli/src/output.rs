//! Writes results: to the standard output or a file, in any of the formats.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::parquet::arrow::ArrowWriter;

use crate::args::Format;

/// Where results go. A file is made when the first result is there: a query that fails replaces nothing.
pub struct Output {
    format: Format,
    path: Option<PathBuf>,
    file: Option<BufWriter<File>>,
    results: usize,
}

impl Output {
    pub fn new(format: Format, path: Option<PathBuf>) -> Output {
        Output { format, path, file: None, results: 0 }
    }

    /// Writes a result. One without columns (of `SET`, `CREATE TABLE`) is nothing.
    pub fn write(&mut self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<()> {
        if schema.fields().is_empty() {
            return Ok(());
        }
        let binary = matches!(self.format, Format::Parquet | Format::Arrow);
        if binary && self.results > 0 {
            bail!("a Parquet or Arrow file holds one result: run one query");
        }
        if binary && self.path.is_none() && io::stdout().is_terminal() {
            bail!("this format is not for a terminal: give --output FILE, or redirect the output");
        }
        self.results += 1;
        match &self.path {
            None => {
                let mut stdout = BufWriter::new(io::stdout());
                write_result(self.format, schema, batches, &mut stdout)?;
                stdout.flush().context("cannot write to the standard output")
            }
            Some(path) => {
                let name = || format!("cannot write {}", path.display());
                let file = match &mut self.file {
                    Some(file) => file,
                    None => self.file.insert(BufWriter::new(File::create(path).with_context(name)?)),
                };
                write_result(self.format, schema, batches, &mut *file).with_context(name)?;
                file.flush().with_context(name)
            }
        }
    }
}

fn write_result(
    format: Format,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    out: &mut (dyn Write + Send),
) -> Result<()> {
    match format {
        Format::Table => {
            let table = pretty_format_batches_with_schema(schema.clone(), batches)?;
            writeln!(out, "{table}")?;
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            writeln!(out, "{rows} row{}", if rows == 1 { "" } else { "s" })?;
            Ok(())
        }
        Format::Csv => write_csv(schema, batches, out),
        Format::Json => {
            let builder = WriterBuilder::new().with_explicit_nulls(true);
            let mut writer = builder.build::<_, LineDelimited>(out);
            for batch in batches {
                writer.write(batch)?;
            }
            Ok(writer.finish()?)
        }
        Format::Parquet => {
            let mut writer = ArrowWriter::try_new(out, schema.clone(), None)?;
            for batch in batches {
                writer.write(batch)?;
            }
            writer.close()?;
            Ok(())
        }
        Format::Arrow => {
            let mut writer = FileWriter::try_new(out, schema)?;
            for batch in batches {
                writer.write(batch)?;
            }
            Ok(writer.finish()?)
        }
    }
}

/// A header and a line a row, quoted as RFC 4180 says. NULL is empty; empty text is `""`, so that the two differ.
fn write_csv(schema: &SchemaRef, batches: &[RecordBatch], out: &mut dyn Write) -> Result<()> {
    let header: Vec<String> = schema.fields().iter().map(|f| csv_field(f.name())).collect();
    writeln!(out, "{}", header.join(","))?;
    let options = FormatOptions::default();
    let mut line = String::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column.as_ref(), ArrayFormatter::try_new(column.as_ref(), &options)?)))
            .collect::<Result<Vec<(&dyn Array, ArrayFormatter<'_>)>>>()?;
        for row in 0..batch.num_rows() {
            line.clear();
            for (index, (column, formatter)) in columns.iter().enumerate() {
                if index > 0 {
                    line.push(',');
                }
                // The null type has no validity bitmap.
                if column.is_valid(row) && *column.data_type() != DataType::Null {
                    line.push_str(&csv_field(&formatter.value(row).try_to_string()?));
                }
            }
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn csv_field(text: &str) -> String {
    if text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float64Array, NullArray, StringArray};
    use std::sync::Arc;

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
        let mut out = Vec::new();
        write_csv(&batch.schema(), std::slice::from_ref(&batch), &mut out).unwrap();
        let expected = "\"a \"\"b\"\"\",n,z\n\"a,b\",0.5,\n\"say \"\"x\"\"\",-0.0,\n\"two\nlines\",NaN,\n\"\",,\n,1e300,\nü,2.0,\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
