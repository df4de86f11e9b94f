//! Every experiment on a little data: findings as JSON and as a plot.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use kelpie_kir::testing::sample::sample;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{kelpie, names, workloads};

/// Runs an experiment; its findings and its plot, which stand in a folder then.
fn experiment(folder: &Path, name: &str, more: &[&str]) -> (Value, String) {
    let mut arguments = vec!["experiment", name, "--output", folder.to_str().unwrap()];
    arguments.extend(["--device", "cpu", "--runs", "2", "--threads", "2"]);
    if !more.contains(&"--data") {
        arguments.extend(["--data", workloads(), "--scale", "0.01"]);
    }
    arguments.extend(more);
    kelpie(&arguments).ok();
    let file = |ending: &str| fs::read_to_string(folder.join(format!("{name}.{ending}"))).unwrap();
    (serde_json::from_str(&file("json")).unwrap(), file("svg"))
}

/// The points of a series.
fn series<'a>(findings: &'a Value, name: &str) -> Vec<&'a Value> {
    let points = findings["points"].as_array().unwrap().iter();
    points.filter(|point| point["series"] == name).collect()
}

/// The number of a field of every point.
fn numbers(points: &[&Value], field: &str) -> Vec<f64> {
    points.iter().map(|point| point[field].as_f64().unwrap_or_else(|| panic!("{field}: {point}"))).collect()
}

/// Runs an experiment, whose findings have so many points of each of these models.
fn check(folder: &Path, name: &str, more: &[&str], models: &[&str], points: usize) {
    let (findings, plot) = experiment(folder, name, more);
    assert_eq!(findings["experiment"], name);
    assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
    assert!(findings["device"]["memory_gb_per_s"].as_f64().unwrap() > 0.0, "{findings}");
    assert!(findings["data"][0]["tables"].as_object().unwrap().len() >= 5, "{findings}");
    for model in models {
        let found = series(&findings, model);
        assert_eq!(found.len(), points, "{name}, {model}: {findings}");
        if *model == "datafusion" {
            assert!(numbers(&found, "total_ms").iter().all(|ms| *ms > 0.0));
            continue;
        }
        for field in ["passes", "input_bytes", "output_bytes", "link_ms", "memory_bound_ms"] {
            assert!(numbers(&found, field).iter().all(|value| *value >= 0.0), "{name}: {field}");
        }
        for point in found {
            let read = |part: &str| point["accessed"][part]["read"].as_u64().unwrap();
            assert!(read("input") + read("link") > 0, "{name}: {point}");
            if name != "table-1" {
                assert!(point["kernel_ms"].as_f64().unwrap() > 0.0, "{name}: {point}");
                assert_eq!(point["total_runs_ms"].as_array().unwrap().len(), 2);
            }
        }
        assert!(plot.contains(&format!(">{model}<")), "{name}: {model}");
    }
    assert!(plot.starts_with("<svg") && !plot.contains("NaN"), "{name}");
}

#[test]
fn micro_models_give_findings_and_plots() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name, only, models: &[&str], points| {
        check(folder.path(), name, &["--only", only], models, points);
    };
    check("horseqc-1", "0,0.5", &["multi_pass", "pipelined", "resolution:simd"], 2);
    check("horseqc-2", "2,512", &["operator_at_a_time", "pipelined"], 2);
    check("horseqc-3", "1.1,3.1", &["operator_at_a_time", "multi_pass", "resolution:simd"], 2);
    check("single-aggregate", "0.1,1", &["multi_pass", "resolution:work_efficient"], 2);
}

