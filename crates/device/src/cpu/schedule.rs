//! Which launch's blocks start next, where there are more launches than workers.
//!
//! Blocks are not interrupted, and a worker's block lasts as long as its launch. So a launch that takes minutes would keep all others from
//! the workers: where others wait, one that has gone on for a while counts no more ([`LONG`]), and others start beside it, on threads of
//! their own, among which the system shares the cores. Those that wait start in the order of their arrival and of the time that their
//! queries have had: a launch lets those pass that come later by less than that, so that short queries pass long ones, and a long one
//! waits no longer than in proportion to what it has had, nor longer than [`PATIENCE`].

use std::time::{Duration, Instant};

/// Time from which on a launch leaves its workers' places to others.
const LONG: Duration = Duration::from_millis(50);
/// Time of all workers, by which a query counts as a short one.
const SHORT: Duration = Duration::from_millis(100);
/// So many sets of workers may be busy with long launches before only short queries start beside them, and one more before nobody does.
const LONG_SETS: u32 = 2;
/// A launch lets nobody pass who comes later by more than this, whatever its query has had.
const PATIENCE: Duration = Duration::from_secs(2);

/// A block that is to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start<J> {
    /// Of the launch, as [`Schedule::add`] gave it.
    pub number: u64,
    pub job: J,
    pub block: u32,
}

/// Launches with blocks that have not ended.
#[derive(Debug, Default)]
pub(super) struct Schedule<J> {
    workers: u32,
    numbers: u64,
    /// In the order of their arrival.
    waiting: Vec<Waiting<J>>,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Waiting<J> {
    number: u64,
    job: J,
    blocks: u32,
    /// The next one.
    next: u32,
    /// Whoever comes before this passes.
    turn: Instant,
    /// Time of workers that its query has had.
    had: Duration,
}

#[derive(Debug)]
struct Running {
    number: u64,
    blocks: u32,
    since: Instant,
}

impl<J: Clone> Schedule<J> {
    pub(super) fn new(workers: u32) -> Schedule<J> {
        Schedule { workers, numbers: 0, waiting: Vec::new(), running: Vec::new() }
    }

    /// Adds a launch of a query that has `had` so much time of workers; its number.
    pub(super) fn add(&mut self, job: J, blocks: u32, had: Duration, now: Instant) -> u64 {
        self.numbers += 1;
        let turn = now + (had / self.workers.max(1)).min(PATIENCE);
        self.waiting.push(Waiting { number: self.numbers, job, blocks, next: 0, turn, had });
        self.numbers
    }

    /// The block that starts now, if there is one.
    pub(super) fn next(&mut self, now: Instant) -> Option<Start<J>> {
        if self.waiting.is_empty() {
            return None;
        }
        let is_long = |running: &&Running| now.saturating_duration_since(running.since) >= LONG;
        let long: u32 = self.running.iter().filter(is_long).map(|running| running.blocks).sum();
        let all: u32 = self.running.iter().map(|running| running.blocks).sum();
        if all - long >= self.workers {
            return None;
        }
        if long >= self.workers.saturating_mul(LONG_SETS + 1) {
            return None;
        }
        let only_short = long >= self.workers.saturating_mul(LONG_SETS);
        let most = SHORT.saturating_mul(self.workers);
        let candidates = self.waiting.iter().enumerate();
        let candidates = candidates.filter(|(_, waiting)| !only_short || waiting.had < most);
        let (first, _) = candidates.min_by_key(|(_, waiting)| waiting.turn)?;
        Some(self.start(first, now))
    }

    fn start(&mut self, index: usize, now: Instant) -> Start<J> {
        let waiting = &mut self.waiting[index];
        let start = Start { number: waiting.number, job: waiting.job.clone(), block: waiting.next };
        waiting.next += 1;
        if waiting.next == waiting.blocks {
            self.waiting.remove(index);
        }
        match self.running.iter_mut().find(|running| running.number == start.number) {
            Some(running) => running.blocks += 1,
            None => self.running.push(Running { number: start.number, blocks: 1, since: now }),
        }
        start
    }

