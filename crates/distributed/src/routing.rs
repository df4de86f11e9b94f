//! Which files, or ranges of files, go to which worker.
//!
//! A worker keeps the columns that it has read. They are of use again when the same parts of files come to the same worker the next
//! time, so parts are dealt out by a hash of what they are, and tasks go to workers in an order that stays. A table of many files is
//! dealt out by files: the hash of a file and a worker says how much the worker wants it (rendezvous hashing), so that a worker that
//! comes or goes moves few files; none gets more than its share of bytes. Of few files every task gets a range of each.

use std::hash::Hasher;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DistributedGetterExt, DistributedLeafExec, RouteTasksEvent, RouteTasksEventResponse,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};
use kelpie_datafusion::byte_ranges::{cut, spread};
use kelpie_datafusion::whole_files;
use twox_hash::XxHash64;

/// With fewer files a task, each is cut into a range for every task.
const FILES_A_TASK: usize = 4;

/// How much more than its share of bytes a task may get for the sake of files that it had before.
const OVERFULL: f64 = 1.1;

/// A scan as so many scans as a stage has tasks.
pub(crate) fn deal_out(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<DataSourceExec>()?;
    let files = scan.data_source().downcast_ref::<FileScanConfig>()?;
    // Where partitions of files or their order are a part of the plan, the library keeps them.
    if files.output_partitioning.is_some() || !files.output_ordering.is_empty() || event.task_count < 2 {
        return None;
    }
    let whole = whole_files(&files.file_groups);
    if whole.iter().any(|file| file.range.is_some()) {
        return None;
    }
    let workers = event.session_config.get_distributed_worker_resolver().and_then(|known| known.get_urls());
    let workers = match workers {
        Ok(workers) => workers,
        Err(error) => return Some(Err(error)),
    };
    // Fewer tasks than workers are numbered by themselves: which workers they go to depends on the stage.
    let names: Vec<String> = match workers.len() == event.task_count {
        true => workers.iter().map(ToString::to_string).collect(),
        false => (0..event.task_count).map(|task| task.to_string()).collect(),
    };
    let partitions = event.plan.output_partitioning().partition_count();
    let statistics = of_part(&files.statistics(), event.task_count);
    let scans = dealt(whole, &names).into_iter().map(|pieces| {
        let part = FileScanConfigBuilder::from(files.clone())
            .with_file_groups(spread(pieces, partitions))
            .with_statistics(statistics.clone());
        DataSourceExec::from_data_source(part.build()) as Arc<dyn ExecutionPlan>
    });
    let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), scans);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// What is known of one of so many parts of a table, none of it exactly.
fn of_part(statistics: &Statistics, parts: usize) -> Statistics {
    let share = |precision: Precision<usize>| match precision {
        Precision::Exact(all) | Precision::Inexact(all) => Precision::Inexact(all.div_ceil(parts.max(1))),
        Precision::Absent => Precision::Absent,
    };
    let (num_rows, total_byte_size) = (share(statistics.num_rows), share(statistics.total_byte_size));
    Statistics { num_rows, total_byte_size, ..statistics.clone().to_inexact() }
}

/// The workers of a stage's tasks, in an order that stays: it begins where the hash of the first scan says. Stages without a scan that
/// are one task stay where their input is, which the library sees to.
pub(crate) fn route(event: RouteTasksEvent<'_>) -> Option<Result<RouteTasksEventResponse>> {
    let first = first_scan(event.plan);
    if event.task_count == 1 && first.is_none() {
        return None;
    }
    let resolver = event.task_ctx.session_config().get_distributed_worker_resolver();
    let workers = match resolver.and_then(|known| known.get_urls()) {
        Ok(workers) if workers.is_empty() => return None,
        Ok(workers) => workers,
        Err(error) => return Some(Err(error)),
    };
    let begin = match first {
        Some(name) if event.task_count < workers.len() => hash(&name, "") as usize % workers.len(),
        _ => 0,
    };
    let worker = |task: usize| workers.get((begin + task) % workers.len()).cloned();
    let urls: Option<Vec<_>> = (0..event.task_count).map(worker).collect();
    urls.map(|urls| Ok(RouteTasksEventResponse::new(urls)))
}

