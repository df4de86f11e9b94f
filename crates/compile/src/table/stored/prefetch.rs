//! Looks at what is stored, so that it is in a cache where it is read soon (group prefetching: Chen et al. 2004): nothing is done with the
//! values, but something depends on all of them.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::{LINE_BYTES, StoredColumn};
use crate::context::Context;

impl StoredColumn {
    /// Looks at what lies at a place (`i64`), of a text at what it is found by: what was seen, `u64` each.
    pub(crate) fn look_at(&self, cx: &mut Context<'_>, place: V) -> Vec<V> {
        let validity = self.validity.map(|part| (part, Scalar::U8));
        let mut seen = Vec::new();
        for (part, scalar) in self.parts().into_iter().chain(validity) {
            let pointer = self.address(cx, part, scalar, place);
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
        let validity = self.validity.map(|part| (part, Scalar::U8));
        let mut seen = Vec::new();
        for (part, scalar) in self.parts().into_iter().chain(validity) {
            let pointer = self.address(cx, part, scalar, first);
            let b = &mut *cx.builder;
            for place in (0..places).step_by((LINE_BYTES / scalar.bytes()).max(1) as usize) {
                let distance = b.i64(place.into());
                let pointer = b.offset(pointer, distance);
                let value = b.load(pointer);
                seen.push(b.convert(value, Scalar::U64));
            }
        }
        seen
    }
}
