//! Kernels that are compiled while columns are still read.
//!
//! The columns' layout shapes the code, so a stage compiles when all of them are there. But reading a large table, with
//! expressions that are computed on the way, takes as long as a GPU's compiler does, and a part of the rows tells most of
//! the layout. So kernels for that are made meanwhile and left in the device's cache, where the stage finds them if the rest
//! of the rows was as expected; if not, it compiles as ever.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_compile::calibration::Calibration;
use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::Plan;
use kelpie_device::Device;

use super::blueprint::Blueprint;
use crate::error::EngineError;
use crate::learned::Fingerprint;
use crate::options::QueryOptions;
use crate::profile::Profile;
use crate::stack::with_room;

/// A stage whose columns are being read.
#[derive(Debug)]
pub struct Ahead<'a> {
    pub plan: &'a Plan,
    pub device: Arc<dyn Device>,
    pub options: QueryOptions,
    /// As in [`Choices`].
    pub direct_bytes: Option<u64>,
    /// As there.
    pub keeps_rows: bool,
    /// What was measured of the device.
    pub calibration: Calibration,
}

impl Ahead<'_> {
    /// Compiles the stage for columns like these. What fails here fails there, or does not matter.
    pub fn compile(&self, infos: &[ScanInfo]) {
        // Kernels that count are others, and their queries are not in a hurry.
        if !self.options.meter && self.options.profile == Profile::Off {
            let _ = with_room(self.plan, || self.try_compile(infos));
        }
    }

    fn try_compile(&self, infos: &[ScanInfo]) -> Result<(), EngineError> {
        let blueprint = Blueprint {
            plan: Cow::Borrowed(self.plan),
            infos: Cow::Borrowed(infos),
            device: Arc::clone(&self.device),
            options: Cow::Borrowed(&self.options),
            duplicates: Cow::Owned(BTreeSet::new()),
            direct_bytes: self.direct_bytes,
            keeps_rows: self.keeps_rows,
            calibration: self.calibration,
        };
        blueprint.compile(Fingerprint::of(&()), self.options.compile)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::SchemaRef;
    use kelpie_compile::expr::Expr;
    use kelpie_compile::plan::{Aggregate, AggregateFunction, Scan};
    use kelpie_compile::types::{DataType, Field};
    use kelpie_device::CancelToken;

    use super::*;
    use crate::options::{DeviceChoice, Query};
    use crate::query::Engine;
    use crate::result;
    use crate::source::{BatchConsumer, TableSource};

    const BATCHES: i64 = 20;
    const BATCH_ROWS: i64 = 60_000;

    /// Batches of numbers below 90, and of larger ones at the end where `surprises`.
    #[derive(Debug)]
    struct Numbers {
        schema: SchemaRef,
        surprises: bool,
    }

    impl TableSource for Numbers {
        fn name(&self) -> String {
            "numbers".into()
        }
        fn schema(&self) -> SchemaRef {
            Arc::clone(&self.schema)
        }
        fn identity(&self) -> Option<String> {
            None
        }
        fn exact_rows(&self) -> Option<u64> {
            Some((BATCHES * BATCH_ROWS) as u64)
        }
        fn partitions(&self) -> usize {
            1
        }
        fn read(
            &self,
            _: &[usize],
            consumer: &BatchConsumer<'_>,
            _: &CancelToken,
        ) -> Result<(), EngineError> {
            for batch in 0..BATCHES {
                let shift = if self.surprises && batch == BATCHES - 1 { 1 << 40 } else { 0 };
                let values = (0..BATCH_ROWS).map(|row| row % 90 + shift).collect::<Int64Array>();
                consumer(0, RecordBatch::try_new(self.schema(), vec![Arc::new(values)])?)?;
            }
            Ok(())
        }
    }

    /// The groups of a query that counts rows by value, and whether its kernels were there when its columns were.
    fn run(engine: &Engine, surprises: bool) -> (usize, bool) {
        let field = |name: &str| Field { name: name.into(), data_type: DataType::Int64, nullable: false };
        let (fields, key) = (vec![field("k")], Expr::column(0, DataType::Int64, false));
        let schema = result::arrow_schema(&fields);
        let scan = Plan::Scan(Scan { source: 0, table: "numbers".into(), columns: vec![0], fields });
        let count = AggregateFunction::Count;
        let count = Aggregate { function: count, argument: None, distinct: false, field: field("n") };
        let (keys, names) = (vec![key], vec!["k".into()]);
        let plan = Plan::Aggregate { input: Box::new(scan), keys, aggregates: vec![count], names };
        let sources: Vec<Arc<dyn TableSource>> = vec![Arc::new(Numbers { schema, surprises })];
        let options = QueryOptions { device: DeviceChoice::Cpu, ..QueryOptions::default() };
        let query = Query { plan, sources, options };
        let output = engine.execute(&query, &CancelToken::default()).expect("it runs");
        let compiled = output.metrics.pipelines.iter().map(|pipeline| pipeline.compile_ns).sum::<u64>();
        (output.batch.num_rows(), compiled == 0)
    }

    #[test]
    fn kernels_are_there_when_columns_are() {
        assert_eq!(run(&Engine::new(), false), (90, true));
    }

    #[test]
    fn columns_that_differ_from_their_beginning_are_compiled_for_as_ever() {
        assert_eq!(run(&Engine::new(), true), (180, false));
    }
}