#[test]
fn workloads_give_findings_and_plots() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name, more: &[&str], models: &[&str], points| {
        check(folder.path(), name, more, models, points);
    };
    check("horseqc-4", &["--only", "6"], &["operator_at_a_time", "resolution:simd"], 1);
    let peer = ["--only", "6,14", "--against", "datafusion"];
    check("horseqc-6", &peer, &["kelpie auto", "kelpie batch", "datafusion"], 2);
    check("table-1", &["--only", "ssb 1.1,tpch 6"], &["operator_at_a_time"], 2);
    check("table-3", &["--only", "1.1,3.1"], &["resolution:work_efficient"], 2);
    // What the paper has stands beside.
    let text = fs::read_to_string(folder.path().join("table-1.json")).unwrap();
    let findings: Value = serde_json::from_str(&text).unwrap();
    let paper = series(&findings, "HorseQC's paper (CoGaDB)");
    assert_eq!(numbers(&paper, "passes"), [7.5, 6.2]);
}

#[test]
fn data_are_made_once_a_scale() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = |scales| {
        let more = ["--data", path, "--scale", scales];
        check(folder.path(), "horseqc-5", &more, &["blocks of 0.5MB", "blocks of 8MB"], 2);
    };
    let made = |scale: &str| fs::metadata(folder.path().join(scale)).unwrap().modified().unwrap();
    run("0.01,0.02");
    let before = ["ssb-sf0.01", "ssb-sf0.02"].map(made);
    run("0.02,0.01");
    assert_eq!(["ssb-sf0.01", "ssb-sf0.02"].map(made), before);
    // Only the folders of the scales used are there.
    let mut folders = names(folder.path());
    folders.retain(|name| folder.path().join(name).is_dir());
    assert_eq!(folders, ["ssb-sf0.01", "ssb-sf0.02"]);
}

#[test]
fn groupings_run_on_a_table_in_memory_and_one_name_stands_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let scale = ["--scale", "0.0002", "--only", "8,64,1000", "--output", path];
    let fixed = ["experiment", "groupby", "--data", path, "--device", "cpu", "--runs", "1", "--threads", "2"];
    kelpie(&[&fixed[..], &scale].concat()).ok();
    for (name, series_name, points) in [
        ("groupby-4", "3 columns, one hash table", 2),
        ("groupby-7", "83 %", 2),
        ("groupby-10", "rules", 2),
        ("groupby-11", "direct, block", 2),
        ("groupby-13", "sort", 2),
        ("groupby-keys", "heavy, rules", 1),
    ] {
        let text = fs::read_to_string(folder.path().join(format!("{name}.json"))).unwrap();
        let findings: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
        assert_eq!(findings["data"][0]["tables"]["atable"], 67_000, "{name}");
        let found = series(&findings, series_name);
        assert_eq!(found.len(), points, "{name}: {findings}");
        assert!(numbers(&found, "kernel_ms").iter().all(|ms| *ms > 0.0), "{name}");
        let plot = fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap();
        assert!(plot.contains(&format!(">{series_name}<")), "{name}");
    }
    assert!(!fs::read_dir(folder.path()).unwrap().any(|entry| entry.unwrap().path().is_dir()));
}

/// Data of a scale that suits the interpreter, made once: the texts of TPC-H take the longest, however few of them are used.
fn little() -> &'static str {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let tpch = folder.path().join("tpch-sf0.001");
        kelpie(&["generate", "tpch", "--scale", "0.001", "--output", tpch.to_str().unwrap()]).ok();
        folder
    });
    folder.path().to_str().unwrap()
}

/// Runs experiments on divergence.
fn divergence(folder: &Path, names: &str, more: &[&str]) {
    let fixed =
        ["experiment", names, "--data", little(), "--scale", "0.001", "--threads", "2", "--runs", "1"];
    kelpie(&[&fixed[..], &["--output", folder.to_str().unwrap()], more].concat()).ok();
}

/// The file of an experiment on divergence has so many points of a series, whose times are measured.
fn check_times(folder: &Path, name: &str, of: &str, field: &str, points: usize) {
    let read = |name: String| fs::read_to_string(folder.join(name)).unwrap();
    let findings: Value = serde_json::from_str(&read(format!("{name}.json"))).unwrap();
    assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
    let found = series(&findings, of);
    assert_eq!(found.len(), points, "{name}: {findings}");
    assert!(numbers(&found, field).iter().all(|ms| *ms > 0.0), "{name}");
    assert!(read(format!("{name}.svg")).contains(&format!(">{of}<")), "{name}");
    // A CPU has one lane.
    assert!(!folder.join(format!("{name}-lanes.svg")).exists());
}

