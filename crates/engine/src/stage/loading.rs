//! Brings the columns of a stage's scans to where they are wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::{Plan, Scan};
use kelpie_device::{CancelToken, Device};
use parking_lot::Mutex;

use super::loaded::{Loaded, describe};
use crate::columns::{ColumnCache, LoadReport, ResidentColumn, Watch, Wish, expected_layouts, is_looked_at};
use crate::error::EngineError;
use crate::grouping_keys::GroupingKeys;
use crate::intermediate::Input;
use crate::metrics::QueryMetrics;
use crate::source::TableSource;
use crate::split::Phase;

/// The scans of a plan, in the compiler's order.
pub fn scans(plan: &Plan) -> Vec<&Scan> {
    match plan {
        Plan::Scan(scan) => vec![scan],
        _ => plan.inputs().into_iter().flat_map(scans).collect(),
    }
}

/// Where the columns of scans come from, and where they are to be.
#[derive(Clone, Copy)]
pub struct Loading<'a> {
    /// What `Scan::source` numbers.
    pub inputs: &'a [Input],
    pub device: &'a Arc<dyn Device>,
    pub cache: &'a ColumnCache,
    pub wish: Wish,
    pub cancel: &'a CancelToken,
}

/// Brings the columns of every scan to where they are wanted. Where that takes long, `foreseen` takes meanwhile what the
/// compiler will most likely know of all of them.
///
/// Tables of which columns are not there are read side by side, in a process as many more as there are cores: a small one has rows for a thread or two, and
/// to open a table and to lay its columns out keeps one thread busy.
pub fn load(
    plan: &Plan,
    loading: Loading<'_>,
    foreseen: &(dyn Fn(Vec<ScanInfo>) + Sync),
    metrics: &mut QueryMetrics,
) -> Result<Vec<Loaded>, EngineError> {
    let start = Instant::now();
    let scans = scans(plan);
    let found = scans.iter().map(|scan| loading.find(scan));
    let mut loaded = found.collect::<Result<Vec<Option<Loaded>>, _>>()?;
    if loaded.iter().any(Option::is_none) {
        let reads = Reads {
            loading,
            scans: &scans,
            tables: loading.tables(&scans, &loaded)?,
            expected: Expectation::new(&loading, (&scans, &loaded), foreseen),
            next: AtomicUsize::new(0),
            done: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
        };
        for (number, data, report) in reads.run()? {
            metrics.split += report.split;
            metrics.transfer_bytes += report.loaded_bytes;
            loaded[number] = Some(data);
        }
    }
    let loaded: Vec<Loaded> = loaded.into_iter().flatten().collect();
    loading.give_codes(plan, (&scans, &loaded), metrics)?;
    let columns = loaded.iter().flat_map(|data| &data.columns);
    metrics.input_bytes += columns.map(|column| column.stored_bytes()).sum::<u64>();
    metrics.transfer_ns += start.elapsed().as_nanos() as u64;
    Ok(loaded)
}

/// The error of a scan of which there is no source.
fn missing_source(scan: &Scan) -> EngineError {
    EngineError::Internal(format!("source {} of {} is missing", scan.source, scan.table))
}