    /// A block has ended.
    pub(super) fn ended(&mut self, number: u64) {
        if let Some(index) = self.running.iter().position(|running| running.number == number) {
            self.running[index].blocks -= 1;
            if self.running[index].blocks == 0 {
                self.running.swap_remove(index);
            }
        }
    }

    /// The blocks of a launch that have not started never do; how many these are.
    pub(super) fn withdraw(&mut self, number: u64) -> u32 {
        let Some(index) = self.waiting.iter().position(|waiting| waiting.number == number) else { return 0 };
        let waiting = self.waiting.remove(index);
        waiting.blocks - waiting.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that start at a time, by their launch.
    fn starts(schedule: &mut Schedule<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| schedule.next(now)).map(|start| start.job).collect()
    }

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn launches_of_short_queries_follow_each_other() {
        let (mut schedule, now) = (Schedule::new(2), Instant::now());
        let first = schedule.add("a", 2, NONE, now);
        schedule.add("b", 2, NONE, now);
        assert_eq!(starts(&mut schedule, now), ["a", "a"]);
        schedule.ended(first);
        assert_eq!(starts(&mut schedule, now), ["b"]);
        schedule.ended(first);
        assert_eq!(starts(&mut schedule, now), ["b"]);
    }

    #[test]
    fn a_launch_lets_those_pass_that_come_later_by_less_than_its_query_has_had() {
        let (mut schedule, now) = (Schedule::new(2), Instant::now());
        let running = schedule.add("a", 2, NONE, now);
        assert_eq!(starts(&mut schedule, now), ["a", "a"]);
        // Of two workers, so half of it has passed.
        schedule.add("much", 1, Duration::from_millis(200), now);
        schedule.add("soon", 1, NONE, now + Duration::from_millis(99));
        schedule.add("late", 1, NONE, now + Duration::from_millis(101));
        schedule.ended(running);
        schedule.ended(running);
        let later = now + Duration::from_millis(110);
        assert_eq!(starts(&mut schedule, later), ["soon", "much"]);
        schedule.add("endless", 1, Duration::from_secs(100), later);
        schedule.add("new", 1, NONE, later + PATIENCE + Duration::from_millis(1));
        assert_eq!(schedule.waiting.iter().min_by_key(|waiting| waiting.turn).map(|w| w.job), Some("late"));
        schedule.waiting.retain(|waiting| waiting.job != "late");
        assert_eq!(
            schedule.waiting.iter().min_by_key(|waiting| waiting.turn).map(|w| w.job),
            Some("endless")
        );
    }

    #[test]
    fn others_start_beside_launches_that_go_on_for_long() {
        let (mut schedule, mut now) = (Schedule::new(2), Instant::now());
        for _ in 0..LONG_SETS {
            schedule.add("long", 2, Duration::from_secs(9), now);
            assert_eq!(starts(&mut schedule, now), ["long", "long"]);
            now += LONG;
        }
        // There are as many long ones as there may be, but for those that have had little time.
        schedule.add("long", 2, Duration::from_secs(9), now);
        assert_eq!(starts(&mut schedule, now), [""; 0]);
        let short = schedule.add("short", 2, NONE, now);
        schedule.add("short", 2, NONE, now);
        assert_eq!(starts(&mut schedule, now), ["short", "short"]);
        schedule.ended(short);
        assert_eq!(starts(&mut schedule, now), ["short"]);
    }

    #[test]
    fn what_is_withdrawn_does_not_start() {
        let (mut schedule, now) = (Schedule::new(2), Instant::now());
        let number = schedule.add("a", 5, NONE, now);
        assert_eq!(starts(&mut schedule, now), ["a", "a"]);
        assert_eq!(schedule.withdraw(number), 3);
        assert_eq!(schedule.withdraw(number), 0);
        schedule.ended(number);
        schedule.ended(number);
        assert_eq!(starts(&mut schedule, now), [""; 0]);
        schedule.add("b", 1, NONE, now);
        assert_eq!(starts(&mut schedule, now), ["b"]);
    }
}
