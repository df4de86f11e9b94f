use std::path::Path;
use std::time::Duration;

use kelpie_session::{KelpieSession, SessionOptions, Stage};

use super::*;
use crate::Progress;
use crate::experiments::{ExperimentOptions, Findings, Listener, run};

struct Silent;

impl Listener for Silent {
    fn step(&self, _: &str) {}
    fn data(&self, _: Progress) {}
}

/// A figure on a little data.
async fn found(figure: Figure, data: &Path, scale: f64, device: &str) -> Findings {
    found_only(figure, (data, scale), device, &[]).await
}

/// The same at some positions.
async fn found_only(figure: Figure, (data, scale): (&Path, f64), device: &str, only: &[&str]) -> Findings {
    let options = ExperimentOptions {
        experiments: vec![Experiment::Divergence(figure)],
        data: data.into(),
        scales: vec![scale],
        only: only.iter().map(|name| (*name).into()).collect(),
        runs: 1,
        time_limit: Duration::from_secs(60),
        threads: 2,
        against: Vec::new(),
        settings: vec![("kelpie.device".into(), device.into())],
    };
    run(&options, &Silent).await.unwrap().remove(0)
}

#[test]
fn figures_have_cases_and_each_has_a_name_of_its_own() {
    for figure in Figure::ALL {
        let cases = cases(figure);
        let is_workload = matches!(figure, Figure::Tpch | Figure::EndToEnd);
        assert_eq!(cases.is_empty(), is_workload, "{figure:?}");
        let mut labels: Vec<_> = cases.iter().map(|case| (&case.label, &case.series)).collect();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), cases.len(), "{figure:?}");
        assert_eq!(
            cases.iter().all(|case| case.pipeline.is_some()),
            figure.measure() == Measure::Pipeline || is_workload
        );
        let models = figure.models();
        let mut names: Vec<_> = models.iter().map(|model| &model.name).collect();
        names.dedup();
        assert_eq!(names.len(), models.len(), "{figure:?}");
        let of_cases = |case: &Case| !case.models.is_empty();
        assert!(cases.iter().all(|case| of_cases(case) == models.is_empty()), "{figure:?}");
    }
    let joins = cases(Figure::Joins);
    assert_eq!(joins.len(), 8);
    assert!(joins[7].sql.contains("sum(v4), sum(a4)\nfrom fk join pk on zipf4 = k"), "{}", joins[7].sql);
    let filters = cases(Figure::FiltersWarps);
    assert_eq!(filters[0].series.as_deref(), Some("8 warps"));
    assert!(filters[0].sql.contains("< 19920101") && filters[9].sql.contains("< 19980803"));
}

/// The left side of a join is the build side, and its pipeline has the right one as its source.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_are_the_build_side() {
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    for (name, table) in tables(rows(0.001), 2).unwrap() {
        session.context().register_table(name, table).unwrap();
    }
    for case in cases(Figure::Joins) {
        for (name, value) in &case.settings {
            session.set(name, value).unwrap();
        }
        let plan = session.explain(&case.sql, Stage::Plan).await.unwrap();
        let scans: Vec<&str> = plan.lines().filter(|line| line.contains("Scan: ")).collect();
        let of_foreign = |scan: &str| scan.contains("v1") && !scan.contains("a1");
        assert!(scans.len() == 2 && of_foreign(scans[0]) && scans[1].contains("a1"), "{plan}");
    }
}

/// Every series of a case gives the same answer: another would be a note.
#[tokio::test(flavor = "multi_thread")]
async fn joins_are_measured_under_every_variant() {
    let folder = tempfile::tempdir().unwrap();
    for device in ["cpu", "simt"] {
        let findings = found(Figure::Joins, folder.path(), 0.0005, device).await;
        assert!(findings.notes.is_empty(), "{device}: {:?}", findings.notes);
        assert_eq!(findings.points.len(), 4 * 2 * Figure::Joins.models().len());
        assert_eq!(findings.data[0].tables["fk"], 4992);
        assert_eq!(findings.data[0].tables["pk32"], 156);
        for point in &findings.points {
            assert!(point.rows == Some(1) && point.pipeline_ms.unwrap() > 0.0, "{device}: {point:?}");
            assert!(point.pipeline_ms <= point.kernel_ms && point.lanes.is_empty(), "{device}: {point:?}");
        }
        let plot = findings.to_svg();
        assert!(plot.contains(">pk-4zipf-fk<") && plot.contains(">wide, packed, refilled<"), "{plot}");
        assert_eq!(findings.lanes_to_svg(), None);
    }
}

