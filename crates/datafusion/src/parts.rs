//! How a table's rows are shared out among threads.
//!
//! Where the footers of Parquet files are at hand (DataFusion keeps those that it has read for its statistics), parts are rows,
//! and it is known before they are read which: whole row groups as long as every thread gets as many, then even parts of what is
//! left, so that all threads end together. A reader skips the pages that come before its rows, but reads a dictionary again.
//! Other files are cut into ranges of bytes.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, ParquetRowSelection};
use datafusion::datasource::physical_plan::{
    CsvSource, FileGroup, FileGroupPartitioner, FileScanConfig, FileScanConfigBuilder, ParquetSource,
};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::parquet::arrow::arrow_reader::RowSelection;
use datafusion::parquet::file::metadata::ParquetMetaData;

use crate::byte_ranges::{has_row_group, spread as spread_bytes};
use crate::row_group_pruning::KeptRowGroups;
use crate::whole_rows::of_whole_rows;

/// A file is not split below this many bytes a partition.
const SMALLEST_SPLIT_BYTES: usize = 1 << 20;
/// A file of CSV below this size is not split: DataFusion splits from this size on.
const SMALLEST_SPLIT_CSV: usize = 10 << 20;
/// Batches in memory are handed on in pieces of at most this many rows, and not spread over threads below it.
const PIECE_ROWS: usize = 1 << 16;
/// Rows of a part of Parquet files at least: reading a dictionary again is a small part of reading them.
const SMALLEST_PART_ROWS: u64 = 1 << 17;

/// A table's rows by partition, in order.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) data: PartsData,
    /// Rows of each, where they are known.
    pub(crate) rows: Option<Vec<u64>>,
}

/// What each partition reads.
#[derive(Debug)]
pub(crate) enum PartsData {
    Files(Vec<FileGroup>),
    Batches(Vec<Vec<RecordBatch>>),
}

impl Parts {
    /// Of batches in memory.
    pub(crate) fn of_batches(partitions: &[Vec<RecordBatch>], threads: usize) -> Parts {
        let pieces = spread(partitions, threads);
        let rows_of = |batches: &Vec<RecordBatch>| batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let rows = Some(pieces.iter().map(rows_of).collect());
        Parts { data: PartsData::Batches(pieces), rows }
    }

    /// Of the files of a scan; with the footers at hand, if all rows are wanted, or all of some row groups.
    pub(crate) fn of_files(
        config: &FileScanConfig,
        footers: Option<&FileMetadataCache>,
        kept: Option<&KeptRowGroups>,
        threads: usize,
    ) -> Parts {
        if let Some(parts) = footers.and_then(|footers| by_rows(config, footers, kept, threads)) {
            return parts;
        }
        let groups = match can_split(config) {
            true => whole_rows(config, split(config, threads)),
            false => {
                let files = config.file_groups.iter().flat_map(FileGroup::iter);
                files.map(|file| FileGroup::new(vec![file.clone()])).collect()
            }
        };
        Parts { data: PartsData::Files(groups), rows: None }
    }

    pub(crate) fn count(&self) -> usize {
        match &self.data {
            PartsData::Files(groups) => groups.len(),
            PartsData::Batches(pieces) => pieces.len(),
        }
    }

    /// The files that a partition reads.
    pub(crate) fn files(&self, partition: usize) -> &[PartitionedFile] {
        match &self.data {
            PartsData::Files(groups) => groups.get(partition).map_or(&[], FileGroup::files),
            PartsData::Batches(_) => &[],
        }
    }
}

/// Batches in pieces for every thread, in order.
fn spread(partitions: &[Vec<RecordBatch>], threads: usize) -> Vec<Vec<RecordBatch>> {
    let rows: usize = partitions.iter().flatten().map(RecordBatch::num_rows).sum();
    let parts = (rows / PIECE_ROWS).clamp(1, threads);
    let rows_each = rows.div_ceil(parts).max(1);
    let mut pieces = vec![Vec::new(); parts];
    let mut first = 0;
    for batch in partitions.iter().flatten() {
        for start in (0..batch.num_rows()).step_by(PIECE_ROWS) {
            let piece = batch.slice(start, PIECE_ROWS.min(batch.num_rows() - start));
            if let Some(part) = pieces.get_mut((first / rows_each).min(parts - 1)) {
                first += piece.num_rows();
                part.push(piece);
            }
        }
    }
    pieces
}

