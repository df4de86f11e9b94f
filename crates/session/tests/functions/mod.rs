//! Functions and operators that are compiled, one by one, against plain DataFusion; and that only DataFusion's own
//! implementations are taken for what their names say.

mod durations;
mod left;
mod lists;
mod numbers;
mod texts;

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::testing::{Generated, Outcome, compare};
use kelpie_session::{KelpieSession, SessionOptions};

fn pair(device: &[(&str, &str)]) -> (SessionContext, KelpieSession) {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    // DataFusion as it is, compiled or not.
    let options = SessionOptions::default().with("kelpie.corrections", "false");
    let mut options = options.with("kelpie.fallback", "allow");
    for (name, value) in device {
        options = options.with(*name, *value);
    }
    (plain, KelpieSession::new(options).unwrap())
}

const DEVICES: [&[(&str, &str)]; 2] =
    [&[("kelpie.device", "cpu")], &[("kelpie.device", "simt"), ("kelpie.simt_lanes", "32")]];

fn register(plain: &SessionContext, kelpie: &KelpieSession, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let table = Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap());
    plain.register_table(name, Arc::clone(&table) as _).unwrap();
    kelpie.context().register_table(name, table).unwrap();
}

/// Columns of many types with their extremes and NULLs.
fn numbers(plain: &SessionContext, kelpie: &KelpieSession) {
    let longs = [0, 1, -1, 7, -8, i64::MAX, i64::MIN, 1 << 40, 63, 64, 65, -65];
    let long = |step: usize| -> Vec<Option<i64>> {
        (0..36).map(|row| (row % 11 != 3).then(|| longs[row * step % longs.len()])).collect()
    };
    let (i, j) = (long(1), long(5));
    let floats = [0.0, -0.0, 1.5, -2.25, f64::NAN, -f64::NAN, f64::INFINITY, -1e300, 123.456, -0.5, 1e-300];
    let float = |step: usize| -> Vec<Option<f64>> {
        (0..36).map(|row| (row % 7 != 2).then(|| floats[row * step % floats.len()])).collect()
    };
    let (f, g) = (float(1), float(3));
    let decimal = |step: usize, precision, scale| {
        let values = (0..36).map(|row| (row % 5 != 1).then(|| ((row * step) as i128 - 50) * 98_765_431));
        Decimal128Array::from_iter(values).with_precision_and_scale(precision, scale).unwrap()
    };
    let days = (0..36).map(|row| (row % 9 != 4).then(|| row * 157 - 2000));
    register(
        plain,
        kelpie,
        "n",
        vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..36))),
            ("i", Arc::new(Int64Array::from(i.clone()))),
            ("j", Arc::new(Int64Array::from(j.clone()))),
            ("i8", Arc::new(Int8Array::from_iter(i.iter().map(|v| v.map(|v| v as i8))))),
            ("j8", Arc::new(Int8Array::from_iter(j.iter().map(|v| v.map(|v| v as i8))))),
            ("u8", Arc::new(UInt8Array::from_iter(i.iter().map(|v| v.map(|v| v as u8))))),
            ("u64", Arc::new(UInt64Array::from_iter(i.iter().map(|v| v.map(|v| v as u64))))),
            ("v64", Arc::new(UInt64Array::from_iter(j.iter().map(|v| v.map(|v| v as u64))))),
            ("i32", Arc::new(Int32Array::from_iter(i.iter().map(|v| v.map(|v| v as i32))))),
            ("f", Arc::new(Float64Array::from(f.clone()))),
            ("g", Arc::new(Float64Array::from(g))),
            ("f32", Arc::new(Float32Array::from_iter(f.iter().map(|v| v.map(|v| v as f32))))),
            ("d", Arc::new(decimal(3, 20, 4))),
            ("e", Arc::new(decimal(7, 20, 4))),
            ("day", Arc::new(Date32Array::from_iter(days.clone()))),
            (
                "b",
                Arc::new(BooleanArray::from_iter((0..36).map(|row| (row % 4 != 1).then_some(row % 3 == 0)))),
            ),
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from_iter(
                    days.map(|day| day.map(|day| i64::from(day) * 86_400_000_000 + 12_345_678)),
                )),
            ),
        ],
    );
}

fn words(plain: &SessionContext, kelpie: &KelpieSession) {
    let words = [Some("a.b.c"), None, Some(""), Some("..."), Some("x"), Some("\u{e9}.z"), Some("aaa")];
    let word = |step: usize| StringArray::from_iter((0..21).map(|row| words[row * step % words.len()]));
    register(
        plain,
        kelpie,
        "w",
        vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..21))),
            ("s", Arc::new(word(1))),
            ("o", Arc::new(word(2))),
            ("p", Arc::new(Int64Array::from_iter((0..21).map(|row| (row % 5 != 2).then_some(row % 4 + 1))))),
            (
                "q",
                Arc::new(Int64Array::from_iter((0..21).map(|row| (row % 5 != 2).then_some(-(row % 4) - 1)))),
            ),
            ("z", Arc::new(Int64Array::from_iter((0..21).map(|row| Some(row - 10))))),
            ("none", Arc::new(StringArray::new_null(21))),
        ],
    );
}

/// Each expression as a result, and the number of rows in which it is not NULL, on every device.
async fn agree(table: &str, expressions: &[&str], setup: fn(&SessionContext, &KelpieSession)) {
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        setup(&plain, &kelpie);
        for expression in expressions {
            let sql = format!("SELECT id, {expression} FROM {table}");
            match compare(&plain, &kelpie, &Generated { sql: sql.clone(), ordered: false }).await {
                Outcome::Equal { compiled: true, .. } => {}
                other => panic!("{device:?} {sql}: {other:?}"),
            }
        }
    }
}

/// What a query gives on both, or that both fail.
async fn same(plain: &SessionContext, kelpie: &KelpieSession, sql: &str) {
    let query = Generated { sql: sql.into(), ordered: false };
    match compare(plain, kelpie, &query).await {
        Outcome::Equal { .. } | Outcome::BothFailed(_) => {}
        other => panic!("{sql}: {other:?}"),
    }
}
