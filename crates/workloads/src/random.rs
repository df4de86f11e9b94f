//! Random values as hashes of (seed, column, row).

/// The seed of the data. Regions of SSB's 2,000 suppliers at scale factor 1 are one sample: this seed is one of those under
/// which every query's selectivity is that of the benchmark's own generator (the test `selectivities` holds it).
const SEED: u64 = 714;

/// A column of random values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    key: u64,
}

impl Column {
    /// The column of a name.
    pub const fn new(name: &str) -> Column {
        let (bytes, mut hash, mut i) = (name.as_bytes(), SEED, 0);
        while i < bytes.len() {
            hash = mix(hash ^ bytes[i] as u64);
            i += 1;
        }
        Column { key: hash }
    }

    /// 64 random bits of a row.
    pub fn bits(self, row: u64) -> u64 {
        mix(self.key.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A uniform value below `bound`.
    pub fn below(self, row: u64, bound: u32) -> u32 {
        (((self.bits(row) >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// A uniform value between `low` and `high`, both included.
    pub fn between(self, row: u64, low: i32, high: i32) -> i32 {
        low + self.below(row, (high - low + 1) as u32) as i32
    }

    /// Text of 10 to 40 letters, digits, commas and spaces.
    pub fn address(self, row: u64) -> String {
        const CHARACTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyz,ABCDEFGHIJKLMNOPQRSTUVWXYZ ";
        let length = self.between(row * 8, 10, 40) as usize;
        let mut text = String::with_capacity(length);
        let mut bits = 0;
        for i in 0..length {
            if i % 10 == 0 {
                bits = self.bits(row * 8 + 1 + i as u64 / 10);
            }
            text.push(char::from(CHARACTERS[(bits & 63) as usize]));
            bits >>= 6;
        }
        text
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_uniform_and_within_bounds() {
        let column = Column::new("test");
        let mut counts = [0u32; 10];
        for row in 0..100_000 {
            counts[column.below(row, 10) as usize] += 1;
        }
        assert!(counts.iter().all(|c| c.abs_diff(10_000) < 500), "{counts:?}");
        let values: Vec<i32> = (0..1000).map(|row| column.between(row, -1, 1)).collect();
        assert_eq!((values.iter().min(), values.iter().max()), (Some(&-1), Some(&1)));
        let lengths: Vec<usize> = (0..2000).map(|row| column.address(row).len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&10), Some(&40)));
        assert_ne!(column.bits(0), Column::new("tess").bits(0));
    }
}
