//! Files in ranges of bytes, for readers that each take a part of a table.
//!
//! A row group of a Parquet file belongs to the range that its first page begins in, so that ranges which meet share nothing and leave
//! nothing out, wherever they are cut.

use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::parquet::file::metadata::RowGroupMetaData;

/// The bytes of a file, or of the range of it: the first, and the one behind the last.
fn bounds(file: &PartitionedFile) -> (u64, u64) {
    match &file.range {
        Some(range) => (u64::try_from(range.start).unwrap_or(0), u64::try_from(range.end).unwrap_or(0)),
        None => (0, file.object_meta.size),
    }
}

/// How many bytes a file, or the range of it, has.
pub fn bytes_of(file: &PartitionedFile) -> u64 {
    let (start, end) = bounds(file);
    end.saturating_sub(start)
}

/// A file, or the range of it, in so many ranges of as many bytes; a range without bytes is none.
pub fn cut(file: &PartitionedFile, parts: usize) -> Vec<Option<PartitionedFile>> {
    let (start, bytes) = (bounds(file).0, u128::from(bytes_of(file)));
    let at = |part: usize| start + (bytes * part as u128 / parts.max(1) as u128) as u64;
    (0..parts).map(|part| ranged(file, at(part), at(part + 1))).collect()
}

/// The bytes of a file from one on, before another. What is known of the rows of the file is not true of those of a range.
fn ranged(file: &PartitionedFile, start: u64, end: u64) -> Option<PartitionedFile> {
    let range = FileRange { start: i64::try_from(start).ok()?, end: i64::try_from(end).ok()? };
    (start < end).then(|| PartitionedFile { range: Some(range), statistics: None, ..file.clone() })
}

/// Files in so many groups of about as many bytes, in order; some may be empty.
pub fn spread(files: Vec<PartitionedFile>, groups: usize) -> Vec<FileGroup> {
    let bytes: u64 = files.iter().map(bytes_of).sum();
    let each = bytes.div_ceil(groups.max(1) as u64).max(1);
    let mut spread = vec![Vec::new(); groups];
    let mut before = 0;
    for file in files {
        let (start, end) = bounds(&file);
        let mut from = start;
        while from < end {
            let group = ((before / each) as usize).min(groups.saturating_sub(1));
            let left = (group as u64 + 1) * each - before.min((group as u64 + 1) * each);
            let to = if group + 1 == groups { end } else { end.min(from + left) };
            let is_all = from == start && to == end;
            let piece = if is_all { Some(file.clone()) } else { ranged(&file, from, to) };
            if let Some(group) = spread.get_mut(group) {
                group.extend(piece);
            }
            (before, from) = (before + (to - from), to);
        }
    }
    spread.into_iter().map(FileGroup::new).collect()
}

/// Whether a row group of a Parquet file belongs to a file, or to the range of it: as DataFusion's reader decides it.
pub(crate) fn has_row_group(file: &PartitionedFile, group: &RowGroupMetaData) -> bool {
    let Some(range) = &file.range else { return true };
    let first = group.columns().first();
    let offset =
        first.map(|column| column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset()));
    offset.is_none_or(|offset| (range.start..range.end).contains(&offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whole_files::whole_files;

    #[test]
    fn every_byte_is_in_one_piece() {
        for (sizes, groups) in
            [(vec![10], 3), (vec![1, 1, 1], 5), (vec![7, 100, 3], 4), (vec![5, 5], 1), (vec![], 2)]
        {
            let files: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(i, size)| PartitionedFile::new(format!("f{i}"), *size))
                .collect();
            let spread = spread(files.clone(), groups);
            assert_eq!(spread.len(), groups);
            let bytes = |group: &FileGroup| group.iter().map(bytes_of).sum::<u64>();
            let all: u64 = sizes.iter().sum();
            assert!(spread.iter().all(|group| bytes(group) <= all.div_ceil(groups as u64)), "{spread:?}");
            let whole = whole_files(&spread);
            assert_eq!(whole.len(), files.len());
            assert!(whole.iter().all(|file| file.range.is_none()), "{whole:?}");
            for file in &files {
                let pieces: Vec<_> = cut(file, groups).into_iter().flatten().collect();
                assert_eq!(pieces.iter().map(bytes_of).sum::<u64>(), file.object_meta.size);
                assert_eq!(whole_files(&[FileGroup::new(pieces)]).len(), 1);
            }
        }
    }
}
