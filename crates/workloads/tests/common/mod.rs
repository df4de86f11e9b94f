//! What the tests of answers share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::testing::sample::covering;
use kelpie_session::testing::{Settings, has_cuda, side_by_side};
use kelpie_session::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload, tpch};
use tempfile::TempDir;

/// Generated data, which all tests share that run at the time.
pub fn data(workload: Workload, scale: f64) -> Arc<TempDir> {
    static MADE: Mutex<BTreeMap<String, Arc<Mutex<Weak<TempDir>>>>> = Mutex::new(BTreeMap::new());
    let name = format!("{} {scale}", workload.name());
    let place = Arc::clone(MADE.lock().unwrap().entry(name).or_default());
    // Who comes while another makes them waits for these.
    let mut known = place.lock().unwrap();
    known.upgrade().unwrap_or_else(|| {
        let made = Arc::new(generated(workload, scale));
        *known = Arc::downgrade(&made);
        made
    })
}

fn generated(workload: Workload, scale: f64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        scale,
        output: folder.path(),
        tables: &[],
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        replace: false,
        progress: &|_| {},
    };
    workload.generate(&options).unwrap();
    folder
}

/// A session on it.
pub async fn session(data: &Path, settings: &[(&str, &str)]) -> KelpieSession {
    let options = settings.iter().fold(SessionOptions::default(), |o, (name, value)| o.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(data).await.unwrap();
    session
}

/// The devices that are there.
pub fn devices() -> Vec<&'static str> {
    let session = KelpieSession::new(SessionOptions::default()).unwrap();
    if has_cuda(session.engine()) { vec!["cpu", "simt", "cuda"] } else { vec!["cpu", "simt"] }
}

/// Every micro model; `resolution` in both of its forms.
pub const MODELS: [(&str, &str); 5] = [
    ("operator_at_a_time", "simd"),
    ("multi_pass", "simd"),
    ("pipelined", "simd"),
    ("resolution", "simd"),
    ("resolution", "work_efficient"),
];

/// Every micro model on a device.
pub fn models(device: &'static str) -> Vec<Settings> {
    let settings = |(model, resolution)| {
        let models = vec![("kelpie.micro_model", model), ("kelpie.resolution", resolution)];
        [vec![("kelpie.device", device), ("kelpie.handover", "off")], models].concat()
    };
    MODELS.into_iter().map(settings).collect()
}

/// Queries of a workload under several settings, compiled as a whole: TPC-H gives the reference answers, the others those of DataFusion's own
/// operators.
pub struct Matrix {
    pub name: &'static str,
    pub workload: Workload,
    pub scale: f64,
    /// Names and texts.
    pub queries: Vec<(String, &'static str)>,
    pub configurations: Vec<Settings>,
    /// How often each query runs in a session: columns are cached then, and states have the size that fits.
    pub rounds: usize,
}

impl Matrix {
    /// All queries of a workload, once.
    pub fn new(name: &'static str, workload: Workload, scale: f64, configurations: Vec<Settings>) -> Matrix {
        Matrix { name, workload, scale, queries: workload.queries(), configurations, rounds: 1 }
    }

    /// Runs every query on every device and under every setting some queries; all under all where the whole matrix runs.
    pub async fn check(self) {
        let data = data(self.workload, self.scale);
        let all = Arc::new(self);
        let numbers = 0..all.queries.len();
        let cases = all
            .configurations
            .iter()
            .flat_map(|settings| numbers.clone().map(move |query| (settings, query)));
        let facets = |(settings, query): &(&Settings, usize)| {
            let device = settings.iter().find(|(name, _)| *name == "kelpie.device");
            vec![format!("{settings:?}"), format!("{device:?} {query}")]
        };
        let cases = covering(all.name, cases, 0, facets);
        let run = |settings: &Settings| {
            let mine: Vec<usize> =
                cases.iter().filter(|(other, _)| *other == settings).map(|(_, query)| *query).collect();
            let (all, data, settings) = (Arc::clone(&all), Arc::clone(&data), settings.clone());
            async move { all.check_under(&settings, &mine, data.path()).await }
        };
        side_by_side(all.configurations.iter().map(run)).await;
    }

    async fn check_under(&self, settings: &[(&str, &str)], queries: &[usize], data: &Path) {
        let reference = session(data, &[("kelpie.enabled", "false")]).await;
        let compiled = session(data, &[&[("kelpie.fallback", "deny")], settings].concat()).await;
        for round in 0..self.rounds {
            for query in queries {
                let what = format!("query {}, {settings:?}, run {round}", self.queries[*query].0);
                self.check_query(*query, &compiled, &reference, &what).await;
            }
        }
    }

    async fn check_query(
        &self,
        query: usize,
        compiled: &KelpieSession,
        reference: &KelpieSession,
        what: &str,
    ) {
        let answer = async |session: &KelpieSession, sql: &str| {
            session.sql(sql).await.unwrap_or_else(|error| panic!("{what}: {error}")).batches
        };
        let sql = self.queries[query].1;
        if self.workload == Workload::Tpch {
            let number = self.queries[query].0.parse().unwrap();
            let checked = tpch::check_answer(self.scale, number, &answer(compiled, sql).await);
            return checked.unwrap_or_else(|difference| panic!("{what}: {difference}"));
        }
        // Rows that are several are ordered. A query without rows at this scale shows little: it runs with wider conditions too.
        let wider = WIDER.iter().fold(sql.to_string(), |sql, (narrow, wide)| sql.replace(narrow, wide));
        for sql in [sql, &wider] {
            let expected = answer(reference, sql).await;
            assert_eq!(text(&answer(compiled, sql).await), text(&expected), "{what}: {sql}");
            if expected.iter().any(|batch| batch.num_rows() > 0) {
                return;
            }
        }
        panic!("{what}: no rows: {wider}");
    }
}

fn text(batches: &[RecordBatch]) -> String {
    pretty_format_batches(batches).unwrap().to_string()
}

/// The conditions of SSB that leave no row at small scales, and wider ones.
const WIDER: [(&str, &str); 5] = [
    ("c_nation = 'UNITED STATES'", "c_region = 'AMERICA'"),
    ("s_nation = 'UNITED STATES'", "s_region = 'AMERICA'"),
    ("(c_city = 'UNITED KI1' or c_city = 'UNITED KI5')", "c_region = 'EUROPE'"),
    ("(s_city = 'UNITED KI1' or s_city = 'UNITED KI5')", "s_region = 'EUROPE'"),
    ("p_category = 'MFGR#14'", "p_mfgr = 'MFGR#1'"),
];
