//! Tables of extremes: every type with its least and greatest values, NaN of both signs, -0.0, infinities, years 1 and 9999,
//! texts that are empty, long, beyond ASCII or nearly numbers, dictionaries with unused and equal entries, and skew.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    StringViewArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use datafusion::arrow::datatypes::{Field, Int32Type, Schema};
use datafusion::error::Result;
use fastrand::Rng;

use super::super::Scale;

/// Tables of one schema: `x`, `y`, `one` (a row), `none` (no row) and `many`, with a key of its own in nearly every row.
pub(super) const NAMES: [&str; 5] = ["x", "y", "one", "none", "many"];

const TEXTS: [&str; 24] = [
    "",
    "a",
    "A",
    "aa",
    "ab",
    "ß",
    "SS",
    "İstanbul",
    "ﬁx",
    "ǆ",
    "日本語",
    "😀",
    "e\u{301}",
    "naïve",
    "a b c",
    " a ",
    "%",
    "_",
    "a'b",
    "0",
    "true",
    "2000-02-29",
    "line\nbreak",
    "a longer text that no view keeps inline, with the same beginning as others: 0123456789012345678901234567890123456789",
];

const NUMERALS: [&str; 24] = [
    "0", "-0", "7", "-7", "+5", "007", "127", "128", "-129", "65536", "9223372036854775807",
    "9223372036854775808", "1.5", "-2.25", ".5", "1e3", "1e400", "NaN", "-inf", " 12 ", "", "abc", "0x1F",
    "１２",
];

const WORDS: [&str; 5] = ["red", "green", "blue", "grün", ""];

/// The tables of a seed.
pub(super) fn tables(seed: u64, scale: Scale) -> Result<Vec<(&'static str, Vec<RecordBatch>)>> {
    let mut rng = Rng::with_seed(seed ^ 0xadbe_ef01);
    let (x, y, many) = match scale {
        Scale::Normal => (rng.usize(150..500), rng.usize(20..90), 3000),
        Scale::Small => (rng.usize(20..60), rng.usize(5..20), 60),
    };
    let mut tables = Vec::new();
    for (name, rows) in NAMES.into_iter().zip([x, y, 1, 0, many]) {
        // A column without a NULL takes other paths than one with few.
        let nulls = [0, 1, 1, 4][rng.usize(0..4)];
        let batch = Maker { rng: &mut rng, rows, nulls, unique: name == "many" }.batch()?;
        let cut = rng.usize(0..=rows);
        tables.push((name, vec![batch.slice(0, cut), batch.slice(cut, rows - cut)]));
    }
    Ok(tables)
}

struct Maker<'a> {
    rng: &'a mut Rng,
    rows: usize,
    /// NULLs of ten values.
    nulls: u8,
    /// Whether the numbers are mostly different ones.
    unique: bool,
}

/// What chance gives: an extreme, a small number that others have too, or anything.
macro_rules! integers {
    ($maker:ident, $type:ty, $array:ty) => {{
        let values: $array = $maker
            .column(|r, unique| match (unique, r.u8(0..10)) {
                (false, 0) => <$type>::MIN,
                (false, 1) => <$type>::MAX,
                (false, 2) => <$type>::MAX - 1,
                (false, 3..8) => r.u8(0..7) as $type,
                _ => r.i128(i128::from(<$type>::MIN)..=i128::from(<$type>::MAX)) as $type,
            })
            .into_iter()
            .collect();
        Arc::new(values) as ArrayRef
    }};
}

