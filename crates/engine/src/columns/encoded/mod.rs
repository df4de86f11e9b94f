//! Columns of which a device decodes the pages: their bytes go to it as a file has them, and kernels write the values to the column's
//! place ([`Place`]). Cores then only read, which they do many times as fast as they decode.
//!
//! It is done where a column has a place, since its rows and bounds were promised by footers and statistics. What a file says is not
//! believed: each chunk is held against the column here, and each page by the kernels, and a column of which anything is not as
//! promised is read by the host, as if nothing had been tried. Everything that is known of a column by all of its rows is found by the device
//! too (`known`).

mod batches;
mod known;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use kelpie_compile::primitives::pages::decode::Decode;
use kelpie_device::{Buffer, CancelToken, DeviceKind};
use kelpie_kir::Scalar;

use self::batches::Batches;
use super::cache::{ColumnCache, ColumnRead};
use super::placing::Place;
use super::read::{Kind, Wanted};
use super::store::Decoded;
use crate::error::EngineError;
use crate::options::Decoding;
use crate::primitives::Primitives;
use crate::source::{EncodedChunk, EncodedValues};

/// Rows of a table from which on its pages are worth a device's start.
const LEAST_ROWS: u64 = 1 << 20;

/// Which columns a device decodes, of those that are wanted.
pub(super) fn chosen(from: ColumnRead<'_>, wanted: &[(usize, Wanted)]) -> Vec<bool> {
    let ColumnRead { device, source, wish } = from;
    let is_asked = match wish.decoding {
        Decoding::Host => false,
        Decoding::Device => device.kind() != DeviceKind::Cpu,
        Decoding::Auto => {
            device.kind() == DeviceKind::Cuda && source.exact_rows().is_some_and(|rows| rows >= LEAST_ROWS)
        }
    };
    if !is_asked {
        return vec![false; wanted.len()];
    }
    let columns: Vec<usize> = wanted.iter().map(|(column, _)| *column).collect();
    let are_encoded = source.are_encoded(&columns);
    let can = |((_, wanted), is_encoded): (&(usize, Wanted), bool)| {
        let has_decoder = |place: &Place| match wanted.kind {
            Kind::Integer if !place.range.is_none_or(|range| wanted.allows(range)) => false,
            Kind::Integer => place.width.scalar != Scalar::I128,
            Kind::Float(_) => true,
            Kind::Text => false,
        };
        is_encoded && wanted.common.is_none() && wanted.place.as_ref().is_some_and(has_decoder)
    };
    wanted.iter().zip(are_encoded).map(can).collect()
}

/// Has the device decode columns; `None` for those that the host has to read.
pub(super) fn decode(
    from: ColumnRead<'_>,
    cache: &ColumnCache,
    wanted: &[(usize, Wanted)],
    cancel: &CancelToken,
) -> Result<Vec<Option<Decoded>>, EngineError> {
    let targets = wanted.iter().map(|(column, wanted)| Target::new(from, cache, (*column, wanted)));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let columns: Vec<usize> = wanted.iter().map(|(column, _)| *column).collect();
    let batches = Batches::new(from, cache, &targets, cancel);
    let take = |column: usize, chunk: Option<EncodedChunk>| batches.take(column, chunk);
    let mut stored: Vec<Scalar> = targets.iter().map(|target| target.place.width.scalar).collect();
    stored.sort_unstable();
    stored.dedup();
    thread::scope(|scope| {
        scope.spawn(|| Primitives::prepare_pages(from.device, &stored));
        from.source.read_encoded(&columns, &take, cancel)
    })?;
    batches.finish()?;
    if cancel.is_cancelled() {
        return Err(EngineError::Cancelled);
    }
    known::of_columns(from, cache, &targets, cancel)
}

/// A column that pages are decoded to.
struct Target {
    place: Place,
    kind: Kind,
    rows: u64,
    /// Bits of the rows that have a value, where there may be others.
    validity: Option<Buffer>,
    /// Rows that came, and rows without a value.
    came: AtomicU64,
    nulls: AtomicU64,
    /// Set once the host has to read it.
    failed: AtomicBool,
}

impl Target {
    fn new(
        ColumnRead { device, source, .. }: ColumnRead<'_>,
        cache: &ColumnCache,
        (column, wanted): (usize, &Wanted),
    ) -> Result<Target, EngineError> {
        let lost = || EngineError::Internal("a column without a place is decoded".into());
        let place = wanted.place.clone().ok_or_else(lost)?;
        let rows = place.rows() as u64;
        let schema = source.schema();
        let is_nullable = schema.fields().get(column).is_none_or(|field| field.is_nullable());
        let validity = match is_nullable {
            true => {
                // The bits of a warp's rows go to two words.
                let bytes = place.rows().div_ceil(32) * 4 + 4;
                let bits = cache.allocate(device, bytes)?;
                device.fill(&bits, 0, bytes, 0)?;
                Some(bits)
            }
            false => None,
        };
        let (came, nulls, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Ok(Target { place, kind: wanted.kind, rows, validity, came, nulls, failed })
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The kernel for values of a chunk, where there is one.
    fn decode(&self, values: EncodedValues) -> Option<Decode> {
        let value = match values {
            EncodedValues::I32 => Scalar::I32,
            EncodedValues::I64 => Scalar::I64,
            EncodedValues::F32 => Scalar::F32,
            EncodedValues::F64 => Scalar::F64,
        };
        let decode = Decode { value, stored: self.place.width.scalar };
        Decode::all().contains(&decode).then_some(decode)
    }

    /// The base and the bounds of integers; of floats nothing.
    fn bounds(&self) -> Option<[i128; 3]> {
        match self.kind {
            Kind::Integer => self.place.range.map(|range| [self.place.width.base, range.min, range.max]),
            Kind::Float(_) => Some([0; 3]),
            Kind::Text => None,
        }
    }
}
