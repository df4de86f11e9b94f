//! The rows of some ranks of an order, which are few, without a sort.
//!
//! Digit by digit of their first words, keys are counted in the range in which the wanted ranks lie, until so few rows are left
//! that the host puts them in order by all words. Where too many rows have one and the same word, it goes on among these with
//! the next word; and where that word is the last of a text that is longer than its words, with the text's next bytes: those
//! that all of them have in common are left out, so that texts with one long beginning take no more steps than others. So the
//! texts of a billion addresses of one site are told apart on the device, and only rows around the wanted ranks leave it.
//!
//! What is given may be some rows more than are wanted: where the last words that were looked at do not decide between rows at
//! the edges, all of these, for whoever compares their texts.

use std::cmp::Ordering;
use std::ops::Range;

use kelpie_compile::operator::sort::words::{EXACT_TEXT_BYTES, is_cut};
use kelpie_compile::primitives::select::{ENDS, WORD_BYTES};
use kelpie_device::Buffer;

use crate::error::EngineError;
use crate::primitives::{Primitives, Rows, Varying};

/// Words that are looked at one after the other, at most: what is not decided then is sorted.
const MOST_STEPS: u32 = 64;
/// Bits of a digit.
const DIGIT_BITS: u32 = 8;

/// A text among the keys.
#[derive(Debug)]
pub(crate) struct KeyText {
    /// The word (its number) that ends what the words have of it.
    pub(crate) word: usize,
    pub(crate) descending: bool,
    /// The addresses and lengths of all rows' texts.
    pub(crate) stored: Option<(Buffer, Buffer)>,
}

/// Finds rows by their rank.
pub(crate) struct Selector<'p, 'a> {
    pub(crate) primitives: &'p mut Primitives<'a>,
    /// Of all rows, the most significant first.
    pub(crate) words: &'p [Buffer],
    pub(crate) texts: &'p [KeyText],
    /// Rows that the host may put in order.
    pub(crate) host_rows: u64,
    /// Words that were looked at.
    pub(crate) steps: u32,
}

/// Rows of an order one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    /// How many rows come before them.
    pub(crate) start: u64,
    pub(crate) places: Vec<u32>,
    /// They are those that are wanted, and in order: nothing is left to be compared.
    pub(crate) is_decided: bool,
}

impl Picked {
    /// Adds the rows that follow.
    fn append(&mut self, next: Picked) {
        self.places.extend(next.places);
        self.is_decided &= next.is_decided;
    }
}

/// What rows are told apart by.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// A word.
    Word(usize),
    /// The bytes of a text (its number) from one on.
    Text(usize, u32),
}

/// Rows with their keys on a level.
struct Keyed<'k> {
    rows: &'k Rows,
    keys: Buffer,
    level: Level,
}

/// Keys of a range, in which the bits `left` are not the same.
#[derive(Debug, Clone, Copy)]
struct KeyRange {
    low: u64,
    high: u64,
    left: u64,
    count: u64,
}

impl KeyRange {
    /// The keys in it whose digits at `shift` are from one to another.
    fn with_digits(self, shift: u32, digits: (usize, usize), count: u64) -> KeyRange {
        let mask = (u64::MAX >> (64 - DIGIT_BITS)) << shift;
        let low = self.low & !mask | (digits.0 as u64) << shift;
        let high = self.high & !mask | (digits.1 as u64) << shift;
        KeyRange { low, high, left: self.left & ((1 << shift) - 1), count }
    }
}

impl Selector<'_, '_> {
    /// The rows of these ranks among `count` rows; `None` where that would take too many steps.
    pub(crate) fn select(&mut self, count: u64, wanted: Range<u64>) -> Result<Option<Picked>, EngineError> {
        self.pick(&Rows { list: None, count }, Level::Word(0), wanted)
    }

    /// The same where the host puts all rows in order.
    pub(crate) fn on_host(&mut self, count: u64, wanted: Range<u64>) -> Result<Picked, EngineError> {
        self.sorted_part(&Rows { list: None, count }, Level::Word(0), wanted)
    }

