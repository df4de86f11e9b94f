//! A result that stays on the device, as columns that a later stage scans (`crate::intermediate`).
//!
//! The states of a result are as wide as registers, have a byte a row for NULL, and the texts of a heap in any order. The columns are
//! what reading the same rows from the host would make: as narrow as the values that are there allow, with their bounds, with a bitmap only
//! where something is NULL, with codes where a dictionary is known. So the stage that scans them gets code that is as good.
//!
//! It takes two waits: one for the kernels of the stage, the number of rows and what is measured of them, and one for the columns.
//! Rows that come by way of the host take as many, and one more a column that goes back.

use std::sync::{Arc, OnceLock};

use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{OutputColumn, OutputStorage};
use kelpie_compile::primitives::encode::{MEASURES, SIGN};
use kelpie_compile::types::{DataType, Range};
use kelpie_device::{Buffer, DeviceError, Download};
use kelpie_kir::Scalar;

use super::run::Run;
use super::setting::Setting;
use crate::columns::{Placement, ResidentColumn, Width, Zone};
use crate::error::EngineError;
use crate::intermediate::{IntermediateRows, IntermediateWindow};
use crate::primitives::{Array, Primitives, Written};

/// Bytes of what is measured of a column.
const MEASURE_BYTES: usize = MEASURES * 8;
/// Rows from which on it is of interest how values are spread over them.
const SCATTERED_ROWS: u64 = 1 << 18;
/// A state becomes a column as it is where it is no larger than twice the column, or takes so many bytes more.
const SPARE_BYTES: u64 = 64 << 10;

/// A column of a result on the device.
struct Made<'a> {
    column: &'a OutputColumn,
    validity: Option<Array>,
    values: MadeValues,
}

enum MadeValues {
    /// Integers or booleans.
    Integers(Scalar, Array),
    Floats(Scalar, Array),
    /// The codes of a dictionary, which has so many entries.
    Codes(Scalar, Array, u32, (Buffer, Buffer)),
    Texts {
        starts: Array,
        lengths: Array,
        heap: Array,
    },
}

/// What was measured of a column.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Bounds of the values that are not NULL; `None` where all are, or where they are no integers.
    range: Option<Range>,
    nulls: u64,
    /// Values beyond 64 bits, or the bytes of texts.
    more: u64,
}

impl Measured {
    fn of(bytes: &[u8]) -> Measured {
        let mut words = [0; MEASURES];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [greatest, complement, nulls, more] = words;
        let value = |key: u64| (key ^ SIGN) as i64;
        let some = (greatest, complement) != (0, 0);
        Measured { range: some.then(|| Range::new(value(!complement), value(greatest))), nulls, more }
    }
}

impl Made<'_> {
    /// What is to be measured, if anything is: type and array.
    fn measured(&self) -> Option<(Scalar, &Array)> {
        match &self.values {
            MadeValues::Integers(scalar, array) => Some((*scalar, array)),
            MadeValues::Texts { lengths, .. } => Some((Scalar::U32, lengths)),
            // Only whether something is NULL: of the bytes that say so, none is wanted.
            MadeValues::Floats(..) | MadeValues::Codes(..) => {
                self.validity.as_ref().map(|valid| (Scalar::U8, valid))
            }
        }
    }

    /// Bytes of the column of so many rows, at most.
    fn bytes(&self, measured: Measured, rows: u64) -> u64 {
        let width = match &self.values {
            MadeValues::Integers(scalar, _) | MadeValues::Floats(scalar, _) => scalar.bytes(),
            MadeValues::Codes(code, ..) => code.bytes(),
            MadeValues::Texts { .. } => 4,
        };
        let texts = if let MadeValues::Texts { .. } = self.values { measured.more } else { 0 };
        rows.saturating_mul(u64::from(width)).saturating_add(rows / 8).saturating_add(texts)
    }
}

impl<'a> Run<'a> {
    /// Leaves the result on the device. `None` where it cannot stay as a whole: some of it has gone to the host, its columns are of a
    /// kind that no table has, or there is too little memory; then it is still there to be read.
    pub(super) fn keep(
        &mut self,
        wanted: &IntermediateWindow,
    ) -> Result<Option<IntermediateRows>, EngineError> {
        let fits = self.drained.rows == 0 && self.drained.parts.is_empty();
        if !fits || !Arc::ptr_eq(&wanted.device, self.setting.stream.device()) {
            return Ok(None);
        }
        match self.try_keep(wanted) {
            Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => Ok(None),
            outcome => outcome,
        }
    }

