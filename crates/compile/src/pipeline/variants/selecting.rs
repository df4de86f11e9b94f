//! By what rows are selected before any goes on: filters that see several rows at once, searches of texts, runtime filters.

use super::Facts;
use crate::MicroModel;
use crate::context::{Unsupported, WIDE_ROWS};
use crate::pipeline::Pipeline;
use crate::pipeline::batches::BatchedSteps;
use crate::pipeline::kernel::Environment;
use crate::pipeline::speculation::Speculation;
use crate::pipeline::staged_filtering::StagedFiltering;
use crate::pipeline::wide::WideFilters;
use crate::shape::ShapeChoices;
use crate::variant::axes::{FirstLookUps, RowArrangement, RuntimeFilters, TextSearch, WritePlaces};
use crate::variant::estimate;

impl Facts<'_> {
    /// Whether rows are selected by runtime filters; `lacks`: why they cannot be.
    fn runtime_filters(&self, lacks: Option<&str>) -> Result<RuntimeFilters, Unsupported> {
        if !self.pipeline.steps.iter().any(|step| step.runtime_filter().is_some()) {
            return Ok(RuntimeFilters::Off);
        }
        let rule = match lacks {
            Some(lacks) => (RuntimeFilters::Off, lacks),
            None if self.environment.micro_model != MicroModel::Resolution => {
                (RuntimeFilters::Off, "the micro model takes one row at a time")
            }
            None if self.is_simt => (RuntimeFilters::On, "their loads hide each other's latency"),
            None => (RuntimeFilters::On, "which rows find a match would be foretold badly"),
        };
        self.environment.chooser.choose(self.site, rule, |value| match (value, lacks) {
            (RuntimeFilters::On, Some(lacks)) => Err(lacks.into()),
            _ => Ok(()),
        })
    }

    /// On a CPU: the filters in two parts and the runtime filters, where a selection vector can be made of them; or why not.
    pub(super) fn wide_filters(
        &self,
        places: WritePlaces,
        is_counted: bool,
    ) -> Result<Result<WideFilters, String>, Unsupported> {
        let filters = match () {
            () if is_counted => Err("places are counted a row of the table".to_string()),
            () => self.split_filters(places)?,
        };
        let possible = filters.as_ref().map_err(String::clone);
        let possible = possible.and_then(|filters| filters.possible_runtime_filters(self.pipeline));
        let runtime_filters = match self.runtime_filters(possible.as_ref().err().map(String::as_str))? {
            RuntimeFilters::On => possible.unwrap_or_default(),
            RuntimeFilters::Off => Vec::new(),
        };
        Ok(match filters {
            Ok(WideFilters { lacks: Some(lacks), .. }) if runtime_filters.is_empty() => Err(lacks),
            Ok(filters) => Ok(filters.with_runtime_filters(runtime_filters)),
            Err(lacks) => Err(lacks),
        })
    }

    /// The filters in two parts, of which one may be a search of batches of texts; or why no selection vector is made of them.
    fn split_filters(&self, places: WritePlaces) -> Result<Result<WideFilters, String>, Unsupported> {
        let Environment { target, shape, chooser, micro_model, .. } = *self.environment;
        let is_possible = |filters: &WideFilters| match places {
            WritePlaces::Selection if !filters.is_all(self.pipeline) => {
                let lacks =
                    "the result is written from selections, and a filter has no form for several rows";
                Err(lacks.to_string())
            }
            _ => Ok(()),
        };
        let mut filters = WideFilters::of(self.pipeline, (target, shape), true);
        if let Some(search) = &filters.search {
            let lacks = search.as_ref().map(drop).map_err(String::clone).and_then(|()| is_possible(&filters));
            let share = filters.share_searched(self.pipeline);
            let rule = match (search, &lacks) {
                (_, Err(lacks)) | (Err(lacks), _) => (TextSearch::Rows, lacks.as_str()),
                _ if micro_model != MicroModel::Resolution => {
                    (TextSearch::Rows, "the micro model takes one row at a time")
                }
                (Ok(search), _) => search.rule(share),
            };
            let chosen = chooser.choose(self.site, rule, |value| match (value, &lacks) {
                (TextSearch::Batches, Err(lacks)) => Err(lacks.clone()),
                _ => Ok(()),
            })?;
            if chosen == TextSearch::Rows {
                filters = WideFilters::of(self.pipeline, (target, shape), false);
            }
        }
        Ok(is_possible(&filters).map(|()| filters))
    }

    /// On a SIMT device: by what several rows of a thread can be tried before one goes on; or why they cannot.
    pub(super) fn staged(
        &self,
        speculation: &Speculation<'_>,
        (flags, places): (bool, WritePlaces),
        is_counted: bool,
    ) -> Result<Result<StagedFiltering, String>, Unsupported> {
        let lacks = match () {
            () if is_counted => Some("places are counted a row of the table"),
            () if flags && self.points.is_empty() => Some("all rows of a thread go on together, with flags"),
            () if self.points.takes_runs() => Some("lanes match the texts of rows side by side"),
            () if self.points.longest.is_some() => {
                Some("long ranges wait for warps that bring no rows of their own")
            }
            () if self.points.in_block || places == WritePlaces::Block => {
                Some("threads of a block wait for each other")
            }
            () if self.pipeline.sink.waits_in_blocks() => Some("threads of a block wait for each other"),
            () if self.environment.shape.rows_per_thread > u32::BITS => {
                Some("more rows than a word has bits")
            }
            () => None,
        };
        let of = |with_runtime_filters| match lacks {
            Some(lacks) => Err(lacks.to_string()),
            None => StagedFiltering::of(self.pipeline, speculation, with_runtime_filters),
        };
        let possible = of(true);
        let runtime_filters = self.runtime_filters(possible.as_ref().err().map(String::as_str))?;
        Ok(if runtime_filters == RuntimeFilters::On { possible } else { of(false) })
    }

    /// On a CPU: the steps by which batches of rows are looked up before one goes on, if they are.
    pub(super) fn batched(
        &self,
        is_counted: bool,
        places: WritePlaces,
    ) -> Result<Option<BatchedSteps>, Unsupported> {
        let Pipeline { source, sink, steps, .. } = self.pipeline;
        if self.is_simt || !steps.iter().any(|step| step.batch_look_ups().is_some()) {
            return Ok(None);
        }
        let cache = self.environment.calibration.index_cache(true);
        let batched = match () {
            () if is_counted => Err("places are counted a row of the table".to_string()),
            () if sink.own_rows().is_some() || source.parts().is_some() => Err("rows come otherwise".into()),
            () if places == WritePlaces::Selection => Err("the result is written from selections".into()),
            () => BatchedSteps::of(self.pipeline, cache.value),
        };
        let bytes = batched.as_ref().map_or(0, |batched| batched.far_bytes(self.pipeline));
        let (level, reason) = match &batched {
            Err(lacks) => (FirstLookUps::Row, lacks.into()),
            _ if self.environment.micro_model != MicroModel::Resolution => {
                (FirstLookUps::Row, "the micro model takes one row at a time".into())
            }
            Ok(_) if bytes > cache.value => {
                (FirstLookUps::Together, cache.reason("a hash table is larger than the last cache"))
            }
            Ok(_) => (FirstLookUps::Row, cache.reason("no hash table is known to be larger than a cache")),
        };
        let estimate = format!("hash tables of up to {}", estimate::bytes(bytes));
        let rule = ((level, &*reason), Some(estimate));
        let chosen =
            self.environment.chooser.choose_by(self.site, rule, |value| match (value, &batched) {
                (FirstLookUps::Together, Err(lacks)) => Err(lacks.clone()),
                _ => Ok(()),
            })?;
        Ok(batched.ok().filter(|_| chosen == FirstLookUps::Together))
    }

    /// Staged filtering of rows whose places are chosen.
    pub(super) fn arranged(&self, mut staged: StagedFiltering) -> Result<StagedFiltering, Unsupported> {
        let Environment { target, shape, asked, chooser, .. } = *self.environment;
        let of_wide_rows = ShapeChoices { thread_rows: Some(WIDE_ROWS.into()), ..*asked };
        let lacks = match asked.thread_rows {
            Some(rows) if rows != u32::from(WIDE_ROWS) => {
                Err(format!("{rows} rows of a thread are asked for"))
            }
            _ => staged.supports_blocked(self.pipeline, (target, shape)),
        };
        let more = self.points.more_rows().plus(WIDE_ROWS.into());
        let lacks = lacks.and_then(|()| self.pipeline.admits(target, &of_wide_rows, more));
        let rule = match &lacks {
            Ok(()) => (RowArrangement::Blocked, "one load brings a column's values of all of them"),
            Err(lacks) => (RowArrangement::Striped, lacks.as_str()),
        };
        staged.arrangement = chooser.choose(self.site, rule, |value| match (value, &lacks) {
            (RowArrangement::Blocked, Err(lacks)) => Err(lacks.clone()),
            _ => Ok(()),
        })?;
        Ok(staged)
    }
}