impl Maker<'_> {
    fn column<T>(&mut self, mut value: impl FnMut(&mut Rng, bool) -> T) -> Vec<Option<T>> {
        let (nulls, unique) = (self.nulls, self.unique);
        (0..self.rows).map(|_| (self.rng.u8(0..10) >= nulls).then(|| value(self.rng, unique))).collect()
    }

    fn picked<T: Copy>(&mut self, values: &[T]) -> Vec<Option<T>> {
        self.column(|rng, _| values[rng.usize(0..values.len())])
    }

    fn batch(mut self) -> Result<RecordBatch> {
        let rows = self.rows;
        let mut columns = self.numbers();
        columns.extend(self.decimals()?);
        columns.extend(self.times());
        columns.extend(self.texts()?);
        // Every row has a number of its own.
        columns.push(("id", Arc::new(Int32Array::from_iter_values(0..rows as i32))));
        columns.push(("nu", Arc::new(Int32Array::from(vec![None; rows]))));
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), *name != "id"))
            .collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }

    fn numbers(&mut self) -> Vec<(&'static str, ArrayRef)> {
        const NEGATIVE_NAN: f64 = f64::from_bits(0xfff8_0000_0000_0000);
        let wide = [
            f64::NAN,
            NEGATIVE_NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            0.0,
            0.5,
            -2.25,
            1e308,
            -1e308,
            5e-324,
            9_007_199_254_740_993.0,
            127.5,
            -128.5,
            2_147_483_648.0,
            1e19,
        ];
        let narrow =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 0.1, -1.5, f32::MAX, f32::MIN_POSITIVE];
        let bools: BooleanArray = self.column(|r, _| r.bool()).into_iter().collect();
        let singles: Float32Array = self.picked(&narrow).into_iter().collect();
        let doubles: Float64Array = self.picked(&wide).into_iter().collect();
        // Sums of quarters are exact in any order.
        let quarters: Float64Array =
            self.column(|r, _| f64::from(r.i32(-400..400)) / 4.0).into_iter().collect();
        let few: Int32Array = self.column(|r, _| r.i32(-2..5)).into_iter().collect();
        let skewed: Int64Array =
            self.column(|r, _| if r.u8(0..10) < 9 { 1 } else { r.i64(-3..4000) }).into_iter().collect();
        vec![
            ("b", Arc::new(bools)),
            ("i8", integers!(self, i8, Int8Array)),
            ("i16", integers!(self, i16, Int16Array)),
            ("i32", integers!(self, i32, Int32Array)),
            ("i64", integers!(self, i64, Int64Array)),
            ("u8", integers!(self, u8, UInt8Array)),
            ("u16", integers!(self, u16, UInt16Array)),
            ("u32", integers!(self, u32, UInt32Array)),
            ("u64", integers!(self, u64, UInt64Array)),
            ("f32", Arc::new(singles)),
            ("f64", Arc::new(doubles)),
            ("q", Arc::new(quarters)),
            ("k", Arc::new(few)),
            ("z", Arc::new(skewed)),
        ]
    }

    fn decimals(&mut self) -> Result<Vec<(&'static str, ArrayRef)>> {
        let mut columns: Vec<(&'static str, ArrayRef)> = Vec::new();
        for (name, precision, scale) in
            [("d5", 5, 2), ("d9", 9, 0), ("d18", 18, 6), ("d20", 20, 10), ("d38", 38, 0), ("dp", 38, 38)]
        {
            let limit = 10i128.pow(u32::from(precision as u8)) - 1;
            let unit = if precision == scale { 1 } else { 10i128.pow(scale as u32) };
            let values: Decimal128Array = self
                .column(|r, unique| match (unique, r.u8(0..10)) {
                    (false, 0) => limit,
                    (false, 1) => -limit,
                    (false, 2..7) => i128::from(r.i8(-3..4)) * unit / 2,
                    _ => r.i128(-limit..=limit),
                })
                .into_iter()
                .collect();
            columns.push((name, Arc::new(values.with_precision_and_scale(precision as u8, scale as i8)?)));
        }
        Ok(columns)
    }

    fn times(&mut self) -> Vec<(&'static str, ArrayRef)> {
        const YEAR_1: i64 = -62_135_596_800;
        const YEAR_9999: i64 = 253_402_300_799;
        let days = [0, -1, 1, -719_162, 2_932_896, 11_016, -25_567, 59, 60];
        let dates: Date32Array = self
            .column(|r, unique| if unique { r.i32(-40_000..40_000) } else { days[r.usize(0..days.len())] })
            .into_iter()
            .collect();
        let mut seconds = |scale: i64| {
            let edges = [0, -1, 1, YEAR_1, YEAR_9999, 951_827_696, -2_208_988_800];
            self.column(|r, unique| match (unique, r.u8(0..4)) {
                (false, 0..3) => edges[r.usize(0..edges.len())] * scale + i64::from(r.bool()) * (scale - 1),
                _ => r.i64(-4_000_000_000..4_000_000_000) * scale + r.i64(0..scale),
            })
        };
        let tss: TimestampSecondArray = seconds(1).into_iter().collect();
        let tsm: TimestampMillisecondArray = seconds(1000).into_iter().collect();
        let tsu: TimestampMicrosecondArray = seconds(1_000_000).into_iter().collect();
        let tsn: TimestampNanosecondArray = self
            .column(|r, _| match r.u8(0..6) {
                0 => i64::MAX,
                1 => i64::MIN + 1_000_000_000,
                2 => -1,
                3 => 0,
                _ => r.i64(-(1 << 61)..1 << 61),
            })
            .into_iter()
            .collect();
        let columns: [ArrayRef; 4] = [Arc::new(tss), Arc::new(tsm), Arc::new(tsu), Arc::new(tsn)];
        let mut named: Vec<(&'static str, ArrayRef)> = vec![("dt", Arc::new(dates))];
        named.extend(["tss", "tsm", "tsu", "tsn"].into_iter().zip(columns));
        named
    }

    fn texts(&mut self) -> Result<Vec<(&'static str, ArrayRef)>> {
        let s: StringArray = match self.unique {
            true => self.column(|r, _| format!("key {}", r.u32(..))).into_iter().collect(),
            false => self.picked(&TEXTS).into_iter().collect(),
        };
        let n: StringArray = self.picked(&NUMERALS).into_iter().collect();
        let v: StringViewArray = self.picked(&TEXTS).into_iter().collect();
        let l: LargeStringArray = self.picked(&TEXTS).into_iter().collect();
        let w: StringArray = self.picked(&WORDS).into_iter().collect();
        // Two entries that are the same, and one that no row has. None is NULL: some functions of DataFusion take such an
        // entry for the empty text (`lpad`).
        let entries = StringArray::from(vec!["a", "日本語", "ab", "a", "unused", ""]);
        let keys: Int32Array = self.picked(&[0, 1, 2, 3, 5]).into_iter().collect();
        let c = DictionaryArray::<Int32Type>::try_new(keys, Arc::new(entries))?;
        Ok(vec![
            ("s", Arc::new(s)),
            ("n", Arc::new(n)),
            ("c", Arc::new(c)),
            ("v", Arc::new(v)),
            ("l", Arc::new(l)),
            ("w", Arc::new(w)),
        ])
    }
}
