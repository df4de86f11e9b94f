//! The footer of a Parquet file: what is where in it, and whether that can be.

use std::collections::HashSet;

use super::bounds::{Bounds, bounds};
use kelpie_datafusion::thrift::{Damaged, Fields, Kind, Reader};

/// Bytes that may come of one compressed byte: the best codecs make some millions of it where all is alike.
pub(super) const MOST_BYTES_OF_ONE: i64 = 1 << 24;

/// A column without others inside of it.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    /// Its path, with points between names.
    pub name: String,
    /// Whether a row may have several of its values, or none.
    pub repeated: bool,
    /// Bytes of a value, where all have as many; 0 of a bit.
    pub width: Option<i64>,
    /// How its values are written, by Parquet's number of it.
    pub physical: i64,
    pub is_unsigned: bool,
    pub is_decimal: bool,
    /// Whether it is a UUID, an interval or an enumeration.
    pub is_odd: bool,
}

#[derive(Debug, Default)]
pub(super) struct Footer {
    pub leaves: Vec<Leaf>,
    pub row_groups: Vec<RowGroup>,
    /// What wrote it.
    pub created_by: String,
    /// Of how many columns it says how their values are ordered.
    pub orders: usize,
}

#[derive(Debug, Default)]
pub(super) struct RowGroup {
    pub rows: i64,
    pub columns: Vec<Chunk>,
    /// The columns that it says it is sorted by.
    sorted_by: Vec<i64>,
}

/// The pages of a column in a row group.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub values: i64,
    pub compressed: i64,
    uncompressed: i64,
    data_page: i64,
    dictionary_page: Option<i64>,
    bloom_filter: Option<i64>,
    pub offset_index: Part,
    pub column_index: Part,
    in_another_file: bool,
    is_encrypted: bool,
    /// Whether there are metadata of it.
    pub described: bool,
    /// What is said of its values.
    pub bounds: Option<Bounds>,
}

/// A part of the file.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Part {
    pub offset: Option<i64>,
    pub length: Option<i64>,
}

impl Part {
    /// Its first and last byte, where it is there and within a file of so many bytes.
    pub fn within(self, bytes: u64) -> Result<Option<(u64, u64)>, ()> {
        let (Some(offset), Some(length)) = (self.offset, self.length) else { return Ok(None) };
        range(offset, length, bytes).map(Some)
    }
}

fn range(offset: i64, length: i64, bytes: u64) -> Result<(u64, u64), ()> {
    let (offset, length) = (u64::try_from(offset).map_err(drop)?, u64::try_from(length).map_err(drop)?);
    let end = offset.checked_add(length).ok_or(())?;
    if end <= bytes { Ok((offset, end)) } else { Err(()) }
}

impl Chunk {
    /// Where its bytes are, as readers take them.
    pub fn range(&self, bytes: u64) -> Result<(u64, u64), ()> {
        range(self.dictionary_page.unwrap_or(self.data_page), self.compressed, bytes)
    }
}

impl Footer {
    pub fn parse(bytes: &[u8]) -> Result<Footer, Damaged> {
        let (mut footer, mut reader, mut fields) = (Footer::default(), Reader::new(bytes), Fields::default());
        while let Some((field, kind)) = reader.field(&mut fields)? {
            match (field, kind) {
                (2, Kind::List) => footer.leaves = leaves(&reader.structures(element)?)?,
                (4, Kind::List) => footer.row_groups = reader.structures(row_group)?,
                (6, Kind::Binary) => {
                    footer.created_by = String::from_utf8_lossy(reader.binary()?).into_owned();
                }
                (7, Kind::List) => footer.orders = reader.structures(|order| order.skip(Kind::Struct))?.len(),
                _ => reader.skip(kind)?,
            }
        }
        Ok(footer)
    }

    /// Whether columns are among them that readers do not take as they are meant.
    pub fn has_odd_columns(&self) -> bool {
        let mut names = HashSet::new();
        self.leaves.iter().any(|leaf| leaf.is_odd || !names.insert(leaf.name.as_str()))
    }

    /// What cannot be, in a file of so many bytes.
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        let all = self.row_groups.iter().flat_map(|group| group.columns.iter().zip(&self.leaves));
        if let Some((_, leaf)) = { all }.find(|(chunk, _)| chunk.is_encrypted) {
            return Err(format!(
                "column {} is encrypted, and encrypted Parquet files are not read",
                leaf.name
            ));
        }
        let mut all_rows = 0i64;
        for (number, group) in self.row_groups.iter().enumerate() {
            group
                .check(&self.leaves, bytes)
                .map_err(|what| format!("a damaged Parquet file: row group {number}{what}"))?;
            let rows = all_rows.checked_add(group.rows);
            all_rows = rows.ok_or("a damaged Parquet file: more rows than can be counted")?;
        }
        if self.leaves.is_empty() && all_rows > i64::from(i32::MAX) {
            return Err(format!(
                "a damaged Parquet file: it says that it has {all_rows} rows, without columns"
            ));
        }
        Ok(())
    }
}

