//! What is known of a query's variants before its columns are read: what EXPLAIN shows.

use std::sync::Arc;

use kelpie_compile::pipeline::{self, Choices, ScanInfo};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::variant::Genome;
use kelpie_device::Device;

use crate::columns::expected_layouts;
use crate::error::EngineError;
use crate::identity;
use crate::memory_fallback::MemoryFallback;
use crate::movement::Movement;
use crate::options::{Dictionaries, Query};
use crate::query::{Engine, ends_a_stage, with_key_columns};
use crate::shared_plans::SharedPlans;
use crate::source::TableSource;
use crate::stage;

/// The variants of a query's last stage, as far as they are known.
#[derive(Debug, Clone, PartialEq)]
pub enum Foreseen {
    /// The choices, by what lies in memory already and by statistics.
    Genome(Genome),
    /// What has to be read or computed before anything is chosen.
    After(String),
}

impl Engine {
    /// What will most likely be chosen for the last stage of a query. Reads nothing.
    pub fn foresee(&self, query: &Query) -> Result<Foreseen, EngineError> {
        let shares = query.options.shared_plans;
        let tables = || query.sources.iter().map(Some).collect();
        if let Some(found) = shares.then(|| SharedPlans::find(&query.plan, tables())).flatten() {
            return Ok(Foreseen::After(found.text()));
        }
        let plan = match last_stage(&query.plan) {
            Ok(plan) => plan,
            Err(open) => return Ok(Foreseen::After(open)),
        };
        let device = self.devices.find(&query.options)?;
        let mut infos = Vec::new();
        let sources = self.columns.narrowed(&device, query, false).sources;
        for scan in stage::scans(&plan) {
            match self.scan_info(scan, (&sources, query.options.dictionaries), &device) {
                Ok(info) => infos.push(info),
                Err(open) => return Ok(Foreseen::After(open)),
            }
        }
        let options = &query.options;
        let duplicates = self.learned.duplicates(identity::data(&plan, &infos));
        let choices = Choices {
            micro_model: options.micro_model,
            resolution: options.resolution,
            duplicates: &duplicates,
            host_sort_rows: options.host_sort_rows,
            direct_bytes: Movement::of(MemoryFallback::AsAsked, options, &device).initial_bytes,
            forced: &options.variants,
            rotation: &[],
            shape: options.shape,
            keeps_rows: false,
            calibration: self.constants(&device),
        };
        let program = pipeline::compile_with(&plan, &infos, device.target(), &choices)?;
        Ok(Foreseen::Genome(program.genome))
    }

    /// What is known of a scan, or which column has to be read first.
    fn scan_info(
        &self,
        scan: &Scan,
        (sources, dictionaries): (&[Arc<dyn TableSource>], Dictionaries),
        device: &Arc<dyn Device>,
    ) -> Result<ScanInfo, String> {
        let missing = || format!("{} is opened", scan.table);
        let source = sources.get(scan.source).ok_or_else(missing)?.as_ref();
        let mut rows = source.exact_rows();
        let mut layouts = Vec::new();
        for (column, field) in scan.columns.iter().zip(&scan.fields) {
            let layout = match self.columns.resident(device, source, *column, dictionaries) {
                Some(resident) => {
                    rows = Some(resident.rows);
                    Some(resident.layout.clone())
                }
                None => expected_layouts(source, &[*column]).and_then(|mut layouts| layouts.pop()),
            };
            layouts.push(layout.ok_or_else(|| format!("column {} of {} is read", field.name, scan.table))?);
        }
        let rows = rows.ok_or_else(|| format!("the rows of {} are counted", scan.table))?;
        Ok(ScanInfo::new(rows, layouts))
    }
}

/// The stage that makes a query's rows, as the engine would run it; or what runs before and is not known until then.
fn last_stage(plan: &Plan) -> Result<Plan, String> {
    match plan {
        Plan::Sort { input, keys, fetch } => {
            let (input, keys) = with_key_columns(input, keys);
            whole(&input)?;
            Ok(Plan::Sort { input: Box::new(input), keys, fetch: *fetch })
        }
        Plan::Limit { input, skip, fetch } => match input.as_ref() {
            Plan::Sort { input, keys, fetch: own } => {
                let rows = fetch.map(|fetch| fetch.saturating_add(*skip));
                let fetch = own.iter().chain(&rows).min().copied();
                last_stage(&Plan::Sort { input: input.clone(), keys: keys.clone(), fetch })
            }
            input if ends_a_stage(input) || fetch.is_none() => last_stage(input),
            input => {
                whole(input)?;
                let rows = fetch.map(|fetch| fetch.saturating_add(*skip));
                Ok(Plan::Limit { input: Box::new(input.clone()), skip: 0, fetch: rows })
            }
        },
        Plan::Project { input, .. } if ends_a_stage(plan) => last_stage(input),
        plan => whole(plan).map(|()| plan.clone()),
    }
}

/// Whether a plan is one stage, or what runs before it.
fn whole(plan: &Plan) -> Result<(), String> {
    match plan {
        Plan::Sort { .. } | Plan::Limit { .. } => Err("the rows of an inner sort or limit are there".into()),
        Plan::Scalars { .. } => Err("the values of its scalar subqueries are there".into()),
        plan => plan.inputs().into_iter().try_for_each(whole),
    }
}
