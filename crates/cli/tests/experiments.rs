//! Every experiment on a little data: findings as JSON and as a plot.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn kelpie(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kelpie")).args(arguments).output().unwrap()
}

/// Runs an experiment; its findings and its plot.
fn experiment(folder: &Path, name: &str, more: &[&str]) -> (Value, String) {
    let data = folder.to_str().unwrap();
    let mut arguments = vec!["experiment", name, "--data", data, "--output", data];
    arguments.extend(["--device", "cpu", "--runs", "2", "--threads", "2"]);
    if !more.contains(&"--scale") {
        arguments.extend(["--scale", "0.01"]);
    }
    arguments.extend(more);
    let output = kelpie(&arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {out}{err}");
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

#[test]
fn experiments_give_findings_and_plots() {
    let folder = tempfile::tempdir().unwrap();
    let queries = ["--only", "1.1,3.1"];
    for (name, more, models, points) in [
        ("horseqc-1", vec!["--only", "0,0.5"], vec!["multi_pass", "pipelined", "resolution:simd"], 2),
        ("horseqc-2", vec!["--only", "2,512"], vec!["operator_at_a_time", "pipelined"], 2),
        ("horseqc-3", queries.to_vec(), vec!["operator_at_a_time", "multi_pass", "resolution:simd"], 2),
        ("horseqc-4", vec!["--only", "6"], vec!["operator_at_a_time", "resolution:simd"], 1),
        ("horseqc-5", vec!["--scale", "0.01,0.02"], vec!["blocks of 0.5MB", "blocks of 8MB"], 2),
        ("horseqc-6", vec!["--only", "6,14"], vec!["kelpie auto", "kelpie batch", "datafusion"], 2),
        ("single-aggregate", vec!["--only", "0.1,1"], vec!["multi_pass", "resolution:work_efficient"], 2),
        ("table-1", vec!["--only", "ssb 1.1,tpch 6"], vec!["operator_at_a_time"], 2),
        ("table-3", queries.to_vec(), vec!["resolution:work_efficient"], 2),
    ] {
        let more = match name {
            "horseqc-5" => more,
            "horseqc-6" => [more, vec!["--against", "datafusion"]].concat(),
            _ => more,
        };
        let (findings, plot) = experiment(folder.path(), name, &more);
        assert_eq!(findings["experiment"], name);
        assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
        assert!(findings["device"]["memory_gb_per_s"].as_f64().unwrap() > 0.0, "{findings}");
        assert!(findings["data"][0]["tables"].as_object().unwrap().len() >= 5, "{findings}");
        for model in models {
            let found = series(&findings, model);
            assert_eq!(found.len(), points, "{name}, {model}: {findings}");
            if model == "datafusion" {
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
    // What the paper has stands beside.
    let text = fs::read_to_string(folder.path().join("table-1.json")).unwrap();
    let findings: Value = serde_json::from_str(&text).unwrap();
    let paper = series(&findings, "HorseQC's paper (CoGaDB)");
    assert_eq!(numbers(&paper, "passes"), [7.5, 6.2]);
    // Data is made once: only the folders of the scales used are there.
    let mut made: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    made.sort();
    assert_eq!(made, ["ssb-sf0.01", "ssb-sf0.02", "tpch-sf0.01"]);
}

#[test]
fn groupings_run_on_a_table_in_memory_and_one_name_stands_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let scale = ["--scale", "0.0002", "--only", "8,64,1000", "--output", path];
    let fixed = ["experiment", "groupby", "--data", path, "--device", "cpu", "--runs", "1", "--threads", "2"];
    let output = kelpie(&[&fixed[..], &scale].concat());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    for (name, series_name, points) in [
        ("groupby-4", "3 columns, one hash table", 2),
        ("groupby-7", "75 %", 2),
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

#[test]
fn divergence_is_measured_with_one_name_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let fixed = ["experiment", "dogqc", "--data", path, "--output", path, "--threads", "2", "--runs", "1"];
    let output =
        kelpie(&[&fixed[..], &["--scale", "0.001", "--device", "cpu", "--against", "datafusion"]].concat());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    for (name, series_name, points, field) in [
        ("dogqc-8", "wide, push-down", 4, "pipeline_ms"),
        ("dogqc-9", "rules", 1, "pipeline_ms"),
        ("dogqc-10", "refill", 10, "pipeline_ms"),
        ("dogqc-11", "16 warps, naive", 10, "pipeline_ms"),
        ("dogqc-12", "refill behind each", 1, "pipeline_ms"),
        ("dogqc-13", "packed", 6, "pipeline_ms"),
        ("dogqc-14", "forced", 22, "kernel_ms"),
        ("dogqc-14", "rules, no dictionaries", 22, "streamed_ms"),
        ("dogqc-15", "datafusion", 22, "total_ms"),
        ("dogqc-text", "like, run", 5, "pipeline_ms"),
        ("dogqc-text", "join, packed", 5, "pipeline_ms"),
    ] {
        let findings: Value = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        assert_eq!(findings["notes"], Value::Array(Vec::new()), "{name}");
        let found = series(&findings, series_name);
        assert_eq!(found.len(), points, "{name}: {findings}");
        assert!(numbers(&found, field).iter().all(|ms| *ms > 0.0), "{name}");
        assert!(read(&format!("{name}.svg")).contains(&format!(">{series_name}<")), "{name}");
        // A CPU has one lane.
        assert!(!folder.path().join(format!("{name}-lanes.svg")).exists());
    }
    let simt = ["--scale", "0.001", "--device", "simt"];
    let lanes = ["experiment", "dogqc-9,dogqc-12", "--data", path, "--output", path, "--runs", "1"];
    assert!(kelpie(&[&lanes[..], &simt].concat()).status.success());
    for name in ["dogqc-9", "dogqc-12"] {
        let plot = read(&format!("{name}-lanes.svg"));
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
    let (findings, _) = experiment(folder.path(), "horseqc-3", &["--only", "9.9"]);
    assert!(findings["notes"][0].as_str().unwrap().contains("nothing was measured"));

    for (arguments, part) in [
        (["experiment", "horseqc-7", "--scale", "1"], "horseqc-6"),
        (["experiment", "table-1", "--scale", "-1"], "above 0"),
    ] {
        let output = kelpie(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(part));
    }
}