    fn try_keep(&mut self, wanted: &IntermediateWindow) -> Result<Option<IntermediateRows>, EngineError> {
        let Some(columns) = self.made(wanted)? else { return Ok(None) };
        let output = &self.prepared.program.output;
        let most = output.limit.unwrap_or(u64::MAX).min(self.result_capacity());
        let window = (wanted.rows.start.min(most), wanted.rows.end.min(most));
        let (rows, measured) = self.measure(&columns, window)?;
        let bytes: u64 =
            columns.iter().zip(&measured).map(|(column, measured)| column.bytes(*measured, rows)).sum();
        let Setting { cache, stream, movement, .. } = self.setting;
        let is_long = |(column, measured): (&Made<'_>, &Measured)| {
            matches!(column.values, MadeValues::Texts { .. }) && measured.more > u64::from(u32::MAX)
        };
        let has_room = movement.placement == Placement::Device || cache.leaves_room(stream.device(), bytes);
        if !has_room || columns.iter().zip(&measured).any(is_long) {
            return Ok(None);
        }
        let mut kept = Vec::with_capacity(columns.len());
        self.launch_together(Vec::new(), |primitives| {
            for (column, measured) in columns.iter().zip(&measured) {
                kept.push(Arc::new(encode(primitives, column, *measured, (window.0, rows))?));
            }
            Ok(())
        })?;
        Ok(Some(IntermediateRows { rows, columns: kept }))
    }

