//! Brings the columns of a stage's scans to where they are wanted.

use std::sync::Arc;
use std::time::Instant;

use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::{Plan, Scan};
use kelpie_device::{CancelToken, Device};
use parking_lot::Mutex;

use super::loaded::{Loaded, describe};
use crate::columns::{ColumnCache, Watch, Wish, expected_layouts};
use crate::error::EngineError;
use crate::grouping_keys::GroupingKeys;
use crate::intermediate::Input;
use crate::metrics::QueryMetrics;
use crate::split::Phase;

/// The scans of a plan, in the compiler's order.
pub fn scans(plan: &Plan) -> Vec<&Scan> {
    match plan {
        Plan::Scan(scan) => vec![scan],
        _ => plan.inputs().into_iter().flat_map(scans).collect(),
    }
}

/// Where the columns of scans come from, and where they are to be.
#[derive(Clone, Copy)]
pub struct Loading<'a> {
    /// What `Scan::source` numbers.
    pub inputs: &'a [Input],
    pub device: &'a Arc<dyn Device>,
    pub cache: &'a ColumnCache,
    pub wish: Wish,
    pub cancel: &'a CancelToken,
}

/// Brings the columns of every scan to where they are wanted. Where that takes long, `foreseen` takes meanwhile what the
/// compiler will most likely know of all of them.
pub fn load(
    plan: &Plan,
    Loading { inputs, device, cache, wish, cancel }: Loading<'_>,
    foreseen: &(dyn Fn(Vec<ScanInfo>) + Sync),
    metrics: &mut QueryMetrics,
) -> Result<Vec<Loaded>, EngineError> {
    let mut loaded = Vec::new();
    let scans = scans(plan);
    let grouped_by = GroupingKeys::of(plan, &scans).columns();
    // Each scan that is read may tell; mostly the first one foresees all of it.
    let told = Mutex::new(Vec::new());
    for (number, scan) in (1..).zip(&scans) {
        let missing =
            || EngineError::Internal(format!("source {} of {} is missing", scan.source, scan.table));
        let source = match inputs.get(scan.source) {
            Some(Input::Table(source)) => source,
            Some(Input::Intermediate(kept, _)) => {
                let data = kept.load(scan).ok_or_else(missing)?;
                metrics.input_bytes += data.columns.iter().map(|column| column.stored_bytes()).sum::<u64>();
                loaded.push(data);
                continue;
            }
            Some(Input::Used) | None => return Err(missing()),
        };
        let most_rows = |rows: u64| source.common().map_or(rows, |common| common.rows.max(rows));
        // A scan without columns only counts.
        if scan.columns.is_empty() {
            let start = Instant::now();
            let rows = cache.count_rows(source.as_ref(), cancel)?;
            metrics.transfer_ns += start.elapsed().as_nanos() as u64;
            loaded.push(Loaded { rows, most_rows: most_rows(rows), columns: Vec::new() });
            continue;
        }
        let known = describe(&loaded);
        let seen = |layouts| {
            let this = source.exact_rows().map(|rows| ScanInfo::new(rows, layouts));
            let later = scans.iter().skip(number).map(|scan| expected(scan, inputs));
            let all = known.iter().cloned().map(Some).chain([this]).chain(later);
            let Some(infos) = all.collect::<Option<Vec<ScanInfo>>>() else { return };
            let mut told = told.lock();
            if *told != infos {
                told.clone_from(&infos);
                foreseen(infos);
            }
        };
        let watch = Watch { cancel, seen: &seen };
        let (resident, report) = cache.load(device, source.as_ref(), &scan.columns, wish, &watch)?;
        metrics.transfer_ns += report.time_ns;
        metrics.split += report.split;
        metrics.transfer_bytes += report.loaded_bytes;
        let rows = resident.first().map_or(0, |column| column.rows);
        let of_scan = grouped_by.range((number - 1, 0)..(number, 0));
        let uncoded = of_scan.filter_map(|(_, column)| resident.get(*column));
        let uncoded: Vec<_> = uncoded.filter(|column| column.coded.get().is_none()).collect();
        // Tables of one program would each have other codes.
        if source.common().is_none() && !uncoded.is_empty() {
            let start = Instant::now();
            let bytes = resident.iter().map(|column| column.stored_bytes()).sum();
            for column in uncoded {
                cache.give_codes(device, column, bytes, cancel)?;
            }
            let time_ns = start.elapsed().as_nanos() as u64;
            metrics.transfer_ns += time_ns;
            metrics.split.add(Phase::Encode, time_ns);
        }
        metrics.input_bytes += resident.iter().map(|column| column.stored_bytes()).sum::<u64>();
        loaded.push(Loaded { rows, most_rows: most_rows(rows), columns: resident });
    }
    Ok(loaded)
}

/// What the compiler will most likely know of a scan that was not read yet.
fn expected(scan: &Scan, inputs: &[Input]) -> Option<ScanInfo> {
    let source = match inputs.get(scan.source)? {
        Input::Table(source) => source.as_ref(),
        Input::Intermediate(kept, _) => return kept.info(scan),
        Input::Used => return None,
    };
    let layouts = expected_layouts(source, &scan.columns)?;
    Some(ScanInfo::new(source.exact_rows()?, layouts))
}
