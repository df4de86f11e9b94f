//! Distinct texts and their numbers.

use std::hash::{BuildHasher, RandomState};
use std::iter::repeat_n;

/// A dictionary has at most this many entries.
pub(in crate::columns) const MAX_ENTRIES: usize = 1 << 20;
/// ... and at most this many bytes.
const MAX_ENTRY_BYTES: usize = 256 << 20;

/// Texts that are looked for at once, so that the processor waits for several places in memory together.
const BLOCK: usize = 16;

/// Distinct texts, numbered in the order in which they were first seen.
#[derive(Debug)]
pub(in crate::columns) struct Interner {
    /// Open addressing with linear probing, a power of two of slots, at most half full: upper half of the hash and
    /// code + 1; 0 where empty.
    slots: Vec<u64>,
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    limit: usize,
    /// Random, so that no data can be made to collide.
    seed: u64,
}

impl Interner {
    /// For at most `limit` (and at most 2^20) entries.
    pub(in crate::columns) fn new(limit: usize) -> Interner {
        let (slots, offsets) = (vec![0; 64], vec![0]);
        let seed = RandomState::new().hash_one(0u8);
        Interner { slots, offsets, bytes: Vec::new(), limit: limit.min(MAX_ENTRIES), seed }
    }

    /// From now on it has at most so many entries.
    pub(super) fn limit_to(&mut self, limit: usize) {
        self.limit = limit.min(MAX_ENTRIES);
    }

    pub(in crate::columns) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Offsets of the entries, one more than there are.
    pub(in crate::columns) fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Bytes of all entries.
    pub(in crate::columns) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// An entry; empty where the code is none.
    pub(in crate::columns) fn entry(&self, code: usize) -> &[u8] {
        match (self.offsets.get(code), self.offsets.get(code + 1)) {
            (Some(start), Some(end)) => self.bytes.get(*start as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The code of a text, which is added where it is new; `None` where that exceeds the limits.
    pub(in crate::columns) fn intern(&mut self, text: &[u8]) -> Option<u32> {
        let hash = self.hash(text);
        self.intern_hashed(text, hash)
    }

    /// The codes of texts in their order.
    pub(in crate::columns) fn intern_all<'a>(
        &mut self,
        texts: impl Iterator<Item = &'a [u8]>,
        mut take: impl FnMut(u32),
    ) -> Option<()> {
        let mut texts = texts.fuse();
        loop {
            let (mut block, mut count) = ([&[] as &[u8]; BLOCK], 0);
            for (place, text) in block.iter_mut().zip(&mut texts) {
                *place = text;
                count += 1;
            }
            self.intern_block(block.get(..count)?, &mut take)?;
            if count < BLOCK {
                return Some(());
            }
        }
    }

    fn intern_block(&mut self, texts: &[&[u8]], take: &mut impl FnMut(u32)) -> Option<()> {
        let (mut hashes, mut slots, mut spans) = ([0; BLOCK], [0; BLOCK], [(0, 0); BLOCK]);
        let mask = self.slots.len() - 1;
        for (hash, text) in hashes.iter_mut().zip(texts) {
            *hash = self.hash(text);
        }
        for (slot, hash) in slots.iter_mut().zip(&hashes) {
            *slot = self.slots.get(*hash as usize & mask).copied().unwrap_or(0);
        }
        for (span, slot) in spans.iter_mut().zip(&slots) {
            let code = (*slot as u32).wrapping_sub(1) as usize;
            let at = |place: usize| self.offsets.get(place).map_or(0, |offset| *offset as usize);
            *span = (at(code), at(code.wrapping_add(1)));
        }
        for (((text, hash), slot), (start, end)) in texts.iter().zip(hashes).zip(slots).zip(spans) {
            // Mostly the first slot has it.
            let is_first = slot != 0 && slot >> 32 == hash >> 32 && self.bytes.get(start..end) == Some(*text);
            take(if is_first { slot as u32 - 1 } else { self.intern_hashed(text, hash)? });
        }
        Some(())
    }

    fn intern_hashed(&mut self, text: &[u8], hash: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut index = hash as usize & mask;
        loop {
            let slot = *self.slots.get(index)?;
            if slot == 0 {
                break;
            }
            let code = slot as u32 - 1;
            if slot >> 32 == hash >> 32 && self.entry(code as usize) == text {
                return Some(code);
            }
            index = (index + 1) & mask;
        }
        if self.len() >= self.limit || self.bytes.len() + text.len() > MAX_ENTRY_BYTES {
            return None;
        }
        let code = self.len() as u32;
        self.push(text);
        *self.slots.get_mut(index)? = (hash >> 32 << 32) | (u64::from(code) + 1);
        if self.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(code)
    }

    /// Adds an entry that nobody looks for.
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.offsets.push(self.bytes.len() as u32);
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        // Written at once: memory that is read first is mapped twice.
        let mut slots: Vec<u64> = repeat_n(0, mask + 1).collect();
        for code in 0..self.len() {
            let hash = self.hash(self.entry(code));
            let mut index = hash as usize & mask;
            while slots[index] != 0 {
                index = (index + 1) & mask;
            }
            slots[index] = (hash >> 32 << 32) | (code as u64 + 1);
        }
        self.slots = slots;
    }

    /// A multiply-and-fold hash, 8 bytes a step: short texts dominate, for which a keyed SipHash is too slow.
    fn hash(&self, text: &[u8]) -> u64 {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |value: u64| {
            let product = u128::from(value) * u128::from(MULTIPLIER);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let mut hash = fold(self.seed ^ text.len() as u64);
        let (words, tail) = text.as_chunks::<8>();
        for word in words {
            hash = fold(hash ^ u64::from_le_bytes(*word));
        }
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        fold(hash ^ rest)
    }

    /// The same entries in the order of their bytes, in which nothing is looked for any more, and the new code of each.
    pub(super) fn sorted(&self) -> (Interner, Vec<u32>) {
        let common = self.common_prefix();
        // Behind what all begin with, the next bytes tell most apart.
        let head = |entry: &[u8]| {
            let mut head = [0; 8];
            head.iter_mut().zip(entry.iter().skip(common)).for_each(|(byte, of_entry)| *byte = *of_entry);
            u64::from_be_bytes(head)
        };
        let mut order: Vec<(u64, u32)> =
            (0..self.len()).map(|code| (head(self.entry(code)), code as u32)).collect();
        let entry = |code: u32| self.entry(code as usize);
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| entry(a.1).cmp(entry(b.1))));
        let (mut sorted, mut ranks) = (Interner::new(self.len()), vec![0; self.len()]);
        sorted.bytes.reserve(self.bytes.len());
        for (rank, (_, code)) in order.into_iter().enumerate() {
            ranks[code as usize] = rank as u32;
            sorted.push(entry(code));
        }
        (sorted, ranks)
    }

