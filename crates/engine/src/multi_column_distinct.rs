//! How many combinations of values the keys of a grouping have that are columns of one scan. What is known of each column by itself does
//! not tell: two columns of 2,500 days have 6 million combinations at most, and 75 thousand where one follows from the other but for some
//! days. A sample of the same rows of each column does.

use std::collections::BTreeSet;

use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::pipeline::{MultiColumnDistinct, ScanInfo};
use kelpie_compile::plan::{JoinKind, Plan, Scan};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::Device;

use crate::columns::multi_column_distinct;
use crate::stage::{self, Loaded, scans};

/// The scan and column that a column of a plan is, unchanged.
type Origin = Option<(usize, usize)>;

/// What the compiler must know of a plan's loaded data: of each scan, and of the keys of groupings. On a GPU nobody has measured what
/// is to follow from the latter, and it is left out.
pub(crate) fn describe(plan: &Plan, loaded: &[Loaded], device: &dyn Device) -> Vec<ScanInfo> {
    let mut infos = stage::describe(loaded);
    if !LaunchShape::of(device.target()).is_serial() {
        return infos;
    }
    let mut wanted = BTreeSet::new();
    walk(plan, &scans(plan), &mut wanted);
    for (scan, columns) in wanted {
        let (Some(data), Some(info)) = (loaded.get(scan), infos.get_mut(scan)) else { continue };
        let resident: Option<Vec<_>> =
            columns.iter().map(|column| Some(data.columns.get(*column)?.as_ref())).collect();
        let values = resident.and_then(|resident| multi_column_distinct(&resident));
        info.multi_column_distinct.extend(values.map(|values| MultiColumnDistinct { columns, values }));
    }
    infos
}

/// What the columns of a plan are, and which columns of a scan are keys of a grouping together.
fn walk(plan: &Plan, scans: &[&Scan], wanted: &mut BTreeSet<(usize, Vec<usize>)>) -> Vec<Origin> {
    let inputs: Vec<Vec<Origin>> =
        plan.inputs().into_iter().map(|input| walk(input, scans, wanted)).collect();
    let first = inputs.first().map_or(&[][..], Vec::as_slice);
    match plan {
        Plan::Scan(scan) => {
            let number = scans.iter().position(|own| std::ptr::eq(*own, scan));
            (0..scan.columns.len()).map(|column| Some((number?, column))).collect()
        }
        Plan::Filter { .. } | Plan::Sort { .. } | Plan::Limit { .. } | Plan::Scalars { .. } => first.to_vec(),
        Plan::Project { exprs, .. } => exprs.iter().map(|expr| origin(expr, first)).collect(),
        Plan::Aggregate { keys, aggregates, .. } => {
            let keys: Vec<Origin> = keys.iter().map(|key| origin(key, first)).collect();
            wanted.extend(together(&keys));
            keys.into_iter().chain(aggregates.iter().map(|_| None)).collect()
        }
        Plan::Join(join) => {
            let probe = inputs.get(1).map_or(&[][..], Vec::as_slice);
            match join.kind {
                JoinKind::BuildSemi | JoinKind::BuildAnti => first.to_vec(),
                JoinKind::BuildMark => [first, &[None]].concat(),
                JoinKind::ProbeSemi | JoinKind::ProbeAnti => probe.to_vec(),
                JoinKind::ProbeMark => [probe, &[None]].concat(),
                _ => [first, probe].concat(),
            }
        }
        Plan::Window(window) => first.iter().copied().chain(window.functions.iter().map(|_| None)).collect(),
        Plan::GroupingSets(_) | Plan::Ranked(_) | Plan::Union { .. } => vec![None; plan.fields().len()],
    }
}

fn origin(expr: &Expr, input: &[Origin]) -> Origin {
    match expr.kind {
        ExprKind::Column(column) => input.get(column).copied().flatten(),
        _ => None,
    }
}

/// Several keys that are columns of one scan.
fn together(keys: &[Origin]) -> Option<(usize, Vec<usize>)> {
    let keys = keys.iter().copied().collect::<Option<Vec<_>>>()?;
    let (scan, _) = *keys.first()?;
    let columns: BTreeSet<usize> = keys.iter().map(|(_, column)| *column).collect();
    let is_one = keys.iter().all(|(own, _)| *own == scan);
    (is_one && columns.len() > 1).then(|| (scan, columns.into_iter().collect()))
}
