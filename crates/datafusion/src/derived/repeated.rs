//! Rows of a batch that an expression gives the same for, so that it is computed once for all of them.

use std::hash::Hash;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, UInt32Array, downcast_dictionary_array,
};
use datafusion::arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, DataType, Date32Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{HashMap, ScalarValue};
use datafusion::functions::datetime::to_char::ToCharFunc;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};

use super::Expr;
use crate::written_times::WrittenTimes;

/// Rows of a batch by which it is judged whether values repeat in it, and how many may differ for that.
const SAMPLE_ROWS: usize = 256;
const SAMPLE_VALUES: usize = 64;

/// The finest part of a time that an expression looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Finest {
    /// It is the same all over each multiple of so many seconds.
    seconds: i64,
}

const DAY: i64 = 86_400;

/// The finest part of the times that an expression looks at, if it looks at them through `to_char` with a format that is written out, and at
/// nothing else.
pub(super) fn finest(expr: &Expr) -> Option<Finest> {
    let mut seconds = Some(DAY);
    let walked = expr.apply(|part| {
        if part.is::<Column>() {
            seconds = None;
            return Ok(TreeNodeRecursion::Stop);
        }
        let Some(format) = format_of(part) else { return Ok(TreeNodeRecursion::Continue) };
        seconds = seconds.zip(seconds_of(format)).map(|(all, own)| all.min(own));
        Ok(if seconds.is_some() { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Stop })
    });
    walked.ok().and(seconds).map(|seconds| Finest { seconds })
}

/// The format by which a column is written, if that is all that an expression does.
fn format_of(expr: &Expr) -> Option<&str> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let function = call.fun().inner();
    (function.is::<ToCharFunc>() || function.is::<WrittenTimes>()).then_some(())?;
    let [time, format] = call.args() else { return None };
    time.downcast_ref::<Column>()?;
    match format.downcast_ref::<Literal>()?.value() {
        ScalarValue::Utf8(format) | ScalarValue::Utf8View(format) | ScalarValue::LargeUtf8(format) => {
            format.as_deref()
        }
        _ => None,
    }
}

/// The seconds of the finest part that a format of chrono's writes; `None` where that is a part of a second, or not known.
fn seconds_of(format: &str) -> Option<i64> {
    let mut seconds = DAY;
    let mut rest = format.chars();
    while let Some(letter) = rest.next() {
        if letter != '%' {
            continue;
        }
        let written = match rest.next()? {
            // How a number is padded.
            '-' | '_' | '0' => rest.next()?,
            written => written,
        };
        seconds = seconds.min(match written {
            'Y' | 'C' | 'y' | 'q' | 'm' | 'b' | 'B' | 'h' | 'd' | 'e' | 'a' | 'A' | 'w' | 'u' | 'U' | 'W'
            | 'G' | 'g' | 'V' | 'j' | 'D' | 'x' | 'F' | 'v' | 't' | 'n' | '%' => DAY,
            'H' | 'k' | 'I' | 'l' | 'P' | 'p' => 3_600,
            'M' | 'R' => 60,
            'S' | 'T' | 'X' | 'r' | 'c' => 1,
            _ => return None,
        });
    }
    Some(seconds)
}

