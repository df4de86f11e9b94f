//! A pager for results of more than a screen.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// What is asked where `$PAGER` names none. `LESS` tells it, unless the user does, to leave long lines as they are (S).
const USUAL: &str = "less";

/// Keeps what fits on the screen until the end, and gives all to the pager as soon as it does not.
pub struct Pager {
    terminal: File,
    lines: usize,
    screen: usize,
    kept: Vec<u8>,
    child: Option<Child>,
}

impl Pager {
    /// A pager for a screen of so many lines.
    pub fn new(terminal: File, screen: usize) -> Pager {
        Pager { terminal, lines: 0, screen, kept: Vec::new(), child: None }
    }

    fn started() -> Result<Child> {
        let named = std::env::var("PAGER").ok().filter(|name| !name.trim().is_empty());
        let command = named.unwrap_or_else(|| USUAL.into());
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        let mut pager = Command::new(program);
        if std::env::var_os("LESS").is_none() {
            pager.env("LESS", "S");
        }
        let started = pager.args(words).stdin(Stdio::piped()).spawn();
        started.with_context(|| format!("cannot start the pager `{command}` (.pager off does without)"))
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(pipe) = self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            return pipe.write(bytes);
        }
        self.kept.extend_from_slice(bytes);
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count();
        if self.lines >= self.screen {
            let child =
                self.child.insert(Pager::started().map_err(|error| io::Error::other(format!("{error:#}")))?);
            if let Some(pipe) = &mut child.stdin {
                pipe.write_all(&self.kept)?;
            }
            self.kept.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            // Who has left the pager has seen enough.
            Some(pipe) => pipe.flush().or_else(|error| match error.kind() {
                ErrorKind::BrokenPipe => Ok(()),
                _ => Err(error),
            }),
            None => Ok(()),
        }
    }
}

impl Drop for Pager {
    /// Shows what the screen has room for, or waits until the user leaves the pager.
    fn drop(&mut self) {
        match &mut self.child {
            Some(child) => {
                drop(child.stdin.take());
                // It shares the terminal with what comes next.
                let _ = child.wait();
            }
            // Where the terminal is gone, nobody is left to tell.
            None => drop(self.terminal.write_all(&self.kept)),
        }
    }
}
