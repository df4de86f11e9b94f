//! Where rows begin in a text file, from anywhere in it.
//!
//! A line feed within quotes is no end of a row, and whether a byte stands within quotes is decided by all bytes before it. So a
//! file is looked through once, in blocks side by side: of each block it is found in which state it ends, for every state that it
//! may begin in. From the state that a block begins in, the next row is near.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::Result;
use parking_lot::Mutex;

use crate::files::dialect::Dialect;
use crate::files::error::at;

/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes in which the end of a line is looked for at once.
const LINE_BYTES: usize = 1 << 14;
/// Files whose blocks are remembered.
const REMEMBERED_FILES: usize = 1000;

/// Where a reader of CSV stands between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value begins.
    Start,
    /// In a value without quotes around it.
    Plain,
    Quoted,
    /// After a quote in quotes: the last one, or the first of two.
    Closing,
}

const STATES: [State; 4] = [State::Start, State::Plain, State::Quoted, State::Closing];

/// The states in which the blocks of a file begin.
type Blocks = Arc<Vec<State>>;

/// Blocks of files that were looked through.
#[derive(Debug, Default)]
pub(super) struct RowStarts {
    known: Mutex<HashMap<(PathBuf, String), Blocks>>,
}

impl RowStarts {
    /// Where the rows begin and end that begin within a range of a file's bytes. Without a dialect every line is a row.
    pub fn between(
        &self,
        path: &Path,
        state: &str,
        (size, (start, end)): (u64, (u64, u64)),
        dialect: Option<&Dialect>,
    ) -> Result<(u64, u64)> {
        let find = || -> io::Result<(u64, u64)> {
            let mut file = File::open(path)?;
            let blocks = match dialect {
                // What is read as a whole needs no look.
                Some(_) if start == 0 && end >= size => None,
                Some(dialect) => Some(self.blocks(path, state, size, dialect)?),
                None => None,
            };
            let mut row_from = |byte: u64| match (byte, &blocks, dialect) {
                (0, _, _) => Ok(0),
                (byte, _, _) if byte >= size => Ok(size),
                (byte, Some(blocks), Some(dialect)) => next_row(&mut file, (byte, size), blocks, dialect),
                (byte, _, _) => next_line(&mut file, byte, size),
            };
            Ok((row_from(start)?, row_from(end)?))
        };
        find().map_err(|error| at(path, error))
    }

    fn blocks(&self, path: &Path, state: &str, size: u64, dialect: &Dialect) -> io::Result<Blocks> {
        let key = (path.to_path_buf(), state.to_string());
        // Who comes second waits for the first one.
        let mut known = self.known.lock();
        if let Some(blocks) = known.get(&key) {
            return Ok(Arc::clone(blocks));
        }
        let blocks = Arc::new(look_through(path, size, dialect)?);
        if known.len() >= REMEMBERED_FILES {
            known.clear();
        }
        known.insert(key, Arc::clone(&blocks));
        Ok(blocks)
    }
}

/// The states in which a file's blocks begin.
fn look_through(path: &Path, size: u64, dialect: &Dialect) -> io::Result<Vec<State>> {
    let count = usize::try_from(size.div_ceil(BLOCK_BYTES as u64)).map_err(io::Error::other)?;
    let next = AtomicUsize::new(0);
    let ends = Mutex::new(vec![STATES; count]);
    let look = || -> io::Result<()> {
        let mut file = File::open(path)?;
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= count {
                return Ok(());
            }
            read_at(&mut file, (block * BLOCK_BYTES) as u64, BLOCK_BYTES, &mut bytes)?;
            let end = ends_of(&bytes, dialect);
            if let Some(place) = ends.lock().get_mut(block) {
                *place = end;
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(look)).collect();
        let own = look();
        let joined = others.into_iter().map(|other| {
            other.join().unwrap_or_else(|_| Err(io::Error::other("a thread that looked for rows broke down")))
        });
        joined.fold(own, |first, other| first.and(other))
    })?;
    let mut state = State::Start;
    let begin = |end: [State; 4]| {
        let here = state;
        state = end[state as usize];
        here
    };
    Ok(ends.into_inner().into_iter().map(begin).collect())
}

fn read_at(file: &mut File, offset: u64, bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    file.seek(SeekFrom::Start(offset))?;
    file.take(bytes as u64).read_to_end(into)?;
    Ok(())
}