#[test]
fn divergence_is_measured_with_one_name_for_all() {
    let folder = tempfile::tempdir().unwrap();
    // A position of each figure.
    let only = ["--only", "pk-4zipf-fk,10,0.6,4,1024"];
    divergence(
        folder.path(),
        "dogqc",
        &[&only[..], &["--device", "cpu", "--against", "datafusion"]].concat(),
    );
    let check = |name, series, points| check_times(folder.path(), name, series, "pipeline_ms", points);
    check("dogqc-8", "wide, push-down", 1);
    check("dogqc-9", "rules", 1);
    check("dogqc-10", "refill", 1);
    check("dogqc-11", "16 warps, naive", 1);
    check("dogqc-12", "refill behind each", 1);
    check("dogqc-13", "packed", 1);
    check("dogqc-text", "like, run", 1);
    check("dogqc-text", "join, warp", 1);
    check_times(folder.path(), "dogqc-14", "forced", "kernel_ms", 2);
    check_times(folder.path(), "dogqc-14", "rules, no dictionaries", "streamed_ms", 2);
    check_times(folder.path(), "dogqc-15", "datafusion", "total_ms", 2);
}

/// Every series of a query gives the same answer: another would be a note.
#[test]
fn tpch_is_measured_under_every_model() {
    let folder = tempfile::tempdir().unwrap();
    let queries = sample("queries", (1..=22).map(|query: u32| query.to_string()), 2);
    divergence(folder.path(), "dogqc-14", &["--only", &queries.join(","), "--device", "cpu"]);
    check_times(folder.path(), "dogqc-14", "forced, no dictionaries", "kernel_ms", queries.len());
}

#[test]
fn sorts_are_timed_by_size_width_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let (findings, plot) = experiment(folder.path(), "sort", &["--data", "none", "--scale", "0.0001"]);
    for name in ["32 bits, random", "64 bits, rising", "16 bits, falling", "48 bits, nearly rising"] {
        let found = series(&findings, name);
        assert_eq!(found.len(), 5, "{name}: {findings}");
        assert!(numbers(&found, "kernel_ms").iter().all(|ms| *ms > 0.0), "{name}: {findings}");
        assert!(plot.contains(&format!(">{name}<")), "{name}");
    }
}

#[test]
fn lanes_are_shown_where_there_are_some() {
    let folder = tempfile::tempdir().unwrap();
    divergence(folder.path(), "dogqc-9,dogqc-12", &["--device", "simt"]);
    for name in ["dogqc-9", "dogqc-12"] {
        let plot = fs::read_to_string(folder.path().join(format!("{name}-lanes.svg"))).unwrap();
        assert!(plot.starts_with("<svg") && plot.contains("10, naive") && !plot.contains("NaN"), "{name}");
    }
}

#[test]
fn what_cannot_be_measured_is_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--only", "0.5", "--set", "kelpie.enabled=false"];
    let (findings, _) = experiment(folder.path(), "single-aggregate", &more);
    let notes = findings["notes"].as_array().unwrap();
    assert!(!notes.is_empty() && notes[0].as_str().unwrap().contains("not compiled"), "{notes:?}");
    // What other runs have found stays where nothing is measured.
    let before = names(folder.path());
    let fixed = ["experiment", "horseqc-3", "--data", workloads(), "--scale", "0.01", "--device", "cpu"];
    let more = ["--output", folder.path().to_str().unwrap(), "--runs", "1", "--only", "1.1,9.9"];
    kelpie(&[&fixed[..], &more].concat()).fails_with(&["horseqc-3", "9.9"]);
    assert_eq!(names(folder.path()), before);

    for (arguments, part) in [
        (["experiment", "horseqc-7", "--scale", "1"], "horseqc-6"),
        (["experiment", "table-1", "--scale", "-1"], "above 0"),
    ] {
        let run = kelpie(&arguments);
        assert!(run.code == Some(2) && run.err.contains(part), "{}", run.err);
    }
}