/// The poster cases: what balances lanes makes fewer warps of the same rows (figures 2 and 5).
#[tokio::test(flavor = "multi_thread")]
async fn poster_cases_have_fewer_warps_where_lanes_are_balanced() {
    let folder = tempfile::tempdir().unwrap();
    for (figure, balanced) in [(Figure::Matches, "packed, refilled"), (Figure::Sparse, "refill behind each")]
    {
        let findings = found(figure, folder.path(), 0.005, "simt").await;
        assert!(findings.notes.is_empty(), "{figure:?}: {:?}", findings.notes);
        let sink = |series: &str| {
            let point = findings.points.iter().find(|point| point.series == series).unwrap();
            assert!(point.pipeline_ms.unwrap() > 0.0, "{point:?}");
            let rows: Vec<u64> = point.lanes.iter().map(|step| step.rows).collect();
            assert!(rows.len() > 3 && rows[0] > rows[1], "{point:?}");
            point.lanes.last().unwrap().clone()
        };
        let (naive, balanced) = (sink("naive"), sink(balanced));
        assert_eq!(naive.rows, balanced.rows);
        assert!(naive.warps > 3 * balanced.warps && naive.mean < 6.0, "{naive:?} {balanced:?}");
        assert!(naive.step.starts_with("aggregate"), "{naive:?}");
        let plot = findings.lanes_to_svg().unwrap();
        assert!(plot.contains("10, naive") && plot.contains(">join Inner"), "{plot}");
        assert!(findings.to_text().contains("lanes with rows, query 10, naive"));
    }
    // A CPU has one lane.
    let findings = found(Figure::Matches, folder.path(), 0.005, "cpu").await;
    assert!(findings.notes.is_empty() && findings.lanes_to_svg().is_none(), "{:?}", findings.notes);
}

/// Filters and grids: each position has its points.
#[tokio::test(flavor = "multi_thread")]
async fn grids_and_selectivities_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    for (figure, points) in [(Figure::Filters, 20), (Figure::FiltersWarps, 40), (Figure::MatchesWarps, 36)] {
        let findings = found(figure, folder.path(), 0.001, "simt").await;
        assert!(findings.notes.is_empty(), "{figure:?}: {:?}", findings.notes);
        assert_eq!(findings.points.len(), points, "{figure:?}");
        assert!(findings.points.iter().all(|point| point.pipeline_ms.unwrap() > 0.0), "{figure:?}");
    }
}

/// Texts are matched, compared and looked up by each level, with the same answers, and lanes are counted where there are some.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_look_at_texts_in_each_way() {
    let folder = tempfile::tempdir().unwrap();
    for (device, scale) in [("cpu", 0.001), ("simt", 0.0005)] {
        let findings = found_only(Figure::Texts, (folder.path(), scale), device, &["16", "1024"]).await;
        assert!(findings.notes.is_empty(), "{device}: {:?}", findings.notes);
        assert_eq!(findings.points.len(), 2 * (2 * 3 + 4 * 2), "{device}");
        assert!(findings.points.iter().all(|point| point.pipeline_ms.unwrap() > 0.0), "{device}");
        assert_eq!(findings.lanes_to_svg().is_some(), device == "simt");
        if device == "cpu" {
            continue;
        }
        let point = |series: &str, x: &str| {
            let mut points = findings.points.iter();
            points.find(|point| point.series == series && point.x == x).unwrap().clone()
        };
        // With a few long texts, a warp that shares them executes less.
        for (alone, shared) in [("like, lane", "like, run"), ("regex, lane", "regex, refill")] {
            let (alone, shared) = (point(alone, "1024"), point(shared, "1024"));
            assert!(alone.warp_steps.unwrap() > shared.warp_steps.unwrap(), "{alone:?} {shared:?}");
            assert!(alone.lane_activity.unwrap() < shared.lane_activity.unwrap(), "{alone:?} {shared:?}");
        }
        let refilled = point("like, refill", "1024");
        assert!(refilled.lanes.iter().any(|step| step.step == "matching"), "{refilled:?}");
    }
}

