//! Sessions of clients: each has its own settings, prepared statements and tickets, and all share one engine.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use datafusion::common::ParamValues;
use datafusion::error::Result as QueryResult;
use kelpie_session::{Access, Described, KelpieSession, PlannedQuery};
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tonic::Status;

use crate::connection::Peer;
use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// Tickets that a session holds and nobody has used: the oldest goes where there are more.
const MOST_TICKETS: usize = 256;
/// How long a client takes from a ticket to its use, where it uses it.
const SOON: Duration = Duration::from_secs(2);
/// Prepared statements of a session.
const MOST_PREPARED: usize = 1000;

/// A text that nobody can guess, of 128 random bits.
pub(crate) fn secret() -> Result<String, Status> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Status::internal(format!("no random numbers: {error}")))?;
    let mut text = String::with_capacity(32);
    for byte in bytes {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// A statement that waits for its ticket.
pub(crate) struct Held {
    pub sql: String,
    pub work: Work,
}

/// A statement that waits, and for which ticket since when.
struct Waiting {
    ticket: String,
    since: Instant,
    held: Held,
}

/// What is left to do.
pub(crate) enum Work {
    /// A query that is planned.
    Planned(Box<PlannedQuery>),
    /// A statement that is done as soon as it is planned, such as SET.
    Unplanned(Option<ParamValues>),
}

/// A statement that a client has prepared.
pub(crate) struct Prepared {
    pub sql: String,
    /// A plan of Substrait that came in place of SQL.
    pub plan: Option<Bytes>,
    pub described: Described,
    /// The values for its parameters, a set of them for each time that it is to run.
    pub bound: Mutex<Vec<ParamValues>>,
}

/// A session of a client.
pub(crate) struct ClientSession {
    /// Known to the client alone.
    pub id: String,
    /// How logs name it.
    pub number: u64,
    /// Who opened it.
    pub who: String,
    /// Whether its id lets a client in: it was given to one that had logged in.
    pub is_login: bool,
    /// Whether a client has shown its id, and so may come back on another connection.
    pub is_known: AtomicBool,
    session: OnceCell<KelpieSession>,
    tickets: Mutex<VecDeque<Waiting>>,
    prepared: Mutex<HashMap<String, Arc<Prepared>>>,
    running: Mutex<HashMap<String, AbortHandle>>,
    /// The connection that it was opened by.
    connection: Weak<Peer>,
    used: Mutex<Instant>,
    metrics: Arc<Metrics>,
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.metrics.sessions.dec();
    }
}

impl ClientSession {
    /// The session of the engine, opened when it is first needed.
    pub async fn open(&self, options: &ServerOptions) -> QueryResult<&KelpieSession> {
        self.session.get_or_try_init(|| opened(options)).await
    }

    /// Holds a statement; gives its ticket.
    pub fn hold(&self, held: Held) -> Result<String, Status> {
        let ticket = secret()?;
        let mut tickets = self.tickets.lock();
        if tickets.len() >= MOST_TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(Waiting { ticket: ticket.clone(), since: Instant::now(), held });
        Ok(ticket)
    }

    /// The statement of a ticket, which it is good for once.
    pub fn take(&self, ticket: &str) -> Result<Held, Status> {
        let mut tickets = self.tickets.lock();
        let place = tickets.iter().position(|waiting| waiting.ticket == ticket);
        match place.and_then(|place| tickets.remove(place)) {
            Some(waiting) => Ok(waiting.held),
            None => Err(Status::not_found("the ticket is not known in this session, or was used before")),
        }
    }

    /// Keeps a prepared statement; gives its handle.
    pub fn keep(&self, prepared: Prepared) -> Result<String, Status> {
        let handle = secret()?;
        let mut all = self.prepared.lock();
        if all.len() >= MOST_PREPARED {
            return Err(Status::resource_exhausted(format!(
                "the session has {MOST_PREPARED} prepared statements, which is the most: close some"
            )));
        }
        all.insert(handle.clone(), Arc::new(prepared));
        Ok(handle)
    }

    /// A prepared statement.
    pub fn prepared(&self, handle: &[u8]) -> Result<Arc<Prepared>, Status> {
        let found =
            std::str::from_utf8(handle).ok().and_then(|handle| self.prepared.lock().get(handle).cloned());
        found.ok_or_else(|| {
            Status::not_found("the prepared statement is not known in this session, or was closed")
        })
    }

    /// Forgets a prepared statement.
    pub fn close_prepared(&self, handle: &[u8]) {
        if let Ok(handle) = std::str::from_utf8(handle) {
            self.prepared.lock().remove(handle);
        }
    }

    /// Notes that a statement runs, by its ticket.
    pub fn note_running(&self, ticket: &str, task: AbortHandle) {
        let mut running = self.running.lock();
        running.retain(|_, task| !task.is_finished());
        running.insert(ticket.to_string(), task);
    }

    /// Cancels the statement of a ticket, whether it runs or waits; whether there was one.
    pub fn cancel(&self, ticket: &str) -> bool {
        if let Some(task) = self.running.lock().remove(ticket) {
            let was_running = !task.is_finished();
            task.abort();
            return was_running;
        }
        self.take(ticket).is_ok()
    }