/// Whether a part of a file can be read alone: not of one that is compressed, nor where a line feed may stand in a value.
fn can_split(config: &FileScanConfig) -> bool {
    !config.file_compression_type.is_compressed() && config.file_source().supports_repartitioning()
}

/// How many parts the bytes of a scan's files are worth.
fn parts_of_bytes(config: &FileScanConfig, most: usize) -> usize {
    let files = config.file_groups.iter().flat_map(FileGroup::iter);
    let bytes: u64 = files.map(|file| file.effective_size()).sum();
    (bytes as usize / SMALLEST_SPLIT_BYTES).clamp(1, most)
}

/// Ranges of CSV files that begin and end with rows.
fn whole_rows(config: &FileScanConfig, groups: Vec<FileGroup>) -> Vec<FileGroup> {
    let scan = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build();
    of_whole_rows(&scan).unwrap_or(scan).file_groups
}

/// Byte ranges for every thread, in file order.
fn split(config: &FileScanConfig, threads: usize) -> Vec<FileGroup> {
    let groups = &config.file_groups;
    let smallest = if config.file_source().is::<CsvSource>() { SMALLEST_SPLIT_CSV } else { 0 };
    let parts = parts_of_bytes(config, threads);
    let files = || groups.iter().flat_map(FileGroup::iter);
    // DataFusion does not cut what is cut already.
    if smallest == 0 && parts > 1 && files().any(|file| file.range.is_some()) {
        return spread_bytes(files().cloned().collect(), parts);
    }
    FileGroupPartitioner::new()
        .with_target_partitions(parts)
        .with_repartition_file_min_size(smallest)
        .repartition_file_groups(groups)
        .filter(|_| parts > 1)
        .unwrap_or_else(|| groups.clone())
}

/// Rows of Parquet files for every thread, in file order; `None` where a footer is not at hand.
fn by_rows(
    config: &FileScanConfig,
    footers: &FileMetadataCache,
    kept: Option<&KeptRowGroups>,
    threads: usize,
) -> Option<Parts> {
    config.file_source().downcast_ref::<ParquetSource>()?;
    let files = config.file_groups.iter().flat_map(FileGroup::iter).enumerate();
    let files = files.map(|(at, file)| FileRows::of(file, footers, kept.map(|kept| kept.of_file(at))));
    let files = files.collect::<Option<Vec<_>>>()?;
    let row_groups: Vec<u64> = files.iter().flat_map(|file| file.wanted.iter().map(len)).collect();
    let rows: u64 = row_groups.iter().sum();
    let most = usize::try_from(rows / SMALLEST_PART_ROWS).ok()?.clamp(1, threads);
    let bounds = bounds(&row_groups, parts_of_bytes(config, most));
    let part = |bounds: &[u64]| {
        let &[first, end] = bounds else { return FileGroup::default() };
        rows_from(&files, first, end)
    };
    let groups = bounds.windows(2).map(part).collect();
    let rows = bounds.windows(2).map(|bounds| bounds.iter().rev().copied().reduce(|end, first| end - first));
    Some(Parts { data: PartsData::Files(groups), rows: rows.collect() })
}

/// A file and those of its rows that are wanted.
struct FileRows<'a> {
    file: &'a PartitionedFile,
    rows: u64,
    /// Row groups, in order.
    wanted: Vec<Range<u64>>,
}

