//! Which launch has a worker next, where there are more blocks than workers.
//!
//! Launches have places in one order: that of their queries' arrival, put back by what these have had of the workers so far, or by what
//! they are known to need beside that, times how many launches there are, up to [`PATIENCE`]. So a short query passes those that take
//! longer, as by "shortest remaining time first", and where nobody knows how long they take, as by "least attained service first"
//! (docs/many-queries.md has what that gives). A long one waits for those that come within that time after it, not for all that ever
//! come. A block that runs takes its place anew all the while: where another has an earlier one, it is asked to give way, and does so
//! where its kernel reads the status word, between two morsels of rows or two matches of a row. It goes on later on the same worker.

use std::collections::BTreeMap;
use std::time::Duration;

/// Nobody passes who comes later by more than this, whatever a query has had.
const PATIENCE: Duration = Duration::from_secs(5);
/// By how many times its fair share a query is put back for what it has had.
const WEIGHT: u32 = 3;
/// A query that has had more of all workers than that arrives anew whenever it gives way: it is one of those that never end soon.
const LONG: Duration = Duration::from_millis(200);
/// A block is left its worker for so long: whoever takes over has to bring his data into the caches.
const SLICE: Duration = Duration::from_millis(2);
/// One that has waited is left it for this share of that time, and at most this one of what its query has had, up to [`LONG_SLICE`]: so a
/// long query gets on, however many short ones come.
const SHARE_OF_WAIT: u32 = 8;
const SHARE_OF_HAD: u32 = 2;
/// Queries that have had much take turns of this share of it, up to [`LONG_SLICE`], so that long ones seldom change places.
const SHARE: u32 = 8;
const LONG_SLICE: Duration = Duration::from_millis(100);
/// Blocks that wait on one worker in the middle of their work, at most: each keeps a stack.
const MOST_PAUSED: usize = 32;

/// Time since the workers began.
pub(super) type Moment = Duration;

/// A block of a launch, by the number that [`Schedule::add`] gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockOf {
    pub launch: u64,
    pub block: u32,
}

/// What a worker does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<J> {
    /// Starts a block of a launch.
    Start(BlockOf, J),
    /// Goes on with a block that has given way on this worker.
    GoOn(BlockOf),
}

/// Blocks that never start.
#[derive(Debug)]
pub(super) struct Withdrawn<J> {
    pub blocks: u32,
    pub job: J,
}

/// Launches with blocks that have not ended.
#[derive(Debug)]
pub(super) struct Schedule<J> {
    /// So many blocks run at once, more where a launch was asked to have more by itself.
    cores: u32,
    launches: u64,
    /// Of launches that have not ended, how many of their blocks have not.
    open: BTreeMap<u64, u32>,
    waiting: Vec<Waiting<J>>,
    running: Vec<Running<J>>,
    paused: Vec<Paused<J>>,
}

/// A launch with blocks that have not started.
#[derive(Debug)]
struct Waiting<J> {
    launch: u64,
    job: J,
    blocks: u32,
    /// The next one to start.
    next: u32,
    turn: Turn,
}

/// When somebody comes next.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// When the query came, or, if it is a long one, when it last gave way.
    arrival: Moment,
    /// Time that the query has had of a single worker's.
    had: Duration,
    /// Time that it is known to need in all, of a single worker's.
    needs: Duration,
}

/// What is known of the query of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    /// When its first launch came.
    pub arrival: Moment,
    /// Time of workers that it has had.
    pub had: Duration,
    /// Time of workers that it took before; none where that is not known.
    pub needs: Duration,
}

#[derive(Debug)]
struct Running<J> {
    worker: usize,
    block: BlockOf,
    job: J,
    arrival: Moment,
    needs: Duration,
    since: Moment,
    /// How long it is left its worker at least.
    slice: Duration,
    /// When it began to run.
    had: Duration,
}

#[derive(Debug)]
struct Paused<J> {
    worker: usize,
    block: BlockOf,
    job: J,
    turn: Turn,
    since: Moment,
}

