//! Chooses where the lanes of a warp exchange rows, and how: the [`Points`] of a pipeline.

use super::Pipeline;
use super::kernel::Environment;
use super::points::{ExchangePoint, Points, Texts};
use crate::MicroModel;
use crate::context::Unsupported;
use crate::operator::staged::most_matches;
use crate::table::places::DenseTarget;
use crate::variant::Site;
use crate::variant::axes::{
    LaneRefill, MatchLanes, MovedColumns, QueueMatches, RefillBuffer, RefillThreshold, TextLanes,
};

/// Rows of a build side from which on long ranges wait for all warps: a warp takes fewer in less than a tenth of a millisecond.
const LEAST_QUEUED: u64 = 4096;

/// Why other micro models than `resolution` have no lane exchange rows by rule: they repeat what papers measured.
const OWN_ROWS: &str = "the micro model has a row stay in its lane";

/// The share of a table's rows whose texts are asked for from which on the texts of all are gone through. On an H100 with half of the rows it
/// takes 0.93 of the time, with a tenth 1.5.
const LEAST_IN_RUNS: f64 = 0.4;

/// Why each lane matches its own text by rule.
const MATCHES_IN_LANES: &str =
    "it is not known how long texts are, and what it is worth to take other rows was not measured on a GPU";

/// Who chooses.
struct Exchanges<'a> {
    site: Site<'a>,
    pipeline: &'a Pipeline,
    environment: &'a Environment<'a>,
    /// Whether lanes can exchange rows at all; or why not.
    possible: Result<(), &'static str>,
}

/// Chooses for the pipeline called `site`. `is_counted`: the places of its rows are counted by a kernel before.
pub(super) fn choose(
    site: Site<'_>,
    pipeline: &Pipeline,
    is_counted: bool,
    environment: &Environment<'_>,
) -> Result<Points, Unsupported> {
    let possible = match () {
        () if environment.shape.is_serial() => Err("a CPU's worker is one thread"),
        () if is_counted => Err("places are counted a row of the table"),
        () if pipeline.sink.passes() > 1 => Err("rows come several times"),
        () if pipeline.source.parts().is_some() => Err("blocks take pieces of parts"),
        () => Ok(()),
    };
    let exchanges = Exchanges { site, pipeline, environment, possible };
    let texts = exchanges.texts()?;
    let matches = exchanges.matches(&texts)?;
    let refill = exchanges.refill(matches, &texts)?;
    exchanges.with_limits(Points::of(pipeline, refill, matches, &texts))
}

