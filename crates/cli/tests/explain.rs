//! What `kelpie explain`, EXPLAIN ANALYZE and `--trace` show of a query.

use std::collections::BTreeMap;
use std::fs;

use crate::program::{file, kelpie, tpch};

const GROUPED: &str = "select l_returnflag, count(*), sum(l_quantity) from lineitem group by l_returnflag";
const JOINED: &str = "select n_name, sum(l_extendedprice) as s from lineitem join supplier on l_suppkey = s_suppkey \
                      join nation on s_nationkey = n_nationkey where l_discount > 0.02 group by n_name order by s desc";

#[test]
fn explain_analyze_shows_pipelines_first() {
    let analyzed = format!("explain analyze {GROUPED}");
    let rows = kelpie(&["--data", tpch(), "--device", "cpu", "--format", "json", "-c", &analyzed]).ok();
    let rows: Vec<serde_json::Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows[0]["plan_type"], "Pipelines");
    let text = rows[0]["plan"].as_str().unwrap();
    assert!(text.starts_with("kernels took ") && text.contains(" on cpu"), "{text}");
    assert!(text.contains("\n  0 ") && text.contains("scan lineitem.parquet → "), "{text}");
    for fact in ["rows in ", "rows out 3", "read ", "written ", " GB/s (", "launches "] {
        assert!(text.contains(fact), "{fact}: {text}");
    }
    // Reasons are for who asks.
    assert!(!text.contains("aggregate0."), "{text}");
    assert_eq!(rows[1]["plan_type"], "Plan with Metrics");
    let verbose = format!("explain analyze verbose {GROUPED}");
    let rows = kelpie(&["--data", tpch(), "--device", "cpu", "--format", "json", "-c", &verbose]).ok();
    assert!(rows.lines().next().unwrap().contains("aggregate0."), "{rows}");
    // What is not compiled at all says so in its plan alone.
    let other = "explain analyze select approx_median(l_quantity) from lineitem";
    let rows = kelpie(&["--data", tpch(), "--format", "json", "-c", other]).ok();
    assert!(!rows.contains("Pipelines") && rows.contains("approx_median is not compiled"), "{rows}");
}

#[test]
fn explain_analyzes_as_text() {
    let both = format!("{JOINED}; select approx_median(l_quantity) from lineitem; set kelpie.threads = 2");
    let text = kelpie(&["explain", "--analyze", "--data", tpch(), "--device", "cpu", "-c", &both]).ok();
    assert!(
        text.contains("time: plan ") && text.contains(" (after 0)\n") && text.contains(" (after 1)\n"),
        "{text}"
    );
    assert!(
        text.contains("nothing was compiled")
            && text.contains("\nnot compiled: AggregateExec: approx_median"),
        "{text}"
    );
    let times: Vec<&str> = text.lines().filter(|line| line.starts_with("kernels took")).collect();
    assert_eq!(times.len(), 1, "{text}");
    kelpie(&["explain", "--analyze", "-c", "select nope"]).fails_with(&["nope"]);
    kelpie(&["explain", "--analyze", "-c", " ; "]).fails_with(&["no statement"]);
}

#[test]
fn every_stage_shows_a_gpu_that_is_not_there() {
    let explain = |stage| {
        kelpie(&["explain", "--stage", stage, "--device", "cuda", "--data", tpch(), "-c", JOINED]).ok()
    };
    assert!(explain("plan").contains("KelpieExec"));
    let code = explain("code");
    assert!(code.contains("__global__") && code.contains("__launch_bounds__"), "{code}");
    let kir = explain("kir");
    assert!(kir.contains("-- pipeline 0: scan nation.parquet"), "{kir}");
    assert!(explain("pipelines").contains("-- variant "));
    assert!(explain("variants").contains(" choices, "));
    // The code of a later stage too.
    let stages =
        "select sum(l_suppkey) from (select l_suppkey from lineitem order by l_extendedprice limit 50) t";
    let code =
        kelpie(&["explain", "--stage", "code", "--device", "cuda", "--data", tpch(), "-c", stages]).ok();
    assert!(code.matches("-- pipeline 0: ").count() == 2, "{code}");
}