impl Loading<'_> {
    /// The table of a scan.
    fn table(&self, scan: &Scan) -> Result<&dyn TableSource, EngineError> {
        match self.inputs.get(scan.source) {
            Some(Input::Table(source)) => Ok(source.as_ref()),
            _ => Err(missing_source(scan)),
        }
    }

    /// The data of a scan, where nothing has to be read for it.
    fn find(&self, scan: &Scan) -> Result<Option<Loaded>, EngineError> {
        let source = match self.inputs.get(scan.source) {
            Some(Input::Table(source)) => source,
            Some(Input::Intermediate(kept, _)) => {
                return kept.load(scan).map(Some).ok_or_else(|| missing_source(scan));
            }
            Some(Input::Used) | None => return Err(missing_source(scan)),
        };
        // A scan without columns only counts.
        if scan.columns.is_empty() {
            return Ok(source.exact_rows().map(|rows| loaded(source.as_ref(), rows, Vec::new())));
        }
        let found = self.cache.find(self.device, source.as_ref(), &scan.columns, self.wish);
        Ok(found.map(|columns| of_columns(source.as_ref(), columns)))
    }

    /// Scans of which something has to be read, by their numbers: those of one table together, as one reads what the other finds then.
    fn tables(&self, scans: &[&Scan], loaded: &[Option<Loaded>]) -> Result<Vec<Vec<usize>>, EngineError> {
        let mut tables: Vec<(Option<String>, Vec<usize>)> = Vec::new();
        for (number, (scan, _)) in
            scans.iter().zip(loaded).enumerate().filter(|(_, (_, data))| data.is_none())
        {
            let identity = self.table(scan)?.identity();
            let known = tables.iter_mut().find(|(known, _)| known.is_some() && *known == identity);
            match known {
                Some((_, numbers)) => numbers.push(number),
                None => tables.push((identity, vec![number])),
            }
        }
        Ok(tables.into_iter().map(|(_, numbers)| numbers).collect())
    }

    /// Reads the table of a scan, as far as it is not there.
    fn read(&self, scan: &Scan, watch: &Watch<'_>) -> Result<(Loaded, LoadReport), EngineError> {
        let source = self.table(scan)?;
        if scan.columns.is_empty() {
            let rows = self.cache.count_rows(source, self.cancel)?;
            return Ok((loaded(source, rows, Vec::new()), LoadReport::default()));
        }
        let (columns, report) = self.cache.load(self.device, source, &scan.columns, self.wish, watch)?;
        Ok((of_columns(source, columns), report))
    }

    /// Gives codes to the columns that rows are grouped by.
    fn give_codes(
        &self,
        plan: &Plan,
        (scans, loaded): (&[&Scan], &[Loaded]),
        metrics: &mut QueryMetrics,
    ) -> Result<(), EngineError> {
        for (number, column) in GroupingKeys::of(plan, scans).columns() {
            let (Some(scan), Some(data)) = (scans.get(number), loaded.get(number)) else { continue };
            let is_table = |source: &&dyn TableSource| source.common().is_none();
            // Tables of one program would each have other codes.
            let (Some(column), Some(_)) = (data.columns.get(column), self.table(scan).ok().filter(is_table))
            else {
                continue;
            };
            if column.coded.get().is_none() {
                let start = Instant::now();
                let bytes = data.columns.iter().map(|column| column.stored_bytes()).sum();
                self.cache.give_codes(self.device, column, bytes, self.cancel)?;
                metrics.split.add(Phase::Encode, start.elapsed().as_nanos() as u64);
            }
        }
        Ok(())
    }
}

/// Columns of a table.
fn of_columns(source: &dyn TableSource, columns: Vec<Arc<ResidentColumn>>) -> Loaded {
    let rows = columns.first().map_or(0, |column| column.rows);
    loaded(source, rows, columns)
}

fn loaded(source: &dyn TableSource, rows: u64, columns: Vec<Arc<ResidentColumn>>) -> Loaded {
    let most_rows = source.common().map_or(rows, |common| common.rows.max(rows));
    Loaded { rows, most_rows, columns }
}

/// How many tables are read beside those that queries read themselves. A table is read by as many threads as there are cores: where many
/// queries begin at once, each reads one table after the other rather than all of them by thousands of threads.
static OTHERS: AtomicUsize = AtomicUsize::new(0);

/// So many of them.
struct OtherReaders(usize);

impl OtherReaders {
    /// As many as are wanted, or as there may still be: in all one less than there are cores.
    fn take(wanted: usize) -> OtherReaders {
        let most = thread::available_parallelism().map_or(1, usize::from) - 1;
        let more = |taken: usize| Some(taken + wanted.min(most.saturating_sub(taken)));
        let taken = OTHERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).unwrap_or(most);
        OtherReaders(wanted.min(most.saturating_sub(taken)))
    }
}

impl Drop for OtherReaders {
    fn drop(&mut self) {
        OTHERS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Tables that are read side by side.
struct Reads<'a> {
    loading: Loading<'a>,
    scans: &'a [&'a Scan],
    /// The scans of each, by their numbers.
    tables: Vec<Vec<usize>>,
    expected: Expectation<'a>,
    /// The next table.
    next: AtomicUsize,
    done: Mutex<Vec<(usize, Loaded, LoadReport)>>,
    failure: Mutex<Option<EngineError>>,
}

