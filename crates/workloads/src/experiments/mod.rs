//! The experiments of HorseQC (Funke et al., SIGMOD 2018, sections 8.4 to 8.9, appendix G, tables 1 and 3): the same queries
//! under different execution models, with the floors that memory and link set. Those of Karnagel et al. (`grouping`): one
//! grouping under different variants. Those of DogQC (`dogqc`): what leaves lanes idle, and what balances them. And those of Diamos et al.
//! (`algebra`): sorted relational algebra by itself. Those of Rosenfeld et al. (`variants`): operators as thousands of kernels.
//!
//! Kernel times are taken in runs without the meter, bytes in one run with it.

mod algebra;
mod cases;
mod dogqc;
mod experiment;
mod figures;
mod findings;
mod generated;
mod grouping;
mod heat;
mod lab;
mod memory;
mod model;
mod options;
mod panels;
mod plot;
mod point;
mod sorts;
mod tuner;
mod variants;

use anyhow::{Result, bail};

pub use self::algebra::Figure as Algebra;
pub use self::dogqc::Figure as Divergence;
pub use self::experiment::Experiment;
pub use self::findings::{DataReport, DeviceReport, Findings};
pub use self::grouping::Figure;
use self::lab::Lab;
use self::model::Data;
pub use self::model::Measure;
pub use self::options::{ExperimentOptions, Listener};
pub use self::point::{Bytes, Point, StepLanes};
pub use self::tuner::Tuned;
pub use self::variants::Figure as Variants;

/// Runs experiments one after the other; what each found that has any of the positions that are wanted. An error where one of these is
/// no experiment's.
pub async fn run(options: &ExperimentOptions, listener: &dyn Listener) -> Result<Vec<Findings>> {
    let mut all = Vec::new();
    // Data in memory is kept for the next experiment.
    let mut kept: Option<(Data, Lab<'_>)> = None;
    let mut of_variants = None;
    for &experiment in &options.experiments {
        let mut findings = Findings::new(experiment, options.runs);
        match experiment {
            Experiment::Algebra(figure) => {
                by_itself(options, &mut findings, listener, |settings| algebra::measure(figure, settings))?;
            }
            Experiment::Variants(figure) => by_itself(options, &mut findings, listener, |settings| {
                variants::measure(figure, settings, &mut of_variants)
            })?,
            Experiment::Sort => sorts::measure(options, &mut findings, listener)?,
            Experiment::Tuner(tuned) => tuner::measure(tuned, options, &mut findings, listener).await?,
            _ => {}
        }
        let scales = match experiment {
            Experiment::StarJoin => options.scales.as_slice(),
            _ => options.scales.get(..1).unwrap_or_default(),
        };
        for &scale in scales {
            for &data in experiment.data() {
                let mut lab = match kept.take() {
                    Some((known, lab)) if known == data => lab,
                    _ => Lab::open(options, data, scale, listener).await?,
                };
                measure(experiment, (&mut lab, data, scale), &mut findings, listener).await?;
                kept = data.is_in_memory().then_some((data, lab));
            }
        }
        all.push(findings);
    }
    let is_known =
        |name: &String| all.iter().flat_map(|findings| &findings.points).any(|point| point.x == *name);
    if let Some(unknown) = options.only.iter().find(|name| !is_known(name)) {
        let names: Vec<_> = options.experiments.iter().map(|experiment| experiment.name()).collect();
        bail!("{} has no position or query {unknown}", names.join(", "));
    }
    all.retain(|findings| !findings.points.is_empty());
    Ok(all)
}

/// Measures a figure that is of no query.
fn by_itself(
    options: &ExperimentOptions,
    findings: &mut Findings,
    listener: &dyn Listener,
    measure: impl FnOnce(&algebra::Settings<'_>) -> Result<algebra::Measured>,
) -> Result<()> {
    let device = options.settings.iter().rev().find(|(name, _)| name == "kelpie.device");
    let settings = algebra::Settings {
        device: device.map_or("auto", |(_, value)| value),
        threads: options.threads,
        scale: options.scales.first().copied().unwrap_or(1.0),
        runs: options.runs,
        only: &options.only,
        step: &|step| listener.step(step),
    };
    let measured = measure(&settings)?;
    let (name, memory_gb_per_s, link_gb_per_s) = measured.device;
    findings.device = Some(DeviceReport { name, memory_gb_per_s, link_gb_per_s });
    findings.points.extend(measured.shown.into_iter().map(|shown| Point {
        figure: Some(shown.figure),
        ..Point::new(&shown.series, &shown.x, shown.position)
    }));
    Ok(())
}

/// Measures the cases of an experiment on one data set.
async fn measure(
    experiment: Experiment,
    (lab, data, scale): (&mut Lab<'_>, Data, f64),
    findings: &mut Findings,
    listener: &dyn Listener,
) -> Result<()> {
    findings.data.push(lab.describe(scale).await?);
    lab.start_peers(experiment, findings).await;
    for case in cases::of(experiment, data, scale, lab.only()) {
        let models = if case.models.is_empty() { experiment.models() } else { case.models.clone() };
        for model in models {
            listener.step(&format!("{} {}, {}", experiment.positions(), case.label, model.name));
            let point = lab.measure(experiment, &case, &model).await;
            findings.add(point, lab.device());
        }
        for point in lab.peers(&case, listener).await {
            findings.add(point, None);
        }
        findings.points.extend(cases::of_the_paper(experiment, &case));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Progress;

    struct Silent;

    impl Listener for Silent {
        fn step(&self, _: &str) {}
        fn data(&self, _: Progress) {}
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_takes_too_long_is_given_up_and_the_next_goes_on() {
        let data = tempfile::tempdir().unwrap();
        let options = ExperimentOptions {
            experiments: vec![Experiment::SsbMetrics],
            data: data.path().into(),
            scales: vec![0.001],
            only: vec!["1.1".into(), "2.1".into()],
            runs: 1,
            time_limit: Duration::from_nanos(1),
            threads: 1,
            against: Vec::new(),
            settings: vec![("kelpie.device".into(), "cpu".into())],
        };
        let findings = run(&options, &Silent).await.unwrap().remove(0);
        assert_eq!(findings.points.len(), 2);
        for point in &findings.points {
            assert!(point.note.as_ref().unwrap().contains("given up after"), "{point:?}");
        }
        assert!(findings.to_text().contains("left out: query 2.1"), "{}", findings.to_text());
        let options = ExperimentOptions { time_limit: Duration::from_secs(60), ..options };
        let findings = run(&options, &Silent).await.unwrap().remove(0);
        assert!(findings.notes.is_empty(), "{:?}", findings.notes);
        let text = findings.to_text();
        assert!(text.contains("memory, GB/s") && text.contains("input, GB/s"), "{text}");
    }
}
