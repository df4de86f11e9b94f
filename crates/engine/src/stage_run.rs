//! One stage whose columns are there: from its program to its rows, tuned where the session wants that.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use kelpie_compile::plan::Plan;
use kelpie_device::DeviceKind;
use kelpie_tuner::Schedule;
use parking_lot::Mutex;

use crate::delivery::RowReceiver;
use crate::error::EngineError;
use crate::execution::Execution;
use crate::learned::Fingerprint;
use crate::movement::Movement;
use crate::options::{QueryOptions, TunerMode};
use crate::profile::Profile;
use crate::split::{Phase, Split};
use crate::stage::{self, Blueprint, Course, Loaded, Outcome, Prepared, Trial, pretended_ns};
use crate::trace::{self, Track};
use crate::tuning::{Purpose, Request, RunFacts, StageState};
use crate::{identity, multi_column_distinct, tuning};

/// Nanoseconds that a block of a trial is to take, about: many times what a launch does.
const BLOCK_NS: u64 = 150_000;
/// Blocks of a trial, at most, and rows of each, at least: in tests too.
const MOST_BLOCKS: u64 = 64;
const LEAST_BLOCK_ROWS: u64 = 1 << 14;
const LEAST_TEST_ROWS: u64 = 16;

/// What a run of a stage is for.
struct Turn {
    /// `None` where the stage is not tuned.
    tuned: Option<Tuned>,
    prepared: Arc<Prepared>,
    purpose: Purpose,
    trial: Option<Trial>,
    movement: Movement,
}

/// A stage that is tuned.
struct Tuned {
    key: Fingerprint,
    state: Arc<Mutex<StageState>>,
}

