//! Where integers stand in a structure of Thrift's compact protocol.

use std::ops::Range;

/// The places of all integers of a structure that is as it should be.
pub fn integers(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut walk = Walk { bytes, at: 0, places: Vec::new() };
    walk.structure();
    walk.places
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    places: Vec<Range<usize>>,
}

impl Walk<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn unsigned(&mut self) -> usize {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let byte = self.byte();
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                return value;
            }
        }
    }

    fn structure(&mut self) {
        while self.at < self.bytes.len() {
            let header = self.byte();
            if header == 0 {
                return;
            }
            if header >> 4 == 0 {
                self.unsigned();
            }
            self.value(header & 0x0f, false);
        }
    }

    fn value(&mut self, kind: u8, in_list: bool) {
        match kind {
            1 | 2 if !in_list => {}
            1..=3 => self.at += 1,
            4..=6 => {
                let start = self.at;
                self.unsigned();
                self.places.push(start..self.at);
            }
            7 => self.at += 8,
            8 => {
                let length = self.unsigned();
                self.at += length;
            }
            9 | 10 => {
                let header = self.byte();
                let length = if header >> 4 == 15 { self.unsigned() } else { usize::from(header >> 4) };
                for _ in 0..length {
                    self.value(header & 0x0f, true);
                }
            }
            _ => self.structure(),
        }
    }
}