    /// How many bytes all entries begin with.
    fn common_prefix(&self) -> usize {
        let first = self.entry(0);
        (1..self.len()).fold(first.len(), |common, code| {
            let both = first.iter().zip(self.entry(code)).take(common);
            both.take_while(|(a, b)| a == b).count()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_in_order_of_appearance_up_to_the_limit() {
        let mut entries = Interner::new(1000);
        let texts: Vec<String> = (0..1000).map(|i| "é".repeat(i % 23) + &i.to_string()).collect();
        for round in 0..2 {
            for (index, text) in texts.iter().enumerate() {
                assert_eq!(entries.intern(text.as_bytes()), Some(index as u32), "round {round}");
            }
        }
        assert_eq!(entries.intern(b"one more"), None);
        assert_eq!(entries.entry(999), texts[999].as_bytes());
        assert_eq!(entries.entry(1000), b"");
        assert_eq!(entries.offsets().len(), 1001);
    }

    #[test]
    fn texts_that_differ_in_zero_bytes_differ() {
        let mut entries = Interner::new(10);
        for (index, text) in ["", "\0", "\0\0", "a", "a\0", "12345678", "12345678\0"].iter().enumerate() {
            assert_eq!(entries.intern(text.as_bytes()), Some(index as u32));
        }
    }

    #[test]
    fn texts_get_the_same_codes_one_by_one_and_all_at_once() {
        let texts: Vec<String> =
            (0..5000_u32).map(|i| format!("text {}", i.wrapping_mul(2_654_435_761) % 700)).collect();
        let (mut one_by_one, mut at_once) = (Interner::new(1000), Interner::new(1000));
        let single: Vec<u32> = texts.iter().map(|text| one_by_one.intern(text.as_bytes()).unwrap()).collect();
        let mut all = Vec::new();
        at_once.intern_all(texts.iter().map(String::as_bytes), |code| all.push(code)).unwrap();
        assert_eq!(single, all);
        let mut few = Interner::new(100);
        assert_eq!(few.intern_all(texts.iter().map(String::as_bytes), |_| {}), None);
    }

    #[test]
    fn sorted_entries_are_in_the_order_of_their_bytes() {
        let texts = ["+49 12", "+49 1", "+49 123456789", "+49 123456788", "+49 9", "+49 ", "+49 1\0"];
        let mut entries = Interner::new(10);
        texts.iter().for_each(|text| {
            entries.intern(text.as_bytes());
        });
        let (sorted, ranks) = entries.sorted();
        let mut expected = texts;
        expected.sort_unstable();
        for (code, text) in texts.iter().enumerate() {
            assert_eq!(expected[ranks[code] as usize], *text);
            assert_eq!(sorted.entry(ranks[code] as usize), text.as_bytes());
        }
    }
}
