//! TPC-H data as Parquet, by `tpchgen-arrow`.

use anyhow::Result;
use datafusion::arrow::array::RecordBatchReader;
use datafusion::arrow::datatypes::SchemaRef;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::output::{
    Batches, GenerateOptions, Part, ROWS_PER_BATCH, Table, WrittenTable, check_options, part_count,
    write_tables,
};

/// Writes the tables of TPC-H: the standard data of the scale factor, whatever the number of threads.
pub fn generate(options: &GenerateOptions<'_>) -> Result<Vec<WrittenTable>> {
    check_options(options, &super::TABLES, 100_000.0)?;
    write_tables(&tables(options.scale), options)
}

/// A table whose parts are made by a generator: `(scale, part from 1, parts)`.
fn table<R, F>(name: &'static str, schema: SchemaRef, rows: f64, scale: f64, make: F) -> Table
where
    R: RecordBatchReader + 'static,
    F: Fn(f64, i32, i32) -> R + Copy + Send + Sync + 'static,
{
    let rows = rows.ceil() as u64;
    let count = part_count(rows) as i32;
    let part = |number: i32| Part {
        rows: rows / count as u64,
        batches: Box::new(move || -> Batches { Box::new(make(scale, number, count)) }),
    };
    Table { name, schema, parts: (1..=count).map(part).collect() }
}

macro_rules! scaled {
    ($name:literal, $generator:ident, $arrow:ident, $rows_at_1:expr, $scale:expr) => {
        table($name, $arrow::schema_ref(), $rows_at_1 * $scale, $scale, |scale, part, parts| {
            $arrow::new($generator::new(scale, part, parts)).with_batch_size(ROWS_PER_BATCH)
        })
    };
}

fn tables(scale: f64) -> Vec<Table> {
    vec![
        // Their sizes do not depend on the scale.
        scaled!("region", RegionGenerator, RegionArrow, 5.0 / scale, scale),
        scaled!("nation", NationGenerator, NationArrow, 25.0 / scale, scale),
        scaled!("supplier", SupplierGenerator, SupplierArrow, 10_000.0, scale),
        scaled!("customer", CustomerGenerator, CustomerArrow, 150_000.0, scale),
        scaled!("part", PartGenerator, PartArrow, 200_000.0, scale),
        scaled!("partsupp", PartSuppGenerator, PartSuppArrow, 800_000.0, scale),
        scaled!("orders", OrderGenerator, OrderArrow, 1_500_000.0, scale),
        scaled!("lineitem", LineItemGenerator, LineItemArrow, 6_001_215.0, scale),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn generate_in(folder: &std::path::Path, scale: f64, tables: &[String]) -> Result<Vec<WrittenTable>> {
        generate(&GenerateOptions {
            scale,
            output: folder,
            tables,
            threads: 2,
            replace: false,
            progress: &|_| {},
        })
    }

    #[test]
    fn the_tables_have_the_standard_cardinalities() {
        let folder = tempfile::tempdir().unwrap();
        let last = Mutex::new((0, 0));
        let calls = AtomicU64::new(0);
        let written = generate(&GenerateOptions {
            scale: 0.01,
            output: folder.path(),
            tables: &[],
            threads: 3,
            replace: false,
            progress: &|p| {
                calls.fetch_add(1, Ordering::Relaxed);
                let mut last = last.lock().unwrap();
                *last = (last.0.max(p.rows_done), p.rows_expected);
            },
        })
        .unwrap();
        let rows: HashMap<&str, u64> = written.iter().map(|t| (t.name, t.rows)).collect();
        let expected = [
            ("region", 5),
            ("nation", 25),
            ("supplier", 100),
            ("customer", 1500),
            ("part", 2000),
            ("partsupp", 8000),
            ("orders", 15000),
            ("lineitem", 60175),
        ];
        assert_eq!(rows, HashMap::from(expected));
        let (done, total) = *last.lock().unwrap();
        assert_eq!(done, rows.values().sum::<u64>());
        assert!(done.abs_diff(total) * 100 < total, "{done} of {total}");
        assert!(calls.load(Ordering::Relaxed) > 8);
        for table in &super::super::TABLES {
            let bytes = std::fs::metadata(folder.path().join(format!("{table}.parquet"))).unwrap().len();
            assert_eq!(bytes, written.iter().find(|t| t.name == *table).unwrap().bytes);
        }
    }

    #[test]
    fn parts_join_to_the_same_table() {
        let whole = scaled!("orders", OrderGenerator, OrderArrow, 1_500_000.0, 0.001);
        let rows = |part: i32, parts: i32| -> Vec<String> {
            OrderArrow::new(OrderGenerator::new(0.001, part, parts))
                .map(|b| format!("{:?}", b.unwrap().column(0)))
                .collect()
        };
        assert_eq!(whole.parts.len(), 1);
        let count = |part, parts| -> usize {
            OrderArrow::new(OrderGenerator::new(0.001, part, parts)).map(|b| b.unwrap().num_rows()).sum()
        };
        assert_eq!(count(1, 1), count(1, 4) + count(2, 4) + count(3, 4) + count(4, 4));
        assert_ne!(rows(1, 2), rows(2, 2));
    }

    #[test]
    fn bad_options_and_unwritable_places_are_errors_that_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let text = |r: Result<Vec<WrittenTable>>| format!("{:#}", r.unwrap_err());
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(text(generate_in(folder.path(), scale, &[])).contains("scale factor"));
        }
        let error = text(generate_in(folder.path(), 0.01, &["lines".into()]));
        assert!(error.contains("`lines`") && error.contains("lineitem"), "{error}");
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(text(generate_in(&file, 0.01, &[])).contains("file"));
        let chosen = ["region".to_string()];
        generate_in(folder.path(), 0.01, &chosen).unwrap();
        let error = text(generate_in(folder.path(), 0.01, &chosen));
        assert!(error.contains("region.parquet exists already"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_names_the_file_and_leaves_no_half_table() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("nation.parquet.tmp")).unwrap();
        let error = format!("{:#}", generate_in(folder.path(), 0.01, &["nation".into()]).unwrap_err());
        assert!(error.contains("nation.parquet") && error.contains("No space left"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
