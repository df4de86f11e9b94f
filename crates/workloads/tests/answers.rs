//! TPC-H, SSB and the shapes through Kelpie, compiled as a whole, on every device that is there and under every micro model; the
//! shapes not on the interpreter, whose dimensions are too large for it.

use kelpie_session::testing::Settings;
use kelpie_session::testing::sample::is_whole;
use kelpie_workloads::Workload;

use super::common::{Matrix, devices, models};

const CPU: (&str, &str) = ("kelpie.device", "cpu");

fn everywhere() -> Vec<Settings> {
    devices().into_iter().flat_map(models).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_everywhere() {
    Matrix::new("TPC-H everywhere", Workload::Tpch, 0.01, everywhere()).check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_everywhere() {
    Matrix::new("SSB everywhere", Workload::Ssb, 0.01, everywhere()).check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_table_queries_on_four_lanes() {
    let mut configurations = models("simt");
    configurations.iter_mut().for_each(|settings| settings.push(("kelpie.simt_lanes", "4")));
    let mut matrix = Matrix::new("four lanes", Workload::Tpch, 0.01, configurations);
    matrix.queries.retain(|(name, _)| ["1", "6"].contains(&name.as_str()));
    matrix.check().await;
}

/// Scales that a check which is run often has time for, and where the whole matrix runs one more, whose data take a minute to make.
fn scales() -> &'static [f64] {
    if is_whole() { &[0.1, 1.0] } else { &[0.1] }
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_at_larger_scales_on_the_cpu() {
    for scale in scales() {
        let mut matrix = Matrix::new("TPC-H on the CPU", Workload::Tpch, *scale, vec![vec![CPU]]);
        matrix.rounds = 2;
        matrix.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_at_larger_scales_on_the_cpu() {
    for scale in scales() {
        let all = vec![vec![CPU], vec![CPU, ("kelpie.micro_model", "pipelined")]];
        Matrix::new("SSB on the CPU", Workload::Ssb, *scale, all).check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_on_datafusion_s_operators() {
    let plain = vec![("kelpie.enabled", "false"), ("kelpie.fallback", "allow")];
    Matrix::new("TPC-H on DataFusion", Workload::Tpch, 0.01, vec![plain]).check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_on_cpu_and_gpu() {
    let devices = devices().into_iter().filter(|device| *device != "simt");
    let all = devices.map(|device| vec![("kelpie.device", device)]).collect();
    let mut matrix = Matrix::new("shapes", Workload::Shapes, 0.002, all);
    matrix.rounds = 2;
    matrix.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_on_every_device() {
    let first = ("kelpie.variant.window_rows", "first");
    let all = devices().into_iter().flat_map(|device| {
        let device = ("kelpie.device", device);
        [vec![device], vec![device, first]]
    });
    Matrix::new("windows", Workload::Windows, 0.001, all.collect()).check().await;
}
