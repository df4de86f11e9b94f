//! The file of `--trace`: when everything happened, in the format of trace events that Perfetto and Chrome open.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Result, bail};
use kelpie_session::trace::{self, Span, Trace, Track};
use serde_json::{Value, json};

use crate::output::ResultFile;

/// What the file is made of when the program ends.
static FILE: Mutex<Option<ResultFile>> = Mutex::new(None);
/// Names of statements are cut here; all of it is in their arguments.
const NAME_LETTERS: usize = 80;

/// Records from now on, for a file. One that cannot be written is an error at once.
pub fn begin(path: &Path) -> Result<()> {
    let file = ResultFile::create(path)?;
    *FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(file);
    trace::begin();
    Ok(())
}

/// Writes what was recorded, if anything was to be.
pub fn finish() -> Result<()> {
    let file = FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let (Some(mut file), Some(trace)) = (file, trace::take()) else { return Ok(()) };
    let mut out = std::io::BufWriter::new(file.begin()?);
    serde_json::to_writer(&mut out, &events(&trace))?;
    if let Err(error) = writeln!(out).and_then(|()| out.flush()) {
        bail!("cannot write the trace: {error}");
    }
    drop(out);
    file.complete()
}

/// A row of the time line, within which no two spans are at the same time.
#[derive(Debug)]
struct Lane<'a> {
    track: Track,
    /// Its number among those of its track.
    number: usize,
    spans: Vec<&'a Span>,
}

/// The trace as an object of trace events.
fn events(trace: &Trace) -> Value {
    let mut events =
        vec![json!({"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "kelpie"}})];
    let lanes = lanes(&trace.spans);
    for (thread, lane) in (1..).zip(&lanes) {
        let name = match lane.number {
            0 => lane.track.name().to_string(),
            more => format!("{} {}", lane.track.name(), more + 1),
        };
        let of_thread = |what: &str, arguments: Value| json!({"ph": "M", "pid": 1, "tid": thread, "name": what, "args": arguments});
        events.push(of_thread("thread_name", json!({"name": name})));
        events.push(of_thread("thread_sort_index", json!({"sort_index": thread})));
    }
    let threads = (1..).zip(&lanes);
    let mut spans: Vec<(i64, &Span)> =
        threads.flat_map(|(thread, lane)| lane.spans.iter().map(move |span| (thread, *span))).collect();
    spans.sort_by_key(|(thread, span)| (span.start_ns, *thread));
    events.extend(spans.into_iter().map(|(thread, span)| event(thread, span)));
    json!({
        "displayTimeUnit": "ms",
        "otherData": {"version": env!("CARGO_PKG_VERSION"), "left_out": trace.left_out},
        "traceEvents": events,
    })
}

/// A span from its beginning to its end, in microseconds.
fn event(thread: i64, span: &Span) -> Value {
    let mut arguments = serde_json::Map::new();
    if let Some(bytes) = span.bytes {
        arguments.insert("bytes".into(), bytes.into());
    }
    let line = span.name.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut name: String = line.chars().take(NAME_LETTERS).collect();
    if name.len() < line.len() {
        name.push('…');
    }
    if name != span.name {
        arguments.insert("all".into(), span.name.clone().into());
    }
    let microseconds = |time_ns: u64| time_ns as f64 / 1e3;
    json!({
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "cat": span.track.name(),
        "name": name,
        "ts": microseconds(span.start_ns),
        "dur": microseconds(span.end_ns - span.start_ns),
        "args": arguments,
    })
}

/// The spans in lanes. What is at the same time as another of its track comes into a further lane.
fn lanes(spans: &[Span]) -> Vec<Lane<'_>> {
    let mut by_track: BTreeMap<Track, Vec<&Span>> = BTreeMap::new();
    spans.iter().for_each(|span| by_track.entry(span.track).or_default().push(span));
    let mut lanes = Vec::new();
    for (track, mut spans) in by_track {
        // What has others within it begins before them, or ends after them.
        spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
        let first = lanes.len();
        for span in spans {
            let is_free = |lane: &Lane<'_>| lane.spans.last().is_none_or(|last| last.end_ns <= span.start_ns);
            match lanes[first..].iter_mut().find(|lane| is_free(lane)) {
                Some(lane) => lane.spans.push(span),
                None => lanes.push(Lane { track, number: lanes.len() - first, spans: vec![span] }),
            }
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(track: Track, name: &str, start_ns: u64, end_ns: u64) -> Span {
        Span { track, name: name.into(), start_ns, end_ns, bytes: None }
    }

    #[test]
    fn what_is_at_the_same_time_is_in_lanes_of_its_own() {
        let spans = [
            span(Track::Planning, "within", 1_500, 2_000),
            span(Track::Planning, "plan", 1_000, 3_000),
            span(Track::Kernels, "k", 3_000, 4_250),
            span(Track::Planning, "next", 3_000, 3_000),
            span(Track::Statements, "select 'ü'\n  from t", 0, 5_000),
        ];
        let shown = events(&Trace { spans: spans.into(), left_out: 2 });
        let all = shown["traceEvents"].as_array().unwrap();
        let names = all.iter().filter(|event| event["name"] == "thread_name");
        let names: Vec<&str> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["statements", "planning", "planning 2", "kernels"]);
        let spans: Vec<_> = all.iter().filter(|event| event["ph"] == "X").collect();
        let told = |place: usize| {
            let event = spans[place];
            (event["name"].as_str().unwrap(), event["tid"].as_i64().unwrap(), event["dur"].as_f64().unwrap())
        };
        assert_eq!(told(0), ("select 'ü' from t", 1, 5.0));
        assert_eq!(spans[0]["args"]["all"], "select 'ü'\n  from t");
        assert_eq!((told(1), told(2)), (("plan", 2, 2.0), ("within", 3, 0.5)));
        assert_eq!((told(3), told(4)), (("next", 2, 0.0), ("k", 4, 1.25)));
        assert_eq!(shown["otherData"]["left_out"], 2);
    }
}
