//! The end of a sort by words that do not decide all of the order (`compile::primitives::ties`): rows that are equal up to a
//! text which goes on behind its words are put in order by its next bytes, and again by the next, until all texts that are not
//! the same are told apart. Only rows of groups that are still undecided take part.

use kelpie_compile::operator::sort::words::{CUT_BITS, EXACT_TEXT_BYTES};
use kelpie_compile::primitives::select::{ENDS, WORD_BYTES};
use kelpie_compile::primitives::{radix, ties};
use kelpie_device::Buffer;
use kelpie_kir::Scalar;

use super::{Primitives, Rows, integer, whole};
use crate::error::EngineError;
use crate::sorting::KeyText;

/// Words that are looked at one after the other, at most.
const MOST_STEPS: u32 = 64;

/// Rows whose order is not decided, one group after the other.
struct Open {
    count: u64,
    /// Where they are in the order, `u32`.
    positions: Buffer,
    /// The rows that are there, `u32`.
    places: Buffer,
    /// Where groups begin, `u32`.
    starts: Buffer,
}

/// Which keys leave a row undecided: those that have `value` in the bits of `mask`.
#[derive(Clone, Copy)]
struct Undecided {
    mask: u64,
    value: u64,
}

impl Primitives<'_> {
    /// Changes an order by words of `rows` rows to the order by words and texts. Whether it has come to its end; if not, the
    /// order is still one by words.
    pub(crate) fn resolve_ties(
        &mut self,
        order: &Buffer,
        words: &[Buffer],
        texts: &[KeyText],
        rows: u64,
    ) -> Result<bool, EngineError> {
        if texts.is_empty() {
            return Ok(true);
        }
        let starts = self.allocate(rows.saturating_mul(4))?;
        self.stream.fill(&starts, 0, rows as usize * 4, 0)?;
        let by_order = Rows { list: Some(Buffer::clone(order)), count: rows };
        let (mut first, mut steps) = (0, 0);
        for text in texts {
            let mut keys = None;
            for word in &words[first..=text.word] {
                let of_word = self.words_of(word, &by_order)?;
                self.split(&of_word, &starts, rows)?;
                keys = Some(of_word);
            }
            first = text.word + 1;
            let Some(keys) = keys else { continue };
            let cut = Undecided { mask: CUT_BITS, value: u64::from(EXACT_TEXT_BYTES) + 1 };
            let Some((open, count)) = self.open((&keys, &starts), rows, text, cut)? else { continue };
            let Some((addresses, lengths)) = &text.stored else { return Ok(false) };
            let numbers = self.allocate(rows.saturating_mul(4))?;
            self.over(radix::IOTA, self.tiles(rows), &[whole(&numbers)])?;
            let mut open = self.take(&open, rows, [&numbers, order, &starts], count)?;
            let mut from = EXACT_TEXT_BYTES;
            while let Some(common) = self.common_in((addresses, lengths), &open, from)? {
                steps += 1;
                if steps > MOST_STEPS {
                    return Ok(false);
                }
                from = common;
                match self.refine((addresses, lengths), text, from, open, (order, &starts))? {
                    Some(left) => open = left,
                    None => break,
                }
                from += WORD_BYTES;
            }
        }
        Ok(true)
    }

    /// Puts rows in order within their groups by their texts' bytes from one on; what is still undecided then.
    fn refine(
        &mut self,
        stored: (&Buffer, &Buffer),
        text: &KeyText,
        from: u32,
        open: Open,
        (order, all_starts): (&Buffer, &Buffer),
    ) -> Result<Option<Open>, EngineError> {
        let Open { count, positions, places, starts } = open;
        let rows = Rows { list: Some(Buffer::clone(&places)), count };
        let keys = self.text_words(stored, &rows, (from, text.descending))?;
        let (bits, tiles) = (self.allocate(8)?, self.tiles(count));
        self.stream.fill(&bits, 0, 8, 0)?;
        self.over(ties::VARYING_IN, tiles, &[whole(&keys), whole(&starts), whole(&bits)])?;
        let mut mask = [0; 8];
        self.stream.download(&bits, 0, &mut mask)?;
        // Nothing else tells rows of a group apart.
        let mask = integer(Scalar::U64, u64::from_le_bytes(mask));
        let scanned = self.copy_of(&starts, count)?;
        self.exclusive_scan(&scanned, count)?;
        let (groups, masked) = (self.allocate(count * 8)?, self.allocate(count * 8)?);
        let own = [whole(&scanned), whole(&starts), whole(&keys), mask, whole(&groups), whole(&masked)];
        self.over(ties::GROUPS, tiles, &own)?;
        let sorted = self.sort(&[groups, masked], count)?.order;
        let (sorted_places, sorted_keys) = (self.allocate(count * 4)?, self.allocate(count * 8)?);
        let own = [&sorted, &places, &keys, &sorted_places, &sorted_keys].map(whole);
        self.over(ties::MOVE, tiles, &own)?;
        self.split(&sorted_keys, &starts, count)?;
        let own = [&positions, &sorted_places, &starts, order, all_starts].map(whole);
        self.over(ties::WRITE, tiles, &own)?;
        let goes_on = Undecided { mask: 0xff, value: ENDS };
        match self.open((&sorted_keys, &starts), count, text, goes_on)? {
            Some((flags, left)) => {
                self.take(&flags, count, [&positions, &sorted_places, &starts], left).map(Some)
            }
            None => Ok(None),
        }
    }

    fn split(&mut self, keys: &Buffer, starts: &Buffer, rows: u64) -> Result<(), EngineError> {
        self.over(ties::SPLIT, self.tiles(rows), &[whole(keys), whole(starts)])
    }

    /// Which rows are undecided, as the prefix sum of their flags, and how many; `None` where none is.
    fn open(
        &mut self,
        (keys, starts): (&Buffer, &Buffer),
        rows: u64,
        text: &KeyText,
        which: Undecided,
    ) -> Result<Option<(Buffer, u64)>, EngineError> {
        let open = self.allocate((rows + 1).saturating_mul(4))?;
        let flip = if text.descending { u64::MAX } else { 0 };
        let [flip, mask, value] = [flip, which.mask, which.value].map(|word| integer(Scalar::U64, word));
        let own = [whole(keys), whole(starts), flip, mask, value, whole(&open)];
        self.over(ties::OPEN, self.tiles(rows), &own)?;
        self.exclusive_scan(&open, rows + 1)?;
        let mut count = [0; 4];
        self.stream.download(&open, rows as usize * 4, &mut count)?;
        let count = u64::from(u32::from_le_bytes(count));
        Ok((count > 0).then_some((open, count)))
    }

    /// The undecided of `rows` rows, given by where they are in the order, the rows that are there and starts of groups.
    fn take(
        &mut self,
        open: &Buffer,
        rows: u64,
        [positions, places, starts]: [&Buffer; 3],
        count: u64,
    ) -> Result<Open, EngineError> {
        let bytes = count.saturating_mul(4);
        let taken = Open {
            count,
            positions: self.allocate(bytes)?,
            places: self.allocate(bytes)?,
            starts: self.allocate(bytes)?,
        };
        let out = [&taken.positions, &taken.places, &taken.starts];
        let own = [open, positions, places, starts, out[0], out[1], out[2]].map(whole);
        self.over(ties::TAKE, self.tiles(rows), &own)?;
        Ok(taken)
    }

    /// Up to which byte the texts of each group are the same; `None` where they are the same altogether.
    fn common_in(
        &mut self,
        (addresses, lengths): (&Buffer, &Buffer),
        open: &Open,
        from: u32,
    ) -> Result<Option<u32>, EngineError> {
        let common = self.allocate(8)?;
        self.stream.fill(&common, 0, 8, u8::MAX)?;
        let from = integer(Scalar::U32, from.into());
        let texts = [whole(addresses), whole(lengths), whole(&open.places), whole(&open.starts)];
        let own = [texts.as_slice(), &[from, whole(&common)]].concat();
        self.over(ties::COMMON_IN, self.tiles(open.count), &own)?;
        let mut word = [0; 8];
        self.stream.download(&common, 0, &mut word)?;
        Ok(u32::try_from(u64::from_le_bytes(word)).ok())
    }

    fn copy_of(&mut self, data: &Buffer, rows: u64) -> Result<Buffer, EngineError> {
        self.part_of_order(data, 0, rows)
    }
}