impl<J: Clone> Schedule<J> {
    pub(super) fn new(cores: u32) -> Schedule<J> {
        let cores = cores.max(1);
        let (waiting, running, paused) = (Vec::new(), Vec::new(), Vec::new());
        Schedule { cores, launches: 0, open: BTreeMap::new(), waiting, running, paused }
    }

    /// Adds a launch of a query; its number.
    pub(super) fn add(&mut self, job: J, blocks: u32, asking: Asking, now: Moment) -> u64 {
        self.launches += 1;
        let turn = self.turn(asking, now);
        self.open.insert(self.launches, blocks);
        self.waiting.push(Waiting { launch: self.launches, job, blocks, next: 0, turn });
        self.launches
    }

    /// What a worker without a block does now, where there is something; `had`: what the query of a job has had so far.
    pub(super) fn next(
        &mut self,
        worker: usize,
        now: Moment,
        had: impl Fn(&J) -> Duration,
    ) -> Option<Next<J>> {
        let at_once = self.running.len();
        let may_start = |waiting: &Waiting<J>| at_once < self.cores.max(waiting.blocks) as usize;
        let waiting = self.waiting.iter().enumerate().filter(|(_, waiting)| may_start(waiting));
        let first = waiting.min_by_key(|(_, waiting)| self.place(waiting.turn));
        let first = first.map(|(index, waiting)| (index, self.place(waiting.turn)));
        let own = self.paused.iter().enumerate().filter(|(_, paused)| paused.worker == worker);
        let own = own.min_by_key(|(_, paused)| self.place(paused.turn));
        let own = own.map(|(index, paused)| (index, self.place(paused.turn)));
        let (next, running) = match (first, own) {
            (Some((_, first)), Some((own, place))) if place <= first => self.go_on(own, now),
            (None, Some((own, _))) => self.go_on(own, now),
            (Some((first, _)), _) => self.start(worker, first, now),
            (None, None) => return None,
        };
        let had = had(&running.job);
        self.running.push(Running { had, ..running });
        Some(next)
    }

    fn go_on(&mut self, index: usize, now: Moment) -> (Next<J>, Running<J>) {
        let Paused { worker, block, job, since, turn } = self.paused.swap_remove(index);
        let of_had = turn.had / self.cores / SHARE_OF_HAD;
        let slice = (now.saturating_sub(since) / SHARE_OF_WAIT).min(of_had).clamp(SLICE, LONG_SLICE);
        let Turn { arrival, needs, .. } = turn;
        let (since, had) = (now, Duration::ZERO);
        (Next::GoOn(block), Running { worker, block, job, arrival, needs, since, slice, had })
    }

    fn start(&mut self, worker: usize, index: usize, now: Moment) -> (Next<J>, Running<J>) {
        let waiting = &mut self.waiting[index];
        let block = BlockOf { launch: waiting.launch, block: waiting.next };
        let (job, Turn { arrival, needs, .. }) = (waiting.job.clone(), waiting.turn);
        waiting.next += 1;
        if waiting.next == waiting.blocks {
            self.waiting.swap_remove(index);
        }
        let started = Next::Start(block, job.clone());
        let (since, slice, had) = (now, SLICE, Duration::ZERO);
        (started, Running { worker, block, job, arrival, needs, since, slice, had })
    }

    /// So many blocks of a launch have ended, or never start.
    fn close(&mut self, launch: u64, blocks: u32) {
        if let Some(left) = self.open.get_mut(&launch) {
            *left = left.saturating_sub(blocks);
            if *left == 0 {
                self.open.remove(&launch);
            }
        }
    }

    /// The block that a worker had has ended; its job, to be dropped where nobody waits.
    pub(super) fn ended(&mut self, worker: usize) -> Option<J> {
        let index = self.running.iter().position(|running| running.worker == worker)?;
        let Running { block, job, .. } = self.running.swap_remove(index);
        self.close(block.launch, 1);
        Some(job)
    }

