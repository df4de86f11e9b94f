//! Selection by rank: its kernels (`compile::primitives::select`), one by one.

use kelpie_compile::primitives::{radix, select};
use kelpie_device::{Buffer, Download, KernelArgument};
use kelpie_kir::Scalar;

use super::{Primitives, integer, whole};
use crate::error::EngineError;

/// Rows: as many of an array, or those whose places a list has.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    /// `u32`s; `None`: all from the first on.
    pub(crate) list: Option<Buffer>,
    pub(crate) count: u64,
}

impl Rows {
    /// The arguments `places` and `listed`; `any`: some buffer.
    fn arguments(&self, any: &Buffer) -> [KernelArgument; 2] {
        let list = self.list.as_ref();
        [whole(list.unwrap_or(any)), integer(Scalar::U32, list.is_some().into())]
    }
}

impl Primitives<'_> {
    /// How many keys from `range.0` to `range.1` have each digit at `shift`.
    pub(crate) fn count_digits(
        &mut self,
        keys: &Buffer,
        rows: u64,
        range: (u64, u64),
        shift: u32,
    ) -> Result<Vec<u64>, EngineError> {
        let mut bytes = vec![0; radix::DIGITS as usize * 4];
        let counts = self.allocate(bytes.len() as u64)?;
        self.stream.fill(&counts, 0, bytes.len(), 0)?;
        let (low, high) = (integer(Scalar::U64, range.0), integer(Scalar::U64, range.1));
        let own = [whole(keys), low, high, integer(Scalar::U32, shift.into()), whole(&counts)];
        self.over(select::COUNTS, self.tiles(rows), &own)?;
        self.stream.download(&counts, 0, &mut bytes)?;
        Ok(u32s(&bytes).map(u64::from).collect())
    }

    /// The places of the rows whose keys are from `range.0` to `range.1`, in any order; no more than `limit`.
    pub(crate) fn collect_range(
        &mut self,
        keys: &Buffer,
        rows: &Rows,
        range: (u64, u64),
        limit: u64,
    ) -> Result<Rows, EngineError> {
        let (out, count) = (self.allocate(limit.saturating_mul(4))?, self.allocate(8)?);
        self.stream.fill(&count, 0, 8, 0)?;
        let (low, high) = (integer(Scalar::U64, range.0), integer(Scalar::U64, range.1));
        let [places, listed] = rows.arguments(&out);
        let limit_argument = integer(Scalar::U64, limit);
        let own = [whole(keys), low, high, places, listed, limit_argument, whole(&count), whole(&out)];
        self.over(select::COLLECT, self.tiles(rows.count), &own)?;
        Ok(Rows { list: Some(out), count: limit })
    }

    /// The words of rows.
    pub(crate) fn words_of(&mut self, word: &Buffer, rows: &Rows) -> Result<Buffer, EngineError> {
        let Some(list) = &rows.list else { return Ok(Buffer::clone(word)) };
        let keys = self.allocate(rows.count.saturating_mul(8))?;
        self.over(radix::GATHER, self.tiles(rows.count), &[whole(word), whole(list), whole(&keys)])?;
        Ok(keys)
    }

    /// How many bytes the texts of rows have in common, which is at least `from`.
    pub(crate) fn common_bytes(
        &mut self,
        (addresses, lengths): (&Buffer, &Buffer),
        rows: &Rows,
        from: u32,
    ) -> Result<u32, EngineError> {
        let common = self.allocate(8)?;
        self.stream.fill(&common, 0, 8, u8::MAX)?;
        let [places, listed] = rows.arguments(lengths);
        let from_argument = integer(Scalar::U32, from.into());
        let own = [whole(addresses), whole(lengths), places, listed, from_argument, whole(&common)];
        self.over(select::TEXT_COMMON, self.tiles(rows.count), &own)?;
        let mut word = [0; 8];
        self.stream.download(&common, 0, &mut word)?;
        Ok(u32::try_from(u64::from_le_bytes(word)).unwrap_or(from).max(from))
    }

    /// The next bytes of the texts of rows from `from` on, as keys.
    pub(crate) fn text_words(
        &mut self,
        (addresses, lengths): (&Buffer, &Buffer),
        rows: &Rows,
        (from, descending): (u32, bool),
    ) -> Result<Buffer, EngineError> {
        let keys = self.allocate(rows.count.saturating_mul(8))?;
        let [places, listed] = rows.arguments(lengths);
        let flip = integer(Scalar::U64, if descending { u64::MAX } else { 0 });
        let from = integer(Scalar::U32, from.into());
        let own = [whole(addresses), whole(lengths), places, listed, from, flip, whole(&keys)];
        self.over(select::TEXT_WORDS, self.tiles(rows.count), &own)?;
        Ok(keys)
    }

    /// `count` places of an order, from number `from` on.
    pub(crate) fn part_of_order(
        &mut self,
        order: &Buffer,
        from: u64,
        count: u64,
    ) -> Result<Buffer, EngineError> {
        let out = self.allocate(count.saturating_mul(4))?;
        let own = [whole(order), integer(Scalar::I64, from), whole(&out)];
        self.over(select::GATHER_LISTED, self.tiles(count), &own)?;
        Ok(out)
    }

    /// The places of rows and some of their words, on the host.
    pub(crate) fn to_host(
        &self,
        rows: &Rows,
        words: &[Buffer],
    ) -> Result<(Vec<u32>, Vec<Vec<u64>>), EngineError> {
        let count = rows.count as usize;
        let mut places = vec![0; if rows.list.is_some() { count * 4 } else { 0 }];
        let mut read = vec![vec![0; count * 8]; words.len()];
        let columns = words.iter().zip(&mut read);
        let mut parts: Vec<Download<'_>> =
            columns.map(|(buffer, data)| Download { buffer, offset: 0, data }).collect();
        if let Some(buffer) = &rows.list {
            parts.push(Download { buffer, offset: 0, data: &mut places });
        }
        self.stream.download_many(&mut parts)?;
        let places = if rows.list.is_some() { u32s(&places).collect() } else { (0..count as u32).collect() };
        let words = read.iter().map(|bytes| {
            let words = bytes.as_chunks::<8>().0.iter();
            words.map(|word| u64::from_le_bytes(*word)).collect()
        });
        Ok((places, words.collect()))
    }
}

fn u32s(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}