/// In which state a block ends that begins in each of the states.
fn ends_of(bytes: &[u8], dialect: &Dialect) -> [State; 4] {
    let Some(last) = bytes.last() else { return STATES };
    if memchr::memchr(dialect.quote, bytes).is_none() {
        let outside = if ends_value(*last, dialect) { State::Start } else { State::Plain };
        return [outside, outside, State::Quoted, outside];
    }
    let start = run(State::Start, bytes, dialect, |_| false).1;
    let quoted = run(State::Quoted, bytes, dialect, |_| false).1;
    // The other two soon stand where one of these does, but few blocks have quotes at both ends: the shorter way is to look again.
    let plain = match memchr::memchr3(dialect.delimiter, b'\n', b'\r', bytes) {
        None => State::Plain,
        Some(end)
            if memchr::memchr(dialect.quote, &bytes[..=end]).is_none() && ends_value(bytes[end], dialect) =>
        {
            start
        }
        Some(end) => run(State::Start, &bytes[end + 1..], dialect, |_| false).1,
    };
    let closing = match bytes[0] {
        quote if quote == dialect.quote => run(State::Quoted, &bytes[1..], dialect, |_| false).1,
        end if ends_value(end, dialect) => start,
        _ => plain,
    };
    [start, plain, quoted, closing]
}

fn ends_value(byte: u8, dialect: &Dialect) -> bool {
    byte == dialect.delimiter || byte == b'\n' || byte == b'\r'
}

/// Goes through bytes; where a row ends with a line feed, `stop` is asked with the place after it. Where it stopped, and the state
/// at the end.
fn run(
    mut state: State,
    bytes: &[u8],
    dialect: &Dialect,
    mut stop: impl FnMut(usize) -> bool,
) -> (Option<usize>, State) {
    let mut place = 0;
    while let Some(byte) = bytes.get(place) {
        match state {
            State::Quoted => {
                let Some(found) = memchr::memchr(dialect.quote, &bytes[place..]) else { break };
                place += found + 1;
                state = State::Closing;
                continue;
            }
            State::Plain => match memchr::memchr3(dialect.delimiter, b'\n', b'\r', &bytes[place..]) {
                None => break,
                Some(found) => place += found,
            },
            State::Start | State::Closing if *byte == dialect.quote => {
                place += 1;
                state = State::Quoted;
                continue;
            }
            State::Start | State::Closing if ends_value(*byte, dialect) => {}
            State::Start | State::Closing => {
                state = State::Plain;
                continue;
            }
        }
        let is_end = bytes[place] == b'\n' && dialect.delimiter != b'\n';
        place += 1;
        state = State::Start;
        if is_end && stop(place) {
            return (Some(place), state);
        }
    }
    (None, state)
}

/// The first row that begins at a byte or after it.
fn next_row(
    file: &mut File,
    (byte, size): (u64, u64),
    blocks: &[State],
    dialect: &Dialect,
) -> io::Result<u64> {
    // A row begins after a line feed, which may be the last byte before.
    let mut block = usize::try_from((byte - 1) / BLOCK_BYTES as u64).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while let Some(state) = blocks.get(block) {
        let offset = (block * BLOCK_BYTES) as u64;
        read_at(file, offset, BLOCK_BYTES, &mut bytes)?;
        let found = run(*state, &bytes, dialect, |place| offset + place as u64 >= byte).0;
        if let Some(found) = found {
            return Ok((offset + found as u64).min(size));
        }
        block += 1;
    }
    Ok(size)
}

/// The first line that begins at a byte or after it.
fn next_line(file: &mut File, byte: u64, size: u64) -> io::Result<u64> {
    let mut offset = byte - 1;
    let mut bytes = Vec::with_capacity(LINE_BYTES);
    while offset < size {
        read_at(file, offset, LINE_BYTES, &mut bytes)?;
        if let Some(found) = memchr::memchr(b'\n', &bytes) {
            return Ok((offset + found as u64 + 1).min(size));
        }
        if bytes.is_empty() {
            break;
        }
        offset += bytes.len() as u64;
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect() -> Dialect {
        Dialect {
            has_header: true,
            delimiter: b',',
            quote: b'"',
            escape: None,
            comment: None,
            terminator: None,
            truncated_rows: false,
        }
    }

    /// Texts of all bytes that matter, each cut everywhere: the parts one after the other end as the whole does.
    #[test]
    fn a_text_ends_as_its_parts_do_one_after_the_other() {
        let letters = [b'a', b'"', b',', b'\n'];
        for number in 0..4_usize.pow(6) {
            let text: Vec<u8> = (0..6).map(|place| letters[number / 4_usize.pow(place) % 4]).collect();
            for begin in STATES {
                let whole = run(begin, &text, &dialect(), |_| false).1;
                assert_eq!(ends_of(&text, &dialect())[begin as usize], whole, "{text:?} {begin:?}");
                for cut in 1..text.len() {
                    let middle = ends_of(&text[..cut], &dialect())[begin as usize];
                    assert_eq!(ends_of(&text[cut..], &dialect())[middle as usize], whole, "{text:?} {cut}");
                }
            }
        }
    }
}