#[test]
fn a_page_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page ü.html");
    let path = path.to_str().unwrap();
    let hostile = "select '<script>alert(1)</script>' as \"<b>\", n_name || 'ü漢' as \"a\"\"b\" from nation where n_name <> '</pre><script>'";
    let statements = format!(
        "{JOINED}; {hostile}; select approx_median(l_quantity) from lineitem; set kelpie.threads = 2"
    );
    let run = kelpie(&["explain", "--html", path, "--data", tpch(), "--device", "cpu", "-c", &statements]);
    assert_eq!(run.ok(), "");
    let page = fs::read_to_string(path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<section>").count(), 4);
    assert!(page.contains("<svg ") && page.contains("Code of the kernels") && page.contains("approx_median"));
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;") && page.contains("ü漢"));
    assert!(!page.contains("http:") && !page.contains("https:"), "nothing is loaded");
    for element in ["section", "details", "table", "svg", "pre", "ul", "div", "g"] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    // An old page stays where a new one fails.
    kelpie(&["explain", "--html", path, "-c", "select nope"]).fails_with(&["nope"]);
    assert_eq!(fs::read_to_string(path).unwrap(), page);
    kelpie(&["explain", "--html", "/no/such/folder/x.html", "-c", "select 1"])
        .fails_with(&["/no/such/folder/x.html"]);
}

/// The spans of a file of `--trace`, in its order: lane, name, start and length in microseconds.
fn spans(path: &str) -> Vec<(String, String, f64, f64)> {
    let trace: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ms");
    let events = trace["traceEvents"].as_array().unwrap();
    let mut lanes = BTreeMap::new();
    let mut spans = Vec::new();
    for event in events {
        assert_eq!(event["pid"], 1, "{event}");
        let thread = event["tid"].as_i64().unwrap();
        match (event["ph"].as_str().unwrap(), event["name"].as_str().unwrap()) {
            ("M", "thread_name") => {
                lanes.insert(thread, event["args"]["name"].as_str().unwrap().to_string());
            }
            ("M", _) => {}
            ("X", name) => {
                let number = |key: &str| event[key].as_f64().unwrap();
                spans.push((lanes[&thread].clone(), name.to_string(), number("ts"), number("dur")));
            }
            other => panic!("{other:?}"),
        }
    }
    spans
}

#[test]
fn a_trace_shows_when_everything_happened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let path = path.to_str().unwrap();
    let sql = format!("{JOINED}; {GROUPED}; {GROUPED}; select nope");
    let run = kelpie(&["--trace", path, "--timing", "--data", tpch(), "--device", "cpu", "-c", &sql]);
    assert_eq!(run.code, Some(1));
    let spans = spans(path);
    let of = |track: &str| {
        let all = spans.iter().filter(|span| span.0 == track || span.0.starts_with(&format!("{track} ")));
        all.cloned().collect::<Vec<_>>()
    };
    for track in ["statements", "planning", "compiling", "reading", "copies", "kernels", "host"] {
        assert!(!of(track).is_empty(), "{track}: {spans:?}");
    }
    // The statement that failed as well.
    assert_eq!(of("statements").len(), 4);
    assert!(of("statements")[0].1.starts_with("select n_name"), "{spans:?}");
    assert!(of("kernels").iter().any(|span| span.1.starts_with("scan lineitem.parquet → ")), "{spans:?}");
    assert!(spans.windows(2).all(|pair| pair[0].2 <= pair[1].2), "sorted");
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    for (lane, name, start, length) in &spans {
        let end = ends.entry(lane).or_default();
        // Microseconds are rounded to nanoseconds.
        assert!(*start >= *end - 0.002 && *length >= 0.0, "{lane}: {name} at {start} after {end}");
        *end = start + length;
    }
    // As much time in kernels as the metrics say.
    let told = run.err.lines().filter_map(|line| line.split(", kernels ").nth(1)?.split(',').next());
    let told: f64 = told.map(|time| time.trim().parse::<f64>().unwrap()).sum();
    let traced: f64 = of("kernels").iter().map(|span| span.3).sum::<f64>() / 1e3;
    assert!((traced - told).abs() <= 0.1 * told + 0.1, "{traced} ms traced, {told} ms told: {}", run.err);
    kelpie(&["--trace", "/no/such/folder/t.json", "-c", "select 1"]).fails_with(&["/no/such/folder/t.json"]);
    let sum = file(&folder, "a.csv", "x\n1\n");
    let only = folder.path().join("explain.json");
    kelpie(&[
        "explain",
        "--analyze",
        "--trace",
        only.to_str().unwrap(),
        "--data",
        &sum,
        "-c",
        "select sum(x) from a",
    ])
    .ok();
    assert!(!self::spans(only.to_str().unwrap()).is_empty());
}