impl<'a> FileRows<'a> {
    /// All row groups of a file or of the range of it, or some, where its footer is at hand and no rows are left out already.
    fn of(
        file: &'a PartitionedFile,
        footers: &FileMetadataCache,
        kept: Option<&[usize]>,
    ) -> Option<FileRows<'a>> {
        if is_narrowed(file) {
            return None;
        }
        let footer = footer_of(file, footers)?;
        let (mut rows, mut wanted) = (0, Vec::new());
        for (place, group) in footer.row_groups().iter().enumerate() {
            let first = rows;
            rows += u64::try_from(group.num_rows()).ok()?;
            let is_kept = kept.is_none_or(|kept| kept.binary_search(&place).is_ok());
            if is_kept && has_row_group(file, group) {
                wanted.push(first..rows);
            }
        }
        Some(FileRows { file, rows, wanted })
    }
}

fn len(rows: &Range<u64>) -> u64 {
    rows.end - rows.start
}

/// Whether some of a file's rows are left out already.
pub(crate) fn is_narrowed(file: &PartitionedFile) -> bool {
    file.extension::<ParquetAccessPlan>().is_some() || file.extension::<ParquetRowSelection>().is_some()
}

/// What the footer of a Parquet file says, where it is at hand.
pub(crate) fn footer_of(file: &PartitionedFile, footers: &FileMetadataCache) -> Option<Arc<ParquetMetaData>> {
    let entry = footers.get(&file.object_meta.location)?;
    if !entry.is_valid_for(&file.object_meta) {
        return None;
    }
    let footer = entry.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()?;
    Some(Arc::clone(footer.parquet_metadata()))
}

/// Where about equal parts of all rows begin, and the last one ends: where a row group does, if one does nearby.
fn even_bounds(row_groups: &[u64], parts: usize) -> Vec<u64> {
    let ends = row_groups.iter().scan(0, |end, rows| {
        *end += rows;
        Some(*end)
    });
    let ends: Vec<u64> = ends.collect();
    let rows = ends.last().copied().unwrap_or(0);
    let parts = parts.max(1) as u64;
    let nearby = rows / parts / 8;
    let bound = |part: u64| {
        let even = (u128::from(rows) * u128::from(part) / u128::from(parts)) as u64;
        let at = ends.partition_point(|end| *end < even);
        let around = ends.get(at.saturating_sub(1)..).unwrap_or(&[]).iter().take(2);
        let nearest = around.min_by_key(|end| end.abs_diff(even)).copied();
        nearest.filter(|end| end.abs_diff(even) <= nearby).unwrap_or(even)
    };
    let mut bounds: Vec<u64> = [0].into_iter().chain((1..parts).map(bound)).chain([rows]).collect();
    bounds.dedup();
    // A table without rows has one part too.
    if bounds.len() < 2 { vec![0, rows] } else { bounds }
}

/// Where parts begin, and the last one ends: as many rounds of whole row groups as go round, then the rest in even parts.
fn bounds(row_groups: &[u64], threads: usize) -> Vec<u64> {
    let rows: u64 = row_groups.iter().sum();
    let share = rows / threads as u64;
    let largest = row_groups.iter().copied().max().unwrap_or(0);
    let most = largest.max(share / 2);
    // Ends of parts of whole row groups, and of how many row groups.
    let mut ends: Vec<(u64, usize)> = Vec::new();
    let (mut first, mut end) = (0, 0);
    for (at, group) in row_groups.iter().enumerate() {
        if end - first + group > most && end > first {
            ends.push((end, at));
            first = end;
        }
        end += group;
    }
    ends.push((end, row_groups.len()));
    let whole = if largest > share { 0 } else { ends.len() / threads * threads };
    ends.truncate(whole);
    let (end, at) = ends.last().copied().unwrap_or((0, 0));
    let rest = row_groups.get(at..).unwrap_or(&[]);
    let rest_rows = rows - end;
    let parts = usize::try_from(rest_rows / SMALLEST_PART_ROWS).unwrap_or(threads).clamp(1, threads);
    let rest = even_bounds(rest, parts).into_iter().map(|bound| end + bound);
    let mut bounds: Vec<u64> = [0].into_iter().chain(ends.iter().map(|(end, _)| *end)).chain(rest).collect();
    bounds.dedup();
    if bounds.len() < 2 { vec![0, rows] } else { bounds }
}

