//! A GPU that is lost: its query is DataFusion's, later ones run on the CPU until it can be opened again. A GPU that is not ready: the
//! first run of a query is the CPU's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_device::cpu::CpuDevice;
use kelpie_device::{
    BlockShape, Buffer, CancelToken, CopyTicket, Device, DeviceError, DeviceKind, Download, HostCopy, Kernel,
    Launch, LaunchReport, QueryStream,
};
use kelpie_kir::{Target, ValidModule};
use parking_lot::Mutex;

use super::{Devices, OpenGpu};
use crate::error::{EngineError, FallbackReason};
use crate::memory_source::MemorySource;
use crate::metrics::QueryOutput;
use crate::options::{DeviceChoice, Query, QueryOptions};
use crate::query::Engine;
use crate::source::{BatchConsumer, TableSource};

/// The next launch loses the device.
static LOSE: AtomicBool = AtomicBool::new(false);
/// The device cannot be opened.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// What was opened.
static OPENED: Mutex<Vec<Weak<dyn Device>>> = Mutex::new(Vec::new());

/// The CPU in the place of a GPU.
#[derive(Debug)]
struct Gpu {
    cpu: Arc<CpuDevice>,
    lost: AtomicBool,
}

fn open() -> Result<Arc<dyn Device>, DeviceError> {
    if CLOSED.load(Ordering::SeqCst) {
        return Err(DeviceError::NotUsable { device: "gpu".into(), reason: "it does not start".into() });
    }
    let gpu: Arc<dyn Device> = Arc::new(Gpu { cpu: CpuDevice::new(Some(1))?, lost: AtomicBool::new(false) });
    OPENED.lock().push(Arc::downgrade(&gpu));
    Ok(gpu)
}

impl Device for Gpu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }
    fn name(&self) -> String {
        "gpu".into()
    }
    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
    fn properties(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn target(&self) -> &Target {
        self.cpu.target()
    }
    fn memory(&self) -> (u64, u64) {
        self.cpu.memory()
    }
    fn set_memory_limit(&self, limit: Option<u64>) {
        self.cpu.set_memory_limit(limit);
    }
    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.cpu.allocate(bytes)
    }
    fn allocate_host(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.cpu.allocate_host(bytes)
    }
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.cpu.upload(buffer, offset, data)
    }
    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.cpu.download(buffer, offset, data)
    }
    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.cpu.fill(buffer, offset, bytes, value)
    }
    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        self.cpu.compile_for(module, kernel, shape)
    }
    fn code(&self, module: &ValidModule, shape: BlockShape) -> Result<String, DeviceError> {
        self.cpu.code(module, shape)
    }
    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        if LOSE.swap(false, Ordering::SeqCst) {
            self.lost.store(true, Ordering::SeqCst);
        }
        if self.is_lost() {
            let (device, operation) = ("gpu".into(), "a launch".into());
            return Err(DeviceError::Failed { device, operation, message: "an illegal address".into() });
        }
        self.cpu.launch(launch)
    }
    fn begin_query(self: Arc<Self>) -> Result<Box<dyn QueryStream>, DeviceError> {
        Ok(Box::new(Stream(self)))
    }
}

#[derive(Debug)]
struct Stream(Arc<dyn Device>);

impl QueryStream for Stream {
    fn device(&self) -> &Arc<dyn Device> {
        &self.0
    }
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.0.upload(buffer, offset, data)
    }
    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.0.fill(buffer, offset, bytes, value)
    }
    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        parts.iter_mut().try_for_each(|part| self.0.download(part.buffer, part.offset, part.data))
    }
    fn begin_copies(&self, _: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        unreachable!("nothing streams")
    }
    fn after_copies(&self, _: CopyTicket) -> Result<(), DeviceError> {
        Ok(())
    }
    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        self.0.launch(launch)
    }
}

/// A table whose columns stay on the device.
#[derive(Debug)]
struct Cached(MemorySource);

impl TableSource for Cached {
    fn name(&self) -> String {
        self.0.name()
    }
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
    fn identity(&self) -> Option<String> {
        Some("t".into())
    }
    fn exact_rows(&self) -> Option<u64> {
        self.0.exact_rows()
    }
    fn partitions(&self) -> usize {
        self.0.partitions()
    }
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        self.0.read(columns, consumer, cancel)
    }
}

