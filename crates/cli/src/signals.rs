//! The signals that end a program which serves others.

use anyhow::{Context, Result};
use tokio::sync::mpsc;

/// The signals that end the program, heard by a thread of their own: queries may keep all others busy.
pub fn listen() -> Result<mpsc::UnboundedReceiver<()>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot listen for signals")?;
    let (ready, is_ready) = std::sync::mpsc::channel();
    let listener = std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let mut signals = match Signals::new() {
                Ok(signals) => signals,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let _ = ready.send(Ok(()));
            while signals.next().await && sender.send(()).is_ok() {}
        });
    });
    listener.context("cannot listen for signals")?;
    is_ready.recv().context("cannot listen for signals")?.context("cannot listen for signals")?;
    Ok(receiver)
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> bool {
        tokio::select! {
            signal = self.interrupt.recv() => signal.is_some(),
            signal = self.terminate.recv() => signal.is_some(),
        }
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
