//! Prefetched rows: the columns of [`WIDE_ROWS`] consecutive rows of a table are loaded at once, as those of a wide row, and then the rows are
//! worked on one by one, each with its elements of these vectors. What has no form for several rows at once (groups, text, 128 bits)
//! so has the wide loads.

use std::collections::HashMap;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{Argument, ColumnPart, Context, WIDE_ROWS};
use crate::layout::{ColumnLayout, Storage, ValueCodes};

/// What was loaded of consecutive rows.
#[derive(Debug)]
pub(super) struct Prefetched {
    /// Vectors of what is stored, and masks of validities: by scan and position, and whether it is the validity.
    columns: HashMap<(usize, usize, bool), V>,
    /// Vectors of the codes beside values, by scan and position.
    codes: HashMap<(usize, usize), V>,
    /// Which of the rows is worked on.
    row: u8,
}

/// What of a column is loaded: the elements in memory of a number or a dictionary's code.
fn element(layout: &ColumnLayout) -> Option<Scalar> {
    match layout.storage {
        Storage::Fixed { scalar, .. } => Some(scalar),
        Storage::Dictionary { code, .. } => Some(code),
        Storage::Text { .. } => None,
    }
    .filter(|scalar| *scalar != Scalar::I128)
}

/// Bytes that are loaded of a row of such columns, and of the codes beside their values.
pub(crate) fn prefetched_bytes(layouts: &[ColumnLayout], codes: &[Option<ValueCodes>]) -> u32 {
    let codes = codes.iter().flatten().map(|codes| codes.code);
    layouts.iter().filter_map(element).chain(codes).map(Scalar::bytes).sum()
}

impl Context<'_> {
    /// Loads the columns of [`WIDE_ROWS`] rows of a scan, from `row` (`i64`, a multiple of their number) on.
    pub(crate) fn prefetch(
        &mut self,
        scan: usize,
        (layouts, codes): (&[ColumnLayout], &[Option<ValueCodes>]),
        row: V,
    ) {
        let (mut columns, mut value_codes) = (HashMap::new(), HashMap::new());
        self.begin_wide();
        for (column, layout) in layouts.iter().enumerate() {
            let Some(scalar) = element(layout) else { continue };
            let name = if matches!(layout.storage, Storage::Fixed { .. }) { "data" } else { "codes" };
            let data = Argument::Column { scan, column, part: ColumnPart::Data };
            let data = self.argument(name, Type::global(scalar), data);
            columns.insert((scan, column, false), self.load_elements(data, row));
            if layout.has_nulls {
                columns.insert((scan, column, true), self.load_validity((scan, column), row));
            }
        }
        for (column, codes) in codes.iter().enumerate() {
            let Some(codes) = codes else { continue };
            let data = Argument::Column { scan, column, part: ColumnPart::Codes };
            let data = self.argument("value_codes", Type::global(codes.code), data);
            value_codes.insert((scan, column), self.load_elements(data, row));
        }
        self.end_wide();
        self.loads.prefetched = Some(Prefetched { columns, codes: value_codes, row: 0 });
    }

    /// The row that is begun next is this one of those that were loaded.
    pub(crate) fn begin_prefetched(&mut self, row: u8) {
        debug_assert!(row < WIDE_ROWS, "prefetched rows are as many as a wide row has");
        if let Some(prefetched) = &mut self.loads.prefetched {
            prefetched.row = row;
        }
    }

    /// Rows are loaded one by one again.
    pub(crate) fn end_prefetched(&mut self) {
        self.loads.prefetched = None;
    }

    /// The code beside a column's value that was loaded for the current row.
    pub(super) fn prefetched_code(&mut self, column: (usize, usize)) -> Option<V> {
        let prefetched = self.loads.prefetched.as_ref().filter(|_| self.loads.wide.is_none())?;
        let (vector, row) = (*prefetched.codes.get(&column)?, prefetched.row);
        Some(self.builder.lane(vector, row))
    }

    /// What was loaded of a part of a column for the current row.
    pub(super) fn prefetched_value(&mut self, key: (usize, usize, bool)) -> Option<V> {
        let prefetched = self.loads.prefetched.as_ref().filter(|_| self.loads.wide.is_none())?;
        let (vector, row) = (*prefetched.columns.get(&key)?, prefetched.row);
        Some(self.builder.lane(vector, row))
    }
}
