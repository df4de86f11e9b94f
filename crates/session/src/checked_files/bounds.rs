//! Whether the bounds of a Parquet file's row groups can be believed where a filter asks which of them it needs.
//!
//! Reading less by bounds is worth something where files are large, and wrong bounds lose rows. So they are believed where whoever wrote
//! them is known to write sound ones, says by which order values were compared, and where they do not contradict themselves.

use std::cmp::Ordering;

use super::footer::{Chunk, Footer, Leaf};
use kelpie_datafusion::thrift::{Damaged, Fields, Kind, Reader};

/// Writers whose bounds are sound: the beginnings of what they call themselves.
const WRITERS: [&str; 6] = [
    "parquet-rs version ", "parquet-cpp-arrow version ", "DuckDB version ", "Polars", "Arrow2 ", "datafusion",
];
/// The writer of Spark and Hadoop. Its earlier versions compared texts and decimals by signed bytes.
const PARQUET_MR: &str = "parquet-mr version ";

/// What a column's metadata say of its values in a row group.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    nulls: Option<i64>,
    /// The least and the greatest, by the order of the column.
    least: Option<Vec<u8>>,
    greatest: Option<Vec<u8>>,
    /// Whether there are bounds of an order that nobody knows.
    are_old: bool,
}

/// Reads the statistics of a column.
pub(super) fn bounds(reader: &mut Reader<'_>) -> Result<Bounds, Damaged> {
    let (mut bounds, mut fields) = (Bounds::default(), Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1 | 2, Kind::Binary) => {
                reader.binary()?;
                bounds.are_old = true;
            }
            (3, Kind::Integer) => bounds.nulls = Some(reader.integer()?),
            (5, Kind::Binary) => bounds.greatest = Some(reader.binary()?.to_vec()),
            (6, Kind::Binary) => bounds.least = Some(reader.binary()?.to_vec()),
            _ => reader.skip(kind)?,
        }
    }
    Ok(bounds)
}

/// Whether all bounds of a file can be believed.
pub(super) fn are_sound(footer: &Footer) -> bool {
    is_known(&footer.created_by)
        && footer.orders == footer.leaves.len()
        && footer.row_groups.iter().all(|group| {
            group.columns.iter().zip(&footer.leaves).all(|(chunk, leaf)| is_consistent(chunk, leaf))
        })
}

fn is_known(writer: &str) -> bool {
    let version = writer.strip_prefix(PARQUET_MR).map(|version| {
        let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
        (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok))
    });
    match version {
        Some((Some(1), Some(minor))) => minor >= 10,
        Some((Some(major), _)) => major > 1,
        Some((None, _)) => false,
        None => WRITERS.iter().any(|known| writer.starts_with(known)),
    }
}

fn is_consistent(chunk: &Chunk, leaf: &Leaf) -> bool {
    let Some(bounds) = &chunk.bounds else { return true };
    // Where NULLs are not counted, readers take it for none.
    let counts = bounds.nulls.is_some_and(|nulls| (0..=chunk.values).contains(&nulls));
    let ordered = match (&bounds.least, &bounds.greatest) {
        (Some(least), Some(greatest)) => {
            matches!(leaf.compare(least, greatest), Some(Ordering::Less | Ordering::Equal))
        }
        // Old bounds beside none that are new are read in their place.
        (None, None) => !bounds.are_old,
        _ => true,
    };
    counts && ordered
}

impl Leaf {
    /// Compares two values as the bounds of the column are; nothing where one is none, or they have no order.
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        const BOOLEAN: i64 = 0;
        const INT32: i64 = 1;
        const INT64: i64 = 2;
        const INT96: i64 = 3;
        const FLOAT: i64 = 4;
        const DOUBLE: i64 = 5;
        Some(match self.physical {
            BOOLEAN => (a.len() == 1 && b.len() == 1).then(|| a.cmp(b))?,
            INT32 if self.is_unsigned => number(a, u32::from_le_bytes)?.cmp(&number(b, u32::from_le_bytes)?),
            INT32 => number(a, i32::from_le_bytes)?.cmp(&number(b, i32::from_le_bytes)?),
            INT64 if self.is_unsigned => number(a, u64::from_le_bytes)?.cmp(&number(b, u64::from_le_bytes)?),
            INT64 => number(a, i64::from_le_bytes)?.cmp(&number(b, i64::from_le_bytes)?),
            INT96 => return None,
            // A NaN is no bound.
            FLOAT => number(a, f32::from_le_bytes)?.partial_cmp(&number(b, f32::from_le_bytes)?)?,
            DOUBLE => number(a, f64::from_le_bytes)?.partial_cmp(&number(b, f64::from_le_bytes)?)?,
            _ if self.is_decimal => signed(a)?.cmp(&signed(b)?),
            _ => a.cmp(b),
        })
    }
}

fn number<T, const BYTES: usize>(bytes: &[u8], read: impl Fn([u8; BYTES]) -> T) -> Option<T> {
    bytes.try_into().ok().map(read)
}

/// A decimal of up to 32 bytes, the highest first, as bytes that are ordered as it is.
fn signed(bytes: &[u8]) -> Option<[u8; 32]> {
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let mut value = [sign; 32];
    let start = value.len().checked_sub(bytes.len())?;
    value[start..].copy_from_slice(bytes);
    value[0] ^= 0x80;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_known_by_their_versions() {
        for known in [
            "parquet-rs version 59.3.2",
            "parquet-cpp-arrow version 14.0.1",
            "DuckDB version v1.1.0 (build x)",
            "parquet-mr version 1.12.3 (build f8dc)",
        ] {
            assert!(is_known(known), "{known}");
        }
        for unknown in
            ["", "parquet-mr", "parquet-mr version 1.8.1", "impala version 2.9", "parquet-cpp version 1.3.2"]
        {
            assert!(!is_known(unknown), "{unknown}");
        }
    }

    #[test]
    fn decimals_are_ordered_by_their_signs() {
        let of = |value: i64| signed(&value.to_be_bytes());
        assert!(of(-1) < of(0) && of(-100) < of(-1) && of(1) < of(i64::MAX) && of(i64::MIN) < of(-5));
        assert_eq!(signed(&[]), None);
        assert_eq!(signed(&[0xff, 0xff]), of(-1));
    }
}