/// `select sum(x) from t`
fn query(device: DeviceChoice) -> Query {
    let schema = Arc::new(Schema::new(vec![ArrowField::new("x", ArrowType::Int64, false)]));
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_new(schema, vec![column]).expect("a batch");
    let field = |name: &str, nullable| Field { name: name.into(), data_type: DataType::Int64, nullable };
    let scan = Scan { source: 0, table: "t".into(), columns: vec![0], fields: vec![field("x", false)] };
    let sum = Aggregate {
        function: AggregateFunction::Sum,
        argument: Some(Expr::column(0, DataType::Int64, false)),
        distinct: false,
        field: field("sum", true),
    };
    let plan = Plan::Aggregate {
        input: Box::new(Plan::Scan(scan)),
        keys: Vec::new(),
        aggregates: vec![sum],
        names: vec!["sum".into()],
    };
    let options = QueryOptions { device, ..QueryOptions::default() };
    Query {
        plan,
        sources: vec![Arc::new(Cached(MemorySource::new("t", batch.schema(), vec![batch])))],
        options,
    }
}

fn run(engine: &Engine, device: DeviceChoice) -> Result<QueryOutput, EngineError> {
    let output = engine.execute(&query(device), &CancelToken::default());
    if let Ok(output) = &output {
        let sums: &Int64Array = arrow::array::AsArray::as_primitive(output.batch.column(0));
        assert_eq!(sums.values(), &[4950]);
    }
    output
}