impl RowGroup {
    fn check(&self, leaves: &[Leaf], bytes: u64) -> Result<(), String> {
        let columns = self.columns.len();
        if columns != leaves.len() {
            return Err(format!(" has {columns} columns, and the file {}", leaves.len()));
        }
        if self.rows < 0 {
            return Err(format!(" says that it has {} rows", self.rows));
        }
        if let Some(column) = self.sorted_by.iter().find(|column| !(0..columns as i64).contains(column)) {
            return Err(format!(" is sorted by column {column}, and there are {columns}"));
        }
        let mut uncompressed = 0i64;
        for (chunk, leaf) in self.columns.iter().zip(leaves) {
            let wrong = |what: String| format!(", column {}: {what}", leaf.name);
            chunk.check(self.rows, leaf, bytes).map_err(wrong)?;
            let sum = uncompressed.checked_add(chunk.uncompressed);
            uncompressed = sum.ok_or(" has more bytes than can be counted")?;
        }
        Ok(())
    }
}

impl Chunk {
    fn check(&self, rows: i64, leaf: &Leaf, bytes: u64) -> Result<(), String> {
        if self.in_another_file {
            return Err("its values are in another file".into());
        }
        let index = |part: Part| part.within(bytes).is_err();
        if index(self.offset_index) || index(self.column_index) {
            return Err("an index of its pages is not within the file".into());
        }
        if !self.described {
            return Ok(());
        }
        if self.range(bytes).is_err() || range(self.data_page, 0, bytes).is_err() {
            let start = self.dictionary_page.unwrap_or(self.data_page);
            return Err(format!("its {} bytes from {start} on are not within the file", self.compressed));
        }
        if self.bloom_filter.is_some_and(|offset| range(offset, 0, bytes).is_err()) {
            return Err("its Bloom filter is not within the file".into());
        }
        let most = self.compressed.saturating_add(1).saturating_mul(MOST_BYTES_OF_ONE);
        if !(0..=most).contains(&self.uncompressed) {
            return Err(format!(
                "{} bytes are said to be {} uncompressed",
                self.compressed, self.uncompressed
            ));
        }
        let fits = if leaf.repeated { self.values >= rows } else { self.values == rows };
        match fits {
            true => Ok(()),
            false => {
                Err(format!("it has {} values, and the row group is said to have {rows} rows", self.values))
            }
        }
    }
}

/// An element of the schema.
#[derive(Debug, Default)]
struct Element {
    name: String,
    physical: Option<i64>,
    length: i64,
    repeated: bool,
    children: i64,
    converted: Option<i64>,
    logical: Logical,
}

/// What of a logical type tells how its values are ordered.
#[derive(Debug, Default)]
struct Logical {
    is_decimal: bool,
    is_unsigned: bool,
    is_odd: bool,
}

fn element(reader: &mut Reader<'_>) -> Result<Element, Damaged> {
    /// What [`Element::repeated`] is of `repetition_type`.
    const REPEATED: i64 = 2;
    let (mut element, mut fields) = (Element::default(), Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::Integer) => element.physical = Some(reader.integer()?),
            (2, Kind::Integer) => element.length = reader.integer()?,
            (3, Kind::Integer) => element.repeated = reader.integer()? == REPEATED,
            (4, Kind::Binary) => element.name = String::from_utf8_lossy(reader.binary()?).into_owned(),
            (5, Kind::Integer) => element.children = reader.integer()?,
            (6, Kind::Integer) => element.converted = Some(reader.integer()?),
            (10, Kind::Struct) => element.logical = logical(reader)?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(element)
}

fn logical(reader: &mut Reader<'_>) -> Result<Logical, Damaged> {
    const ENUM: i16 = 4;
    const UUID: i16 = 14;
    let (mut logical, mut fields) = (Logical::default(), Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        logical.is_decimal |= field == 5;
        logical.is_odd |= matches!(field, ENUM | UUID);
        match (field, kind) {
            (10, Kind::Struct) => {
                let mut fields = Fields::default();
                while let Some((field, kind)) = reader.field(&mut fields)? {
                    logical.is_unsigned |= (field, kind) == (2, Kind::False);
                    reader.skip(kind)?;
                }
            }
            _ => reader.skip(kind)?,
        }
    }
    Ok(logical)
}

