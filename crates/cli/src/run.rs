//! Runs a statement, and writes its rows as they come.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use kelpie_session::{Group, KelpieSession, QueryTiming, StatementThreads, message, progress};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::args::{Given, QueryArguments};
use crate::output::{Output, RowWriter};
use crate::progress::{DELAY, Progress};
use crate::{complain, interrupt, is_broken_pipe, shell};

/// Exit code of a program that an interrupt ended: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;
/// How often it is shown how far a query has come.
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// Batches that a query may be ahead of the output.
const BATCHES_AHEAD: usize = 2;
/// A cancelled query may tidy up for so long.
const PATIENCE: Duration = Duration::from_millis(150);
/// The same where a shell goes on.
const PATIENCE_OF_A_SHELL: Duration = Duration::from_secs(2);

/// A session with its output.
pub struct Runner {
    pub session: Arc<KelpieSession>,
    pub output: Output,
    pub timing: bool,
    /// Whether it goes on after Ctrl-C.
    pub interactive: bool,
    /// Tables that were named on the command line without an option.
    pub named_tables: Vec<String>,
    /// What statements run on; those of one that was cancelled and goes on are left to it.
    pub threads: Arc<StatementThreads>,
}

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its result is written.
    Done,
    /// The user cancelled it.
    Cancelled,
}

/// Runs what the command line says, or a shell.
pub async fn run(arguments: QueryArguments, given: Given) -> Result<ExitCode> {
    let session = Arc::new(arguments.session.open().await?);
    let named_tables = crate::args::register(&session, &given.data).await?;
    let mut output = Output::new(arguments.format, arguments.output.clone())?;
    (output.max_rows, output.max_width) = (arguments.maxrows, arguments.maxwidth);
    let (timing, threads) = (arguments.timing, Arc::new(StatementThreads::new().map_err(plain)?));
    let runner = Runner { session, output, timing, interactive: false, named_tables, threads };
    shell::run(runner, &arguments, given.sources).await
}

/// What a running query gives.
enum Event {
    Rows(RecordBatch),
    End(Box<QueryTiming>),
    Failed(DataFusionError),
}

/// A query in a task of its own, its rows on their way to a thread that writes them.
struct Running {
    task: tokio::task::JoinHandle<()>,
    schema: Option<oneshot::Receiver<Result<SchemaRef, DataFusionError>>>,
    events: Option<mpsc::Receiver<Event>>,
    /// Tells the writer to stop, wherever it is.
    stopped: Arc<AtomicBool>,
    stop: Arc<Notify>,
    /// Ends when the task has.
    task_ended: Ended,
    /// Ends when the writer has.
    output_ended: Ended,
    alive: Option<std::sync::mpsc::Sender<()>>,
}

/// Nothing ever comes: it is over when the last sender is dropped.
struct Ended(std::sync::mpsc::Receiver<()>);

impl Ended {
    fn pair() -> (std::sync::mpsc::Sender<()>, Ended) {
        let (alive, ended) = std::sync::mpsc::channel();
        (alive, Ended(ended))
    }

    /// Waits for so long at most; whether it has ended.
    fn within(&self, patience: Duration) -> bool {
        self.0.recv_timeout(patience) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    }
}

impl Running {
    fn start(session: &Arc<KelpieSession>, statement: &str, threads: &StatementThreads) -> Result<Running> {
        let (session, sql) = (Arc::clone(session), statement.to_string());
        let (to_schema, schema) = oneshot::channel();
        let (to_writer, events) = mpsc::channel(BATCHES_AHEAD);
        let (of_task, task_ended) = Ended::pair();
        let (alive, output_ended) = Ended::pair();
        let task = threads.handle().map_err(plain)?.spawn(async move {
            let _alive = of_task;
            let mut query = match session.start(&sql).await {
                Ok(query) => query,
                Err(error) => {
                    let _ = to_schema.send(Err(error));
                    return;
                }
            };
            // Where nobody listens any more, the query ends.
            if to_schema.send(Ok(query.schema())).is_err() {
                return;
            }
            loop {
                let event = match query.next().await {
                    Ok(Some(batch)) => Event::Rows(batch),
                    Ok(None) => break,
                    Err(error) => {
                        let _ = to_writer.send(Event::Failed(error)).await;
                        return;
                    }
                };
                if to_writer.send(event).await.is_err() {
                    return;
                }
            }
            let _ = to_writer.send(Event::End(Box::new(query.finish()))).await;
        });
        Ok(Running {
            task,
            schema: Some(schema),
            events: Some(events),
            stopped: Arc::default(),
            stop: Arc::default(),
            task_ended,
            output_ended,
            alive: Some(alive),
        })
    }

    /// Brings all rows to the output.
    async fn write(&mut self, output: &mut Output, spinner: &Arc<Progress>) -> Result<QueryTiming> {
        let (Some(schema), Some(events)) = (self.schema.take(), self.events.take()) else {
            return Err(anyhow!("the query was written before"));
        };
        let schema = schema.await.map_err(|_| broke_down())?.map_err(plain)?;
        let writer = output.begin(&schema, &self.stopped, spinner)?;
        let place = output.place();
        let (done, is_done) = oneshot::channel();
        let (runtime, stop) = (tokio::runtime::Handle::current(), Arc::clone(&self.stop));
        let alive = self.alive.take();
        let thread = std::thread::Builder::new().name("output".into());
        let spawned = thread.spawn(move || {
            let _alive = alive;
            // Where nobody waits any more, the query was cancelled.
            let _ = done.send(runtime.block_on(write_rows(writer, events, &stop, &place)));
        });
        spawned.context("cannot start threads")?;
        is_done.await.map_err(|_| broke_down())?
    }

