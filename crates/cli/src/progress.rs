//! Progress bars: on stderr, only where it is a terminal, only for work longer than a second.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kelpie_session::progress;

/// Work shorter than this shows nothing.
pub const DELAY: Duration = Duration::from_secs(1);

/// A bar that shows itself after [`DELAY`].
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    cleared: AtomicBool,
}

impl Progress {
    /// A bar of `total` steps of some unit.
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
        if self.bar.length().is_none() {
            let template = "{spinner} {bar:30} {percent:>3} %  {human_pos} of {human_len} {msg}, {elapsed}";
            self.bar.set_style(style(template));
        }
        self.bar.set_message(what);
        self.set(part.done, part.all);
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
            (spinner.bar.position(), spinner.bar.length(), spinner.bar.message())
        };
        assert_eq!(show((0, 0), (0, 0)), (0, None, "running".into()));
        assert_eq!(show((3, 10), (0, 0)), (3, Some(10), "rows read".into()));
        assert_eq!(show((10, 10), (0, 0)), (3, Some(10), "rows read".into()));
        assert_eq!(show((10, 10), (1, 4)), (1, Some(4), "pipelines".into()));
        assert_eq!(show((10, 20), (4, 4)), (10, Some(20), "rows read".into()));
    }
}
