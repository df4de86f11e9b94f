//! Regular expressions as tables: a minimal DFA over the bytes of UTF-8 text that finds whether there is a match
//! anywhere, with the syntax and meaning of the `regex` crate, which DataFusion uses.
//!
//! `regex-automata` makes the states; here they are explored to the end, minimised (Moore's partition refinement), and
//! laid out for a kernel: `next = table[state + class(byte)]`, with the end of the text as one more class.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use regex_automata::Anchored;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::look::Look;
use regex_automata::util::{start, syntax};

use crate::unsupported::Unsupported;

/// States that are explored, at most.
const STATE_LIMIT: usize = 2048;
/// Bytes of the NFA, at most.
const NFA_LIMIT_BYTES: usize = 1 << 20;
/// Bytes of the explored states: enough for the limit, as nothing may be forgotten.
const CACHE_BYTES: usize = 64 << 20;

/// No match from here on.
pub(crate) const DEAD: u16 = 0;
/// There is a match.
pub(crate) const MATCH: u16 = 1;
/// A word boundary beside text beyond ASCII: not known to the table.
pub(crate) const UNKNOWN: u16 = 2;
/// Smaller states are the three above.
pub(crate) const FIRST: u16 = 3;

/// Patterns whose automata are kept.
const KEPT_PATTERNS: usize = 64;

/// The automata made last, as many queries ask for the same ones again and the classes of Unicode take long; a pattern
/// that is not compiled is kept with its reason.
static KEPT: Mutex<VecDeque<(String, Result<Regex, Unsupported>)>> = Mutex::new(VecDeque::new());

/// A compiled regular expression. Equal where pattern and flags are, and printed as these alone.
#[derive(Clone)]
pub struct Regex {
    /// The pattern, with its flags as `(?flags)` in front.
    pub pattern: String,
    /// Class of each byte.
    pub(crate) classes: Arc<[u8]>,
    /// Successors as little-endian `u16`: those of state `s` begin at element `s`, one a class, then the end's.
    pub(crate) table: Arc<[u8]>,
    /// The state before the first byte.
    pub(crate) start: u16,
    /// The class of the end of the text.
    pub(crate) end_class: u16,
    /// Whether [`UNKNOWN`] can be reached.
    pub(crate) can_fail: bool,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for Regex {}

impl Hash for Regex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pattern.hash(state);
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Regex").field(&self.pattern).finish()
    }
}

impl Regex {
    /// Compiles a pattern with flags (of `imsRUx`), or says why not.
    pub fn new(pattern: &str, flags: &str) -> Result<Regex, Unsupported> {
        let pattern = match flags {
            "" => pattern.to_string(),
            flags => format!("(?{flags}){pattern}"),
        };
        let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = kept().iter().find(|(known, _)| *known == pattern) {
            return known.clone();
        }
        let made = Regex::make(pattern.clone());
        let mut kept = kept();
        if kept.len() == KEPT_PATTERNS {
            kept.pop_front();
        }
        kept.push_back((pattern, made.clone()));
        made
    }

    fn make(pattern: String) -> Result<Regex, Unsupported> {
        let dfa = match build(&pattern) {
            Ok(dfa) => dfa,
            Err(error) => {
                return Err(Unsupported(format!(
                    "the regular expression '{pattern}' is not compiled: {error}"
                )));
            }
        };
        match explore(&dfa) {
            Some(states) => Ok(states.minimise().into_regex(pattern, &dfa)).and_then(check_size),
            None => Err(Unsupported(format!("the regular expression '{pattern}' has too many states"))),
        }
    }

    /// The expression that ILIKE with this pattern is: a match ignores case as Unicode has it, and `_` is one character.
    pub fn ilike(pattern: &str) -> Result<Regex, Unsupported> {
        let mut expression = String::from("^");
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            match character {
                '%' => expression.push_str(".*"),
                '_' => expression.push('.'),
                // A backslash at the end stands for itself.
                '\\' => push_literal(&mut expression, characters.next().unwrap_or('\\')),
                other => push_literal(&mut expression, other),
            }
        }
        expression.push('$');
        Regex::new(&expression, "is")
    }
}

fn push_literal(expression: &mut String, character: char) {
    if character.is_ascii_punctuation() {
        expression.push('\\');
    }
    expression.push(character);
}

fn check_size(regex: Regex) -> Result<Regex, Unsupported> {
    match regex.table.len() / 2 <= usize::from(u16::MAX) {
        true => Ok(regex),
        false => Err(Unsupported(format!("the regular expression '{}' has too many states", regex.pattern))),
    }
}

fn build(pattern: &str) -> Result<DFA, String> {
    let config = DFA::config()
        .unicode_word_boundary(true)
        .cache_capacity(CACHE_BYTES)
        .minimum_cache_clear_count(Some(0));
    let dfa = DFA::builder()
        .configure(config)
        .syntax(syntax::Config::new())
        .thompson(thompson::Config::new().nfa_size_limit(Some(NFA_LIMIT_BYTES)))
        .build(pattern)
        .map_err(|error| innermost(&error))?;
    // These hold inside of a character too, where a match must not be.
    let inside = [Look::WordAsciiNegate, Look::WordStartHalfAscii, Look::WordEndHalfAscii];
    let looks = dfa.get_nfa().look_set_any();
    match inside.into_iter().any(|look| looks.contains(look)) {
        true => Err("a boundary inside of characters".into()),
        false => Ok(dfa),
    }
}