    /// Waits for the end of the output.
    fn wait(&self) {
        let _ = self.output_ended.0.recv();
    }

    /// Ends the query and its output; whether nothing of the query goes on. Before the program ends little time is left to tidy up; a
    /// shell waits longer for its output, which shares the terminal with what comes next.
    fn cancel(&mut self, wait_for_output: bool) -> bool {
        self.stopped.store(true, Ordering::Relaxed);
        self.stop.notify_one();
        self.task.abort();
        (self.schema, self.events, self.alive) = (None, None, None);
        let has_ended = self.task_ended.within(PATIENCE);
        self.output_ended.within(if wait_for_output { PATIENCE_OF_A_SHELL } else { PATIENCE });
        has_ended
    }
}

async fn write_rows(
    mut writer: Option<Box<dyn RowWriter>>,
    mut events: mpsc::Receiver<Event>,
    stop: &Notify,
    place: &str,
) -> Result<QueryTiming> {
    loop {
        let event = tokio::select! {
            biased;
            () = stop.notified() => None,
            event = events.recv() => event,
        };
        match (event, &mut writer) {
            (Some(Event::Rows(batch)), Some(writer)) => {
                writer.write(&batch).with_context(|| place.to_string())?;
            }
            (Some(Event::Rows(_)), None) => {}
            (Some(Event::Failed(error)), _) => return Err(plain(error)),
            (Some(Event::End(timing)), _) => {
                if let Some(writer) = writer {
                    writer.finish().with_context(|| place.to_string())?;
                }
                return Ok(*timing);
            }
            (None, _) => return Err(broke_down()),
        }
    }
}

fn plain(error: DataFusionError) -> anyhow::Error {
    anyhow!(message(&error))
}

fn broke_down() -> anyhow::Error {
    anyhow!("the query broke down")
}

impl Runner {
    /// Runs a statement and writes its rows as they come; Ctrl-C cancels it.
    pub async fn run(&mut self, statement: &str) -> Result<Outcome> {
        let pressed = interrupt::listen()?;
        let spinner = Arc::new(Progress::spinner("running"));
        self.output.display = self.session.context().state_ref().read().config_options().format.clone();
        progress::begin();
        let mut running = Running::start(&self.session, statement, &self.threads)?;
        let timing = {
            let mut writing = std::pin::pin!(running.write(&mut self.output, &spinner));
            let mut due = tokio::time::interval_at(tokio::time::Instant::now() + DELAY, SHOWN_EVERY);
            loop {
                tokio::select! {
                    biased;
                    () = pressed.notified() => break None,
                    result = &mut writing => break Some(result),
                    _ = due.tick() => spinner.show_query(&progress::now()),
                }
            }
        };
        spinner.clear();
        for note in self.session.take_notes() {
            complain(&format!("note: {note}"));
        }
        let Some(result) = timing else {
            self.cancel(&mut running, self.interactive)?;
            if self.output.is_paged() {
                // The pager has the terminal until the user leaves it, and it hears Ctrl-C too.
                running.wait();
            }
            complain("cancelled");
            self.output.take_back()?;
            return Ok(Outcome::Cancelled);
        };
        match result {
            Ok(timing) => {
                self.output.keep();
                if self.timing {
                    complain(&timing_text(&timing));
                }
            }
            // Who leaves the pager has seen enough.
            Err(error) if self.output.is_paged() && is_broken_pipe(&error) => {
                self.cancel(&mut running, true)?
            }
            Err(error) => {
                self.cancel(&mut running, self.interactive)?;
                self.output.take_back()?;
                return Err(error);
            }
        }
        Ok(Outcome::Done)
    }

    /// Ends a query. What it keeps busy all the same is left to it: the next statement has other threads.
    fn cancel(&mut self, running: &mut Running, wait_for_output: bool) -> Result<()> {
        if !running.cancel(wait_for_output) {
            self.threads = Arc::new(StatementThreads::new().map_err(plain)?);
        }
        Ok(())
    }
}

/// `12.3 ms on …: plan 1.0 (parse 0.2, …), host 0.3, kernels 11.0`, and what was not compiled. What took no time is left out.
pub fn timing_text(timing: &QueryTiming) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut text = format!("time: {:.2} ms", ms(timing.total_ns));
    if let Some(device) = &timing.device {
        text.push_str(&format!(" on {device}"));
    }
    let groups = Group::ALL.into_iter().filter(|group| timing.split.of_group(*group) > 0);
    let groups: Vec<String> = groups.map(|group| group_text(timing, group)).collect();
    if !groups.is_empty() {
        text.push_str(&format!(": {}", groups.join(", ")));
    }
    for reason in &timing.reasons {
        text.push_str("\nnot compiled: ");
        text.push_str(reason);
    }
    text
}

/// `plan 1.0 (parse 0.2, logical 0.8)`.
fn group_text(timing: &QueryTiming, group: Group) -> String {
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let name = match group {
        Group::Plan if timing.plan_kept => "plan (kept)",
        group => group.name(),
    };
    let mut text = format!("{name} {}", ms(timing.split.of_group(group)));
    let phases: Vec<String> = group
        .phases()
        .filter(|phase| timing.split.of(*phase) > 0)
        .map(|phase| format!("{} {}", phase.name(), ms(timing.split.of(phase))))
        .collect();
    if group.phases().count() > 1 && phases.len() > 1 {
        text.push_str(&format!(" ({})", phases.join(", ")));
    }
    text
}