    /// The columns that are wanted; `None` where one of them is of a kind that no table has.
    fn made(&mut self, wanted: &IntermediateWindow) -> Result<Option<Vec<Made<'a>>>, EngineError> {
        let prepared = self.prepared;
        let columns = &prepared.program.output.columns;
        let all = self.drained.columns();
        let numbers = wanted.columns.clone().unwrap_or_else(|| (0..all).collect());
        let mut made = Vec::with_capacity(numbers.len());
        for number in numbers {
            // A pipeline whose source is empty at compile time may have declared no columns.
            let Some(column) = columns.get(number) else { return Ok(None) };
            let values = match column.storage {
                _ if matches!(column.data_type, DataType::Null | DataType::Interval) => return Ok(None),
                OutputStorage::Null => return Ok(None),
                OutputStorage::Scalar(scalar, state) if scalar.is_float() => {
                    MadeValues::Floats(scalar, self.store.place(state)?)
                }
                OutputStorage::Scalar(scalar, state) => {
                    let scalar = if scalar == Scalar::Bool { Scalar::U8 } else { scalar };
                    MadeValues::Integers(scalar, self.store.place(state)?)
                }
                OutputStorage::Codes { code, state, scan, column } => {
                    let of = self.setting.column(scan, column)?;
                    let (Storage::Dictionary { entries, .. }, Some(dictionary)) =
                        (of.layout.storage, &of.dictionary)
                    else {
                        return Ok(None);
                    };
                    MadeValues::Codes(code, self.store.place(state)?, entries, dictionary.clone())
                }
                OutputStorage::Text { offsets, lengths, heap, .. } => MadeValues::Texts {
                    starts: self.store.place(offsets)?,
                    lengths: self.store.place(lengths)?,
                    heap: self.store.place(heap)?,
                },
            };
            let validity = column.validity.map(|state| self.store.place(state)).transpose()?;
            made.push(Made { column, validity, values });
        }
        Ok(Some(made))
    }

    /// How many rows are in the window, and what is known of the columns.
    fn measure(
        &mut self,
        columns: &[Made<'_>],
        window: (u64, u64),
    ) -> Result<(u64, Vec<Measured>), EngineError> {
        let count = self.prepared.program.output.count;
        // The kernels themselves read how many rows there are; this is for the size of their launches.
        let expected = self.store.glance(count)?.clamp(window.0, window.1) - window.0;
        let counter = self.store.place(count)?;
        let bytes = columns.len() * MEASURE_BYTES;
        let found = self.store.allocate(bytes)?;
        self.setting.stream.fill(&found, 0, bytes, 0)?;
        let (mut counted, mut words) = ([0; 8], vec![0; bytes]);
        let parts = vec![
            Download { buffer: &counter.0, offset: counter.1, data: &mut counted },
            Download { buffer: &found, offset: 0, data: &mut words },
        ];
        self.launch_together(parts, |primitives| {
            for (index, column) in columns.iter().enumerate() {
                let Some((scalar, values)) = column.measured() else { continue };
                let of = (scalar, values, column.validity.as_ref());
                let rows = (&counter, window, expected);
                primitives.measure(of, rows, (&found, index * MEASURE_BYTES))?;
            }
            Ok(())
        })?;
        let rows = u64::from_le_bytes(counted).clamp(window.0, window.1) - window.0;
        Ok((rows, words.chunks(MEASURE_BYTES).map(Measured::of).collect()))
    }

    /// Launches kernels, and waits once for all of them and for the parts. Where the launches of the stage are deferred, it is the wait for
    /// those too.
    fn launch_together(
        &mut self,
        mut parts: Vec<Download<'_>>,
        launch: impl FnOnce(&mut Primitives<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let Setting { stream, cache, cancel, .. } = self.setting;
        let mut primitives = Primitives::new(stream, cache, cancel).sharing(&self.prepared.primitives);
        if self.store.page.is_foreseen() {
            launch(&mut primitives)?;
            return self.store.page.download(parts);
        }
        if !stream.defer()? {
            launch(&mut primitives)?;
            return Ok(stream.download_many(&mut parts)?);
        }
        let outcome = launch(&mut primitives);
        let settled = stream.settle(&mut parts)?;
        outcome?;
        match settled.status {
            0 => Ok(()),
            1 => Err(EngineError::Cancelled),
            other => Err(EngineError::Internal(format!("encoding a result reported {other}"))),
        }
    }
}

/// Writes a column of `rows` rows from number `first` on.
fn encode(
    primitives: &mut Primitives<'_>,
    made: &Made<'_>,
    measured: Measured,
    (first, rows): (u64, u64),
) -> Result<ResidentColumn, EngineError> {
    let valid = made.validity.as_ref().filter(|_| measured.nulls > 0);
    let validity = match valid {
        Some(valid) => {
            let out = primitives.allocate(rows.div_ceil(8))?;
            primitives.write_validity(valid, (first, rows), &out)?;
            Some(out)
        }
        None => None,
    };
    let mut column = ResidentColumn {
        layout: ColumnLayout {
            storage: Storage::Text { offset: Scalar::U32 },
            has_nulls: valid.is_some(),
            range: None,
        },
        rows,
        on_host: false,
        base: 0,
        // Of texts, and in any case until it is known better.
        data: primitives.allocate(0)?,
        validity,
        offsets: None,
        dictionary: None,
        zones: Vec::new(),
        scattered: made.column.scattered.filter(|_| rows >= SCATTERED_ROWS).map(|values| values.min(rows)),
        has_frequent: false,
        sample: None,
        clustered: OnceLock::new(),
        is_unique: false,
        order: made.column.order.filter(|_| measured.nulls == 0),
        spacing: None,
        coded: OnceLock::new(),
    };
    let same = |scalar| Written { from: scalar, to: scalar, base: 0, filler: 0 };
    match &made.values {
        MadeValues::Integers(scalar, array) => {
            integers(primitives, (*scalar, array, valid), (made, measured), first, &mut column)?;
        }
        MadeValues::Floats(scalar, array) => {
            column.layout.storage = Storage::Fixed { scalar: *scalar, has_base: false };
            column.data = written(primitives, (array, None), (first, rows), same(*scalar))?;
        }
        MadeValues::Codes(code, array, entries, dictionary) => {
            column.layout.storage = Storage::Dictionary { code: *code, entries: *entries };
            column.data = written(primitives, (array, None), (first, rows), same(*code))?;
            column.dictionary = Some(dictionary.clone());
        }
        MadeValues::Texts { starts, lengths, heap } => {
            let ends = primitives.allocate((rows + 1) * 4)?;
            primitives.stream().fill(&ends, rows as usize * 4, 4, 0)?;
            primitives.write_values((lengths, None), (first, rows), same(Scalar::U32), &ends)?;
            primitives.exclusive_scan(&ends, rows + 1)?;
            column.data = primitives.allocate(measured.more)?;
            primitives.write_texts((starts, heap), (first, rows), (&ends, &column.data))?;
            column.offsets = Some(ends);
        }
    }
    Ok(column)
}

/// As [`encode`], of integers: as narrow as they allow.
fn integers(
    primitives: &mut Primitives<'_>,
    (scalar, array, valid): (Scalar, &Array, Option<&Array>),
    (made, measured): (&Made<'_>, Measured),
    first: u64,
    column: &mut ResidentColumn,
) -> Result<(), EngineError> {
    let rows = column.rows;
    let is_wide = scalar == Scalar::I128 && measured.more > 0;
    let (width, range) = match is_wide {
        // Bounds beyond 64 bits are not measured.
        true => (Width { scalar: Scalar::I128, base: 0 }, made.column.range),
        false => {
            let range = measured.range.unwrap_or(Range { min: 0, max: 0 });
            (Width::of(range), Some(range))
        }
    };
    if rows > 0 && !is_wide {
        column.zones.push(Zone { rows, range: measured.range });
    }
    column.layout.storage = width.storage();
    column.layout.range = range;
    column.base = width.base;
    // A value under a NULL is one within the bounds.
    let filler = range.map_or(0, |range| range.min.wrapping_sub(width.base));
    let as_is = Written { from: scalar, to: width.scalar, base: width.base, filler };
    column.data = written(primitives, (array, valid), (first, rows), as_is)?;
    Ok(())
}

/// Values in a buffer of their own: the one in which they are, where that is as they are to be.
fn written(
    primitives: &mut Primitives<'_>,
    (array, valid): (&Array, Option<&Array>),
    (first, rows): (u64, u64),
    how: Written,
) -> Result<Buffer, EngineError> {
    let bytes = rows.saturating_mul(u64::from(how.to.bytes()));
    let fits = (array.0.bytes() as u64) <= bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
    let is_same = how.from == how.to && how.base == 0 && valid.is_none();
    if is_same && fits && first == 0 && array.1 == 0 {
        return Ok(Arc::clone(&array.0));
    }
    let out = primitives.allocate(bytes)?;
    primitives.write_values((array, valid), (first, rows), how, &out)?;
    Ok(out)
}