#[test]
fn a_lost_gpu_is_opened_again() {
    use DeviceChoice::{Auto, Cpu, Cuda};
    let mut engine = Engine::new();
    engine.devices = Devices::with_gpu(OpenGpu { open, may_be_there: || true });
    for device in [Auto, Cuda] {
        assert_eq!(run(&engine, device).expect("runs").metrics.device, "gpu");
    }
    LOSE.store(true, Ordering::SeqCst);
    match run(&engine, Auto) {
        Err(EngineError::Fallback(FallbackReason::DeviceLost(error))) => {
            assert!(error.to_string().contains("an illegal address"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    CLOSED.store(true, Ordering::SeqCst);
    for device in [Auto, Cuda] {
        let metrics = run(&engine, device).expect("runs on the CPU").metrics;
        assert!(metrics.device.starts_with("cpu"), "{}", metrics.device);
        assert_eq!(metrics.steps, ["gpu is not usable: it does not start; on the CPU"]);
    }
    assert!(OPENED.lock()[0].upgrade().is_none(), "something of the lost device is still held");
    assert!(run(&engine, Cpu).expect("runs").metrics.steps.is_empty());
    CLOSED.store(false, Ordering::SeqCst);
    for device in [Auto, Cuda] {
        let metrics = run(&engine, device).expect("runs on the new one").metrics;
        assert_eq!((metrics.device.as_str(), metrics.steps.len()), ("gpu", 0));
    }
    assert_eq!(OPENED.lock().len(), 2);
}

/// One that never opened is no loss: who asks for it is told.
#[test]
fn a_gpu_that_never_was_is_an_error() {
    let never = || Err(DeviceError::NotUsable { device: "gpu".into(), reason: "there is none".into() });
    let mut engine = Engine::new();
    engine.devices = Devices::with_gpu(OpenGpu { open: never, may_be_there: || false });
    assert!(matches!(run(&engine, DeviceChoice::Cuda), Err(EngineError::Device(_))));
    assert!(run(&engine, DeviceChoice::Auto).expect("runs").metrics.steps.is_empty());
}

fn open_interpreter() -> Result<Arc<dyn Device>, DeviceError> {
    Ok(kelpie_device::simt::SimtDevice::new(4, 8, 2))
}

fn engine_with(gpu: OpenGpu) -> Engine {
    let mut engine = Engine::new();
    engine.devices = Devices::with_gpu(gpu);
    engine
}

/// The device of a run, as whoever runs queries for people asks for it.
fn first_device(engine: &Engine, query: &Query) -> String {
    let first = engine.first_run(query);
    let output = engine.execute(first.as_ref().unwrap_or(query), &CancelToken::default());
    output.expect("runs").metrics.device
}

#[test]
fn first_runs_are_the_cpus_where_the_gpu_is_not_ready() {
    let gpu = OpenGpu { open: open_interpreter, may_be_there: || true };
    let engine = engine_with(gpu);
    let first = query(DeviceChoice::Auto);
    assert!(first_device(&engine, &first).starts_with("cpu"));
    assert!(engine.devices.opened_gpu().is_none(), "nobody has waited for it");
    assert!(first_device(&engine, &first).starts_with("simt"));
    // Another query of the same form, one of another form, and one that may not.
    let summed = |number: i128| {
        let mut query = query(DeviceChoice::Auto);
        let Plan::Aggregate { aggregates, .. } = &mut query.plan else { panic!("an aggregation") };
        aggregates[0].argument = Some(Expr::literal(Literal::Int(number), DataType::Int64));
        query
    };
    assert!(first_device(&engine, &summed(5)).starts_with("cpu"));
    assert!(first_device(&engine, &summed(6)).starts_with("simt"));
    assert!(first_device(&engine, &summed(5)).starts_with("simt"));
    let mut never = query(DeviceChoice::Auto);
    never.options.handover = false;
    assert!(first_device(&engine, &never).starts_with("simt"));
    // Without a GPU there is nothing to hand over to.
    let gpu = OpenGpu { open: open_interpreter, may_be_there: || false };
    let engine = engine_with(gpu);
    assert!(engine.first_run(&first).is_none());
}

/// What a CPU would take longer for than a GPU to get ready for.
#[test]
fn large_first_runs_are_the_gpus() {
    #[derive(Debug)]
    struct Large(Cached);
    impl TableSource for Large {
        fn name(&self) -> String {
            self.0.name()
        }
        fn schema(&self) -> SchemaRef {
            self.0.schema()
        }
        fn identity(&self) -> Option<String> {
            self.0.identity()
        }
        fn exact_rows(&self) -> Option<u64> {
            Some(1 << 40)
        }
        fn partitions(&self) -> usize {
            self.0.partitions()
        }
        fn read(&self, _: &[usize], _: &BatchConsumer<'_>, _: &CancelToken) -> Result<(), EngineError> {
            Err(EngineError::Cancelled)
        }
    }
    let gpu = OpenGpu { open: open_interpreter, may_be_there: || true };
    let engine = engine_with(gpu);
    let mut large = query(DeviceChoice::Auto);
    let batch = RecordBatch::new_empty(large.sources[0].schema());
    large.sources = vec![Arc::new(Large(Cached(MemorySource::new("t", batch.schema(), vec![batch]))))];
    // Both read; the GPU is faster from there on.
    assert!(engine.first_run(&large).is_none());
}

/// Whoever asks for other workers has the same memory, and whoever may have less of it has an account.
#[test]
fn all_have_the_same_cpu_with_workers_and_memory_of_their_own() {
    let devices = Devices::default();
    let find = |threads, memory_limit| {
        let device = DeviceChoice::Cpu;
        devices
            .find(&QueryOptions { device, threads, memory_limit, ..QueryOptions::default() })
            .expect("a CPU")
    };
    let all = find(None, None);
    let cores = all.target().resident_blocks as usize;
    assert!(Arc::ptr_eq(&all, &find(Some(cores), None)));
    let more = find(Some(cores + 5), None);
    assert_eq!(more.target().resident_blocks as usize, cores + 5);
    assert_eq!(more.memory_id(), all.memory_id());
    let (small, same) = (find(None, Some(1 << 20)), find(Some(1), Some(1 << 20)));
    assert!(small.memory_id() == same.memory_id() && small.memory_id() != all.memory_id());
    assert!([&more, &small, &same].iter().all(|cpu| cpu.all_memory_id() == all.all_memory_id()));
    let buffer = small.allocate(600 << 10).expect("there is room");
    assert!(same.allocate(600 << 10).is_err() && all.allocate(600 << 10).is_ok());
    // What one of them has is there for all.
    all.upload(&buffer, 5, &[7]).expect("the same memory");
    assert_eq!((small.memory().1, all.memory().1 > 1 << 20), (1 << 20, true));
    drop(buffer);
    assert!(same.allocate(600 << 10).is_ok());
}

/// Limits that nobody uses are forgotten, those in use are not.
#[test]
fn limits_of_memory_do_not_pile_up() {
    let devices = Devices::default();
    let find = |limit| {
        let options =
            QueryOptions { device: DeviceChoice::Cpu, memory_limit: limit, ..QueryOptions::default() };
        devices.find(&options).expect("a CPU")
    };
    let used = find(Some(1));
    for limit in 2..100 {
        find(Some(limit));
    }
    assert!(devices.opened().len() <= super::UNUSED_LIMITS + 3, "{}", devices.opened().len());
    assert!(Arc::ptr_eq(&used, &find(Some(1))));
    assert!(Arc::ptr_eq(&find(None), &find(None)));
}
