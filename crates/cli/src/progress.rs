//! Progress bars: on stderr, only where it is a terminal, only for work longer than a second.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kelpie_session::{progress, units};

/// Work shorter than this shows nothing.
pub const DELAY: Duration = Duration::from_secs(1);

/// Places of the bar of a query.
const BAR_PLACES: u64 = 30;

/// A bar that shows itself after [`DELAY`].
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    cleared: AtomicBool,
}

impl Progress {
    /// A bar of `total` steps of some unit.
    #[cfg(feature = "workloads")]
    pub fn bar(total: u64, unit: &str) -> Progress {
        let template =
            format!("{{bar:40}} {{percent:>3}} %  {{human_pos}} of {{human_len}} {unit}, {{eta}} left");
        Progress::new(ProgressBar::hidden().with_style(style(&template)), total)
    }

    /// A spinner with a message.
    pub fn spinner(message: &str) -> Progress {
        let bar = ProgressBar::hidden().with_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(message.to_string());
        Progress::new(bar, 0)
    }

    fn new(bar: ProgressBar, total: u64) -> Progress {
        if total > 0 {
            bar.set_length(total);
        }
        Progress { bar, start: Instant::now(), cleared: AtomicBool::new(false) }
    }

    /// Sets how much is done of how much.
    #[cfg(feature = "workloads")]
    pub fn set(&self, done: u64, total: u64) {
        self.show_when_due();
        self.bar.set_length(total.max(done));
        self.bar.set_position(done);
    }

    /// Sets the message of a spinner.
    pub fn set_message(&self, message: &str) {
        self.bar.set_message(message.to_string());
        self.show_when_due();
    }

    /// Shows how far a query has come: the share of the rows that it reads, and then that of its pipelines.
    pub fn show_query(&self, progress: &progress::Progress) {
        let (part, what) = match (progress.pipelines, progress.rows) {
            (pipelines, _) if pipelines.done < pipelines.all => (pipelines, "pipelines"),
            (_, rows) if rows.done < rows.all => (rows, "rows read"),
            // Nothing is known to be left.
            _ => return self.show_when_due(),
        };
        // All of it is one text: parts that changed one after the other would be seen half changed.
        let of =
            |whole: u64| (u128::from(part.done) * u128::from(whole) / u128::from(part.all.max(1))) as usize;
        let (full, share) = (of(BAR_PLACES), of(100));
        let (full, left) = ("█".repeat(full), "░".repeat((BAR_PLACES as usize).saturating_sub(full)));
        let (done, all) = (units::count(part.done), units::count(part.all));
        self.set_message(&format!("{full}{left} {share:>3} %  {done} of {all} {what},"));
    }

    /// Removes it for good.
    pub fn clear(&self) {
        self.cleared.store(true, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }

    /// Shows the bar if the work has taken long enough.
    pub fn show_when_due(&self) {
        if !self.cleared.load(Ordering::Relaxed)
            && self.bar.is_hidden()
            && self.start.elapsed() >= DELAY
            && std::io::stderr().is_terminal()
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The templates are constants; where one were wrong, the default style shows.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelpie_session::progress::Part;

    #[test]
    fn a_query_shows_the_share_of_its_rows_and_then_of_its_pipelines() {
        let spinner = Progress::spinner("running");
        let show = |rows: (u64, u64), pipelines: (u64, u64)| {
            let part = |(done, all)| Part { done, all };
            spinner.show_query(&progress::Progress { rows: part(rows), pipelines: part(pipelines) });
            spinner.bar.message()
        };
        assert_eq!(show((0, 0), (0, 0)), "running");
        let third = format!("{}{}  33 %  1,000 of 3,000 rows read,", "█".repeat(10), "░".repeat(20));
        assert_eq!(show((1000, 3000), (0, 0)), third);
        // Nothing is known to be left.
        assert_eq!(show((3000, 3000), (0, 0)), third);
        let half = format!("{}{}  50 %  2 of 4 pipelines,", "█".repeat(15), "░".repeat(15));
        assert_eq!(show((3000, 3000), (2, 4)), half);
        assert!(show((5, 5000), (4, 4)).ends_with("   0 %  5 of 5,000 rows read,"));
    }
}