impl Execution<'_> {
    /// Compiles and runs a plan over its scans' columns.
    pub(crate) fn run_loaded(
        &mut self,
        plan: &Plan,
        loaded: &[Loaded],
        movement: Movement,
        out: &mut dyn RowReceiver,
    ) -> Result<(), EngineError> {
        let infos = multi_column_distinct::describe(plan, loaded, &*self.device);
        let stage = identity::stage(plan, &infos);
        // Whether keys are unique is the data's, however they are worked on.
        let learned = &self.engine.learned;
        let data = learned.data(stage, || identity::data(plan, &infos));
        let mut duplicates = learned.duplicates(data);
        let options = self.options.clone();
        loop {
            let blueprint = Blueprint {
                plan: Cow::Borrowed(plan),
                infos: Cow::Borrowed(&infos),
                device: Arc::clone(&self.device),
                options: Cow::Borrowed(&options),
                duplicates: Cow::Borrowed(&duplicates),
                direct_bytes: movement.initial_bytes,
                keeps_rows: self.asks_to_keep(out),
                calibration: self.calibration,
            };
            let turn = self.turn(&blueprint, (stage, data), loaded, movement)?;
            let compile_ns = self.compile(&turn.prepared)?;
            if let Some(explaining) = &mut self.explain {
                let shown = (&blueprint, turn.prepared.as_ref(), &self.engine.variants);
                explaining.show(shown, stage)?;
            }
            let first = self.metrics.pipelines.len();
            let before = turn.prepared.capacities();
            let run = (loaded, turn.movement, turn.trial.as_ref());
            let outcome = self.run_prepared(&turn.prepared, plan, run, out);
            let outcome = self.after(turn, outcome?, (first, before));
            for (metrics, compile_ns) in self.metrics.pipelines[first..].iter_mut().zip(compile_ns) {
                metrics.compile_ns = compile_ns;
            }
            match outcome {
                Outcome::Done => return Ok(()),
                Outcome::GivenUp => self.metrics.pipelines.truncate(first),
                Outcome::NotUnique(join) if !duplicates.insert(join) => {
                    return Err(EngineError::Internal(format!("join {join} was not unique twice")));
                }
                // The same stage may run elsewhere at the same time, and have found the same.
                Outcome::NotUnique(_) => self.engine.learned.add_duplicates(data, &duplicates),
            }
        }
    }

    /// What the next run of a stage is by, and for.
    fn turn(
        &mut self,
        blueprint: &Blueprint<'_>,
        (stage, data): (Fingerprint, Fingerprint),
        loaded: &[Loaded],
        movement: Movement,
    ) -> Result<Turn, EngineError> {
        let engine = self.engine;
        let Some(tuned) = self.tuned(blueprint, data, &movement) else {
            let prepared = self.prepare(blueprint, stage, None)?;
            return Ok(Turn { tuned: None, prepared, purpose: Purpose::Chosen, trial: None, movement });
        };
        let options = &blueprint.options;
        let mut state = tuned.state.lock();
        let request = Request {
            options: options.tuner,
            forced: &options.variants,
            blueprint,
            stage,
            behind: &engine.tuner.behind,
        };
        let next = if self.explain.is_none() { state.next(&request) } else { (Purpose::Chosen, None) };
        if let (purpose, Some(prepared)) = next {
            let rows = loaded.iter().map(|data| data.rows).max().unwrap_or(0);
            let (trial, blocks) = self.trial(&mut state, purpose, &prepared);
            let is_test = options.tuner.deterministic;
            let least = if is_test { LEAST_TEST_ROWS } else { LEAST_BLOCK_ROWS };
            let block_rows = blocks.map(|blocks| (rows / blocks).max(least));
            let movement = Movement { block_rows: block_rows.or(movement.block_rows), ..movement };
            drop(state);
            return Ok(Turn { tuned: Some(tuned), prepared, purpose, trial, movement });
        }
        let chosen = match options.tuner.mode {
            TunerMode::Rules => None,
            _ => tuning::with_chosen(&options.variants, &state.record.chosen),
        };
        let prepared = match chosen {
            None => self.prepare(blueprint, stage, None)?,
            Some(chosen) => match self.prepare(&blueprint.with(chosen, Vec::new()), stage, Some(&state)) {
                Err(EngineError::Unsupported(_)) => {
                    state.record.back_to_rules();
                    state.begin_again();
                    self.prepare(blueprint, stage, None)?
                }
                prepared => prepared?,
            },
        };
        drop(state);
        Ok(Turn { tuned: Some(tuned), prepared, purpose: Purpose::Chosen, trial: None, movement })
    }

    /// The stage as the tuner knows it, where it is tuned: it runs as a whole, in the device's memory, and counts nothing.
    fn tuned(&self, blueprint: &Blueprint<'_>, data: Fingerprint, movement: &Movement) -> Option<Tuned> {
        let QueryOptions { tuner, meter, profile, rotation, block_rows, .. } = blueprint.options.as_ref();
        let is_plain = !meter && *profile == Profile::Off && rotation.is_empty() && block_rows.is_none();
        let is_whole = movement.initial_bytes.is_none() && !movement.kernel_at_a_time;
        if tuner.mode == TunerMode::Off || !is_plain || !is_whole {
            return None;
        }
        let key = blueprint.alike(data);
        let state = self.engine.tuner.stage(key, &self.engine.learned);
        Some(Tuned { key, state })
    }

    /// The trial that a run is, where it is more than a run of another program, and how many blocks it goes in.
    fn trial(
        &self,
        state: &mut StageState,
        purpose: Purpose,
        prepared: &Prepared,
    ) -> (Option<Trial>, Option<u64>) {
        let chosen_ns = state.chosen_ns();
        let blocks = |most: u64| (chosen_ns / BLOCK_NS).clamp(1, most);
        let deterministic = self.options.tuner.deterministic;
        if purpose != Purpose::Race {
            let bound = state.bound(purpose).filter(|_| !deterministic);
            let is_bound = bound.is_some();
            return (bound.map(Trial::beside), is_bound.then(|| blocks(MOST_BLOCKS / 2)));
        }
        let pipelines = prepared.program.pipelines.iter();
        let variants: Vec<usize> = pipelines.map(|pipeline| pipeline.variants().count()).collect();
        let most = variants.iter().copied().max().unwrap_or(1) as u64;
        let wanted = most * u64::from(Schedule::default().first) * 2;
        let pretends = deterministic.then(|| Arc::clone(&prepared.genome));
        let trial = Trial::race(state.race(&variants), pretends);
        (Some(trial), Some(if deterministic { wanted } else { blocks(MOST_BLOCKS).min(wanted) }))
    }

    /// Tells the tuner what a run came to. `first`: the number of its first pipeline among the metrics; `before`: the
    /// capacities that it began with.
    fn after(&mut self, turn: Turn, outcome: Outcome, (first, before): (usize, Option<Vec<u64>>)) -> Outcome {
        let Turn { tuned, prepared, purpose, trial, .. } = turn;
        if let Outcome::Done = outcome {
            self.metrics.variants.push(Arc::clone(&prepared.genome));
        }
        let Some(Tuned { key, state }) = tuned else { return outcome };
        let (mut state, deterministic) = (state.lock(), self.options.tuner.deterministic);
        let own = &self.metrics.pipelines[first.min(self.metrics.pipelines.len())..];
        let slowed = self.engine.tuner.behind.is_busy() && self.device.kind() != DeviceKind::Cuda;
        let facts = RunFacts {
            course: match deterministic {
                true => Course::pretended(pretended_ns(&prepared.genome)),
                false => Course::of(&prepared.program, own),
            },
            rows_out: own.last().and_then(|pipeline| pipeline.rows_out).unwrap_or(0),
            was_first: prepared.begins() || before != prepared.capacities() || slowed,
        };
        let decided = (state.record.chosen.clone(), purpose);
        match (&outcome, purpose, trial) {
            (Outcome::Done, Purpose::Chosen, _) => {
                let names: Vec<_> =
                    prepared.program.pipelines.iter().map(|pipeline| pipeline.name.as_str()).collect();
                state.ran(facts, &prepared.genome, &names);
            }
            (Outcome::Done, Purpose::Race, Some(trial)) => {
                let search = self.options.tuner.mode.search().unwrap_or_default();
                state.raced(&facts, &prepared, trial.into_races(), search);
            }
            (Outcome::Done, _, _) => state.tried(purpose, &facts),
            (Outcome::GivenUp, _, Some(trial)) => {
                // What it ran is part of the query's time, though no pipeline of it came to an end.
                self.metrics.kernel_ns += trial.time_ns();
                state.gave_up(purpose, trial.time_ns());
            }
            // Whether keys are unique is no matter of variants; but under another assumption it is another stage.
            _ => {}
        }
        if decided != (state.record.chosen.clone(), Purpose::Chosen) {
            state.record.device = self.device.name();
            self.engine.learned.keep_tuned(key, state.record.clone());
        }
        outcome
    }

    /// The program of a stage; its kernels may not be compiled yet. `tuned`: who has chosen what is forced.
    fn prepare(
        &mut self,
        blueprint: &Blueprint<'_>,
        stage: Fingerprint,
        tuned: Option<&StageState>,
    ) -> Result<Arc<Prepared>, EngineError> {
        let start = Instant::now();
        let QueryOptions { variants, rotation, .. } = blueprint.options.as_ref();
        let key = Fingerprint::of(&(blueprint.base(stage), variants, rotation));
        let found = match self.engine.known(key, &self.device) {
            Some(prepared) => prepared,
            None => {
                let mut prepared = blueprint.prepare(stage, &self.engine.variants)?;
                if let Some(state) = tuned {
                    prepared.explain(&state.record.chosen, &tuning::reason(&state.record));
                }
                let prepared = Arc::new(prepared);
                self.engine.keep(key, &prepared);
                prepared
            }
        };
        trace::record(Track::Compiling, (start, Instant::now()), || "generate kernels".into());
        let time_ns = start.elapsed().as_nanos() as u64;
        self.metrics.split.add(Phase::Generate, time_ns);
        self.metrics.compile_ns += time_ns;
        Ok(found)
    }

    /// Generates the program of a plan of one stage.
    #[cfg(feature = "testing")]
    pub(crate) fn prepare_stage(&mut self, plan: &Plan) -> Result<(), EngineError> {
        let movement = Movement::of(self.least_fallback, &self.options, &self.device);
        let loaded = self.load(plan, &movement)?;
        let infos = multi_column_distinct::describe(plan, &loaded, &*self.device);
        let options = self.options.clone();
        let blueprint = Blueprint {
            plan: Cow::Borrowed(plan),
            infos: Cow::Borrowed(&infos),
            device: Arc::clone(&self.device),
            options: Cow::Borrowed(&options),
            duplicates: Cow::Owned(Default::default()),
            direct_bytes: movement.initial_bytes,
            keeps_rows: false,
            calibration: self.calibration,
        };
        self.prepare(&blueprint, identity::stage(plan, &infos), None)?;
        Ok(())
    }

    /// Compiles the kernels of a program that are not compiled yet; the time that each pipeline's took, in nanoseconds.
    fn compile(&mut self, prepared: &Prepared) -> Result<Vec<u64>, EngineError> {
        let start = Instant::now();
        let (times, taken) = stage::compile_all(
            self.stream.as_ref(),
            &prepared.kernels,
            prepared.is_new(&self.engine.learned),
        )?;
        let time_ns = start.elapsed().as_nanos() as u64;
        let mut waited = Split::default();
        waited.share(time_ns, &taken, Phase::Load);
        self.metrics.split += waited;
        self.metrics.compile_ns += time_ns;
        Ok(times)
    }
}
