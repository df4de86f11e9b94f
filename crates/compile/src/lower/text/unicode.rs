//! The case mappings of Unicode as tables for kernels, made from Rust's own (which DataFusion uses) when first needed.
//!
//! A table is an array of `u32`: first the number of each block of 128 characters (two numbers a word), then the blocks,
//! an entry a character, then the characters of mappings to several. An entry is 0 where the character stays as it is,
//! else the one character that it becomes or, with [`SEVERAL`], where the three (0 for none) stand that it becomes; with
//! the properties of the character in bits that are free.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Characters of a block: this many bits of their number.
pub(in crate::lower) const BLOCK_BITS: u32 = 7;
/// The character becomes several.
pub(in crate::lower) const SEVERAL: u32 = 1 << 31;
/// In the table of capitals: the character is a letter or a digit. In that of lower case: it has case.
pub(in crate::lower) const PROPERTY: u32 = 1 << 30;
/// In the table of lower case: it does not count where a word's end is looked for.
pub(in crate::lower) const IGNORABLE: u32 = 1 << 29;
/// The bits of a character, or of a place in the table.
pub(in crate::lower) const VALUE: u32 = (1 << 21) - 1;
/// Most characters that one becomes.
pub(in crate::lower) const MOST: usize = 3;
/// The capital letter sigma, whose small letter is another one at the end of a word.
pub(in crate::lower) const SIGMA: char = '\u{3a3}';
/// The small letter at the end of a word.
pub(in crate::lower) const FINAL_SIGMA: char = '\u{3c2}';

const BLOCKS: usize = 0x11_0000 >> BLOCK_BITS;
/// Where the blocks begin, in words.
pub(in crate::lower) const FIRST_BLOCK: u32 = (BLOCKS / 2) as u32;

/// Mappings to upper case.
pub(in crate::lower) static UPPER: LazyLock<Arc<[u8]>> =
    LazyLock::new(|| make(&|c| mapped(c.to_uppercase()), None));

/// Mappings to upper case; [`PROPERTY`] marks letters and digits.
pub(in crate::lower) static CAPITALS: LazyLock<Arc<[u8]>> = LazyLock::new(|| {
    make(&|c| mapped(c.to_uppercase()), Some(&|c| if c.is_alphanumeric() { PROPERTY } else { 0 }))
});

/// Mappings to lower case, with what tells the end of a word.
pub(in crate::lower) static LOWER: LazyLock<Arc<[u8]>> = LazyLock::new(|| {
    let properties = word_properties();
    let of = |c: char| match c {
        '\u{e0000}'..'\u{e0200}' => properties.get(&c).copied().unwrap_or_default(),
        c if may_have_case(c) => properties.get(&c).copied().unwrap_or_default(),
        _ => 0,
    };
    make(&|c| mapped(c.to_lowercase()), Some(&of))
});

/// Every character of a block, where it is one.
fn characters(block: usize) -> impl Iterator<Item = Option<char>> {
    let start = (block << BLOCK_BITS) as u32;
    (start..start + (1 << BLOCK_BITS)).map(char::from_u32)
}

/// What a character becomes; [`NONE`] behind the last one, and everywhere where it stays as it is.
type Mapped = [char; MOST];

const NONE: char = '\0';
const ITSELF: Mapped = [NONE; MOST];

fn mapped(characters: impl Iterator<Item = char>) -> Mapped {
    let mut all = ITSELF;
    all.iter_mut().zip(characters).for_each(|(place, c)| *place = c);
    all
}

/// From this character on, none has another case.
const END_OF_CASES: char = '\u{20000}';

/// Whole blocks of scripts without case (ideographs, syllables, hieroglyphs) and of nothing, where Rust need not be asked: most of what
/// stands before [`END_OF_CASES`]. Nor does one of them stand within a word's end, and letters and digits among them have no capitals.
const WITHOUT_CASE: [std::ops::Range<u32>; 8] = [
    0x3400..0xa000,
    0xac00..0xd800,
    0xe000..0xfb00,
    0x1_2000..0x1_3400,
    0x1_3480..0x1_6100,
    0x1_6180..0x1_6a00,
    0x1_7000..0x1_af80,
    0x1_b000..0x1_bc00,
];

fn may_have_case(c: char) -> bool {
    c < END_OF_CASES && !WITHOUT_CASE.iter().any(|range| range.contains(&u32::from(c)))
}

