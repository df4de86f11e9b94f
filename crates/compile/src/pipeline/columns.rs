//! What is known at compile time of the columns that flow through a pipeline.

use crate::layout::{CodedColumn, ColumnFacts, ColumnInfo, Storage};
use crate::plan::Scan;
use crate::program::ScanInfo;
use crate::types::{Field, Range};

/// The columns of a scan.
pub(crate) fn of_scan(scan: usize, node: &Scan, info: &ScanInfo) -> Vec<ColumnInfo> {
    let describe = |(column, (field, facts)): (usize, (&Field, &ColumnFacts))| {
        let ColumnFacts { layout, scattered, has_frequent, is_clustered, codes, .. } = facts;
        let dictionary = match layout.storage {
            Storage::Dictionary { entries, .. } => Some((scan, column, entries)),
            _ => None,
        };
        let range = if field.data_type.is_float() { None } else { layout.range };
        let data_type = field.data_type.clone();
        let (scattered, has_frequent, is_clustered) = (*scattered, *has_frequent, *is_clustered);
        let spacing = facts.spacing.filter(|_| range.is_some());
        let (nullable, origin) = (layout.has_nulls, Some((scan, column)));
        let coded = codes.map(|codes| CodedColumn { scan, column, entries: codes.entries });
        ColumnInfo {
            data_type,
            nullable,
            range,
            dictionary,
            scattered,
            has_frequent,
            is_clustered,
            spacing,
            origin,
            coded,
        }
    };
    node.fields.iter().zip(&info.columns).enumerate().map(describe).collect()
}

/// What is known of a column whose rows come from several pipelines.
pub(crate) fn unify(a: &ColumnInfo, b: &ColumnInfo) -> ColumnInfo {
    let range = match (a.range, b.range) {
        (Some(a), Some(b)) => Some(Range { min: a.min.min(b.min), max: a.max.max(b.max) }),
        _ => None,
    };
    // Codes are of use only where no other rows are among them.
    ColumnInfo::new(a.data_type.clone(), a.nullable || b.nullable, range)
}
