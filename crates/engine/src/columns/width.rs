//! The narrowest scalar that integers of a range are stored as.

use kelpie_compile::layout::Storage;
use kelpie_compile::types::Range;
use kelpie_kir::Scalar;

/// How a range is stored: value = stored + base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    pub(crate) scalar: Scalar,
    pub(crate) base: i128,
}

impl Width {
    /// The narrowest width for a range, without a base where that does not cost width.
    pub(crate) fn of(range: Range) -> Width {
        let spread = range.max.checked_sub(range.min);
        for (scalar, min, max) in [
            (Scalar::U8, 0, i128::from(u8::MAX)),
            (Scalar::U16, 0, i128::from(u16::MAX)),
            (Scalar::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
            (Scalar::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
        ] {
            if range.within(Range { min, max }) {
                return Width { scalar, base: 0 };
            }
            if spread.is_some_and(|spread| spread <= max) {
                return Width { scalar, base: range.min };
            }
        }
        Width { scalar: Scalar::I128, base: 0 }
    }

    /// How a column of this width is stored.
    pub(crate) fn storage(self) -> Storage {
        Storage::Fixed { scalar: self.scalar, has_base: self.base != 0 }
    }
}
