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

use parking_lot::Mutex;

/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes in which the end of a line is looked for at once.
const LINE_BYTES: usize = 1 << 14;
/// Files whose blocks are remembered.
const REMEMBERED_FILES: usize = 1000;

/// What says where values begin and end; nothing else does, such as escapes and comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoting {
    /// What stands between values.
    pub delimiter: u8,
    /// What stands around values that contain it, or ends of lines.
    pub quote: u8,
}

/// A range of a file's bytes, in a file of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Bytes of the file.
    pub size: u64,
    /// Its first byte.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

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

/// Follows a text from the beginning of a row on, to tell whether it ends within quotes.
#[derive(Debug)]
pub struct OpenQuotes {
    quoting: Quoting,
    state: State,
}

impl OpenQuotes {
    /// Before the first byte of a row.
    pub fn new(quoting: Quoting) -> OpenQuotes {
        OpenQuotes { quoting, state: State::Start }
    }

    /// Goes on over the next bytes.
    pub fn see(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.state = match (self.state, memchr::memchr(self.quoting.quote, bytes)) {
            (State::Quoted, None) => State::Quoted,
            (_, None) if ends_value(*last, self.quoting) => State::Start,
            (_, None) => State::Plain,
            (state, Some(_)) => run(state, bytes, self.quoting, |_| false).1,
        };
    }

    /// Whether what comes next is within quotes.
    pub fn is_open(&self) -> bool {
        self.state == State::Quoted
    }
}

/// The states in which the blocks of a file begin.
type Blocks = Arc<Vec<State>>;

/// Blocks of files that were looked through.
#[derive(Debug, Default)]
pub struct RowStarts {
    known: Mutex<HashMap<(PathBuf, String), Blocks>>,
}

impl RowStarts {
    /// Where the rows begin and end that begin within a range of a file; `state` tells the file from others that were there under
    /// its name. Without quotes every line is a row.
    pub fn between(
        &self,
        path: &Path,
        state: &str,
        range: ByteRange,
        quoting: Option<Quoting>,
    ) -> io::Result<(u64, u64)> {
        let ByteRange { size, start, end } = range;
        let mut file = File::open(path)?;
        let blocks = match quoting {
            // What is read as a whole needs no look.
            Some(quoting) if start > 0 || end < size => {
                Some((quoting, self.blocks(path, state, size, quoting)?))
            }
            _ => None,
        };
        let mut row_from = |byte: u64| match (byte, &blocks) {
            (0, _) => Ok(0),
            (byte, _) if byte >= size => Ok(size),
            (byte, Some((quoting, blocks))) => next_row(&mut file, (byte, size), blocks, *quoting),
            (byte, None) => next_line(&mut file, byte, size),
        };
        Ok((row_from(start)?, row_from(end)?))
    }

    fn blocks(&self, path: &Path, state: &str, size: u64, quoting: Quoting) -> io::Result<Blocks> {
        let key = (path.to_path_buf(), state.to_string());
        // Who comes second waits for the first one.
        let mut known = self.known.lock();
        if let Some(blocks) = known.get(&key) {
            return Ok(Arc::clone(blocks));
        }
        let blocks = Arc::new(look_through(path, size, quoting)?);
        if known.len() >= REMEMBERED_FILES {
            known.clear();
        }
        known.insert(key, Arc::clone(&blocks));
        Ok(blocks)
    }
}

/// The states in which a file's blocks begin.
fn look_through(path: &Path, size: u64, quoting: Quoting) -> io::Result<Vec<State>> {
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
            let end = ends_of(&bytes, quoting);
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
fn ends_of(bytes: &[u8], quoting: Quoting) -> [State; 4] {
    let Some(last) = bytes.last() else { return STATES };
    if memchr::memchr(quoting.quote, bytes).is_none() {
        let outside = if ends_value(*last, quoting) { State::Start } else { State::Plain };
        return [outside, outside, State::Quoted, outside];
    }
    let start = run(State::Start, bytes, quoting, |_| false).1;
    let quoted = run(State::Quoted, bytes, quoting, |_| false).1;
    // The other two soon stand where one of these does, but few blocks have quotes at both ends: the shorter way is to look again.
    let plain = match memchr::memchr3(quoting.delimiter, b'\n', b'\r', bytes) {
        None => State::Plain,
        Some(end)
            if memchr::memchr(quoting.quote, &bytes[..=end]).is_none() && ends_value(bytes[end], quoting) =>
        {
            start
        }
        Some(end) => run(State::Start, &bytes[end + 1..], quoting, |_| false).1,
    };
    let closing = match bytes[0] {
        quote if quote == quoting.quote => run(State::Quoted, &bytes[1..], quoting, |_| false).1,
        end if ends_value(end, quoting) => start,
        _ => plain,
    };
    [start, plain, quoted, closing]
}

fn ends_value(byte: u8, quoting: Quoting) -> bool {
    byte == quoting.delimiter || byte == b'\n' || byte == b'\r'
}

/// Goes through bytes; where a row ends with a line feed, `stop` is asked with the place after it. Where it stopped, and the state
/// at the end.
fn run(
    mut state: State,
    bytes: &[u8],
    quoting: Quoting,
    mut stop: impl FnMut(usize) -> bool,
) -> (Option<usize>, State) {
    let mut place = 0;
    while let Some(byte) = bytes.get(place) {
        match state {
            State::Quoted => {
                let Some(found) = memchr::memchr(quoting.quote, &bytes[place..]) else { break };
                place += found + 1;
                state = State::Closing;
                continue;
            }
            State::Plain => match memchr::memchr3(quoting.delimiter, b'\n', b'\r', &bytes[place..]) {
                None => break,
                Some(found) => place += found,
            },
            State::Start | State::Closing if *byte == quoting.quote => {
                place += 1;
                state = State::Quoted;
                continue;
            }
            State::Start | State::Closing if ends_value(*byte, quoting) => {}
            State::Start | State::Closing => {
                state = State::Plain;
                continue;
            }
        }
        let is_end = bytes[place] == b'\n' && quoting.delimiter != b'\n';
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
    quoting: Quoting,
) -> io::Result<u64> {
    // A row begins after a line feed, which may be the last byte before.
    let mut block = usize::try_from((byte - 1) / BLOCK_BYTES as u64).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while let Some(state) = blocks.get(block) {
        let offset = (block * BLOCK_BYTES) as u64;
        read_at(file, offset, BLOCK_BYTES, &mut bytes)?;
        let found = run(*state, &bytes, quoting, |place| offset + place as u64 >= byte).0;
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

    fn quoting() -> Quoting {
        Quoting { delimiter: b',', quote: b'"' }
    }

    /// Texts of all bytes that matter, each cut everywhere: the parts one after the other end as the whole does.
    #[test]
    fn a_text_ends_as_its_parts_do_one_after_the_other() {
        let letters = [b'a', b'"', b',', b'\n'];
        for number in 0..4_usize.pow(6) {
            let text: Vec<u8> = (0..6).map(|place| letters[number / 4_usize.pow(place) % 4]).collect();
            for begin in STATES {
                let whole = run(begin, &text, quoting(), |_| false).1;
                assert_eq!(ends_of(&text, quoting())[begin as usize], whole, "{text:?} {begin:?}");
                for cut in 1..text.len() {
                    let middle = ends_of(&text[..cut], quoting())[begin as usize];
                    assert_eq!(ends_of(&text[cut..], quoting())[middle as usize], whole, "{text:?} {cut}");
                }
            }
        }
    }
}
