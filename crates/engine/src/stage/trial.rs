//! A run by which something is learned of variants: its blocks may take several of them in turn, each as often as it is worth, and it is
//! given up where it falls behind what the stage is known to take.
//!
//! Nothing is deferred in it, as each launch is to be timed.

use std::sync::Arc;

use kelpie_compile::pipeline::{CompiledPipeline, Program, RowCount};
use kelpie_compile::variant::{Choice, Genome};
use kelpie_tuner::VwGreedy;
use parking_lot::Mutex;

use crate::learned::Fingerprint;
use crate::metrics::PipelineMetrics;

/// How far a trial may fall behind, in parts of all the time that the stage takes otherwise.
const BEHIND: f64 = 0.15;
/// How much longer than with the first variant a chunk may take before its variant takes no other.
const HOPELESS: f64 = 3.0;

/// What a run of a stage took, pipeline by pipeline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// After each pipeline: rows of tables that were gone through, and nanoseconds of kernels, both since the stage began.
    steps: Vec<(u64, u64)>,
}

impl Course {
    /// That of a run.
    pub fn of(program: &Program, metrics: &[PipelineMetrics]) -> Course {
        let (mut rows, mut time_ns) = (0, 0);
        let steps = program.pipelines.iter().zip(metrics).map(|(pipeline, own)| {
            rows += if is_of_table(pipeline) { own.rows_in } else { 0 };
            time_ns += own.run_ns;
            (rows, time_ns)
        });
        Course { steps: steps.collect() }
    }

    /// One of so many nanoseconds.
    pub fn pretended(time_ns: u64) -> Course {
        Course { steps: vec![(0, time_ns)] }
    }

    /// The pipelines, by number, that take longer than so many nanoseconds.
    pub fn longer_than(&self, time_ns: u64) -> Vec<usize> {
        let mut before = 0;
        let own =
            self.steps.iter().map(|(_, until)| until.saturating_sub(std::mem::replace(&mut before, *until)));
        own.enumerate().filter(|(_, own)| *own >= time_ns).map(|(index, _)| index).collect()
    }

    /// Nanoseconds of its kernels.
    pub fn total_ns(&self) -> u64 {
        self.steps.last().map_or(0, |(_, time_ns)| *time_ns)
    }

    /// The time that it took until so many rows of tables were gone through.
    fn at(&self, rows: u64) -> f64 {
        let (mut before, mut after) = ((0, 0), None);
        for step in &self.steps {
            match step.0 <= rows {
                true => before = *step,
                false => {
                    after = Some(*step);
                    break;
                }
            }
        }
        let Some(after) = after else { return self.total_ns() as f64 };
        let share = (rows - before.0) as f64 / (after.0 - before.0).max(1) as f64;
        before.1 as f64 + share * (after.1 - before.1) as f64
    }
}

/// Whether the source of a pipeline is a table.
fn is_of_table(pipeline: &CompiledPipeline) -> bool {
    matches!(pipeline.rows, RowCount::Scan(_))
}

/// A time made of the names of choices, a million where there are none: the same in every run, for tests.
pub fn pretended_ns(genome: &Genome) -> u64 {
    let factor = |choice: &Choice| {
        let name = Fingerprint::of(&(&choice.site, choice.axis.name, choice.value));
        0.8 + (name.seed() % 1024) as f64 / 2560.0
    };
    (1e6 * genome.0.iter().map(factor).product::<f64>()) as u64
}

/// A run by which something is learned.
#[derive(Debug)]
pub struct Trial {
    /// What the stage takes otherwise: the trial is given up where it falls too far behind. It ends as it may where this is absent.
    course: Option<Course>,
    /// Where times are made of the names of variants: the choices of the program.
    pretends: Option<Arc<Genome>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By pipeline: which of its variants takes the next block; `None` where there is nothing to choose.
    races: Vec<Option<VwGreedy>>,
    /// Rows of tables, and nanoseconds of kernels, so far.
    rows: u64,
    time_ns: u64,
}

