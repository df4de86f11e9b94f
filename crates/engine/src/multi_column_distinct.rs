//! How many combinations of values the keys of a grouping have that are columns of one scan. What is known of each column by itself does
//! not tell: two columns of 2,500 days have 6 million combinations at most, and 75 thousand where one follows from the other but for some
//! days. A sample of the same rows of each column does.

use std::collections::BTreeSet;

use kelpie_compile::pipeline::{MultiColumnDistinct, ScanInfo};
use kelpie_compile::plan::Plan;
use kelpie_compile::shape::LaunchShape;
use kelpie_device::Device;

use crate::columns::multi_column_distinct;
use crate::grouping_keys::{GroupingKeys, Origin};
use crate::stage::{self, Loaded, scans};

/// What the compiler must know of a plan's loaded data: of each scan, and of the keys of groupings. On a GPU nobody has measured what
/// is to follow from the latter, and it is left out.
pub(crate) fn describe(plan: &Plan, loaded: &[Loaded], device: &dyn Device) -> Vec<ScanInfo> {
    let mut infos = stage::describe(loaded);
    if !LaunchShape::of(device.target()).is_serial() {
        return infos;
    }
    let groupings = GroupingKeys::of(plan, &scans(plan)).together;
    let wanted: BTreeSet<_> = groupings.iter().filter_map(|keys| together(keys)).collect();
    for (scan, columns) in wanted {
        let (Some(data), Some(info)) = (loaded.get(scan), infos.get_mut(scan)) else { continue };
        let resident: Option<Vec<_>> =
            columns.iter().map(|column| Some(data.columns.get(*column)?.as_ref())).collect();
        let values = resident.and_then(|resident| multi_column_distinct(&resident));
        info.multi_column_distinct.extend(values.map(|values| MultiColumnDistinct { columns, values }));
    }
    infos
}

/// Several keys that are columns of one scan.
fn together(keys: &[Origin]) -> Option<(usize, Vec<usize>)> {
    let keys = keys.iter().copied().collect::<Option<Vec<_>>>()?;
    let (scan, _) = *keys.first()?;
    let columns: BTreeSet<usize> = keys.iter().map(|(_, column)| *column).collect();
    let is_one = keys.iter().all(|(own, _)| *own == scan);
    (is_one && columns.len() > 1).then(|| (scan, columns.into_iter().collect()))
}