/// The levels that are compared are those that run: a filter, a join and a grouping have what they are forced to.
#[tokio::test(flavor = "multi_thread")]
async fn each_level_of_lanes_over_texts_is_possible() {
    let options = [("kelpie.device", "simt"), ("kelpie.fallback", "deny")];
    let options =
        options.iter().fold(SessionOptions::default(), |all, (name, value)| all.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    for (name, table) in text_tables(text_rows(0.0005), 1).unwrap() {
        session.context().register_table(name, table).unwrap();
    }
    for case in cases(Figure::Texts).into_iter().filter(|case| case.label == "64") {
        for model in &case.models {
            for (name, value) in model.settings.iter().chain(&case.settings) {
                session.set(name, value).unwrap();
            }
            let timing = session.sql(&case.sql).await.unwrap().timing;
            let mut choices = timing.parts.iter().flat_map(|part| part.choices());
            let wanted = |name: &str| name == "text_lanes" || name == "key_text_lanes";
            let found = choices.any(|choice| wanted(choice.axis.name) && choice.value == model.name);
            assert!(found, "{:?}, {}", case.series, model.name);
            for (name, _) in &model.settings {
                session.set(name, "rule").unwrap();
            }
        }
    }
}

/// TPC-H with and without dictionaries: the same answers, and what comes over the link beside.
#[tokio::test(flavor = "multi_thread")]
async fn transfers_stand_apart_for_both_forms_of_texts() {
    let folder = tempfile::tempdir().unwrap();
    for device in ["cpu", "simt"] {
        let findings = found_only(Figure::Tpch, (folder.path(), 0.001), device, &["1", "12", "13"]).await;
        assert!(findings.notes.is_empty(), "{device}: {:?}", findings.notes);
        assert_eq!(findings.points.len(), 3 * Figure::Tpch.models().len());
        for query in ["1", "12", "13"] {
            let point = |series: &str| {
                let mut points = findings.points.iter();
                points.find(|point| point.series == series && point.x == query).unwrap().clone()
            };
            let (codes, texts) = (point("rules"), point("rules, no dictionaries"));
            for point in [&codes, &texts] {
                assert!(point.streamed_ms.unwrap() > 0.0 && point.link_ms.unwrap() > 0.0, "{point:?}");
                assert!(point.kernel_ms.unwrap() > 0.0 && point.link_bytes.unwrap() > 0, "{point:?}");
            }
            // The comments of orders have no dictionary anyway.
            if query != "13" {
                assert!(texts.input_bytes > codes.input_bytes, "{codes:?} {texts:?}");
                assert!(texts.link_bytes > codes.link_bytes, "{codes:?} {texts:?}");
            }
            assert_eq!(point("naive").streamed_ms, None);
        }
        let text = findings.to_text();
        for part in ["link, no dictionaries", "memory bound, no dictionaries", "columns over the link"] {
            assert!(text.contains(part), "{text}");
        }
        let plot = findings.to_svg();
        assert!(plot.contains(">link<") && plot.contains(">link, no dictionaries<"), "{plot}");
    }
}

/// The rules build the primary keys where there are enough rows for it to matter, and the foreign keys where that is forced.
#[tokio::test(flavor = "multi_thread")]
async fn rules_build_the_primary_keys() {
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    for (name, table) in tables(rows(0.002), 2).unwrap() {
        session.context().register_table(name, table).unwrap();
    }
    for (model, side) in [("rules", "other"), ("rules, as written", "written"), ("packed", "written")] {
        let models = Figure::Joins.models();
        let model = models.iter().find(|own| own.name == model).unwrap();
        for case in cases(Figure::Joins) {
            for (name, value) in model.settings.iter().chain(&case.settings) {
                session.set(name, value).unwrap();
            }
            let timing = session.sql(&case.sql).await.unwrap().timing;
            let choices: Vec<_> = timing.parts.iter().flat_map(|part| part.choices()).collect();
            let choice = choices.iter().find(|choice| choice.axis.name == "build_side").unwrap();
            assert_eq!(choice.value, side, "{}, {}: {choice}", model.name, case.label);
            let probes = timing.parts.iter().flat_map(|part| &part.pipelines);
            let probes: Vec<_> = probes.filter(|pipeline| pipeline.name.contains(" join ")).collect();
            assert_eq!(probes.len(), 1, "{probes:?}");
        }
        for (name, _) in &model.settings {
            session.set(name, "rule").unwrap();
        }
    }
}