/// The files with the rows from `first` on and before `end`, of all that are wanted, and which of theirs these are.
fn rows_from(files: &[FileRows<'_>], first: u64, end: u64) -> FileGroup {
    let mut before = 0;
    let mut group = Vec::new();
    for FileRows { file, rows, wanted } in files {
        let (mut taken, mut ranges) = (0, Vec::new());
        for wanted in wanted {
            let from = wanted.start + first.saturating_sub(before).min(len(wanted));
            let to = wanted.start + end.saturating_sub(before).min(len(wanted));
            before += len(wanted);
            if from < to {
                taken += to - from;
                ranges.push(from as usize..to as usize);
            }
        }
        if taken == 0 {
            continue;
        }
        // Which row groups a range has is known now.
        let file = PartitionedFile { range: None, ..(*file).clone() };
        group.push(match taken == *rows {
            true => file,
            false => {
                let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), *rows as usize);
                file.with_extension(ParquetRowSelection::new(selection))
            }
        });
    }
    FileGroup::new(group)
}

#[cfg(test)]
mod tests {
    use std::iter::once;
    use std::sync::Arc;

    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::{Float64Type, Int64Type};
    use datafusion::datasource::physical_plan::FileScanConfigBuilder;
    use datafusion::datasource::source::DataSourceExec;
    use datafusion::physical_plan::ExecutionPlan;
    use futures::StreamExt;

    use datafusion::parquet::arrow::arrow_reader::RowSelector;

    use super::*;
    use crate::whole_files::whole_files;
    use datafusion::prelude::{ParquetReadOptions, SessionContext};

    #[test]
    fn parts_are_even_and_begin_with_row_groups_nearby() {
        assert_eq!(even_bounds(&[], 4), [0, 0]);
        assert_eq!(even_bounds(&[0, 0], 4), [0, 0]);
        assert_eq!(even_bounds(&[5], 1), [0, 5]);
        assert_eq!(even_bounds(&[100], 4), [0, 25, 50, 75, 100]);
        assert_eq!(even_bounds(&[26, 22, 52], 4), [0, 26, 48, 75, 100], "ends of row groups are near");
        assert_eq!(even_bounds(&[20, 80], 2), [0, 50, 100]);
        assert_eq!(even_bounds(&[1], 3), [0, 1]);
        assert_eq!(even_bounds(&[u64::MAX / 2, u64::MAX / 2], 2), [0, u64::MAX / 2, u64::MAX - 1]);
        for (groups, parts) in [(20, 16), (20, 32), (7, 3), (160, 16), (3, 40)] {
            let bounds = even_bounds(&vec![1 << 20; groups], parts);
            let sizes: Vec<u64> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let even = ((groups << 20) / parts) as u64;
            assert_eq!(sizes.iter().sum::<u64>(), (groups << 20) as u64);
            assert!(
                sizes.iter().all(|size| size.abs_diff(even) <= even / 4 + 1),
                "{groups} {parts} {sizes:?}"
            );
        }
    }

