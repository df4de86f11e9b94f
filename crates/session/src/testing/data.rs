//! Tables with a column of every type that Kelpie compiles.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::error::Result;
use fastrand::Rng;

const ROWS: usize = 1000;
const WORDS: [&str; 14] = [
    "",
    "a",
    "A",
    "abc",
    "Abc",
    "hello world",
    "100%",
    "under_score",
    "naïve",
    "日本語",
    "ẞtraße",
    "😀 smile",
    "zz top",
    "a long string that does not fit any short-string optimisation at all",
];

/// Tables `t` (a thousand rows in three batches), `one` (a row) and `none` (no row), of one schema.
pub fn tables(seed: u64) -> Result<Vec<(&'static str, Vec<RecordBatch>)>> {
    let mut rng = Rng::with_seed(seed ^ 0x7ab1e5);
    let full = batch(&mut rng, ROWS)?;
    let parts = [(0, 300), (300, 1), (301, ROWS - 301)];
    let parts = parts.into_iter().map(|(start, rows)| full.slice(start, rows)).collect();
    let one = batch(&mut rng, 1)?;
    let none = full.slice(0, 0);
    Ok(vec![("t", parts), ("one", vec![one]), ("none", vec![none])])
}

fn column<T>(rng: &mut Rng, rows: usize, mut value: impl FnMut(&mut Rng) -> T) -> Vec<Option<T>> {
    (0..rows).map(|_| (rng.u8(0..8) != 0).then(|| value(rng))).collect()
}

fn pick<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.usize(0..values.len())]
}

fn decimal(rng: &mut Rng, rows: usize, limit: i128, precision: u8, scale: i8) -> Result<Decimal128Array> {
    let values = column(rng, rows, |r| match r.u8(0..20) {
        0 => limit,
        1 => -limit,
        2 => 0,
        _ => r.i128(-limit..=limit),
    });
    Ok(Decimal128Array::from(values).with_precision_and_scale(precision, scale)?)
}

/// Text columns: any word, and five words of ASCII.
fn text(rng: &mut Rng, rows: usize) -> (ArrayRef, ArrayRef) {
    let any: StringArray = column(rng, rows, |r| pick(r, &WORDS)).into_iter().collect();
    let few: StringArray = column(rng, rows, |r| pick(r, &WORDS[1..6])).into_iter().collect();
    (Arc::new(any), Arc::new(few))
}

fn batch(rng: &mut Rng, n: usize) -> Result<RecordBatch> {
    const DAY_MICROSECONDS: i64 = 86_400_000_000;
    let (s, g) = text(rng, n);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.5, -2.25, 1e300, 5e-324];
    let wide = [i64::MIN, i64::MAX, 0, -1, 1];
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("b", Arc::new(BooleanArray::from(column(rng, n, Rng::bool))), true),
        ("i8", Arc::new(Int8Array::from(column(rng, n, |r| r.i8(..)))), true),
        ("i16", Arc::new(Int16Array::from(column(rng, n, |r| r.i16(..)))), true),
        ("i32", Arc::new(Int32Array::from(column(rng, n, |r| r.i32(-100_000..100_000)))), true),
        ("i64", Arc::new(Int64Array::from(column(rng, n, |r| r.i64(-1_000_000_000..1_000_000_000)))), true),
        (
            "w64",
            Arc::new(Int64Array::from(column(rng, n, |r| match r.u8(0..4) {
                0 => pick(r, &wide),
                _ => r.i64(..),
            }))),
            true,
        ),
        ("u8", Arc::new(UInt8Array::from(column(rng, n, |r| r.u8(..)))), true),
        ("u16", Arc::new(UInt16Array::from(column(rng, n, |r| r.u16(..)))), true),
        ("u32", Arc::new(UInt32Array::from(column(rng, n, |r| r.u32(..)))), true),
        ("u64", Arc::new(UInt64Array::from(column(rng, n, |r| r.u64(..)))), true),
        ("f32", Arc::new(Float32Array::from(column(rng, n, |r| r.i32(-4000..4000) as f32 / 4.0))), true),
        ("f64", Arc::new(Float64Array::from(column(rng, n, |r| r.f64() * 2000.0 - 1000.0))), true),
        ("fx", Arc::new(Float64Array::from(column(rng, n, |r| pick(r, &special)))), true),
        ("d5", Arc::new(decimal(rng, n, 99_999, 5, 2)?), true),
        ("d15", Arc::new(decimal(rng, n, 999_999_999_999, 15, 2)?), true),
        ("d38", Arc::new(decimal(rng, n, 10i128.pow(30), 38, 10)?), true),
        ("dt", Arc::new(Date32Array::from(column(rng, n, |r| r.i32(-40_000..40_000)))), true),
        (
            "ts",
            Arc::new(TimestampMicrosecondArray::from(column(rng, n, |r| {
                r.i64(-30_000 * DAY_MICROSECONDS..30_000 * DAY_MICROSECONDS)
            }))),
            true,
        ),
        (
            "tsn",
            Arc::new(TimestampNanosecondArray::from(column(rng, n, |r| r.i64(-(1i64 << 61)..1 << 61)))),
            true,
        ),
        (
            "tss",
            Arc::new(TimestampSecondArray::from(column(rng, n, |r| r.i64(-2_000_000_000..4_000_000_000)))),
            true,
        ),
        ("s", s, true),
        ("g", g, true),
        ("k", Arc::new(Int32Array::from(column(rng, n, |r| r.i32(-3..4)))), true),
        ("nn", Arc::new(Int64Array::from_iter_values((0..n).map(|_| rng.i64(0..50)))), false),
        ("nul", Arc::new(Int32Array::from(vec![None::<i32>; n])), true),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array, nullable)| Field::new(*name, array.data_type().clone(), *nullable))
        .collect();
    let arrays = columns.into_iter().map(|(_, array, _)| array).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}
