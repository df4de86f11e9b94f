//! The headers of the pages of Parquet files.

use crate::thrift::{Damaged, Fields, Kind, Reader};

/// A page of data.
pub const DATA: i64 = 0;
/// A dictionary.
pub const DICTIONARY: i64 = 2;
/// A page of data of version 2, whose levels are not compressed.
pub const DATA_V2: i64 = 3;

/// The header of a page, as it says. Nothing of it is held against anything.
#[derive(Debug, Clone, Copy)]
pub struct PageHeader {
    /// [`DATA`], [`DICTIONARY`] or [`DATA_V2`].
    pub kind: i64,
    /// Bytes that it has decompressed.
    pub uncompressed: i64,
    /// Bytes behind the header.
    pub compressed: i64,
    /// Values, those that are NULL among them.
    pub values: i64,
    /// Rows, where it says (version 2).
    pub rows: Option<i64>,
    /// NULLs (version 2).
    pub nulls: i64,
    /// Bytes of its definition and of its repetition levels (version 2).
    pub levels: [i64; 2],
    /// How its values are encoded, and its definition levels (version 1), by the numbers of the format.
    pub encoding: i64,
    /// See `encoding`.
    pub level_encoding: i64,
    /// Whether what comes behind its levels is compressed (version 2).
    pub is_compressed: bool,
}

impl PageHeader {
    /// The next header of some bytes.
    pub fn read(reader: &mut Reader<'_>) -> Result<PageHeader, Damaged> {
        let mut header = PageHeader {
            kind: 0,
            uncompressed: 0,
            compressed: 0,
            values: 0,
            rows: None,
            nulls: 0,
            levels: [0; 2],
            encoding: 0,
            level_encoding: 0,
            is_compressed: true,
        };
        let mut fields = Fields::default();
        while let Some((field, kind)) = reader.field(&mut fields)? {
            match (field, kind) {
                (1, Kind::Integer) => header.kind = reader.integer()?,
                (2, Kind::Integer) => header.uncompressed = reader.integer()?,
                (3, Kind::Integer) => header.compressed = reader.integer()?,
                (5 | 7, Kind::Struct) => header.read_counts(reader)?,
                (8, Kind::Struct) => header.read_counts_of_second(reader)?,
                _ => reader.skip(kind)?,
            }
        }
        Ok(header)
    }

    /// What a page of data, or a dictionary, has.
    fn read_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        let mut fields = Fields::default();
        while let Some((field, kind)) = reader.field(&mut fields)? {
            match (field, kind) {
                (1, Kind::Integer) => self.values = reader.integer()?,
                (2, Kind::Integer) => self.encoding = reader.integer()?,
                (3, Kind::Integer) => self.level_encoding = reader.integer()?,
                _ => reader.skip(kind)?,
            }
        }
        Ok(())
    }

    /// What a page of version 2 has.
    fn read_counts_of_second(&mut self, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        let mut fields = Fields::default();
        while let Some((field, kind)) = reader.field(&mut fields)? {
            match (field, kind) {
                (1, Kind::Integer) => self.values = reader.integer()?,
                (2, Kind::Integer) => self.nulls = reader.integer()?,
                (3, Kind::Integer) => self.rows = Some(reader.integer()?),
                (4, Kind::Integer) => self.encoding = reader.integer()?,
                (5, Kind::Integer) => self.levels[0] = reader.integer()?,
                (6, Kind::Integer) => self.levels[1] = reader.integer()?,
                (7, Kind::True | Kind::False) => self.is_compressed = kind == Kind::True,
                _ => reader.skip(kind)?,
            }
        }
        Ok(())
    }
}