    #[test]
    fn whole_row_groups_go_first_and_the_rest_is_even() {
        let sizes = |groups: &[u64], threads: usize| -> Vec<u64> {
            let bounds = bounds(groups, threads);
            bounds.windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        assert_eq!(sizes(&[], 4), [0]);
        assert_eq!(sizes(&[0, 0], 4), [0]);
        assert_eq!(sizes(&[7], 4), [7]);
        let million = 1 << 20;
        let whole = vec![million; 16];
        assert_eq!(sizes(&[million; 16], 16), whole);
        assert_eq!(sizes(&[million; 20], 16), [whole.clone(), vec![million / 4; 16]].concat());
        assert_eq!(sizes(&[million; 60], 16), [vec![million; 48], vec![million * 3 / 4; 16]].concat());
        assert_eq!(sizes(&[million; 3], 2), [million, million, million / 2, million / 2]);
        // Fewer row groups than threads, and one that is too large.
        assert_eq!(sizes(&[million; 4], 16), vec![million / 4; 16]);
        assert_eq!(sizes(&[8 * million, million, million], 2), [5 * million, 5 * million]);
        // Small ones are gathered.
        let small = sizes(&[20_000; 1000], 16);
        assert!(small.iter().all(|rows| *rows <= 640_000) && small.len() <= 34, "{small:?}");
        assert_eq!(small.iter().sum::<u64>(), 20_000_000);
        for threads in 1..20 {
            let groups: Vec<u64> = (0..57).map(|n| n * 7919 % 200_000).collect();
            let sizes = sizes(&groups, threads);
            assert_eq!(sizes.iter().sum::<u64>(), groups.iter().sum::<u64>());
            assert!(sizes.len() <= 5 * threads, "{threads}: {sizes:?}");
        }
    }

    /// What somebody notes beside a file, which says nothing of its rows.
    #[derive(Debug)]
    struct Note;

    #[test]
    fn only_notes_that_leave_out_rows_keep_a_file_from_being_cut() {
        let file = PartitionedFile::new("f", 1);
        assert!(!is_narrowed(&file) && !is_narrowed(&file.clone().with_extension(Note)));
        let selection = RowSelection::from(vec![RowSelector::skip(1)]);
        assert!(is_narrowed(&file.clone().with_extension(ParquetRowSelection::new(selection))));
        assert!(is_narrowed(&file.with_extension(ParquetAccessPlan::new_none(1))));
    }

    #[test]
    fn files_are_read_from_row_to_row() {
        let files: Vec<PartitionedFile> = (0..4).map(|n| PartitionedFile::new(format!("f{n}"), 1)).collect();
        let rows = [10, 0, 20, 5];
        let file_rows = |(file, rows): (_, u64)| FileRows { file, rows, wanted: once(0..rows).collect() };
        let files: Vec<FileRows<'_>> = files.iter().zip(rows).map(file_rows).collect();
        let read = |first, end| -> Vec<(String, Option<(usize, usize)>)> {
            let group = rows_from(&files, first, end);
            let selected = |file: &PartitionedFile| {
                file.extension::<ParquetRowSelection>().map(|selection| {
                    let selectors = selection.selection().iter().collect::<Vec<_>>();
                    let skipped =
                        selectors.first().filter(|first| first.skip).map_or(0, |first| first.row_count);
                    (skipped, selection.selection().row_count())
                })
            };
            group.iter().map(|file| (file.object_meta.location.to_string(), selected(file))).collect()
        };
        assert_eq!(read(0, 35), [("f0".into(), None), ("f2".into(), None), ("f3".into(), None)]);
        assert_eq!(read(3, 10), [("f0".into(), Some((3, 7)))]);
        assert_eq!(read(0, 12), [("f0".into(), None), ("f2".into(), Some((0, 2)))]);
        assert_eq!(read(12, 31), [("f2".into(), Some((2, 18))), ("f3".into(), Some((0, 1)))]);
        assert!(read(35, 35).is_empty());
    }

    #[test]
    fn row_groups_that_nobody_wants_are_passed_over() {
        let files: Vec<PartitionedFile> = (0..3).map(|n| PartitionedFile::new(format!("f{n}"), 1)).collect();
        let wanted = [vec![0..10, 20..30], vec![], once(5..15).collect()];
        let files: Vec<FileRows<'_>> =
            files.iter().zip(wanted).map(|(file, wanted)| FileRows { file, rows: 30, wanted }).collect();
        let read = |first, end| -> Vec<(String, Vec<(bool, usize)>)> {
            let group = rows_from(&files, first, end);
            let selected = |file: &PartitionedFile| {
                let selection = file.extension::<ParquetRowSelection>().expect("not all rows are wanted");
                selection.selection().iter().map(|step| (step.skip, step.row_count)).collect()
            };
            group.iter().map(|file| (file.object_meta.location.to_string(), selected(file))).collect()
        };
        let (f0, f2) = ("f0".to_string(), "f2".to_string());
        let whole = vec![(false, 10), (true, 10), (false, 10)];
        let last = vec![(true, 5), (false, 10), (true, 15)];
        assert_eq!(read(0, 30), [(f0.clone(), whole), (f2.clone(), last)]);
        let ends = vec![(true, 8), (false, 2), (true, 10), (false, 3), (true, 7)];
        assert_eq!(read(8, 13), [(f0.clone(), ends)]);
        assert_eq!(
            read(19, 21),
            [(f0, vec![(true, 29), (false, 1)]), (f2, vec![(true, 5), (false, 1), (true, 24)])]
        );
    }

    /// Two files with row groups of odd sizes, read in parts of rows: every row once and in order, and as many as were counted.
    #[tokio::test(flavor = "multi_thread")]
    async fn parts_of_parquet_files_are_all_their_rows_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let session = SessionContext::new();
        for (file, first, last, group) in [("a", 0, 419_999, 70_001), ("b", 420_000, 619_999, 1_000_000)] {
            let rows = format!(
                "select value as n, case when value % 5 > 0 then value * 7 end as m, concat('text ', value % 1000) as t,
                [value, value + 1] as l, cast(value as double) as f from generate_series({first}, {last}) as r(value)"
            );
            let options = format!(
                "options ('format.max_row_group_size' '{group}', 'format.data_page_row_count_limit' '3001')"
            );
            let path = folder.path().join(format!("{file}.parquet"));
            let copied = format!("copy ({rows}) to '{}' stored as parquet {options}", path.display());
            session.sql(&copied).await.expect("planned").collect().await.expect("written");
        }
        let files = folder.path().to_str().expect("a path of characters");
        session.register_parquet("t", files, ParquetReadOptions::default()).await.expect("registered");
        let context = session.task_ctx();
        let plan = session.sql("select n, m, t, l, f from t").await.expect("planned");
        let mut plan = plan.create_physical_plan().await.expect("planned");
        while let [child] = plan.children().as_slice() {
            plan = Arc::clone(child);
        }
        let scan = plan.downcast_ref::<DataSourceExec>().expect("a scan");
        let config = scan.data_source().downcast_ref::<FileScanConfig>().expect("of files");
        let footers = context.runtime_env().cache_manager.get_file_metadata_cache();
        let files = FileGroup::new(whole_files(&config.file_groups));
        let config = FileScanConfigBuilder::from(config.clone())
            .with_file_groups(vec![files])
            .with_preserve_order(true)
            .build();
        for threads in [1, 2, 7] {
            let parts = Parts::of_files(&config, Some(footers.as_ref()), None, threads);
            let rows = parts.rows.clone().expect("they are counted");
            assert_eq!(rows.len(), [0, 3, 4, 0, 0, 0, 0, 4][threads], "{rows:?}");
            let PartsData::Files(groups) = parts.data else { panic!("files") };
            let config = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build();
            let scan = DataSourceExec::from_data_source(config);
            let mut next = 0i64;
            for (partition, rows) in rows.into_iter().enumerate() {
                let first = next;
                let mut stream = scan.execute(partition, Arc::clone(&context)).expect("opened");
                while let Some(batch) = stream.next().await {
                    let batch = batch.expect("a batch");
                    let column = |name: &str| batch.column_by_name(name).expect("the column");
                    let lists = column("l").as_list::<i32>();
                    let ends = lists.values().as_primitive::<Int64Type>();
                    for row in 0..batch.num_rows() {
                        assert_eq!(column("n").as_primitive::<Int64Type>().value(row), next);
                        assert_eq!(column("m").is_null(row), next % 5 == 0);
                        assert_eq!(column("t").as_string_view().value(row), format!("text {}", next % 1000));
                        assert_eq!(ends.value(lists.value_offsets()[row] as usize + 1), next + 1);
                        assert_eq!(column("f").as_primitive::<Float64Type>().value(row), next as f64);
                        next += 1;
                    }
                }
                assert_eq!((next - first) as u64, rows, "partition {partition} of {threads}");
            }
            assert_eq!(next, 620_000);
        }
    }
}