/// The first file of the first scan of a stage.
fn first_scan(stage: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let mut found = None;
    let _ = stage.apply(|node| {
        let dealt_out = node.downcast_ref::<DistributedLeafExec>().map(DistributedLeafExec::original);
        let scan =
            dealt_out.unwrap_or(node).downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
        let files = scan.and_then(|source| source.downcast_ref::<FileScanConfig>());
        // What is below belongs to other stages.
        if datafusion_distributed::NetworkBoundaryExt::is_network_boundary(node.as_ref()) {
            return Ok(TreeNodeRecursion::Jump);
        }
        found = files.map(|files| {
            let mut paths = files.file_groups.iter().flat_map(FileGroup::iter);
            paths.next().map(|file| file.object_meta.location.to_string()).unwrap_or_default()
        });
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn hash(part: &str, worker: &str) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(part.as_bytes());
    hasher.write_u8(0);
    hasher.write(worker.as_bytes());
    hasher.finish()
}

/// The files, or ranges of them, of each task.
fn dealt(files: Vec<PartitionedFile>, tasks: &[String]) -> Vec<Vec<PartitionedFile>> {
    let mut dealt = vec![Vec::new(); tasks.len()];
    if files.len() < FILES_A_TASK * tasks.len() {
        for file in files {
            let begin = hash(file.object_meta.location.as_ref(), "") as usize % tasks.len();
            for (place, piece) in cut(&file, tasks.len()).into_iter().enumerate() {
                dealt[(begin + place) % tasks.len()].extend(piece);
            }
        }
        return dealt;
    }
    let bytes: u64 = files.iter().map(|file| file.object_meta.size).sum();
    let most = (bytes as f64 / tasks.len() as f64 * OVERFULL) as u64;
    let mut loads = vec![0u64; tasks.len()];
    for file in files {
        let path = file.object_meta.location.to_string();
        let mut wishes: Vec<usize> = (0..tasks.len()).collect();
        wishes.sort_by_key(|task| std::cmp::Reverse(hash(&path, &tasks[*task])));
        let size = file.object_meta.size;
        let fits = wishes.iter().copied().find(|task| loads[*task] + size <= most);
        let lightest = || wishes.iter().copied().min_by_key(|task| loads[*task]);
        if let Some(task) = fits.or_else(lightest) {
            loads[task] += size;
            dealt[task].push(file);
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use kelpie_datafusion::byte_ranges::bytes_of;

    use super::*;

    fn file(name: &str, size: u64) -> PartitionedFile {
        PartitionedFile::new(name, size)
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|place| format!("http://worker-{place}:1")).collect()
    }

    /// Every byte of every file is in one piece.
    fn assert_whole(files: &[PartitionedFile], pieces: Vec<PartitionedFile>) {
        let read = whole_files(&[FileGroup::new(pieces)]);
        assert_eq!(read.len(), files.len());
        assert!(read.iter().all(|file| file.range.is_none()), "{read:?}");
    }

    #[test]
    fn few_files_are_cut_and_many_are_dealt_out() {
        for (count, tasks) in [(1, 3), (5, 2), (7, 7), (100, 3), (64, 8)] {
            let files: Vec<_> = (0..count).map(|place| file(&format!("f{place}"), 1000 + place)).collect();
            let dealt = dealt(files.clone(), &names(tasks));
            assert_eq!(dealt.len(), tasks);
            let bytes = |pieces: &[PartitionedFile]| -> u64 { pieces.iter().map(bytes_of).sum() };
            let all: u64 = dealt.iter().map(|pieces| bytes(pieces)).sum();
            for pieces in &dealt {
                assert!(bytes(pieces) as f64 <= all as f64 / tasks as f64 * 1.3 + 1100.0);
            }
            assert_whole(&files, dealt.into_iter().flatten().collect());
        }
    }

    #[test]
    fn files_stay_where_they_are_when_a_worker_comes() {
        let files: Vec<_> = (0..200).map(|place| file(&format!("f{place}"), 1000)).collect();
        let owner = |workers: usize| {
            let names = names(workers);
            let dealt = dealt(files.clone(), &names);
            let mut owners = std::collections::HashMap::new();
            for (task, pieces) in dealt.into_iter().enumerate() {
                for piece in pieces {
                    owners.insert(piece.object_meta.location.to_string(), names[task].clone());
                }
            }
            owners
        };
        let (before, after) = (owner(4), owner(5));
        let moved = before.iter().filter(|(file, owner)| after.get(*file) != Some(owner)).count();
        assert!(moved < 90, "{moved} of 200 files moved");
        assert_eq!(owner(4), before);
    }

    #[test]
    fn files_without_bytes_are_no_trouble() {
        let dealt = dealt(vec![file("empty", 0), file("one", 1)], &names(3));
        assert_eq!(dealt.iter().flatten().count(), 1);
    }
}