/// What an error says in the end: the last line of its last source.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string().lines().last().unwrap_or_default().to_string()
}

/// States by number, the three special ones first: their successors, one a class of bytes, and at the end of the text.
struct States {
    pub(crate) start: usize,
    successors: Vec<Vec<usize>>,
    /// A special state.
    at_end: Vec<usize>,
}

fn class_bytes(dfa: &DFA) -> Vec<u8> {
    dfa.byte_classes().representatives(0..=255).filter_map(|unit| unit.as_u8()).collect()
}

/// The number of a special state.
fn special(state: LazyStateID) -> Option<u16> {
    match state {
        state if state.is_dead() => Some(DEAD),
        state if state.is_match() => Some(MATCH),
        state if state.is_quit() => Some(UNKNOWN),
        _ => None,
    }
}

/// Every state that can be reached; `None` where there are too many.
fn explore(dfa: &DFA) -> Option<States> {
    let mut cache = Cache::new(dfa);
    let bytes = class_bytes(dfa);
    let start = dfa.start_state(&mut cache, &start::Config::new().anchored(Anchored::No)).ok()?;
    let mut numbers: HashMap<LazyStateID, usize> = HashMap::new();
    let mut open: Vec<LazyStateID> = Vec::new();
    let mut number_of = |state: LazyStateID, open: &mut Vec<LazyStateID>| match special(state) {
        Some(special) => usize::from(special),
        None => *numbers.entry(state).or_insert_with(|| {
            open.push(state);
            open.len() - 1 + usize::from(FIRST)
        }),
    };
    let mut at_end: Vec<usize> = (0..usize::from(FIRST)).collect();
    let mut successors: Vec<Vec<usize>> = at_end.iter().map(|state| vec![*state; bytes.len()]).collect();
    let start = number_of(start, &mut open);
    let mut explored = 0;
    while let Some(state) = open.get(explored).copied() {
        if explored == STATE_LIMIT {
            return None;
        }
        let mut row = Vec::with_capacity(bytes.len());
        for byte in &bytes {
            let next = dfa.next_state(&mut cache, state, *byte).ok()?;
            row.push(number_of(next, &mut open));
        }
        successors.push(row);
        let end = dfa.next_eoi_state(&mut cache, state).ok()?;
        at_end.push(special(end).unwrap_or(DEAD).into());
        explored += 1;
    }
    Some(States { start, successors, at_end })
}

impl States {
    /// Merges states that no text tells apart.
    fn minimise(self) -> States {
        let mut parts = self.at_end.clone();
        let mut count = usize::from(FIRST);
        loop {
            let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
            let rows = self.successors.iter().zip(&parts);
            let refined: Vec<usize> = rows
                .map(|(row, own)| {
                    let signature = std::iter::once(*own).chain(row.iter().map(|next| parts[*next]));
                    let number = known.len();
                    // The special states come first, and so keep their numbers.
                    *known.entry(signature.collect()).or_insert(number)
                })
                .collect();
            let refined_count = known.len();
            parts = refined;
            if refined_count == count {
                break;
            }
            count = refined_count;
        }
        let mut successors = vec![Vec::new(); count];
        let mut at_end = vec![0; count];
        for (state, part) in parts.iter().enumerate() {
            successors[*part] = self.successors[state].iter().map(|next| parts[*next]).collect();
            at_end[*part] = self.at_end[state];
        }
        States { start: parts[self.start], successors, at_end }
    }

