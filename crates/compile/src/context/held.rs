//! Held rows: the columns of [`WIDE_ROWS`] consecutive rows of a table are loaded at once, as those of a wide row, and then the rows are
//! worked on one by one, each with its elements of these vectors. What has no form for several rows at once (groups, text, 128 bits)
//! so has the wide loads.

use std::collections::HashMap;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{Argument, ColumnPart, Context, WIDE_ROWS};
use crate::layout::{ColumnLayout, Storage, ValueCodes};

/// What is held of consecutive rows.
#[derive(Debug)]
pub(super) struct Held {
    /// Vectors of what is stored, and masks of validities: by scan and position, and whether it is the validity.
    columns: HashMap<(usize, usize, bool), V>,
    /// Vectors of the codes beside values, by scan and position.
    codes: HashMap<(usize, usize), V>,
    /// Which of the rows is worked on.
    row: u8,
}

/// What of a column is held: the elements in memory of a number or a dictionary's code.
fn element(layout: &ColumnLayout) -> Option<Scalar> {
    match layout.storage {
        Storage::Fixed { scalar, .. } => Some(scalar),
        Storage::Dictionary { code, .. } => Some(code),
        Storage::Text { .. } => None,
    }
    .filter(|scalar| *scalar != Scalar::I128)
}

/// Bytes that are held of a row of such columns, and of the codes beside their values.
pub(crate) fn held_bytes(layouts: &[ColumnLayout], codes: &[Option<ValueCodes>]) -> u32 {
    let codes = codes.iter().flatten().map(|codes| codes.code);
    layouts.iter().filter_map(element).chain(codes).map(Scalar::bytes).sum()
}

impl Context<'_> {
    /// Loads the columns of [`WIDE_ROWS`] rows of a scan, from `row` (`i64`, a multiple of their number) on.
    pub(crate) fn hold(
        &mut self,
        scan: usize,
        (layouts, codes): (&[ColumnLayout], &[Option<ValueCodes>]),
        row: V,
    ) {
        let (mut columns, mut held_codes) = (HashMap::new(), HashMap::new());
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
            held_codes.insert((scan, column), self.load_elements(data, row));
        }
        self.end_wide();
        self.held = Some(Held { columns, codes: held_codes, row: 0 });
    }

    /// The row that is begun next is this one of those that are held.
    pub(crate) fn take_held(&mut self, row: u8) {
        debug_assert!(row < WIDE_ROWS, "held rows are as many as a wide row has");
        if let Some(held) = &mut self.held {
            held.row = row;
        }
    }

    /// No rows are held any more.
    pub(crate) fn let_go(&mut self) {
        self.held = None;
    }

    /// The code beside a column's value that is held of the current row.
    pub(super) fn held_code(&mut self, column: (usize, usize)) -> Option<V> {
        let held = self.held.as_ref().filter(|_| self.wide.is_none())?;
        let (vector, row) = (*held.codes.get(&column)?, held.row);
        Some(self.builder.lane(vector, row))
    }

    /// What is held of a part of a column, of the current row.
    pub(super) fn held_value(&mut self, key: (usize, usize, bool)) -> Option<V> {
        let held = self.held.as_ref().filter(|_| self.wide.is_none())?;
        let (vector, row) = (*held.columns.get(&key)?, held.row);
        Some(self.builder.lane(vector, row))
    }
}
