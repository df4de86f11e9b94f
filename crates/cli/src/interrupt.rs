//! Ctrl-C: heard by a thread of its own, so that neither a busy query nor a slow terminal delays it.

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use tokio::sync::Notify;

/// Starts listening at the first call. Each Ctrl-C from then on wakes one waiter; one that nobody waited for is kept for the next.
pub fn listen() -> Result<Arc<Notify>> {
    static PRESSED: OnceLock<Arc<Notify>> = OnceLock::new();
    if let Some(pressed) = PRESSED.get() {
        return Ok(Arc::clone(pressed));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot listen for Ctrl-C")?;
    let pressed = Arc::new(Notify::new());
    let notify = Arc::clone(&pressed);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let listener = std::thread::Builder::new().name("interrupt".into());
    listener
        .spawn(move || {
            runtime.block_on(async {
                let mut signals = match Signals::new() {
                    Ok(signals) => signals,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(()));
                while signals.next().await {
                    notify.notify_one();
                }
            });
        })
        .context("cannot listen for Ctrl-C")?;
    is_ready.recv().context("cannot listen for Ctrl-C")?.context("cannot listen for Ctrl-C")?;
    Ok(Arc::clone(PRESSED.get_or_init(|| pressed)))
}

#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).map(Signals)
    }

    async fn next(&mut self) -> bool {
        self.0.recv().await.is_some()
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> bool {
        tokio::signal::ctrl_c().await.is_ok()
    }
}
