//! What a caller of the compiler may choose.

use std::collections::BTreeSet;

use crate::calibration::Calibration;
use crate::models::{MicroModel, Resolution};
use crate::shape::ShapeChoices;
use crate::variant::Forced;

/// What a caller may choose.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    /// How reductions are carried out.
    pub micro_model: MicroModel,
    /// How they are resolved locally.
    pub resolution: Resolution,
    /// The joins, by number, whose build side is known to have a key twice; that of one whose sides change places has the number of its
    /// join behind those of all joins.
    pub duplicates: &'a BTreeSet<usize>,
    /// A sort on top of no more rows than this is left to the host; the default where absent.
    pub host_sort_rows: Option<u64>,
    /// Bytes of device memory that a direct-addressed table may take, where that is less than it may at best.
    pub direct_bytes: Option<u64>,
    /// Variants that the session forces.
    pub forced: &'a Forced,
    /// Further forced choices of how rows are gone through, each of which makes another variant of each pipeline: the blocks of its rows
    /// take the variants in turn.
    pub rotation: &'a [Forced],
    /// What is asked of the shape of launches.
    pub shape: ShapeChoices,
    /// The rows of the result stay on the device, for a later stage that scans them: a text of a dictionary is written as its
    /// code there, not as its bytes.
    pub keeps_rows: bool,
    /// What was measured of the device.
    pub calibration: Calibration,
}

impl<'a> Choices<'a> {
    /// The defaults.
    pub fn new(micro_model: MicroModel, duplicates: &'a BTreeSet<usize>) -> Choices<'a> {
        let resolution = Resolution::default();
        let forced = Forced::none();
        let (host_sort_rows, direct_bytes, shape) = (None, None, ShapeChoices::default());
        let (keeps_rows, calibration) = (false, Calibration::default());
        let rotation = &[];
        Choices {
            micro_model,
            resolution,
            duplicates,
            host_sort_rows,
            direct_bytes,
            forced,
            rotation,
            shape,
            keeps_rows,
            calibration,
        }
    }
}
