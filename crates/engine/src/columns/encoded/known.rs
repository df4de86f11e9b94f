//! What is known of a column that a device has decoded, by all of its rows: the device looks at zones of them, as the host does at batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kelpie_compile::primitives::pages::facts::{FALLS, IS_STRICT, RISES, WORDS, ZONE};
use kelpie_compile::types::Range;
use kelpie_device::CancelToken;

use super::Target;
use crate::columns::cache::{ColumnCache, ColumnRead};
use crate::columns::integers::{DecodedChunk, IntegerChunk};
use crate::columns::order::ChunkOrder;
use crate::columns::read::{FloatChunk, Kind};
use crate::columns::store::{Decoded, DecodedValues};
use crate::columns::{spacing, spread};
use crate::error::EngineError;
use crate::primitives::Primitives;

/// The columns that were decoded, each with what is known of it; `None` for those that the host has to read.
pub(super) fn of_columns(
    ColumnRead { device, .. }: ColumnRead<'_>,
    cache: &ColumnCache,
    targets: &[Target],
    cancel: &CancelToken,
) -> Result<Vec<Option<Decoded>>, EngineError> {
    let stream = Arc::clone(device).begin_query()?;
    let mut primitives = Primitives::new(stream.as_ref(), cache, cancel);
    targets.iter().map(|target| of_column(&mut primitives, target)).collect()
}

fn of_column(primitives: &mut Primitives<'_>, target: &Target) -> Result<Option<Decoded>, EngineError> {
    let (came, nulls) = (target.came.load(Ordering::Relaxed), target.nulls.load(Ordering::Relaxed));
    // NULLs of a column that is said to have none are the host's to tell of.
    if target.has_failed() || came != target.rows || (nulls > 0 && target.validity.is_none()) {
        return Ok(None);
    }
    let rows = target.place.rows();
    let values = match target.kind {
        Kind::Integer => match integers(primitives, target)? {
            Some(chunks) => DecodedValues::Integers(chunks),
            None => return Ok(None),
        },
        Kind::Float(_) | Kind::Text => DecodedValues::Floats(vec![FloatChunk::Placed(rows)]),
    };
    Ok(Some(Decoded { values, rows, validity: target.validity.clone().filter(|_| nulls > 0) }))
}

/// A zone, as the device has found it.
struct Found {
    range: Range,
    order: ChunkOrder,
    sample: Vec<i64>,
}

/// The zones of a column of integers; `None` where another width is the right one.
fn integers(
    primitives: &mut Primitives<'_>,
    target: &Target,
) -> Result<Option<Vec<IntegerChunk>>, EngineError> {
    let width = target.place.width;
    let places: Vec<u32> = spread::places_of_chunk(ZONE as usize).map(|place| place as u32).collect();
    let stored = (width.scalar, &target.place.buffer);
    let words = primitives.facts_of_zones(stored, target.rows, &places)?;
    // A base is the least value that was promised, which fits 64 bits, as all values do.
    let base = width.base as i64;
    let found: Vec<Found> =
        words.chunks(WORDS).filter_map(|words| found(words, places.len(), base)).collect();
    let range = found.iter().map(|zone| zone.range).reduce(Range::union);
    if !target.place.serves(range) {
        return Ok(None);
    }
    let step = match range {
        Some(range) => step(primitives, target, (range, &found))?,
        None => 1,
    };
    let mut left = target.place.rows();
    let chunks = found.into_iter().map(|Found { range, order, sample }| {
        let rows = left.min(ZONE as usize);
        left -= rows;
        let step = if range.min == range.max { 0 } else { step };
        IntegerChunk::decoded(DecodedChunk { rows, width, range, sample, step, order })
    });
    Ok(Some(chunks.collect()))
}

fn found(words: &[i64], sampled: usize, base: i64) -> Option<Found> {
    let [least, greatest, order, sample @ ..] = words else { return None };
    let value = |stored: &i64| stored.wrapping_add(base);
    let is = |flag: u64| *order as u64 & flag != 0;
    Some(Found {
        range: Range::new(value(least), value(greatest)),
        order: ChunkOrder::found(is(RISES), is(FALLS), is(IS_STRICT)),
        sample: sample.iter().take(sampled).map(value).collect(),
    })
}

/// The distance that all values have multiples of from the least one, 0 where they are all equal: what those of the samples have is what
/// all have, or it is 1.
fn step(
    primitives: &mut Primitives<'_>,
    target: &Target,
    (range, found): (Range, &[Found]),
) -> Result<u64, EngineError> {
    let bounds = found.iter().flat_map(|zone| [zone.range.min as i64, zone.range.max as i64]);
    let known: Vec<i64> = found.iter().flat_map(|zone| zone.sample.iter().copied()).chain(bounds).collect();
    let step = spacing::step(&known, |value| value, range);
    if step <= 1 {
        return Ok(step);
    }
    let width = target.place.width;
    let least = (range.min - width.base) as i64;
    let stored = (width.scalar, &target.place.buffer);
    Ok(if primitives.are_multiples(stored, target.rows, (least, step))? { step } else { 1 })
}