    /// The rows of some ranks among rows that are equal on all levels before.
    fn pick(&mut self, rows: &Rows, level: Level, wanted: Range<u64>) -> Result<Option<Picked>, EngineError> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Ok(None);
        }
        let level = match level {
            Level::Text(text, from) => {
                let Some((addresses, lengths)) = &self.texts[text].stored else { return Ok(None) };
                Level::Text(text, self.primitives.common_bytes((addresses, lengths), rows, from)?)
            }
            Level::Word(_) => level,
        };
        if rows.count <= self.host_rows {
            return self.sorted_part(rows, level, wanted).map(Some);
        }
        let keyed = Keyed { rows, keys: self.keys(rows, level)?, level };
        let Varying { bits: left, first, .. } = self.primitives.varying(&keyed.keys, None, rows.count)?;
        let range = KeyRange { low: first & !left, high: first | left, left, count: rows.count };
        self.within(&keyed, range, wanted)
    }

    /// The keys of rows on a level.
    fn keys(&mut self, rows: &Rows, level: Level) -> Result<Buffer, EngineError> {
        match level {
            Level::Word(word) => self.primitives.words_of(&self.words[word], rows),
            Level::Text(text, from) => {
                let text = &self.texts[text];
                let Some((addresses, lengths)) = &text.stored else {
                    return Err(EngineError::Internal("a text of a sort that is not stored".into()));
                };
                self.primitives.text_words((addresses, lengths), rows, (from, text.descending))
            }
        }
    }

    /// The rows of some ranks among those whose keys are in a range.
    fn within(
        &mut self,
        keyed: &Keyed<'_>,
        range: KeyRange,
        wanted: Range<u64>,
    ) -> Result<Option<Picked>, EngineError> {
        if range.count <= self.host_rows {
            return self.collected(keyed, range, wanted).map(Some);
        }
        if range.left == 0 {
            return self.tied(keyed, range, wanted);
        }
        let top = u64::BITS - 1 - range.left.leading_zeros();
        let shift = (top + 1).saturating_sub(DIGIT_BITS);
        let bounds = (range.low, range.high);
        let counts = self.primitives.count_digits(&keyed.keys, keyed.rows.count, bounds, shift)?;
        let ((from, before), (to, _)) = (digit_of(&counts, wanted.start), digit_of(&counts, wanted.end - 1));
        let total: u64 = counts[from..=to].iter().sum();
        let wanted = wanted.start - before..wanted.end - before;
        let picked = if from == to {
            self.within(keyed, range.with_digits(shift, (from, from), total), wanted)?
        } else if total <= self.host_rows {
            self.collected(keyed, range.with_digits(shift, (from, to), total), wanted).map(Some)?
        } else {
            self.over_digits(keyed, (range, shift), (&counts, from, to), wanted)?
        };
        Ok(picked.map(|picked| Picked { start: picked.start + before, ..picked }))
    }

    /// The rows of some ranks that begin among the keys with digit `from` and end among those with `to`: those between are
    /// all wanted.
    fn over_digits(
        &mut self,
        keyed: &Keyed<'_>,
        (range, shift): (KeyRange, u32),
        (counts, from, to): (&[u64], usize, usize),
        wanted: Range<u64>,
    ) -> Result<Option<Picked>, EngineError> {
        let middle: u64 = counts[from + 1..to].iter().sum();
        let first = range.with_digits(shift, (from, from), counts[from]);
        let Some(mut picked) = self.within(keyed, first, wanted.start..counts[from])? else {
            return Ok(None);
        };
        if middle > 0 {
            let between = range.with_digits(shift, (from + 1, to - 1), middle);
            picked.append(self.collected(keyed, between, 0..middle)?);
        }
        let last = range.with_digits(shift, (to, to), counts[to]);
        let Some(last) = self.within(keyed, last, 0..wanted.end - counts[from] - middle)? else {
            return Ok(None);
        };
        picked.append(last);
        Ok(Some(picked))
    }

    /// The same as [`Self::within`] of few rows.
    fn collected(
        &mut self,
        keyed: &Keyed<'_>,
        range: KeyRange,
        wanted: Range<u64>,
    ) -> Result<Picked, EngineError> {
        let part = self.part(keyed, range, range.count)?;
        self.sorted_part(&part, keyed.level, wanted)
    }

    /// The rows whose keys are in a range, or `limit` of them.
    fn part(&mut self, keyed: &Keyed<'_>, range: KeyRange, limit: u64) -> Result<Rows, EngineError> {
        match range.count == keyed.rows.count && limit == range.count {
            true => Ok(keyed.rows.clone()),
            false => self.primitives.collect_range(&keyed.keys, keyed.rows, (range.low, range.high), limit),
        }
    }

    /// The rows of some ranks among many that have one key.
    fn tied(
        &mut self,
        keyed: &Keyed<'_>,
        range: KeyRange,
        wanted: Range<u64>,
    ) -> Result<Option<Picked>, EngineError> {
        match self.next_level(keyed.level, range.low) {
            Some(level) => {
                let rows = self.part(keyed, range, range.count)?;
                self.pick(&rows, level, wanted)
            }
            // Their keys are equal: any will do.
            None => {
                let rows = self.part(keyed, range, wanted.end - wanted.start)?;
                let (mut places, _) = self.primitives.to_host(&rows, &[])?;
                places.truncate((wanted.end - wanted.start) as usize);
                Ok(Some(Picked { start: wanted.start, places, is_decided: true }))
            }
        }
    }

    /// What tells rows apart that have the same key on a level.
    fn next_level(&self, level: Level, key: u64) -> Option<Level> {
        let word = match level {
            Level::Word(word) => {
                let cut = |text: &KeyText| text.word == word && is_cut(key, text.descending);
                if let Some(text) = self.texts.iter().position(cut) {
                    return Some(Level::Text(text, EXACT_TEXT_BYTES));
                }
                word
            }
            Level::Text(text, from) => {
                if !ends(key, self.texts[text].descending) {
                    return Some(Level::Text(text, from + WORD_BYTES));
                }
                self.texts[text].word
            }
        };
        (word + 1 < self.words.len()).then_some(Level::Word(word + 1))
    }

    /// The rows of some ranks among few rows that are equal on all levels before: the host puts them in order.
    fn sorted_part(&mut self, rows: &Rows, level: Level, wanted: Range<u64>) -> Result<Picked, EngineError> {
        let mut buffers = vec![self.keys(rows, level)?];
        let word = match level {
            Level::Word(word) => word,
            Level::Text(text, _) => self.texts[text].word,
        };
        for later in self.words.iter().skip(word + 1) {
            buffers.push(self.primitives.words_of(later, rows)?);
        }
        let (places, keys) = self.primitives.to_host(rows, &buffers)?;
        let part = HostPart { keys: &keys, level, word, texts: self.texts };
        let (start, order) = part.ranks(rows.count as usize, wanted.start as usize..wanted.end as usize);
        let is_decided = !order.windows(2).any(|pair| part.is_undecided(pair[0], pair[1]));
        let places = order.into_iter().filter_map(|row| places.get(row as usize).copied()).collect();
        Ok(Picked { start: start as u64, places, is_decided })
    }
}

