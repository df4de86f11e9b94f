//! The rows of a result as columns of a table: its kernels (`compile::primitives::encode`), one by one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kelpie_compile::primitives::encode::Encode;
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, Kernel, KernelArgument};
use kelpie_kir::{Scalar, ValidModule};
use parking_lot::Mutex;

use super::{Primitives, integer, valid, whole};
use crate::error::EngineError;
use crate::launch::block_shape;

/// An array of a result: the buffer in which it lies, and from which byte on.
pub(crate) type Array = (Buffer, usize);

/// Modules by shape: they depend on nothing else.
type Modules = Mutex<HashMap<(LaunchShape, Encode), Arc<ValidModule>>>;

pub(super) fn argument((buffer, offset): &Array) -> KernelArgument {
    KernelArgument::Buffer(Arc::clone(buffer), *offset as u64)
}

/// The arguments `valid` and `nullable`; `any`: some array.
fn nulls(valid: Option<&Array>, any: &Array) -> [KernelArgument; 2] {
    [argument(valid.unwrap_or(any)), integer(Scalar::U32, valid.is_some().into())]
}

/// How values are written: `value - base` as `to`, and `filler` in place of NULLs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) from: Scalar,
    pub(crate) to: Scalar,
    pub(crate) base: i128,
    pub(crate) filler: i128,
}

impl Primitives<'_> {
    fn encode(&mut self, which: Encode) -> Result<Arc<dyn Kernel>, EngineError> {
        static MODULES: LazyLock<Modules> = LazyLock::new(Mutex::default);
        let name = which.name();
        if let Some(kernel) = self.kernels.lock().get(name.as_str()) {
            return Ok(Arc::clone(kernel));
        }
        let key = (self.shape.clone(), which);
        let known = MODULES.lock().get(&key).cloned();
        let module = match known {
            Some(module) => module,
            None => {
                let module = Arc::new(valid(which.module(&self.shape))?);
                MODULES.lock().insert(key, Arc::clone(&module));
                module
            }
        };
        let kernel = self.stream.compile_for(&module, &name, block_shape(&self.shape))?;
        self.kernels.lock().insert(name.into(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Finds what is known of values of a type, in rows `window.0` to `window.1` of those that the first word of `count` tells, of
    /// which about `rows` are expected. `out` is zero, and told from its byte `at` on.
    pub(crate) fn measure(
        &mut self,
        (of, values, valid): (Scalar, &Array, Option<&Array>),
        (count, window, rows): (&Array, (u64, u64), u64),
        (out, at): (&Buffer, usize),
    ) -> Result<(), EngineError> {
        let (kernel, tiles) = (self.encode(Encode::Measure(of))?, self.tiles(rows));
        let place = |row: u64| integer(Scalar::I64, row.min(i64::MAX as u64));
        let [valid, nullable] = nulls(valid, values);
        let arguments = [
            argument(count),
            place(window.0),
            place(window.1),
            integer(Scalar::I64, tiles.tile_rows),
            argument(values),
            valid,
            nullable,
            KernelArgument::Buffer(Arc::clone(out), at as u64),
        ];
        self.launch(kernel.as_ref(), tiles.count, &arguments)
    }

    /// Writes `rows` values from number `first` on.
    pub(crate) fn write_values(
        &mut self,
        (values, valid): (&Array, Option<&Array>),
        (first, rows): (u64, u64),
        written: Written,
        out: &Buffer,
    ) -> Result<(), EngineError> {
        let Written { from, to, base, filler } = written;
        let [valid, nullable] = nulls(valid, values);
        let (base, filler) = (KernelArgument::Scalar(from, base), KernelArgument::Scalar(to, filler));
        let own = [integer(Scalar::I64, first), argument(values), base, valid, nullable, filler, whole(out)];
        self.over_rows(Encode::Values(from, to), rows, &own)
    }

    /// Writes the bits of `rows` rows from number `first` on, of which bytes say whether they are not NULL.
    pub(crate) fn write_validity(
        &mut self,
        valid: &Array,
        (first, rows): (u64, u64),
        out: &Buffer,
    ) -> Result<(), EngineError> {
        let own = [integer(Scalar::I64, rows), integer(Scalar::I64, first), argument(valid), whole(out)];
        self.over_rows(Encode::Validity, rows.div_ceil(8), &own)
    }

    /// Writes `rows` texts from number `first` on, one after the other; `ends` are their offsets there.
    pub(crate) fn write_texts(
        &mut self,
        (starts, heap): (&Array, &Array),
        (first, rows): (u64, u64),
        (ends, out): (&Buffer, &Buffer),
    ) -> Result<(), EngineError> {
        let first = integer(Scalar::I64, first);
        let own = [first, argument(starts), argument(heap), whole(ends), whole(out)];
        self.over_rows(Encode::Texts, rows, &own)
    }

    fn over_rows(&mut self, which: Encode, rows: u64, own: &[KernelArgument]) -> Result<(), EngineError> {
        if rows == 0 {
            return Ok(());
        }
        let (kernel, tiles) = (self.encode(which)?, self.tiles(rows));
        let mut arguments = vec![integer(Scalar::I64, tiles.rows), integer(Scalar::I64, tiles.tile_rows)];
        arguments.extend_from_slice(own);
        self.launch(kernel.as_ref(), tiles.count, &arguments)
    }
}
