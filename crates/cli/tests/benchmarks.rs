//! Benchmarks check answers and say what is not compiled; their peers run in turn.

use std::fs;
use std::process::Command;

use crate::program::{finished, kelpie, program, tpch};

/// Whether a Python package is there that runs beside Kelpie; says that the test is skipped where it is not.
fn has_peer(package: &str) -> bool {
    let import = Command::new("python3").args(["-c", &format!("import {package}")]).output();
    let found = import.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: python3 has no package {package}");
    }
    found
}

#[test]
fn the_benchmark_checks_answers_and_marks_what_is_not_compiled() {
    if !has_peer("datafusion") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("b.json");
    let json = json.to_str().unwrap();
    let base = ["bench", "tpch", "--data", tpch(), "--device", "cpu", "--runs", "1", "--queries", "1,6,16"];
    let out = kelpie(&[&base[..], &["--against", "datafusion", "--json", json]].concat()).ok();
    assert!(out.contains("3 of 3 answers are the reference answers"), "{out}");
    assert!(out.contains("ratio = kelpie / datafusion") && out.contains("total"), "{out}");
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    for query in report["queries"].as_array().unwrap() {
        assert_eq!(query["answer_is_right"], true);
        assert!(query["median"]["total_ms"].as_f64().unwrap() > 0.0);
        assert!(query["peers"][0]["ratio"].as_f64().unwrap() > 0.0);
        assert!(query["peers"][0]["unseen_ratio"].as_f64().unwrap() > 0.0);
        // A statement that was seen is not planned again.
        let is_planned = |of: &str| query[of]["phases_ms"]["physical"].is_number();
        assert!(!is_planned("median") && is_planned("unseen"), "{query}");
        let compiled = query["compiled"].as_bool().unwrap();
        assert_eq!(compiled, query["reasons"].as_array().unwrap().is_empty());
        assert_eq!(!compiled, out.contains(&format!(" {}*", query["name"].as_str().unwrap())), "{out}");
    }
    let cold = kelpie(&[&base[..], &["--cold"]].concat()).ok();
    assert!(cold.contains("cold"), "{cold}");
    let mut missing = program(&base);
    missing.args(["--against", "duckdb"]).env("KELPIE_PYTHON", "/no/python");
    finished(missing.output().unwrap()).fails_with(&["duckdb", "/no/python", "KELPIE_PYTHON"]);
    kelpie(&["bench", "tpch", "--data", tpch(), "--queries", "23"]).fails_with(&["`23`", "22"]);
    kelpie(&["bench", "ssb", "--data", tpch()]).fails_with(&["lineorder", "kelpie generate ssb"]);
}

#[test]
fn derived_columns_are_measured_in_processes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (data, json) = (folder.path().join("data"), folder.path().join("d.json"));
    let (data, json) = (data.to_str().unwrap(), json.to_str().unwrap());
    let base = ["bench", "derived", "--data", data, "--device", "cpu", "--runs", "1", "--rows", "30000"];
    let out = kelpie(&[&base[..], &["--json", json]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["rows"], 30000);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        assert!(out.contains(case["name"].as_str().unwrap()), "{out}");
        assert_eq!(case["compiled"], true, "{case}");
        assert!(case["difference"].is_null(), "{case}");
        for run in ["first", "on_disk", "derived", "plain"] {
            assert!(case[run]["total_ms"].as_f64().unwrap() > 0.0, "{case}");
        }
        for ratio in ["first_ratio", "on_disk_ratio", "hot_ratio"] {
            assert!(case[ratio].as_f64().unwrap() > 0.0, "{case}");
        }
    }
    kelpie(&[&base[..], &["--queries", "most"]].concat()).fails_with(&["`most`", "minute"]);
    kelpie(&[&base[..], &["--cold"]].concat()).fails_with(&["--cold"]);
    kelpie(&[&base[..], &["--queries", "few", "--set", "kelpie.device=gpu"]].concat()).fails_with(&["gpu"]);
}

/// Needs the Python package duckdb; where it is missing, the test before holds what the user is told.
#[test]
fn duckdb_runs_in_turn_where_it_is_installed() {
    if !has_peer("duckdb") {
        return;
    }
    for mode in [&["--runs", "2"][..], &["--runs", "1", "--cold"]] {
        let base = ["bench", "tpch", "--data", tpch(), "--queries", "3,6", "--against", "duckdb"];
        let run = kelpie(&[&base[..], mode].concat());
        let line = run
            .out
            .lines()
            .find(|line| line.trim_start().starts_with("total "))
            .unwrap_or_default()
            .to_string();
        let out = run.ok();
        assert!(out.contains("duckdb: DuckDB "), "{out}");
        let ratio: f64 = line.split_whitespace().last().unwrap().parse().unwrap();
        assert!(ratio > 0.0, "{out}");
    }
}