impl Reads<'_> {
    /// Reads all of them; the first error ends it, once what is being read then has been read.
    fn run(self) -> Result<Vec<(usize, Loaded, LoadReport)>, EngineError> {
        let others = OtherReaders::take(self.tables.len().saturating_sub(1));
        thread::scope(|scope| {
            for _ in 0..others.0 {
                // Fewer threads read as well.
                let _ = thread::Builder::new().spawn_scoped(scope, || self.work());
            }
            self.work();
        });
        self.failure.into_inner().map_or(Ok(self.done.into_inner()), Err)
    }

    /// Reads one table after the other, as long as there are any.
    fn work(&self) {
        while let Some(numbers) = self.tables.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            for number in numbers {
                if let Err(error) = self.read(*number) {
                    self.next.store(self.tables.len(), Ordering::Relaxed);
                    self.failure.lock().get_or_insert(error);
                    return;
                }
            }
        }
    }

    /// Reads what is missing of a scan's table.
    fn read(&self, number: usize) -> Result<(), EngineError> {
        let Some(scan) = self.scans.get(number) else { return Ok(()) };
        let rows = self.loading.table(scan)?.exact_rows();
        let seen = |layouts| self.expected.look(number, rows.map(|rows| ScanInfo::new(rows, layouts)));
        let watch = Watch { cancel: self.loading.cancel, seen: &seen };
        let (data, report) = self.loading.read(scan, &watch)?;
        let info = describe(std::slice::from_ref(&data)).pop();
        let mut done = self.done.lock();
        done.push((number, data, report));
        let is_last = done.len() == self.tables.iter().map(Vec::len).sum::<usize>();
        drop(done);
        // What all are like after the last one, the stage itself is compiled for.
        if !is_last {
            self.expected.end(number, info);
        }
        Ok(())
    }
}

/// What the compiler will most likely know of all scans.
struct Expectation<'a> {
    scans: Mutex<Vec<ExpectedScan>>,
    /// Takes it.
    foreseen: &'a (dyn Fn(Vec<ScanInfo>) + Sync),
    told: Mutex<Vec<ScanInfo>>,
}

/// What is known of a scan.
struct ExpectedScan {
    info: Option<ScanInfo>,
    /// Whether more of it is not waited for: it has been read, or looked at, or is large. A small table is read before code for it would
    /// be there.
    is_settled: bool,
}

impl<'a> Expectation<'a> {
    fn new(
        loading: &Loading<'_>,
        (scans, loaded): (&[&Scan], &[Option<Loaded>]),
        foreseen: &'a (dyn Fn(Vec<ScanInfo>) + Sync),
    ) -> Expectation<'a> {
        let of_scan = |(scan, loaded): (&&Scan, &Option<Loaded>)| match loaded {
            Some(data) => ExpectedScan { info: describe(std::slice::from_ref(data)).pop(), is_settled: true },
            None => {
                let rows = loading.table(scan).ok().and_then(TableSource::exact_rows);
                ExpectedScan { info: expected(scan, loading.inputs), is_settled: is_looked_at(rows) }
            }
        };
        let scans = Mutex::new(scans.iter().zip(loaded).map(of_scan).collect());
        Expectation { scans, foreseen, told: Mutex::new(Vec::new()) }
    }

    /// Notes what a scan will be like that is being read.
    fn look(&self, number: usize, info: Option<ScanInfo>) {
        self.note(number, info);
        self.tell();
    }

    /// Notes what a scan is like that has been read. Of one that was not waited for, code is not generated again.
    fn end(&self, number: usize, info: Option<ScanInfo>) {
        if !self.note(number, info) {
            self.tell();
        }
    }

    /// Whether a scan was settled before.
    fn note(&self, number: usize, info: Option<ScanInfo>) -> bool {
        let now = ExpectedScan { info, is_settled: true };
        let mut scans = self.scans.lock();
        scans.get_mut(number).is_some_and(|scan| std::mem::replace(scan, now).is_settled)
    }

    /// Tells of all scans, where nothing is missing.
    fn tell(&self) {
        let info = |scan: &ExpectedScan| scan.info.clone().filter(|_| scan.is_settled);
        let infos = self.scans.lock().iter().map(info).collect::<Option<Vec<ScanInfo>>>();
        let Some(infos) = infos else { return };
        let mut told = self.told.lock();
        if *told != infos {
            told.clone_from(&infos);
            (self.foreseen)(infos);
        }
    }
}

