//! What all requests share, and whose request it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow_flight::BasicAuth;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use parking_lot::Mutex;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinError};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Extensions, Response, Status};

use crate::connection::{Peer, PeerInfo};
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::sessions::{ClientSession, Sessions};
use crate::streams::Report;

/// The cookie by which drivers name their session (Flight's specification, "Session management").
const COOKIE: &str = "arrow_flight_session_id";
/// Names and passwords as drivers write them: that of Go leaves the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Who everybody is where nobody has to say who they are, and who has a token.
const ANYBODY: &str = "anybody";
const BY_TOKEN: &str = "token";

/// What all requests share.
pub(crate) struct State {
    pub options: ServerOptions,
    pub sessions: Sessions,
    pub metrics: Arc<Metrics>,
    /// Where statements are planned and run, so that nothing that takes long keeps others from being heard.
    pub queries: Handle,
    /// Places of statements that run.
    pub places: Arc<Semaphore>,
    /// Whether the server is about to end.
    pub draining: watch::Sender<bool>,
}

/// Whose request it is.
pub(crate) struct Caller {
    pub session: Arc<ClientSession>,
    peer: Arc<Peer>,
    /// What tells a client by which name it finds its session again.
    cookie: Option<AsciiMetadataValue>,
}

impl Caller {
    /// A response, by which the client learns of its session.
    pub fn response<T>(&self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        if let Some(cookie) = &self.cookie {
            response.metadata_mut().insert("set-cookie", cookie.clone());
        }
        response
    }
}

/// Who a client is.
enum Login {
    Named(String),
    /// It has logged in before.
    Session(Arc<ClientSession>),
}

/// A task that ends when nobody waits for it.
struct Attended(AbortHandle);

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl State {
    /// Whose request it is; an error where the client may not come in.
    pub fn caller(&self, metadata: &MetadataMap, extensions: &Extensions) -> Result<Caller, Status> {
        let peer = peer(extensions)?;
        let who = match self.login(metadata)? {
            Login::Session(session) => return Ok(Caller { session, peer, cookie: None }),
            Login::Named(who) => who,
        };
        if let Some(id) = cookie(metadata) {
            let found = self.sessions.find(&id).filter(|session| session.who == who);
            let session = found.ok_or_else(ended)?;
            session.is_known.store(true, Ordering::Relaxed);
            return Ok(Caller { session, peer, cookie: None });
        }
        let session = self.sessions.of_connection(&who, &peer)?;
        let cookie = format!("{COOKIE}={}; Path=/; HttpOnly", session.id);
        Ok(Caller { session, peer, cookie: cookie.parse().ok() })
    }

    fn login(&self, metadata: &MetadataMap) -> Result<Login, Status> {
        let credentials = &self.options.credentials;
        let said = metadata.get("authorization").and_then(|value| value.to_str().ok());
        let (scheme, secret) = said.and_then(|said| said.trim().split_once(' ')).unwrap_or_default();
        let secret = secret.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            if credentials.has_token(secret) {
                return Ok(Login::Named(BY_TOKEN.into()));
            }
            if let Some(session) = self.sessions.find(secret).filter(|session| session.is_login) {
                return Ok(Login::Session(session));
            }
        }
        if scheme.eq_ignore_ascii_case("basic") {
            let pair = BASE64.decode(secret).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((name, password)) = pair.as_deref().and_then(|pair| pair.split_once(':'))
                && credentials.has_user(name, password)
            {
                return Ok(Login::Named(format!("user {name}")));
            }
        }
        match credentials.is_open() {
            true => Ok(Login::Named(ANYBODY.into())),
            false if said.is_none() => {
                Err(self.not_let_in("the server wants a token, or a user and a password"))
            }
            false => Err(self.not_let_in(
                "the token, or the user or the password, is not known, or the session has ended",
            )),
        }
    }

    fn not_let_in(&self, why: &str) -> Status {
        self.metrics.count_refused("unauthenticated");
        Status::unauthenticated(why)
    }

    /// A session for a client that logs in: by its headers, or by the message of older clients. The session's id is its token.
    pub fn logged_in(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
        payload: Option<&[u8]>,
    ) -> Result<Arc<ClientSession>, Status> {
        let peer = peer(extensions)?;
        let said =
            payload.filter(|payload| !payload.is_empty()).and_then(|payload| BasicAuth::decode(payload).ok());
        let who = match said.filter(|_| !metadata.contains_key("authorization")) {
            Some(said) if self.options.credentials.has_user(&said.username, &said.password) => {
                format!("user {}", said.username)
            }
            _ => match self.login(metadata)? {
                Login::Named(who) => who,
                Login::Session(session) => return Ok(session),
            },
        };
        self.sessions.add(&who, &peer, true)
    }

    /// An error where a statement is not to be taken.
    pub fn check(&self, sql: &str) -> Result<(), Status> {
        self.check_bytes(sql.len())
    }

    /// As [`State::check`], of a statement of so many bytes.
    pub fn check_bytes(&self, bytes: usize) -> Result<(), Status> {
        if *self.draining.borrow() {
            self.metrics.count_refused("draining");
            return Err(Status::unavailable("the server is about to end, and takes no more statements"));
        }
        let most = self.options.limits.statement_bytes;
        if bytes > most {
            self.metrics.count_refused("statement size");
            let text = format!("the statement has {bytes} bytes, and {most} are the most");
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }

    /// Does work where statements run. It ends when nobody waits for it, and breaks nothing else where it breaks down.
    pub async fn on_queries<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        let task = self.queries.spawn(work);
        let _attended = Attended(task.abort_handle());
        task.await.unwrap_or_else(|error: JoinError| {
            Err(match error.is_cancelled() {
                true => Status::cancelled("the server is about to end"),
                false => Status::internal("the request broke down"),
            })
        })
    }

    /// A statement for the log and the metrics.
    pub fn report(&self, caller: &Caller, sql: &str) -> Report {
        let (session, peer) = (&caller.session, caller.peer.address);
        Report {
            of: format!("session={} client={peer} as=\"{}\"", session.number, session.who.escape_debug()),
            sql: sql.to_string(),
            metrics: Arc::clone(&self.metrics),
            log: self.options.log,
            start: Instant::now(),
            rows: 0.into(),
            bytes: 0.into(),
            outcome: Mutex::default(),
            error: Mutex::default(),
            is_told: false.into(),
        }
    }
}

fn peer(extensions: &Extensions) -> Result<Arc<Peer>, Status> {
    PeerInfo::of(extensions).ok_or_else(|| Status::internal("the connection is not known"))
}

/// The session that a client names.
fn cookie(metadata: &MetadataMap) -> Option<String> {
    let headers = metadata.get_all("cookie").iter().filter_map(|value| value.to_str().ok());
    let mut cookies =
        headers.flat_map(|header| header.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.find(|(name, _)| *name == COOKIE).map(|(_, id)| id.trim_matches('"').to_string())
}

/// A session that is named and not there any more. Its settings are gone: another one in its place could answer otherwise.
fn ended() -> Status {
    let mut status = Status::unauthenticated("the session has ended: connect anew");
    if let Ok(gone) = format!("{COOKIE}=; Path=/; Max-Age=0").parse() {
        status.metadata_mut().insert("set-cookie", gone);
    }
    status
}