    /// Lays the table out, with one class for bytes that always lead to the same states.
    fn into_regex(self, pattern: String, dfa: &DFA) -> Regex {
        let first = usize::from(FIRST);
        let rows = &self.successors[first..];
        let mut columns: HashMap<Vec<usize>, u8> = HashMap::new();
        let mut kept: Vec<usize> = Vec::new();
        let merged: Vec<u8> = (0..class_bytes(dfa).len())
            .map(|class| {
                *columns.entry(rows.iter().map(|row| row[class]).collect()).or_insert_with(|| {
                    kept.push(class);
                    (kept.len() - 1) as u8
                })
            })
            .collect();
        let classes = (0..=255).map(|byte| merged[usize::from(dfa.byte_classes().get(byte))]).collect();
        let stride = kept.len() + 1;
        let place = |state: usize| match state.checked_sub(first) {
            Some(index) => first + index * stride,
            None => state,
        };
        let mut table: Vec<usize> = vec![0; first];
        for (row, at_end) in rows.iter().zip(&self.at_end[first..]) {
            table.extend(kept.iter().map(|class| place(row[*class])));
            table.push(*at_end);
        }
        let can_fail = table.contains(&usize::from(UNKNOWN));
        let table = table.into_iter().flat_map(|next| (next as u16).to_le_bytes()).collect();
        let (start, end_class) = (place(self.start) as u16, kept.len() as u16);
        Regex { pattern, classes, table, start, end_class, can_fail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(regex: &Regex, text: &str) -> u16 {
        let at = |place: u16| {
            let place = usize::from(place) * 2;
            u16::from_le_bytes([regex.table[place], regex.table[place + 1]])
        };
        let mut state = regex.start;
        for byte in text.bytes() {
            if state < FIRST {
                return state;
            }
            state = at(state + u16::from(regex.classes[usize::from(byte)]));
        }
        if state < FIRST { state } else { at(state + regex.end_class) }
    }

    #[test]
    fn tables_find_what_there_is() {
        let cases: [(&str, &str, &[&str], &[&str]); 14] = [
            ("", "", &["", "a"], &[]),
            ("abc", "", &["abc", "xabcx", "ababc"], &["", "ab", "acb"]),
            ("^abc$", "", &["abc"], &["xabc", "abcx", "abc\n"]),
            ("a.c", "", &["abc", "a\u{e9}c", "a\u{1f600}c"], &["ac", "a\nc"]),
            ("a.c", "s", &["a\nc"], &["ac"]),
            ("straße", "i", &["STRAßE", "straße"], &["strasse"]),
            ("k", "i", &["K", "\u{212a}"], &["x"]),
            (r"\d+-\w*$", "", &["12-", "x3-é_"], &["-", "3-!"]),
            ("[^a-y]+", "", &["z", "é"], &["", "abc"]),
            ("(foo|bar){2}", "", &["foobar", "xbarbar"], &["foo", "foxbar"]),
            (r"^\s*$", "", &["", " \t\u{3000}"], &["a"]),
            (r"(?m)^b$", "", &["b", "a\nb\nc"], &["ab", "b a"]),
            ("^[\\s\\S]*$", "", &["", "a\n"], &[]),
            (r"\bcat\b", "", &["cat", "a cat."], &["concat", "cats", ""]),
        ];
        for (pattern, flags, yes, no) in cases {
            let regex = Regex::new(pattern, flags).unwrap();
            yes.iter().for_each(|text| assert_eq!(run(&regex, text), MATCH, "{pattern} in {text:?}"));
            no.iter().for_each(|text| assert_eq!(run(&regex, text), DEAD, "{pattern} in {text:?}"));
        }
    }

    #[test]
    fn tables_are_minimal() {
        // One state before each byte of the literal.
        let regex = Regex::new("abcd", "").unwrap();
        assert_eq!((regex.table.len() / 2 - 3, regex.end_class, regex.can_fail), (4 * 6, 5, false));
        // Every text matches, and is not read.
        assert_eq!(Regex::new(".*", "s").unwrap().start, MATCH);
        assert_eq!(Regex::new("[a&&b]", "").unwrap().start, DEAD);
    }

    #[test]
    fn word_boundaries_beside_text_beyond_ascii_are_unknown() {
        let regex = Regex::new(r"\bcat", "").unwrap();
        assert!(regex.can_fail);
        assert_eq!(run(&regex, "\u{e9}cat"), UNKNOWN);
        assert_eq!(run(&regex, "cat \u{e9}"), MATCH);
    }

    #[test]
    fn what_is_not_compiled_has_a_reason() {
        for (pattern, word) in [
            ("(", "unclosed group"),
            (r"(a)\1", "backreferences"),
            ("(?=a)", "look-around"),
            (r"[01]*1[01]{14}", "too many states"),
            (r"\w{2000}", "exceeded limit"),
            (r"(?-u:\B)", "boundary"),
        ] {
            let Unsupported(reason) = Regex::new(pattern, "").unwrap_err();
            assert!(reason.contains(word) && !reason.contains('\n'), "{pattern}: {reason}");
        }
        assert!(Regex::new("a", "g").is_err());
    }

    #[test]
    fn automata_are_kept_and_print_as_their_pattern() {
        let (first, second) = (Regex::new(r"\w+\s", "").unwrap(), Regex::new(r"\w+\s", "").unwrap());
        assert!(Arc::ptr_eq(&first.table, &second.table), "the second one is the first one");
        assert_eq!(format!("{first:?}"), r#"Regex("\\w+\\s")"#);
        for number in 0..2 * KEPT_PATTERNS {
            Regex::new(&format!("a{number}"), "").unwrap();
        }
        assert!(KEPT.lock().unwrap().len() <= KEPT_PATTERNS);
    }

    #[test]
    fn ilike_is_an_expression() {
        let regex = Regex::ilike("%a_.\\%b%").unwrap();
        assert_eq!(run(&regex, "xA\u{e9}.%Bx"), MATCH);
        assert_eq!(run(&regex, "xA\u{e9}.%"), DEAD);
        assert_eq!(run(&regex, "xA\u{e9}x%b"), DEAD);
        assert_eq!(run(&Regex::ilike("a\\").unwrap(), "A\\"), MATCH);
        assert_eq!(run(&Regex::ilike("\u{e9}%").unwrap(), "\u{c9}tat"), MATCH);
    }
}
