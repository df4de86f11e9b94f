//! Looks at what is stored, so that it is in a cache where it is read soon (group prefetching: Chen et al. 2004): nothing is done with the
//! values, but something depends on all of them.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::{LINE_BYTES, StoredColumn, StoredForm};
use crate::context::Context;

impl StoredColumn {
    /// The numbers of the parts that values are in, each with the type of these and how many of them a place has; validity last.
    fn parts_of_places(&self) -> impl Iterator<Item = (usize, (Scalar, u32))> {
        let values = match self.form {
            StoredForm::Null => vec![],
            StoredForm::Scalar { scalar, part } | StoredForm::Code { scalar, part } => {
                vec![(part, (scalar, 1))]
            }
            StoredForm::Text(parts) => parts.all().to_vec(),
        };
        values.into_iter().chain(self.validity.map(|part| (part, (Scalar::U8, 1))))
    }

    /// Looks at what lies at a place (`i64`), of a text at what it is found by: what was seen, `u64` each.
    pub(crate) fn look_at(&self, cx: &mut Context<'_>, place: V) -> Vec<V> {
        let mut seen = Vec::new();
        for (part, (scalar, count)) in self.parts_of_places() {
            let pointer = self.first_address(cx, (part, count), scalar, place);
            let b = &mut *cx.builder;
            let value = b.load(pointer);
            let bits = match scalar {
                Scalar::F64 => b.bitcast(value, Scalar::U64),
                Scalar::F32 => b.bitcast(value, Scalar::U32),
                _ => value,
            };
            seen.push(b.convert(bits, Scalar::U64));
        }
        seen
    }

    /// Looks at each cache line of so many places from `first` (`i64`, at the beginning of a line) on, in arrays of its own: what was
    /// seen, `u64`.
    pub(crate) fn look_at_lines(&self, cx: &mut Context<'_>, first: V, places: u32) -> Vec<V> {
        let mut seen = Vec::new();
        for (part, (scalar, count)) in self.parts_of_places() {
            let pointer = self.first_address(cx, (part, count), scalar, first);
            let b = &mut *cx.builder;
            for place in (0..places).step_by((LINE_BYTES / (count * scalar.bytes())).max(1) as usize) {
                let distance = b.i64((count * place).into());
                let pointer = b.offset(pointer, distance);
                let value = b.load(pointer);
                seen.push(b.convert(value, Scalar::U64));
            }
        }
        seen
    }
}
