//! What a cached column is found by.

use std::sync::Arc;

use kelpie_device::Device;

use super::read::{self, Kind};
use crate::options::Dictionaries;
use crate::source::{ColumnKey, TableSource};

/// A column of some data on a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// By its memory ([`Device::memory_id`]); entries hold the device weakly, so that no other can have the number meanwhile.
    pub device: usize,
    pub identity: Arc<str>,
    pub column: ColumnKey,
    /// A column of texts that was asked for without a dictionary. It serves nobody else, as others want one where there can be one.
    pub without_dictionary: bool,
    pub on_host: bool,
}

/// A column of a source with what it is kept under beside the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keyed {
    /// Position in the source.
    pub position: usize,
    column: ColumnKey,
    without_dictionary: bool,
}

impl Keyed {
    /// The column at a position; `None` where it is not kept.
    pub fn of(source: &dyn TableSource, position: usize, dictionaries: Dictionaries) -> Option<Keyed> {
        let column = source.column_key(position)?;
        // Columns that are no texts are the same whatever is asked of texts.
        let is_text = || {
            let schema = source.schema();
            let data_type = schema.fields().get(position).map(|field| field.data_type());
            data_type.and_then(read::kind_of) == Some(Kind::Text)
        };
        let without_dictionary = dictionaries == Dictionaries::Off && is_text();
        Some(Keyed { position, column, without_dictionary })
    }

    /// Distinct columns of a source, and those that are not kept.
    pub fn all(
        source: &dyn TableSource,
        columns: &[usize],
        dictionaries: Dictionaries,
    ) -> (Vec<Keyed>, Vec<usize>) {
        let mut distinct = columns.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let (mut keyed, mut fresh) = (Vec::new(), Vec::new());
        for position in distinct {
            match Keyed::of(source, position, dictionaries) {
                Some(key) => keyed.push(key),
                None => fresh.push(position),
            }
        }
        (keyed, fresh)
    }

    /// The key of the column of some data.
    pub fn on(&self, device: &Arc<dyn Device>, identity: &Arc<str>, on_host: bool) -> Key {
        let Keyed { column, without_dictionary, .. } = *self;
        let (device, identity) = (device.memory_id(), Arc::clone(identity));
        Key { device, identity, column, without_dictionary, on_host }
    }
}