/// Every figure of sorted algebra on relations of a few thousand tuples.
#[test]
fn sorted_algebra_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let fixed =
        ["experiment", "algebra", "--scale", "0.0001", "--device", "cpu", "--threads", "2", "--runs", "1"];
    kelpie(&[&fixed[..], &["--output", path]].concat()).ok();
    for (name, of, points) in [
        ("algebra-9", "join, single_pass, dense", 1),
        ("algebra-9", "union, pages", 1),
        ("algebra-9", "copy", 1),
        ("algebra-10", "normal", 9),
        ("algebra-13", "uniform", 1),
        ("algebra-14", "pareto 3", 1),
        ("algebra-15", "uniform", 1),
        ("algebra-16", "normal", 1),
        ("algebra-table-3", "blocking 4", 6),
        ("algebra-stages", "join, gather, dense", 4),
        ("algebra-pages", "to an array", 5),
    ] {
        let read = |ending: &str| fs::read_to_string(folder.path().join(format!("{name}.{ending}"))).unwrap();
        let findings: Value = serde_json::from_str(&read("json")).unwrap();
        assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
        let found = series(&findings, of);
        assert_eq!(found.len(), points, "{name}: {findings}");
        assert!(numbers(&found, "figure").iter().all(|value| *value >= 0.0), "{name}");
        assert!(read("svg").contains(&format!(">{of}<")), "{name}");
    }
}

/// The tuner beside the rules, on queries drawn at random over a few thousand rows.
#[test]
fn the_tuner_is_measured_beside_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let fixed = ["experiment", "tuner-generated", "--scale", "0.001", "--device", "cpu", "--threads", "2"];
    let own = ["--runs", "12", "--set", "kelpie.tuner.deterministic=true", "--only", "g1,g7,g30,g90"];
    kelpie(&[&fixed[..], &own, &["--output", path]].concat()).ok();
    let read = |ending: &str| fs::read_to_string(folder.path().join(format!("tuner-generated.{ending}")));
    let findings: Value = serde_json::from_str(&read("json").unwrap()).unwrap();
    assert_eq!(findings["notes"], Value::Array(Vec::new()));
    assert_eq!(findings["remarks"].as_array().unwrap().len(), 5, "{findings}");
    assert!(["rules", "tuned"].iter().all(|of| series(&findings, of).len() == 4), "{findings}");
}

/// Every figure of variants on a column of 65,000 rows, by few of the variants.
#[test]
fn variants_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let figures = "variants-2,variants-3,variants-4,variants-5,variants-6,variants-7,variants-9,variants-10,\
                   variants-table-1,variants-table-3";
    let fixed =
        ["experiment", figures, "--scale", "0.002", "--device", "cpu", "--threads", "2", "--runs", "1"];
    kelpie(&[&fixed[..], &["--output", path]].concat()).ok();
    for (name, of, points) in [
        ("variants-2", "sequential 64 PU", 11),
        ("variants-4", "interleaved U4 I2", 1),
        ("variants-5", "transpose 32 PU 1024", 7),
        ("variants-7", "random, 25 %", 7),
        ("variants-7", "vw-greedy as run, median", 5),
        ("variants-9", "genetic, median", 10),
        ("variants-9", "none as run, median", 10),
        ("variants-10", "greedy, 75 %", 10),
        ("variants-table-1", "fastest", 11),
        ("variants-table-3", "fastest", 12),
    ] {
        let read = |ending: &str| fs::read_to_string(folder.path().join(format!("{name}.{ending}"))).unwrap();
        let findings: Value = serde_json::from_str(&read("json")).unwrap();
        assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
        let found = series(&findings, of);
        assert_eq!(found.len(), points, "{name}: {findings}");
        assert!(numbers(&found, "figure").iter().all(|value| *value > 0.0), "{name}");
        assert!(read("svg").contains(&format!(">{of}<")), "{name}");
    }
}