impl Element {
    fn leaf(&self, name: String, repeated: bool) -> Leaf {
        /// `DECIMAL`, and `UINT_8` to `UINT_64`.
        const DECIMAL: i64 = 5;
        const UNSIGNED: std::ops::RangeInclusive<i64> = 11..=14;
        const ENUM: i64 = 4;
        const INTERVAL: i64 = 21;
        Leaf {
            name,
            repeated,
            width: width(self),
            physical: self.physical.unwrap_or(-1),
            is_unsigned: self.logical.is_unsigned || self.converted.is_some_and(|of| UNSIGNED.contains(&of)),
            is_decimal: self.logical.is_decimal || self.converted == Some(DECIMAL),
            is_odd: self.logical.is_odd || matches!(self.converted, Some(ENUM | INTERVAL)),
        }
    }
}

/// The columns of a schema, whose elements are in the order of a walk.
fn leaves(elements: &[Element]) -> Result<Vec<Leaf>, Damaged> {
    let mut leaves = Vec::new();
    // The groups that are open: children that are left, the path, and whether anything on it is repeated.
    let mut open: Vec<(i64, String, bool)> = Vec::new();
    for (place, element) in elements.iter().enumerate() {
        while open.last().is_some_and(|(left, ..)| *left == 0) {
            open.pop();
        }
        let (path, repeated) = match open.last_mut() {
            _ if place == 0 => (String::new(), false),
            Some((left, path, repeated)) => {
                *left -= 1;
                let point = if path.is_empty() { "" } else { "." };
                (format!("{path}{point}{}", element.name), *repeated || element.repeated)
            }
            None => return Err(Damaged("elements of the schema that belong to nothing")),
        };
        match element.children {
            0 if element.physical.is_some() => leaves.push(element.leaf(path, repeated)),
            0.. => open.push((element.children, path, repeated)),
            _ => return Err(Damaged("an element of the schema with fewer than no children")),
        }
    }
    match open.iter().all(|(left, ..)| *left == 0) {
        true => Ok(leaves),
        false => Err(Damaged("elements of the schema are missing")),
    }
}

/// Bytes of a value.
fn width(element: &Element) -> Option<i64> {
    match element.physical? {
        0 => Some(0),
        1 | 4 => Some(4),
        2 | 5 => Some(8),
        3 => Some(12),
        7 => Some(element.length),
        _ => None,
    }
}

fn row_group(reader: &mut Reader<'_>) -> Result<RowGroup, Damaged> {
    let (mut group, mut fields) = (RowGroup::default(), Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::List) => group.columns = reader.structures(chunk)?,
            (3, Kind::Integer) => group.rows = reader.integer()?,
            (4, Kind::List) => group.sorted_by = reader.structures(sorted_by)?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(group)
}

fn sorted_by(reader: &mut Reader<'_>) -> Result<i64, Damaged> {
    let (mut column, mut fields) = (0, Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::Integer) => column = reader.integer()?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(column)
}

fn chunk(reader: &mut Reader<'_>) -> Result<Chunk, Damaged> {
    let (mut chunk, mut fields) = (Chunk::default(), Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::Binary) => chunk.in_another_file = !reader.binary()?.is_empty(),
            (3, Kind::Struct) => pages(reader, &mut chunk)?,
            (4, Kind::Integer) => chunk.offset_index.offset = Some(reader.integer()?),
            (5, Kind::Integer) => chunk.offset_index.length = Some(reader.integer()?),
            (6, Kind::Integer) => chunk.column_index.offset = Some(reader.integer()?),
            (7, Kind::Integer) => chunk.column_index.length = Some(reader.integer()?),
            (8, kind) => {
                chunk.is_encrypted = true;
                reader.skip(kind)?;
            }
            _ => reader.skip(kind)?,
        }
    }
    Ok(chunk)
}

/// The metadata of a column's pages.
fn pages(reader: &mut Reader<'_>, chunk: &mut Chunk) -> Result<(), Damaged> {
    let mut fields = Fields::default();
    chunk.described = true;
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (5, Kind::Integer) => chunk.values = reader.integer()?,
            (6, Kind::Integer) => chunk.uncompressed = reader.integer()?,
            (7, Kind::Integer) => chunk.compressed = reader.integer()?,
            (9, Kind::Integer) => chunk.data_page = reader.integer()?,
            (11, Kind::Integer) => chunk.dictionary_page = Some(reader.integer()?),
            (12, Kind::Struct) => chunk.bounds = Some(bounds(reader)?),
            (14, Kind::Integer) => chunk.bloom_filter = Some(reader.integer()?),
            _ => reader.skip(kind)?,
        }
    }
    Ok(())
}