impl Exchanges<'_> {
    /// Who looks at texts. Whether lanes look at those of keys together was chosen with the table.
    fn texts(&self) -> Result<Texts, Unsupported> {
        let mut texts = Texts::of(self.pipeline);
        if self.possible.is_err() {
            texts.keys.clear();
        }
        if texts.is_empty() {
            return Ok(texts);
        }
        let are_many = texts.run.as_ref().is_some_and(|(_, run)| run.share >= LEAST_IN_RUNS);
        let rule = match self.why_not_runs(&texts) {
            _ if !texts.equalities.is_empty() => {
                (TextLanes::Lane, "most texts are short, or differ in their first word")
            }
            _ if self.environment.micro_model != MicroModel::Resolution => (TextLanes::Lane, OWN_ROWS),
            Ok(()) if !are_many => (TextLanes::Lane, "other conditions leave few texts to match"),
            Ok(()) if self.pipeline.steps.iter().any(|step| step.diverges()) => {
                (TextLanes::Lane, "while rows are looked up, others' texts are matched")
            }
            Ok(()) => (TextLanes::Run, "neighbouring lanes read neighbouring bytes"),
            Err(_) => (TextLanes::Lane, MATCHES_IN_LANES),
        };
        let chosen = self.site.choose(rule, |lanes| match lanes {
            TextLanes::Lane => Ok(()),
            TextLanes::Warp if texts.equalities.is_empty() => {
                Err("no filter wants two texts to be equal".into())
            }
            TextLanes::Warp => self.possible.map_err(String::from),
            TextLanes::Run => self.why_not_runs(&texts),
            TextLanes::Refill => self.why_not_matches(&texts),
        })?;
        texts.lanes = chosen;
        Ok(texts)
    }

    /// Whether lanes can match texts as one run; or why not.
    fn why_not_runs(&self, texts: &Texts) -> Result<(), String> {
        self.possible?;
        if texts.run.is_none() {
            return Err(
                "no filter before the first join looks for a text in those of the table's rows".into()
            );
        }
        if self.environment.shape.lanes < 2 {
            return Err("a warp is one lane".into());
        }
        let mut texts = texts.clone();
        texts.lanes = TextLanes::Run;
        match Points::of(self.pipeline, LaneRefill::All, MatchLanes::Lane, &texts).at.first() {
            Some((_, ExchangePoint::Run)) => Ok(()),
            _ => Err("lanes may exchange rows before".into()),
        }
    }

    /// Whether lanes can take other rows between the steps of matches; or why not.
    fn why_not_matches(&self, texts: &Texts) -> Result<(), String> {
        self.possible?;
        if texts.matches.is_empty() {
            return Err("no filter matches a text without a dictionary in steps".into());
        }
        let mut texts = texts.clone();
        texts.lanes = TextLanes::Refill;
        let points = Points::of(self.pipeline, LaneRefill::Off, MatchLanes::Lane, &texts);
        if !points.has(ExchangePoint::Match) {
            return Err("lanes are in loops of their own before the first match".into());
        }
        self.fits(&points)
    }

    /// Whether the sink can be emitted where lanes exchange rows at such points; or why not.
    fn fits(&self, points: &Points) -> Result<(), String> {
        let shape = self.environment.shape;
        self.pipeline.sink.fits(shape, self.pipeline.thread_bound(shape, points.more_rows()))
    }

    /// Who takes the rows that steps make of one.
    fn matches(&self, texts: &Texts) -> Result<MatchLanes, Unsupported> {
        let Exchanges { pipeline, environment, .. } = *self;
        let several = pipeline.steps.iter().find(|step| step.expands() || step.expansion().is_ok());
        let Some(step) = several else { return Ok(MatchLanes::Lane) };
        let possible = |matches| match matches {
            MatchLanes::Lane => Ok(()),
            MatchLanes::Warp | MatchLanes::Packed => {
                self.possible?;
                step.expansion().map(|_| ())
            }
            MatchLanes::Refill | MatchLanes::Staged => {
                self.possible?;
                step.expansion()?;
                if matches == MatchLanes::Staged {
                    self.why_not_staged()?;
                }
                let points = Points::of(pipeline, LaneRefill::Off, matches, texts);
                points.first_expansion(pipeline)?;
                self.fits(&points)
            }
        };
        let why_not = possible(MatchLanes::Packed).err();
        let rule = match &why_not {
            _ if environment.micro_model != MicroModel::Resolution => (MatchLanes::Lane, OWN_ROWS),
            Some(why_not) => (MatchLanes::Lane, why_not.as_str()),
            None if step.expands() && self.looks_up_behind() && possible(MatchLanes::Staged).is_ok() => {
                (MatchLanes::Staged, "rows are looked up behind it, by as many lanes as there are")
            }
            None if step.expands() => (MatchLanes::Packed, "one key may have most matches"),
            None => (MatchLanes::Lane, "candidates are few"),
        };
        let text = step.expansion().ok().map(|expansion| {
            let most = expansion.most();
            let rows = pipeline.shared_out.unwrap_or(pipeline.bound / most.max(1));
            format!("at most {rows} rows, each with {most} matches at most")
        });
        self.site.choose_by((rule, text), possible)
    }

    /// Whether rows come to another join, or a runtime filter, behind the first step that makes several of one.
    fn looks_up_behind(&self) -> bool {
        let mut behind = self.pipeline.steps.iter().skip_while(|step| !step.expands()).skip(1);
        behind.any(|step| step.diverges())
    }

    /// Whether the matches of rows can wait for others; or why not.
    fn why_not_staged(&self) -> Result<(), String> {
        let most = most_matches(self.environment.shape.lanes);
        let mut expansions = self.pipeline.steps.iter().filter_map(|step| step.expansion().ok());
        match expansions.find(|expansion| expansion.most() > most) {
            Some(expansion) => {
                Err(format!("a row may have {} matches, and {most} are counted", expansion.most()))
            }
            None => Ok(()),
        }
    }

    /// Behind which steps lanes are refilled.
    fn refill(&self, matches: MatchLanes, texts: &Texts) -> Result<LaneRefill, Unsupported> {
        let Exchanges { pipeline, environment, .. } = *self;
        if !pipeline.steps.iter().any(|step| step.drops()) {
            return Ok(LaneRefill::Off);
        }
        let possible = |refill| {
            if refill == LaneRefill::Off {
                return Ok(());
            }
            self.possible?;
            let points = Points::of(pipeline, refill, matches, texts);
            if !points.has(ExchangePoint::Refill) {
                return Err("no such step before the first expansion".into());
            }
            self.fits(&points)
        };
        let why_not = possible(LaneRefill::Last).err();
        let rule = match (&why_not, Points::want_refill(pipeline, environment.shape)) {
            _ if environment.micro_model != MicroModel::Resolution => (LaneRefill::Off, OWN_ROWS),
            (Some(why_not), _) => (LaneRefill::Off, why_not.as_str()),
            (None, Err(why)) => (LaneRefill::Off, why),
            (None, Ok((wanted, _))) if possible(wanted).is_err() => {
                (LaneRefill::Off, "most lanes are thought to have rows, or hardly any warp one")
            }
            (None, Ok(wanted)) => wanted,
        };
        let text = why_not.is_none().then(|| Points::estimate_of_refill(pipeline, environment.shape));
        self.site.choose_by((rule, text), possible)
    }

    /// Points with how many lanes go on at them, how many numbers of a range a warp takes, and what moves.
    fn with_limits(&self, mut points: Points) -> Result<Points, Unsupported> {
        if points.last_turns() > 0 {
            let rule = (RefillThreshold(28), "seven of eight lanes, as DogQC has it");
            points.threshold = self.site.choose(rule, |_| Ok(()))?.0;
        }
        if points.has(ExchangePoint::Refill) {
            points.in_block = self.buffer(&points)? == RefillBuffer::Shared;
        }
        points.longest = self.longest(&points)?;
        if !points.is_empty() {
            let rule =
                (MovedColumns::Places, "a row is one number, and only rows that come so far load columns");
            points.columns = self.site.choose(rule, |_| Ok(()))?;
        }
        Ok(points)
    }

    /// Where rows wait between steps.
    fn buffer(&self, points: &Points) -> Result<RefillBuffer, Unsupported> {
        let why_not = match points.refill_in_block() {
            true => None,
            false => Some("warps are in loops of their own where lanes are refilled"),
        };
        let rule = (RefillBuffer::Registers, "it takes no memory of a block and no barrier");
        self.site.choose(rule, |buffer| match (buffer, why_not) {
            (RefillBuffer::Shared, Some(why_not)) => Err(why_not.into()),
            _ => Ok(()),
        })
    }

    /// Chooses of how many numbers a range waits for all warps.
    fn longest(&self, points: &Points) -> Result<Option<u64>, Unsupported> {
        let Exchanges { pipeline, environment, .. } = *self;
        let Ok((_, expansion)) = points.first_expansion(pipeline) else { return Ok(None) };
        let off = |why| (QueueMatches(0), why);
        let shape = environment.shape;
        let threads = u64::from(shape.most_blocks).saturating_mul(shape.block_threads.into());
        let why_not = match pipeline.shared_out {
            // What a thread sees would be no share of the table's rows.
            Some(_) => Some("each row becomes one at most"),
            // A range is looked for by several lanes.
            None if environment.target.lanes < 2 => Some("a warp is one lane"),
            None if points.has(ExchangePoint::Expand(MatchLanes::Refill)) => {
                Some("each lane walks a range of its own")
            }
            None if points.has(ExchangePoint::Match) => Some("rows come out of a loop over their texts"),
            None => None,
        };
        let rule = match (expansion.most(), pipeline.sink.target()) {
            _ if why_not.is_some() => off("it is not possible"),
            (most, _) if most < LEAST_QUEUED => off("the build side is small"),
            (_, Some(DenseTarget { limit: Some(_), .. })) => off("few rows are wanted"),
            (most, _) if expansion.is_even() && pipeline.bound / most >= threads => {
                off("every warp has as many pairs")
            }
            _ => (QueueMatches(64), "no warp has to take the matches of a frequent key alone"),
        };
        let (most, rows) = (expansion.most(), pipeline.bound / expansion.most().max(1));
        let text = format!("at most {rows} rows, each with {most} matches at most, and {threads} threads");
        let rule = (rule, Some(text));
        let chosen = self.site.choose_by(rule, |matches: QueueMatches| match why_not {
            Some(why_not) if matches.0 > 0 => Err(why_not.into()),
            _ => Ok(()),
        })?;
        Ok(Some(chosen.0).filter(|matches| *matches > 0))
    }
}