/// For a column whose values repeat: a row for each value, and for each row the place of its value among them. Of times those are the same
/// that have the same in all that is looked at.
pub(super) fn representatives(
    column: &ArrayRef,
    finest: Option<Finest>,
) -> Option<(UInt32Array, UInt32Array)> {
    let (rows, places) = match column.data_type() {
        DataType::Dictionary(_, _) => downcast_dictionary_array!(
            column => by_key(column),
            _ => return None
        ),
        DataType::Utf8 => by_value(column.as_string_opt::<i32>()?.iter(), seldom_repeat),
        DataType::LargeUtf8 => by_value(column.as_string_opt::<i64>()?.iter(), seldom_repeat),
        DataType::Utf8View => {
            // Equal views are equal texts; those of one dictionary have one view each.
            let texts = column.as_string_view_opt()?;
            let views = texts.views().iter().enumerate();
            by_value(views.map(|(row, view)| texts.is_valid(row).then_some(*view)), numbers_seldom_repeat)
        }
        DataType::Date32 => by_number(numbers::<Date32Type>(column)?, 1),
        DataType::Timestamp(TimeUnit::Second, None) => {
            by_number(numbers::<TimestampSecondType>(column)?, finest?.seconds)
        }
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            by_number(numbers::<TimestampMillisecondType>(column)?, finest?.seconds * 1_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            by_number(numbers::<TimestampMicrosecondType>(column)?, finest?.seconds * 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            by_number(numbers::<TimestampNanosecondType>(column)?, finest?.seconds * 1_000_000_000)
        }
        _ => None,
    }?;
    (rows.len() * 2 <= places.len()).then(|| (rows.into(), places.into()))
}

type Representatives = Option<(Vec<u32>, Vec<u32>)>;

fn by_key<K: ArrowDictionaryKeyType>(array: &DictionaryArray<K>) -> Representatives {
    const UNSEEN: u32 = u32::MAX;
    if array.values().len() > 4 * array.len() {
        return None;
    }
    // The last place is that of NULL.
    let mut known = vec![UNSEEN; array.values().len() + 1];
    let (mut rows, mut places) = (Vec::new(), Vec::with_capacity(array.len()));
    for row in 0..array.len() {
        let place = known.get_mut(array.key(row).unwrap_or(array.values().len()))?;
        if *place == UNSEEN {
            *place = rows.len() as u32;
            rows.push(row as u32);
        }
        places.push(*place);
    }
    Some((rows, places))
}

/// The values of a column that is an integer inside.
fn numbers<T: ArrowPrimitiveType>(
    column: &ArrayRef,
) -> Option<impl ExactSizeIterator<Item = Option<i64>> + '_>
where
    i64: From<T::Native>,
{
    Some(column.as_primitive_opt::<T>()?.iter().map(|value| value.map(i64::from)))
}

/// Numbers are the same whose quotients by a divisor are.
fn by_number(numbers: impl ExactSizeIterator<Item = Option<i64>>, divisor: i64) -> Representatives {
    by_value(numbers.map(|number| number.map(|number| number.div_euclid(divisor))), numbers_seldom_repeat)
}

/// Whether so many values in the rows up to one show that numbers seldom repeat: they are looked up in a fraction of the time that most
/// expressions take for a row.
fn numbers_seldom_repeat(row: usize, values: usize) -> bool {
    row >= 16 * SAMPLE_ROWS && values * 2 > row
}

/// Whether so many values in the rows up to one show that texts seldom repeat.
fn seldom_repeat(row: usize, values: usize) -> bool {
    values > SAMPLE_VALUES && (row < SAMPLE_ROWS || values * 2 > row)
}

/// `None` as soon as they seldom repeat.
fn by_value<V: Copy + Eq + Hash>(
    values: impl ExactSizeIterator<Item = V>,
    seldom_repeat: impl Fn(usize, usize) -> bool,
) -> Representatives {
    let mut known: HashMap<V, u32> = HashMap::new();
    let (mut rows, mut places) = (Vec::new(), Vec::with_capacity(values.len()));
    let mut last: Option<(V, u32)> = None;
    for (row, value) in values.enumerate() {
        let place = match last.filter(|(last, _)| *last == value) {
            Some((_, place)) => place,
            None => *known.entry(value).or_insert_with(|| {
                rows.push(row as u32);
                rows.len() as u32 - 1
            }),
        };
        last = Some((value, place));
        places.push(place);
        if seldom_repeat(row, rows.len()) {
            return None;
        }
    }
    Some((rows, places))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Date32Array, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn formats_tell_the_finest_part_that_they_write() {
        for (format, seconds) in [
            ("%Y-%m", Some(DAY)),
            ("", Some(DAY)),
            ("week %V of %G, 100 %%H", Some(DAY)),
            ("%-d.%_m.%0Y", Some(DAY)),
            ("%F %H Uhr", Some(3_600)),
            ("%I %p", Some(3_600)),
            ("%H:%M", Some(60)),
            ("%T", Some(1)),
            ("%Y %M %S", Some(1)),
            ("%S%.3f", None),
            ("%f", None),
            ("%Z", None),
            ("%s", None),
            ("%", None),
            ("%-", None),
        ] {
            assert_eq!(seconds_of(format), seconds, "{format}");
        }
    }

    #[test]
    fn times_of_a_day_are_one_value() {
        const MICROS: i64 = DAY * 1_000_000;
        let of = |values: &[Option<i64>], seconds: Option<i64>| {
            let column: ArrayRef = Arc::new(TimestampMicrosecondArray::from(values.to_vec()));
            let finest = seconds.map(|seconds| Finest { seconds });
            let (rows, places) = representatives(&column, finest)?;
            Some((rows.values().to_vec(), places.values().to_vec()))
        };
        let times = [Some(-1), Some(5), Some(MICROS - 1), None, Some(-MICROS), Some(7), Some(MICROS), None];
        assert_eq!(of(&times, Some(DAY)), Some((vec![0, 1, 3, 6], vec![0, 1, 1, 2, 0, 1, 3, 2])));
        assert_eq!(of(&times, None), None);
        assert_eq!(of(&times, Some(1)), None);
        let days: ArrayRef =
            Arc::new(Date32Array::from(vec![Some(3), None, Some(3), Some(3), None, Some(-3)]));
        let (rows, places) = representatives(&days, None).unwrap();
        assert_eq!(
            (rows.values().to_vec(), places.values().to_vec()),
            (vec![0, 1, 5], vec![0, 1, 0, 0, 1, 2])
        );
    }
}