    /// Whether the block that a worker has gives way now; then the worker asks what is next.
    pub(super) fn gives_way(&mut self, worker: usize, now: Moment) -> bool {
        let Some(index) = self.running.iter().position(|running| running.worker == worker) else {
            return false;
        };
        let own = self.turn_of(&self.running[index], now);
        if !self.is_passed(&self.running[index], own, now) {
            return false;
        }
        let Running { block, job, .. } = self.running.swap_remove(index);
        // Its other blocks do not start before it goes on.
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.launch == block.launch) {
            waiting.turn = own;
        }
        self.paused.push(Paused { worker, block, job, turn: own, since: now });
        true
    }

    /// The jobs of blocks that somebody passes, which are to be asked to give way; one for each block.
    pub(super) fn passed(&self, now: Moment) -> Vec<&J> {
        let is_passed = |running: &&Running<J>| self.is_passed(running, self.turn_of(running, now), now);
        self.running.iter().filter(is_passed).map(|running| &running.job).collect()
    }

    /// Whether somebody else would have the worker of a block with `own` as its place.
    fn is_passed(&self, running: &Running<J>, own: Turn, now: Moment) -> bool {
        let paused = || self.paused.iter().filter(|paused| paused.worker == running.worker);
        if now.saturating_sub(running.since) < running.slice || paused().count() >= MOST_PAUSED {
            return false;
        }
        let own = self.place(own);
        let passes = |turn: Turn| {
            let turns = (turn.had / self.cores / SHARE).min(LONG_SLICE);
            self.place(turn).saturating_add(turns) < own
        };
        let is_other = |waiting: &&Waiting<J>| waiting.launch != running.block.launch;
        self.waiting.iter().filter(is_other).any(|waiting| passes(waiting.turn))
            || paused().any(|paused| passes(paused.turn))
    }

    /// A launch is to be over as soon as it can be: those of its blocks that have not started never do, and those that have given way go
    /// on first.
    pub(super) fn withdraw(&mut self, launch: u64) -> Option<Withdrawn<J>> {
        for paused in self.paused.iter_mut().filter(|paused| paused.block.launch == launch) {
            paused.turn = Turn { arrival: Moment::ZERO, had: Duration::ZERO, needs: Duration::ZERO };
        }
        let index = self.waiting.iter().position(|waiting| waiting.launch == launch)?;
        let Waiting { job, blocks, next, .. } = self.waiting.swap_remove(index);
        self.close(launch, blocks - next);
        Some(Withdrawn { blocks: blocks - next, job })
    }

    /// The turn of a block that runs, if it had to wait from now on.
    fn turn_of(&self, running: &Running<J>, now: Moment) -> Turn {
        let of_launch = self.running.iter().filter(|other| other.block.launch == running.block.launch);
        let since: Duration = of_launch.map(|other| now.saturating_sub(other.since)).sum();
        let Running { arrival, needs, .. } = *running;
        self.turn(Asking { arrival, had: running.had + since, needs }, now)
    }

    fn turn(&self, Asking { arrival, had, needs }: Asking, now: Moment) -> Turn {
        Turn { arrival: if had / self.cores > LONG { now } else { arrival }, had, needs }
    }

    /// The place of a turn in the order, among the launches that there are.
    fn place(&self, turn: Turn) -> Moment {
        let launches = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        let back =
            (turn.had.abs_diff(turn.needs) / self.cores).saturating_mul(launches.saturating_mul(WEIGHT));
        turn.arrival.saturating_add(back.min(PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const MUCH: Duration = Duration::from_secs(10);

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn add(
        schedule: &mut Schedule<&'static str>,
        job: &'static str,
        blocks: u32,
        had: Duration,
        now: Moment,
    ) -> u64 {
        schedule.add(job, blocks, Asking { arrival: now, had, needs: NONE }, now)
    }

    /// The job that a worker starts or goes on with, of a query that has had nothing unless it is a long one.
    fn next(schedule: &mut Schedule<&'static str>, worker: usize, now: Moment) -> Option<&'static str> {
        schedule.next(worker, now, |job| if job.starts_with("long") { MUCH } else { NONE })?;
        schedule.running.iter().find(|running| running.worker == worker).map(|running| running.job)
    }

    #[test]
    fn launches_of_short_queries_follow_each_other() {
        let mut schedule = Schedule::new(2);
        add(&mut schedule, "a", 3, NONE, ms(0));
        add(&mut schedule, "b", 1, NONE, ms(1));
        assert_eq!([0, 1, 2].map(|worker| next(&mut schedule, worker, ms(2))), [Some("a"); 3]);
        // No more run at once than there are cores, or than the launch has blocks.
        assert_eq!(next(&mut schedule, 3, ms(2)), None);
        schedule.ended(0);
        schedule.ended(1);
        assert_eq!(next(&mut schedule, 1, ms(2)), Some("b"));
        assert_eq!(next(&mut schedule, 0, ms(2)), None);
    }

    #[test]
    fn what_has_had_little_passes_what_has_had_more() {
        let mut schedule = Schedule::new(2);
        add(&mut schedule, "much", 1, ms(200), ms(0));
        add(&mut schedule, "little", 1, ms(20), ms(50));
        add(&mut schedule, "soon", 1, NONE, ms(199));
        // 100 ms of both workers, three times for each of two and more launches.
        add(&mut schedule, "late", 1, NONE, ms(1600));
        add(&mut schedule, "endless", 1, Duration::from_secs(100), ms(150));
        add(&mut schedule, "new", 1, NONE, ms(151) + PATIENCE);
        let mut order = Vec::new();
        while let Some(job) = next(&mut schedule, 0, ms(9000)) {
            schedule.ended(0);
            order.push(job);
        }
        assert_eq!(order, ["soon", "little", "much", "late", "endless", "new"]);
    }

    #[test]
    fn what_is_known_to_need_little_passes_what_needs_more() {
        let mut schedule = Schedule::new(1);
        let asking = |needs| Asking { arrival: ms(0), had: NONE, needs };
        schedule.add("long", 1, asking(ms(100)), ms(0));
        schedule.add("short", 1, asking(ms(2)), ms(0));
        schedule.add("longer", 1, asking(ms(200)), ms(0));
        assert_eq!(next(&mut schedule, 0, ms(0)), Some("short"));
        schedule.ended(0);
        assert_eq!(schedule.next(0, ms(1), |_| NONE).map(|_| ()), Some(()));
        // What has begun is not passed by what needs more, however long that waits.
        assert!(schedule.passed(ms(90)).is_empty());
    }

    /// A launch further on is as early as the first one of its query, but for one that has had very much.
    #[test]
    fn queries_keep_their_arrival_until_they_are_long() {
        let mut schedule = Schedule::new(1);
        let asking = |had| Asking { arrival: ms(0), had, needs: NONE };
        schedule.add("second launch", 1, asking(ms(1)), ms(500));
        schedule.add("long", 1, asking(LONG + ms(1)), ms(500));
        add(&mut schedule, "new", 1, NONE, ms(400));
        let mut order = Vec::new();
        while let Some(job) = next(&mut schedule, 0, ms(900)) {
            schedule.ended(0);
            order.push(job);
        }
        assert_eq!(order, ["second launch", "new", "long"]);
    }

    #[test]
    fn a_block_gives_way_to_a_short_query_and_goes_on_afterwards() {
        let mut schedule = Schedule::new(1);
        add(&mut schedule, "long", 2, NONE, ms(0));
        assert_eq!(next(&mut schedule, 0, ms(0)), Some("long"));
        // Nobody but its own second block waits.
        assert!(schedule.passed(ms(500)).is_empty());
        add(&mut schedule, "short", 1, NONE, ms(500));
        assert_eq!(schedule.passed(ms(501)), [&"long"]);
        assert!(schedule.gives_way(0, ms(501)));
        assert_eq!(next(&mut schedule, 0, ms(501)), Some("short"));
        // The long one has had much: it lets the next short ones pass too.
        assert!(!schedule.gives_way(0, ms(510)));
        schedule.ended(0);
        add(&mut schedule, "other", 1, NONE, ms(600));
        assert_eq!(next(&mut schedule, 0, ms(600)), Some("other"));
        schedule.ended(0);
        assert_eq!(schedule.next(0, ms(601), |_| NONE), Some(Next::GoOn(BlockOf { launch: 1, block: 0 })));
        schedule.ended(0);
        let Some(Next::Start(block, "long")) = schedule.next(0, ms(602), |_| NONE) else {
            panic!("the rest")
        };
        assert_eq!(block, BlockOf { launch: 1, block: 1 });
    }

    #[test]
    fn a_block_keeps_its_worker_for_a_while_and_long_queries_change_seldom() {
        let mut schedule = Schedule::new(1);
        add(&mut schedule, "long 1", 1, MUCH, ms(0));
        assert_eq!(next(&mut schedule, 0, ms(0)), Some("long 1"));
        add(&mut schedule, "short", 1, NONE, ms(0));
        assert!(!schedule.gives_way(0, ms(1)));
        assert!(schedule.gives_way(0, ms(2)));
        assert_eq!(next(&mut schedule, 0, ms(2)), Some("short"));
        schedule.ended(0);
        add(&mut schedule, "long 2", 1, MUCH, ms(3));
        assert_eq!(next(&mut schedule, 0, ms(4)), Some("long 1"));
        assert!(!schedule.gives_way(0, ms(100)));
        assert!(schedule.gives_way(0, ms(110)));
        assert_eq!(next(&mut schedule, 0, ms(110)), Some("long 2"));
    }

    /// Short queries come all the time: the long one has a fiftieth of the worker, not the time that a switch takes.
    #[test]
    fn what_has_waited_is_left_its_worker_for_longer() {
        let mut schedule = Schedule::new(1);
        add(&mut schedule, "long", 1, MUCH, ms(0));
        assert_eq!(next(&mut schedule, 0, ms(0)), Some("long"));
        add(&mut schedule, "first short", 1, NONE, ms(100));
        assert!(schedule.gives_way(0, ms(101)));
        assert_eq!(next(&mut schedule, 0, ms(101)), Some("first short"));
        schedule.ended(0);
        add(&mut schedule, "later short", 1, NONE, ms(5110));
        assert_eq!(next(&mut schedule, 0, ms(5111)), Some("long"));
        assert!(!schedule.gives_way(0, ms(5210)));
        assert!(schedule.gives_way(0, ms(5211)));
        assert_eq!(next(&mut schedule, 0, ms(5211)), Some("later short"));
    }

    #[test]
    fn what_has_given_way_goes_on_where_it_was() {
        let mut schedule = Schedule::new(2);
        add(&mut schedule, "long", 1, NONE, ms(0));
        assert_eq!(next(&mut schedule, 1, ms(0)), Some("long"));
        add(&mut schedule, "short", 1, NONE, ms(100));
        assert!(schedule.gives_way(1, ms(101)));
        assert_eq!(next(&mut schedule, 0, ms(101)), Some("short"));
        assert_eq!(next(&mut schedule, 2, ms(101)), None);
        assert_eq!(next(&mut schedule, 1, ms(101)), Some("long"));
    }

    #[test]
    fn what_is_withdrawn_does_not_start_and_ends_first() {
        let mut schedule = Schedule::new(1);
        let launch = add(&mut schedule, "a", 5, NONE, ms(0));
        assert_eq!(next(&mut schedule, 0, ms(0)), Some("a"));
        add(&mut schedule, "b", 1, NONE, ms(90));
        assert!(schedule.gives_way(0, ms(100)));
        assert_eq!(schedule.withdraw(launch).map(|withdrawn| withdrawn.blocks), Some(4));
        assert!(schedule.withdraw(launch).is_none());
        assert_eq!(next(&mut schedule, 0, ms(101)), Some("a"));
        schedule.ended(0);
        assert_eq!(next(&mut schedule, 0, ms(101)), Some("b"));
    }
}
