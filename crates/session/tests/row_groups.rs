//! Row groups that filters on DataFusion's operators leave out: by bounds of writers that are known to be sound, and by no others.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

const GROUPS: i64 = 4;
const ROWS: i64 = 100_000;

/// A file of more than 4 MiB: `k` counts up, `v` is like nothing.
fn file(writer: Option<&str>) -> Vec<u8> {
    let mut properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(ROWS as usize));
    if let Some(writer) = writer {
        properties = properties.set_created_by(writer.into());
    }
    let rows = GROUPS * ROWS;
    let columns: [(&str, ArrayRef, bool); 2] = [
        ("k", Arc::new(Int64Array::from_iter_values(0..rows)), true),
        (
            "v",
            Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d)))),
            true,
        ),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Bytes of the footer get others, wherever they stand there.
fn replaced(bytes: &[u8], value: i64, instead: i64) -> Vec<u8> {
    let (value, instead) = (value.to_le_bytes(), instead.to_le_bytes());
    let mut bytes = bytes.to_vec();
    let end = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let mut found = 0;
    for at in end - length..end - value.len() {
        if bytes[at..].starts_with(&value) {
            bytes[at..at + value.len()].copy_from_slice(&instead);
            found += 1;
        }
    }
    assert!(found > 0, "the bound is not in the footer");
    bytes
}

async fn text(session: &KelpieSession, sql: &str) -> String {
    let result = session.sql(sql).await.unwrap();
    let rows = result.batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    let shown = rows.map(|(batch, row)| {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_leave_out_row_groups_by_bounds_that_are_sound() {
    let folder = TempDir::new().unwrap();
    let session = |enabled: &str| {
        let options = SessionOptions::default().with("kelpie.device", "cpu");
        KelpieSession::new(options.with("kelpie.enabled", enabled)).unwrap()
    };
    let (operators, compiled) = (session("false"), session("true"));
    let sound = file(None);
    assert!(sound.len() > 4 << 20);
    let (last, limit) = (GROUPS * ROWS - 1, ROWS - 1);
    let cases = [
        ("sound", sound.clone(), Some("1 matched")),
        ("spark", file(Some("parquet-mr version 1.13.1 (build x)")), Some("1 matched")),
        ("unknown", file(Some("somebody's writer")), None),
        ("old", file(Some("parquet-mr version 1.8.0")), None),
        // The least of a row group is greater than its greatest.
        ("reversed", replaced(&sound, limit, -7), None),
    ];
    for (name, bytes, matched) in cases {
        let path = folder.path().join(format!("{name}.parquet"));
        fs::write(&path, bytes).unwrap();
        let from = format!("from '{}' where k between 250000 and 250009", path.display());
        for session in [&operators, &compiled] {
            let counted = text(session, &format!("select count(*), count(v), min(k) {from}")).await;
            assert_eq!(counted, "10|10|250000", "{name}");
        }
        let shown = text(&operators, &format!("explain analyze select sum(v) {from}")).await;
        let pruned =
            shown.contains(&format!("row_groups_pruned_statistics={GROUPS} total \u{2192} 1 matched"));
        assert_eq!(pruned, matched.is_some(), "{name}: {shown}");
        // Nothing is answered by bounds, whoever wrote them.
        for session in [&operators, &compiled] {
            let extremes = text(session, &format!("select min(k), max(k) from '{}'", path.display())).await;
            assert_eq!(extremes, format!("0|{last}"), "{name}");
        }
    }
    // Bounds that lie without contradicting themselves are none of an answer either.
    let path = folder.path().join("lying.parquet");
    fs::write(&path, replaced(&sound, last, last + 5)).unwrap();
    let extremes = text(&operators, &format!("select max(k) from '{}'", path.display())).await;
    assert_eq!(extremes, last.to_string());
}