impl Trial {
    /// Of one variant of each pipeline, beside what the stage takes otherwise.
    pub fn beside(course: Course) -> Trial {
        Trial { course: Some(course), pretends: None, state: Mutex::default() }
    }

    /// Of several variants of each pipeline, by pipeline. `pretends`: times are made of their names, and the program has these.
    pub fn race(races: Vec<Option<VwGreedy>>, pretends: Option<Arc<Genome>>) -> Trial {
        Trial { course: None, pretends, state: Mutex::new(State { races, ..State::default() }) }
    }

    /// Whether it may be given up: its first blocks are short then, so that what is hopeless is seen soon.
    pub fn is_bound(&self) -> bool {
        self.course.is_some()
    }

    /// The variant of a pipeline that takes the next block.
    pub fn turn(&self, pipeline: usize) -> usize {
        let mut state = self.state.lock();
        state.races.get_mut(pipeline).and_then(Option::as_mut).map_or(0, VwGreedy::turn)
    }

    /// Tells what a variant of pipeline `index` took for a block of rows.
    pub fn measured(&self, (index, turn): (usize, usize), pipeline: &CompiledPipeline, took: (u64, u64)) {
        let ((rows, mut time_ns), mut state) = (took, self.state.lock());
        if let Some(genome) = &self.pretends {
            let other = turn.checked_sub(1).and_then(|other| pipeline.others.get(other));
            let own = Genome(genome.of(&format!("p{index}")).cloned().collect());
            time_ns = rows * (pretended_ns(other.map_or(&own, |other| &other.genome)) / 1000);
        }
        state.rows += if is_of_table(pipeline) { rows } else { 0 };
        state.time_ns += time_ns;
        let Some(race) = state.races.get_mut(index).and_then(Option::as_mut) else { return };
        race.measured(turn, rows, time_ns);
        if let (Some(first), Some(own)) = (race.cost(0), race.cost(turn))
            && own > first * HOPELESS
        {
            race.bar(turn);
        }
    }

    /// Whether it has fallen too far behind, and the rest of it would take longer than the stage does from its beginning otherwise.
    pub fn is_behind(&self) -> bool {
        let (Some(course), state) = (&self.course, self.state.lock()) else { return false };
        let all = course.total_ns() as f64;
        if all <= 0.0 {
            return false;
        }
        let (taken, done) = (state.time_ns as f64 / all, course.at(state.rows) / all);
        taken > done + BEHIND && taken * (1.0 - done) > done
    }

    /// Nanoseconds of its kernels so far.
    pub fn time_ns(&self) -> u64 {
        self.state.lock().time_ns
    }

    /// What the races came to, by pipeline.
    pub fn into_races(self) -> Vec<Option<VwGreedy>> {
        self.state.into_inner().races
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_tells_what_rows_took() {
        // A table of 100 rows, then an index in 10 ns, then a table of 1000 rows.
        let course = Course { steps: vec![(100, 50), (100, 60), (1100, 260)] };
        assert_eq!(course.total_ns(), 260);
        for (rows, time_ns) in [(0, 0.0), (50, 25.0), (100, 60.0), (600, 160.0), (1100, 260.0), (2000, 260.0)]
        {
            assert!((course.at(rows) - time_ns).abs() < 1e-9, "{rows}");
        }
        assert!(Course::default().at(7) < 1e-9);
    }

    #[test]
    fn a_trial_that_falls_behind_is_seen() {
        let trial = Trial::beside(Course { steps: vec![(100, 1000)] });
        let at = |rows, time_ns| *trial.state.lock() = State { rows, time_ns, ..State::default() };
        assert!(!trial.is_behind());
        at(50, 600);
        assert!(!trial.is_behind());
        at(50, 1100);
        assert!(trial.is_behind());
        // The rest is done sooner than all of it.
        at(90, 1500);
        assert!(!trial.is_behind());
        assert!(!Trial::race(Vec::new(), None).is_behind());
        assert_eq!(Trial::race(vec![None], None).turn(0), 0);
    }
}