fn make(map: &dyn Fn(char) -> Mapped, properties: Option<&dyn Fn(char) -> u32>) -> Arc<[u8]> {
    let entry = |c: char| {
        let mapped = if may_have_case(c) { map(c) } else { ITSELF };
        let properties = properties.map_or(0, |properties| properties(c));
        (properties, if mapped == [c, NONE, NONE] { ITSELF } else { mapped })
    };
    let mut numbers: Vec<u16> = Vec::with_capacity(BLOCKS);
    let mut known: HashMap<Vec<(u32, Mapped)>, u16> = HashMap::new();
    let mut blocks: Vec<Vec<(u32, Mapped)>> = Vec::new();
    // Most blocks have nothing to map: they are not compared.
    let mut plain = None;
    for block in 0..BLOCKS {
        let next = blocks.len() as u16;
        let has_cases = block << BLOCK_BITS < END_OF_CASES as usize;
        if let (false, None, Some(plain)) = (has_cases, properties, plain) {
            numbers.push(plain);
            continue;
        }
        let entries: Vec<_> = characters(block).map(|c| c.map_or((0, ITSELF), entry)).collect();
        let number = match entries.iter().all(|entry| *entry == (0, ITSELF)) {
            true => *plain.get_or_insert(next),
            false => *known.entry(entries.clone()).or_insert(next),
        };
        numbers.push(number);
        if number == next {
            blocks.push(entries);
        }
    }
    let mut words: Vec<u32> =
        numbers.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect();
    let mut several: Vec<u32> = Vec::new();
    let behind = words.len() + (blocks.len() << BLOCK_BITS);
    for (properties, mapped) in blocks.iter().flatten() {
        words.push(match *mapped {
            [one, NONE, _] => *properties | u32::from(one),
            more => {
                let place = (behind + several.len()) as u32;
                several.extend(more.map(u32::from));
                *properties | SEVERAL | place
            }
        });
    }
    words.extend(several);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Which characters have case, and which are skipped, where Rust looks for the end of a word. It does not say so itself,
/// but its mapping of a sigma behind them tells.
fn word_properties() -> HashMap<char, u32> {
    // Others have neither property.
    let candidates: Vec<char> = ('\u{1}'..END_OF_CASES)
        .filter(|c| may_have_case(*c))
        .chain('\u{e0000}'..'\u{e0200}')
        .filter(|c| *c != SIGMA)
        .collect();
    // Text that ends a word after each sigma; `before` has no influence on what comes next.
    let is_final = |before: &str| -> Vec<bool> {
        let mut text = String::new();
        for c in &candidates {
            text.push_str(before);
            text.extend([*c, SIGMA, ' ']);
        }
        // Mapped characters may be several: what stands before a space is the sigma of each.
        let mapped = text.to_lowercase();
        let mut found = Vec::with_capacity(candidates.len());
        let mut previous = ' ';
        for c in mapped.chars() {
            if c == ' ' && matches!(previous, '\u{3c3}' | FINAL_SIGMA) {
                found.push(previous == FINAL_SIGMA);
            }
            previous = c;
        }
        found
    };
    let (alone, behind_letter) = (is_final(""), is_final("a"));
    let mut properties = HashMap::new();
    for ((c, alone), behind_letter) in candidates.iter().zip(alone).zip(behind_letter) {
        if alone {
            properties.insert(*c, PROPERTY);
        } else if behind_letter {
            properties.insert(*c, IGNORABLE);
        }
    }
    properties.insert(SIGMA, PROPERTY);
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(table: &[u8], index: usize) -> u32 {
        let place = index * 4;
        u32::from_le_bytes([table[place], table[place + 1], table[place + 2], table[place + 3]])
    }

    fn entry(table: &[u8], c: char) -> u32 {
        let block = (c as usize) >> BLOCK_BITS;
        let number = word(table, block / 2) >> (16 * (block % 2)) & 0xffff;
        word(table, FIRST_BLOCK as usize + ((number as usize) << BLOCK_BITS) + (c as usize & 127))
    }

    fn mapped(table: &[u8], c: char) -> String {
        let found = entry(table, c);
        let value = (found & VALUE) as usize;
        match value {
            _ if found & SEVERAL != 0 => (0..MOST)
                .map(|index| word(table, value + index))
                .filter(|c| *c != 0)
                .filter_map(char::from_u32)
                .collect(),
            0 => c.into(),
            value => char::from_u32(value as u32).into_iter().collect(),
        }
    }

    #[test]
    fn tables_are_rusts_mappings() {
        for c in '\u{0}'..=char::MAX {
            assert_eq!(mapped(&UPPER, c), c.to_uppercase().to_string(), "{c:?}");
            assert_eq!(mapped(&LOWER, c), c.to_lowercase().to_string(), "{c:?}");
            assert_eq!(mapped(&CAPITALS, c), c.to_uppercase().to_string(), "{c:?}");
            assert_eq!(entry(&CAPITALS, c) & PROPERTY != 0, c.is_alphanumeric(), "{c:?}");
        }
        let bytes = [&UPPER, &LOWER, &CAPITALS].map(|table| table.len());
        assert!(bytes.iter().all(|bytes| *bytes < 140_000), "{bytes:?}");
    }

    #[test]
    fn properties_are_those_that_rust_looks_at() {
        let is_final = |text: String| text.to_lowercase().trim_end().ends_with(FINAL_SIGMA);
        // Beyond are no letters with case.
        for c in ('\u{1}'..'\u{40000}')
            .chain('\u{e0000}'..'\u{e1000}')
            .filter(|c| !matches!(*c, SIGMA | '\u{3c2}' | '\u{3c3}'))
        {
            let found = entry(&LOWER, c);
            let (alone, behind) = (is_final(format!("{c}\u{3a3}")), is_final(format!("a{c}\u{3a3}")));
            assert_eq!(found & PROPERTY != 0, alone, "{c:?}");
            assert_eq!(found & IGNORABLE != 0, behind && !alone, "{c:?}");
        }
    }
}