/// What the compiler will most likely know of a scan that was not read yet.
fn expected(scan: &Scan, inputs: &[Input]) -> Option<ScanInfo> {
    let source = match inputs.get(scan.source)? {
        Input::Table(source) => source.as_ref(),
        Input::Intermediate(kept, _) => return kept.info(scan),
        Input::Used => return None,
    };
    let layouts = expected_layouts(source, &scan.columns)?;
    Some(ScanInfo::new(source.exact_rows()?, layouts))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema, SchemaRef};
    use kelpie_compile::types::{DataType, Field};
    use kelpie_device::cpu::CpuDevice;

    use super::*;
    use crate::columns::Placement;
    use crate::options::{Decoding, Dictionaries};
    use crate::source::BatchConsumer;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A table of one column of numbers or texts. Before its rows come it says that it is read, and waits until it is told to go on.
    #[derive(Debug)]
    struct Told {
        name: &'static str,
        values: ArrayRef,
        rows: u64,
        begun: Sender<&'static str>,
        go_on: Mutex<Receiver<()>>,
        fails: bool,
    }

    impl TableSource for Told {
        fn name(&self) -> String {
            self.name.into()
        }
        fn schema(&self) -> SchemaRef {
            let data_type = self.values.data_type().clone();
            Arc::new(Schema::new(vec![ArrowField::new("c", data_type, false)]))
        }
        fn identity(&self) -> Option<String> {
            Some(self.name.into())
        }
        fn exact_rows(&self) -> Option<u64> {
            Some(self.rows)
        }
        fn partitions(&self) -> usize {
            1
        }
        fn read(
            &self,
            _: &[usize],
            consumer: &BatchConsumer<'_>,
            _: &CancelToken,
        ) -> Result<(), EngineError> {
            let batch = RecordBatch::try_new(self.schema(), vec![Arc::clone(&self.values)])?;
            for first in (0..self.rows as usize).step_by(1 << 16) {
                let rows = (self.rows as usize - first).min(1 << 16);
                consumer(0, batch.slice(first, rows))?;
                if first == 1 << 16 || self.rows <= 1 << 16 {
                    let _ = self.begun.send(self.name);
                    let _ = self.go_on.lock().recv_timeout(PATIENCE);
                }
            }
            match self.fails {
                true => Err(EngineError::Source { table: self.name.into(), message: "gone".into() }),
                false => Ok(()),
            }
        }
    }

    /// Tables with who hears of them and lets them go on.
    struct Tables {
        inputs: Vec<Input>,
        begun: Receiver<&'static str>,
        go_on: Vec<Sender<()>>,
    }

    fn tables(of: Vec<(&'static str, ArrayRef, bool)>) -> Tables {
        let (begin, begun) = channel();
        let (mut inputs, mut go_on) = (Vec::new(), Vec::new());
        for (name, values, fails) in of {
            let (sender, receiver) = channel();
            let (rows, begun, receiver) = (values.len() as u64, begin.clone(), Mutex::new(receiver));
            inputs.push(Input::Table(Arc::new(Told { name, values, rows, begun, go_on: receiver, fails })));
            go_on.push(sender);
        }
        Tables { inputs, begun, go_on }
    }

    fn numbers(rows: i64) -> ArrayRef {
        Arc::new((0..rows).map(|row| row % 90).collect::<Int64Array>())
    }

    fn texts() -> ArrayRef {
        Arc::new(StringArray::from(vec!["a", "b", "a"]))
    }

    /// All rows of all tables.
    fn union(inputs: &[Input]) -> Plan {
        let scan = |(source, input): (usize, &Input)| {
            let Input::Table(table) = input else { panic!("a table") };
            let data_type = match table.schema().field(0).data_type() {
                ArrowType::Int64 => DataType::Int64,
                _ => DataType::Utf8,
            };
            let fields = vec![Field { name: "c".into(), data_type, nullable: false }];
            Plan::Scan(Scan { source, table: table.name(), columns: vec![0], fields })
        };
        let inputs: Vec<Plan> = inputs.iter().enumerate().map(scan).collect();
        let fields = inputs[0].fields();
        Plan::Union { inputs, fields }
    }

    fn load_all(
        inputs: &[Input],
        foreseen: &(dyn Fn(Vec<ScanInfo>) + Sync),
    ) -> Result<Vec<Loaded>, EngineError> {
        let device: Arc<dyn Device> = CpuDevice::new(None).expect("a device");
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let wish =
            Wish { placement: Placement::Either, dictionaries: Dictionaries::Auto, decoding: Decoding::Auto };
        let loading = Loading { inputs, device: &device, cache: &cache, wish, cancel: &cancel };
        load(&union(inputs), loading, foreseen, &mut QueryMetrics::default())
    }

    /// Whether a second table was read before the first had been.
    fn is_read_side_by_side() -> bool {
        let of = vec![("a", numbers(7), false), ("b", numbers(5), false), ("c", numbers(0), false)];
        let Tables { inputs, begun, go_on } = tables(of);
        thread::scope(|scope| {
            let loading = scope.spawn(|| load_all(&inputs, &|_| ()));
            begun.recv_timeout(PATIENCE).expect("one is read");
            let second = begun.recv_timeout(Duration::from_secs(2));
            go_on.iter().for_each(|go_on| go_on.send(()).expect("it waits"));
            let loaded = loading.join().expect("no panic").expect("columns");
            // Whichever was there first, they stay in their order.
            assert_eq!(loaded.iter().map(|data| data.rows).collect::<Vec<_>>(), [7, 5, 0]);
            second.is_ok()
        })
    }

    #[test]
    fn tables_are_read_side_by_side_and_stay_in_their_order() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Other tests may be what is read beside just now.
        let attempts = if cores > 1 { 30 } else { 1 };
        let beside = (0..attempts).any(|_| is_read_side_by_side());
        assert_eq!(beside, cores > 1);
    }

    #[test]
    fn a_process_reads_as_many_tables_beside_others_as_it_has_cores() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let taken: Vec<OtherReaders> = (0..3).map(|_| OtherReaders::take(cores)).collect();
        assert!(taken.iter().map(|others| others.0).sum::<usize>() < cores);
    }

    #[test]
    fn the_compiler_is_told_when_small_tables_are_there_and_a_large_one_is_looked_at() {
        let of = vec![("small", texts(), false), ("large", numbers(1 << 20), false)];
        let Tables { inputs, go_on, .. } = tables(of);
        let (tell, told) = channel();
        let foreseen = |infos: Vec<ScanInfo>| {
            let _ = tell.send(infos.iter().map(|info| info.rows).collect::<Vec<u64>>());
        };
        thread::scope(|scope| {
            let loading = scope.spawn(|| load_all(&inputs, &foreseen));
            let [small, large] = go_on.as_slice() else { panic!("two tables") };
            small.send(()).expect("it waits");
            // The large one is not let go on before.
            assert_eq!(told.recv_timeout(PATIENCE).expect("it is told"), [3, 1 << 20]);
            large.send(()).expect("it waits");
            assert_eq!(loading.join().expect("no panic").expect("columns").len(), 2);
        });
    }

    #[test]
    fn an_error_ends_the_reading_of_tables_that_have_not_begun() {
        let of = ["a", "b", "c", "d"].map(|name| (name, numbers(3), true)).to_vec();
        let Tables { inputs, begun, go_on } = tables(of);
        go_on.iter().for_each(|go_on| go_on.send(()).expect("it waits"));
        let error = load_all(&inputs, &|_| ()).expect_err("all of them fail");
        let EngineError::Source { message, .. } = error else { panic!("{error}") };
        assert_eq!(message, "gone");
        let cores = thread::available_parallelism().map_or(1, usize::from);
        assert!(begun.try_iter().count() <= cores);
    }
}
