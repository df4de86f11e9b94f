//! Thrift's compact protocol, as far as the metadata of Parquet files is written in it. Nothing is allocated by what a file says: every
//! length is held against the bytes that are left.

use std::fmt;

/// Deeper structures than these are none of Parquet's.
const MOST_LEVELS: usize = 32;

/// Why bytes are no structure.
#[derive(Debug, PartialEq, Eq)]
pub struct Damaged(pub &'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What a field or an entry of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A truth, which is its kind.
    True,
    /// The other.
    False,
    /// Eight bits.
    Byte,
    /// Of 16, 32 or 64 bits: all are written alike.
    Integer,
    /// 64 bits.
    Double,
    /// Bytes, which may be a text.
    Binary,
    /// Or a set.
    List,
    /// Keys and values.
    Map,
    /// Fields.
    Struct,
    /// 128 bits.
    Uuid,
}

impl Kind {
    fn of(code: u8) -> Result<Kind, Damaged> {
        Ok(match code {
            1 => Kind::True,
            2 => Kind::False,
            3 => Kind::Byte,
            4..=6 => Kind::Integer,
            7 => Kind::Double,
            8 => Kind::Binary,
            9 | 10 => Kind::List,
            11 => Kind::Map,
            12 => Kind::Struct,
            13 => Kind::Uuid,
            _ => return Err(Damaged("a type that there is not")),
        })
    }
}

/// Goes through bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The fields of a structure, one after the other.
#[derive(Debug, Default)]
pub struct Fields(i16);

impl<'a> Reader<'a> {
    /// From their first one on.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub fn at(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let end = self.at.checked_add(length).ok_or(Damaged("a length beyond all memory"))?;
        let taken = self.bytes.get(self.at..end).ok_or(Damaged("it is cut off"))?;
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        self.take(1)?.first().copied().ok_or(Damaged("it is cut off"))
    }

    fn unsigned(&mut self) -> Result<u64, Damaged> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged("an integer without end"))
    }

    /// An integer of any width.
    pub fn integer(&mut self) -> Result<i64, Damaged> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Bytes behind their length.
    pub fn binary(&mut self) -> Result<&'a [u8], Damaged> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| Damaged("a length beyond all memory"))?;
        self.take(length)
    }

    /// The next field of a structure: its number and kind; nothing after the last.
    pub fn field(&mut self, fields: &mut Fields) -> Result<Option<(i16, Kind)>, Damaged> {
        let header = self.byte()?;
        if header == 0 {
            return Ok(None);
        }
        let number = match header >> 4 {
            0 => i16::try_from(self.integer()?).ok(),
            delta => fields.0.checked_add(i16::from(delta)),
        };
        fields.0 = number.ok_or(Damaged("a field beyond all numbers"))?;
        Ok(Some((fields.0, Kind::of(header & 0x0f)?)))
    }

    /// The kind of a list's entries and how many there are, each of which takes a byte at least.
    pub fn list(&mut self) -> Result<(Kind, usize), Damaged> {
        let header = self.byte()?;
        let length = match header >> 4 {
            15 => self.unsigned()?,
            length => u64::from(length),
        };
        // Some writers leave the type of an empty list out.
        if length == 0 {
            return Ok((Kind::Byte, 0));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= self.left());
        Ok((Kind::of(header & 0x0f)?, length.ok_or(Damaged("a list that is longer than all of it"))?))
    }

    /// The entries of a list of structures.
    pub fn structures<T>(
        &mut self,
        read: impl Fn(&mut Reader<'a>) -> Result<T, Damaged>,
    ) -> Result<Vec<T>, Damaged> {
        let (kind, length) = self.list()?;
        if length > 0 && kind != Kind::Struct {
            return Err(Damaged("a list of something else than structures"));
        }
        let mut entries = Vec::new();
        for _ in 0..length {
            entries.push(read(self)?);
        }
        Ok(entries)
    }

    /// Leaves out a value.
    pub fn skip(&mut self, kind: Kind) -> Result<(), Damaged> {
        self.skip_below(kind, MOST_LEVELS)
    }

    fn skip_below(&mut self, kind: Kind, levels: usize) -> Result<(), Damaged> {
        let levels = levels.checked_sub(1).ok_or(Damaged("it is too deep"))?;
        match kind {
            Kind::True | Kind::False => {}
            Kind::Byte => drop(self.byte()?),
            Kind::Integer => drop(self.unsigned()?),
            Kind::Double => drop(self.take(8)?),
            Kind::Uuid => drop(self.take(16)?),
            Kind::Binary => drop(self.binary()?),
            Kind::List => {
                let (kind, length) = self.list()?;
                // In a list a boolean is a byte.
                let kind = if matches!(kind, Kind::True | Kind::False) { Kind::Byte } else { kind };
                for _ in 0..length {
                    self.skip_below(kind, levels)?;
                }
            }
            Kind::Map => self.skip_map(levels)?,
            Kind::Struct => {
                let mut fields = Fields::default();
                while let Some((_, kind)) = self.field(&mut fields)? {
                    self.skip_below(kind, levels)?;
                }
            }
        }
        Ok(())
    }

    fn skip_map(&mut self, levels: usize) -> Result<(), Damaged> {
        let length = self.unsigned()?;
        if length == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 0x0f)?);
        if length > self.left() as u64 {
            return Err(Damaged("a map that is longer than all of it"));
        }
        for _ in 0..length {
            self.skip_below(key, levels)?;
            self.skip_below(value, levels)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_held_against_the_bytes() {
        assert_eq!(Reader::new(&[0x02]).integer(), Ok(1));
        assert_eq!(Reader::new(&[0x01]).integer(), Ok(-1));
        assert!(Reader::new(&[0xff; 11]).integer().is_err());
        assert!(Reader::new(&[0x05, b'a']).binary().is_err());
        // A list of 2^31 structures in six bytes.
        assert!(Reader::new(&[0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]).list().is_err());
        // Structures in structures without end.
        assert!(Reader::new(&[0x1c; 1000]).skip(Kind::Struct).is_err());
    }
}