/// The digit in which a rank lies, and how many keys have a lower one.
fn digit_of(counts: &[u64], rank: u64) -> (usize, u64) {
    let mut before = 0;
    for (digit, count) in counts.iter().enumerate() {
        if rank < before + count {
            return (digit, before);
        }
        before += count;
    }
    (counts.len() - 1, before)
}

/// Whether a text ends within a key of its bytes.
fn ends(key: u64, descending: bool) -> bool {
    let key = if descending { !key } else { key };
    key & 0xff != ENDS
}

/// Rows on the host.
struct HostPart<'h> {
    /// Their keys on a level, and the words after it.
    keys: &'h [Vec<u64>],
    level: Level,
    /// The word of the level, or the one that ends its text.
    word: usize,
    texts: &'h [KeyText],
}

impl HostPart<'_> {
    /// Rows in order, and the rank of the first: those that are wanted, and around them all that the keys do not tell from the
    /// first or the last.
    fn ranks(&self, count: usize, wanted: Range<usize>) -> (usize, Vec<u32>) {
        let wanted = wanted.start.min(count)..wanted.end.min(count);
        let Some(first) = self.keys.first().filter(|_| !wanted.is_empty()) else {
            return (wanted.start, Vec::new());
        };
        let mut order: Vec<(u64, u32)> = first.iter().copied().zip(0..).collect();
        let compare = |a: &(u64, u32), b: &(u64, u32)| {
            let later = || self.keys[1..].iter().map(|keys| keys[a.1 as usize].cmp(&keys[b.1 as usize]));
            let by_words = || later().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
            // Rows that are equal keep the order of their places, as they do where the device sorts.
            a.0.cmp(&b.0).then_with(by_words).then(a.1.cmp(&b.1))
        };
        if wanted.end < count {
            let (_, last, after) = order.select_nth_unstable_by(wanted.end - 1, compare);
            let last = *last;
            let tied: Vec<(u64, u32)> =
                after.iter().filter(|row| self.is_undecided(last.1, row.1)).copied().collect();
            order.truncate(wanted.end);
            order.extend(tied);
        }
        order.sort_unstable_by(compare);
        let mut start = wanted.start;
        while start > 0 && self.is_undecided(order[start - 1].1, order[start].1) {
            start -= 1;
        }
        (start, order[start..].iter().map(|(_, row)| *row).collect())
    }

    /// Whether two rows are equal up to a text of which there is more than the keys have.
    fn is_undecided(&self, a: u32, b: u32) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        for (index, keys) in self.keys.iter().enumerate() {
            let (key, other) = (keys[a as usize], keys[b as usize]);
            if key != other {
                return false;
            }
            let goes_on = match (index, self.level) {
                (0, Level::Text(text, _)) => !ends(key, self.texts[text].descending),
                _ => {
                    let word = self.word + index;
                    self.texts.iter().any(|text| text.word == word && is_cut(key, text.descending))
                }
            };
            if goes_on {
                return true;
            }
        }
        false
    }
}
