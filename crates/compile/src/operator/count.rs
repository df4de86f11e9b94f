//! Counts what each row of the source becomes: the first kernel of a dense write in several (HorseQC, Table 4, A1).

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;

use super::Flow;
use super::roles::{Emitter, Job, Needs, Sink};
use crate::context::{Context, Unsupported};
use crate::table::places::CountedPlaces;

/// Counts rows.
#[derive(Debug)]
pub(crate) struct CountRows {
    /// State of one `u32` a row of the source.
    pub counts: usize,
    /// State of one `u64` that counts all of them, where that may be too many for a `u32`.
    pub rows: Option<usize>,
}

impl fmt::Display for CountRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("count")
    }
}

impl Sink for CountRows {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        cx.make_rows_scratch(None);
        Ok(Box::new(CountEmitter(CountedPlaces::begin_count(cx, self.counts, self.rows))))
    }
}

struct CountEmitter(CountedPlaces);

impl Emitter for CountEmitter {
    fn begin_row(&mut self, cx: &mut Context<'_>) {
        self.0.begin_row(cx);
    }

    fn row(&mut self, cx: &mut Context<'_>, _row: V, _flow: Flow) -> Result<(), Unsupported> {
        self.0.count(cx);
        Ok(())
    }

    fn end_row(&mut self, cx: &mut Context<'_>, row: V) {
        self.0.end_row(cx, row);
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.0.end(cx);
        Ok(())
    }
}