    fn cancel_all(&self) {
        self.tickets.lock().clear();
        self.running.lock().drain().for_each(|(_, task)| task.abort());
    }

    /// Whether a client has a new ticket, and so is about to use it.
    fn is_awaited(&self) -> bool {
        self.tickets.lock().back().is_some_and(|waiting| waiting.since.elapsed() < SOON)
    }

    fn is_running(&self) -> bool {
        self.running.lock().values().any(|task| !task.is_finished())
    }

    /// Whether nobody has it in hand: its connection is closed and nothing of it runs.
    fn is_left(&self) -> bool {
        self.connection.strong_count() == 0 && !self.is_running()
    }
}

async fn opened(options: &ServerOptions) -> QueryResult<KelpieSession> {
    let absolute = |path: &std::path::PathBuf| std::path::absolute(path).ok();
    let access = Access {
        only_reads: !options.allow_writes,
        files: (!options.allow_writes).then(|| options.data.iter().filter_map(absolute).collect()),
        most_time: options.limits.time,
    };
    let session = options.sessions.clone().with_engine(Arc::clone(&options.engine));
    let session = KelpieSession::new(session.with_settings(options.settings.clone()).with_access(access))?;
    for path in &options.data {
        session.register_data(path).await?;
    }
    Ok(session)
}

/// What of the data cannot be read, as every client will find.
pub(crate) async fn tried(options: &ServerOptions) -> QueryResult<Vec<String>> {
    let session = opened(&ServerOptions { data: Vec::new(), ..options.clone() }).await?;
    let mut problems = Vec::new();
    for path in &options.data {
        problems.extend(session.register_data(path).await?.problems);
    }
    problems.extend(session.unreadable_tables().await);
    Ok(problems)
}

/// The sessions that are open.
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Arc<ClientSession>>>,
    next: AtomicU64,
    most: usize,
    metrics: Arc<Metrics>,
}

impl Sessions {
    pub fn new(options: &ServerOptions, metrics: Arc<Metrics>) -> Sessions {
        Sessions { open: Mutex::default(), next: AtomicU64::new(1), most: options.limits.sessions, metrics }
    }

    /// A new session. Where there are as many as there may be, the one that was left longest ago goes.
    pub fn add(
        &self,
        who: &str,
        connection: &Arc<Peer>,
        is_login: bool,
    ) -> Result<Arc<ClientSession>, Status> {
        let id = secret()?;
        let mut open = self.open.lock();
        if open.len() >= self.most {
            let left = open.values().filter(|session| session.is_left());
            match left.min_by_key(|session| *session.used.lock()).map(|session| session.id.clone()) {
                Some(oldest) => drop(open.remove(&oldest)),
                None => {
                    self.metrics.count_refused("sessions");
                    return Err(Status::resource_exhausted(format!(
                        "{} sessions are open, which is the most: try again when some are closed",
                        self.most
                    )));
                }
            }
        }
        self.metrics.sessions.inc();
        let session = Arc::new(ClientSession {
            id: id.clone(),
            number: self.next.fetch_add(1, Ordering::Relaxed),
            who: who.to_string(),
            is_login,
            is_known: AtomicBool::new(is_login),
            session: OnceCell::new(),
            tickets: Mutex::default(),
            prepared: Mutex::default(),
            running: Mutex::default(),
            connection: Arc::downgrade(connection),
            used: Mutex::new(Instant::now()),
            metrics: Arc::clone(&self.metrics),
        });
        open.insert(id, Arc::clone(&session));
        Ok(session)
    }

    /// The session of an id.
    pub fn find(&self, id: &str) -> Option<Arc<ClientSession>> {
        let session = self.open.lock().get(id).cloned()?;
        *session.used.lock() = Instant::now();
        Some(session)
    }

    /// The session that a client has by its connection alone, opened where there is none.
    pub fn of_connection(&self, who: &str, connection: &Arc<Peer>) -> Result<Arc<ClientSession>, Status> {
        let mut own = connection.sessions.lock();
        if let Some(session) = own.get(who).and_then(|session| self.find(&session.id)) {
            return Ok(session);
        }
        let session = self.add(who, connection, false)?;
        own.insert(who.to_string(), Arc::clone(&session));
        Ok(session)
    }

    /// Ends a session, and what runs in it.
    pub fn close(&self, session: &ClientSession) {
        self.open.lock().remove(&session.id);
        session.cancel_all();
    }

    /// Ends what runs in all sessions.
    pub fn cancel_all(&self) {
        self.open.lock().values().for_each(|session| session.cancel_all());
    }

    /// Whether a statement runs or waits for its ticket to be used.
    pub fn are_busy(&self) -> bool {
        self.open.lock().values().any(|session| session.is_running() || session.is_awaited())
    }

    /// Forgets sessions that nobody comes back to: at once where they were their connection's alone, else after some time.
    pub fn sweep(&self, idle: Duration) {
        self.open.lock().retain(|_, session| {
            let is_over = !session.is_known.load(Ordering::Relaxed) || session.used.lock().elapsed() > idle;
            !(session.is_left() && is_over)
        });
    }
}
