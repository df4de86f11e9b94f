//! Options of queries, queries that run, and what is looked at of their results.

use std::borrow::Borrow;

use super::*;

/// What is forced: axes, each with its value.
pub fn force<'a>(choices: impl IntoIterator<Item = impl Borrow<(&'a str, &'a str)>>) -> Forced {
    let mut forced = Forced::default();
    for choice in choices {
        let (axis, value) = choice.borrow();
        forced.set(axis, value).expect("an axis and its value");
    }
    forced
}

/// The options of a device with two workers, and what is forced.
pub fn on(device: DeviceChoice, choices: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { device, threads: Some(2), variants: force(choices), ..QueryOptions::default() }
}

/// The same, with warps of so many lanes.
pub fn on_lanes((device, simt_lanes): (DeviceChoice, u32), choices: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { simt_lanes, ..on(device, choices) }
}

/// The interpreter with warps of so many lanes in so many blocks.
pub fn in_blocks(lanes: u32, blocks: u32, choices: &[(&str, &str)]) -> QueryOptions {
    let shape = ShapeChoices { blocks: Some(blocks), ..ShapeChoices::default() };
    QueryOptions { shape, ..on_lanes((DeviceChoice::Simt, lanes), choices) }
}

/// A CPU with two workers.
pub fn cpu() -> QueryOptions {
    on(DeviceChoice::Cpu, &[])
}

/// More that is forced.
pub fn forcing(options: &QueryOptions, choices: &[(&str, &str)]) -> QueryOptions {
    let mut options = options.clone();
    choices
        .iter()
        .for_each(|(axis, value)| options.variants.set(axis, value).expect("an axis and its value"));
    options
}

/// A CPU, the interpreter, and a GPU where there is one.
pub fn devices() -> Vec<DeviceChoice> {
    [DeviceChoice::Cpu, DeviceChoice::Simt].into_iter().chain(gpu()).collect()
}

/// The interpreter, and a GPU where there is one.
pub fn devices_with_warps() -> Vec<DeviceChoice> {
    [DeviceChoice::Simt].into_iter().chain(gpu()).collect()
}

/// A CPU, interpreters with warps of two widths, and a GPU where there is one.
pub fn lanes() -> Vec<(DeviceChoice, u32)> {
    let own = [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];
    own.into_iter().chain(gpu().map(|device| (device, 32))).collect()
}

/// Every micro model on each device.
pub fn models(devices: &[(DeviceChoice, u32)]) -> Vec<QueryOptions> {
    let with = |&(device, simt_lanes): &(DeviceChoice, u32)| {
        let options = QueryOptions { device, simt_lanes, ..QueryOptions::default() };
        MicroModel::ALL.map(|micro_model| QueryOptions { micro_model, ..options.clone() })
    };
    devices.iter().flat_map(with).collect()
}

/// The same, and each resolution that differs there.
pub fn every_model(devices: &[(DeviceChoice, u32)]) -> Vec<QueryOptions> {
    let is_local = |options: &QueryOptions| {
        options.micro_model == MicroModel::Resolution && options.device != DeviceChoice::Cpu
    };
    let efficient =
        |options: &QueryOptions| QueryOptions { resolution: Resolution::WorkEfficient, ..options.clone() };
    let with = |options: QueryOptions| {
        let more = is_local(&options).then(|| efficient(&options));
        [options].into_iter().chain(more)
    };
    models(devices).into_iter().flat_map(with).collect()
}

/// One table or several.
pub trait Sources {
    fn sources(&self) -> Vec<Arc<dyn TableSource>>;
}

impl Sources for Arc<Table> {
    fn sources(&self) -> Vec<Arc<dyn TableSource>> {
        vec![Arc::clone(self) as _]
    }
}

impl Sources for Arc<dyn TableSource> {
    fn sources(&self) -> Vec<Arc<dyn TableSource>> {
        vec![Arc::clone(self)]
    }
}

impl Sources for [Arc<Table>] {
    fn sources(&self) -> Vec<Arc<dyn TableSource>> {
        self.iter().map(|table| Arc::clone(table) as _).collect()
    }
}

impl Sources for [Arc<dyn TableSource>] {
    fn sources(&self) -> Vec<Arc<dyn TableSource>> {
        self.to_vec()
    }
}

impl<S, const N: usize> Sources for [S; N]
where
    [S]: Sources,
{
    fn sources(&self) -> Vec<Arc<dyn TableSource>> {
        self.as_slice().sources()
    }
}

impl<S> Sources for Vec<S>
where
    [S]: Sources,
{
    fn sources(&self) -> Vec<Arc<dyn TableSource>> {
        self.as_slice().sources()
    }
}

pub fn query_of(
    plan: impl Borrow<Plan>,
    sources: &(impl Sources + ?Sized),
    options: impl Borrow<QueryOptions>,
) -> Query {
    let (plan, options) = (plan.borrow().clone(), options.borrow().clone());
    Query { plan, sources: sources.sources(), options }
}

pub fn try_run(
    engine: &Engine,
    plan: impl Borrow<Plan>,
    sources: &(impl Sources + ?Sized),
    options: impl Borrow<QueryOptions>,
) -> Result<QueryOutput, EngineError> {
    engine.execute(&query_of(plan, sources, options), &CancelToken::default())
}

/// The same of a query that is no error.
pub fn run(
    engine: &Engine,
    plan: impl Borrow<Plan>,
    sources: &(impl Sources + ?Sized),
    options: impl Borrow<QueryOptions>,
) -> QueryOutput {
    let query = query_of(plan, sources, options);
    let outcome = engine.execute(&query, &CancelToken::default());
    outcome.unwrap_or_else(|error| panic!("{:?}: {error}", query.options))
}

/// The rows of a query, in no order.
pub fn rows(
    engine: &Engine,
    plan: impl Borrow<Plan>,
    sources: &(impl Sources + ?Sized),
    options: impl Borrow<QueryOptions>,
) -> Vec<String> {
    rows_of(&run(engine, plan, sources, options).batch, false)
}

/// A value as text, NULL as `-`.
pub fn cell(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) { "-".into() } else { array_value_to_string(array, row).expect("prints") }
}

/// The rows of a batch, cell by cell.
pub fn cells_of(batch: &RecordBatch) -> Vec<Vec<String>> {
    let row = |row| batch.columns().iter().map(|array| cell(array, row)).collect();
    (0..batch.num_rows()).map(row).collect()
}

/// The rows of a batch as text, in order where that counts.
pub fn rows_of(batch: &RecordBatch, ordered: bool) -> Vec<String> {
    let mut rows: Vec<String> = cells_of(batch).into_iter().map(|cells| cells.join("|")).collect();
    if !ordered {
        rows.sort_unstable();
    }
    rows
}

/// Whether an axis had a value anywhere.
pub fn has(output: &QueryOutput, (axis, value): (&str, &str)) -> bool {
    output.metrics.choices().any(|choice| choice.axis.name == axis && choice.value == value)
}

/// The values that an axis had.
pub fn chosen(output: &QueryOutput, axis: &str) -> Vec<&'static str> {
    let choices = output.metrics.choices().filter(|choice| choice.axis.name == axis);
    choices.map(|choice| choice.value).collect()
}

/// What the pipelines are called.
pub fn names_of(output: &QueryOutput) -> Vec<&str> {
    output.metrics.pipelines.iter().map(|pipeline| pipeline.name.as_str()).collect()
}

/// Whether a pipeline's name tells something.
pub fn is_told(output: &QueryOutput, what: &str) -> bool {
    names_of(output).iter().any(|name| name.contains(what))
}

/// Launches of the pipelines that bring rows to their groups.
pub fn fillings(output: &QueryOutput) -> u32 {
    let fills = output.metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains("→ aggregate"));
    fills.map(|pipeline| pipeline.launches - pipeline.sketches).sum()
}

/// The rows of a batch as text, in no order, of which doubles have seven digits: sums of them differ in the last bits by the order of
/// their rows. None of them is just between two of these numbers.
pub fn rounded_rows(batch: &RecordBatch) -> Vec<String> {
    let cell = |array: &ArrayRef, row: usize| match array.as_primitive_opt::<Float64Type>() {
        Some(doubles) if doubles.is_valid(row) => format!("{:.7e}", doubles.value(row) * 1.000_000_123_456_7),
        _ => cell(array, row),
    };
    let row = |row| batch.columns().iter().map(|array| cell(array, row)).collect::<Vec<_>>().join("|");
    let mut rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    rows.sort_unstable();
    rows
}

/// The groups of rows by some columns, each with the number of rows, and the sum and the greatest of a column of integers.
pub fn grouped(rows: &[String], keys: &[usize], amount: usize) -> Vec<String> {
    let mut groups: BTreeMap<Vec<&str>, (u64, i64, i64)> = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let (count, sum, most) = groups.entry(keys.iter().map(|key| cells[*key]).collect()).or_default();
        let amount: i64 = cells[amount].parse().expect("a number");
        (*count, *sum, *most) = (*count + 1, *sum + amount, amount.max(*most));
    }
    let line = |(keys, (count, sum, most)): (&Vec<&str>, &(u64, i64, i64))| {
        format!("{}|{count}|{sum}|{most}", keys.join("|"))
    };
    let mut lines: Vec<String> = groups.iter().map(line).collect();
    lines.sort();
    lines
}

/// Slots of the direct-addressed table that a query's rows came to, if they came to one.
pub fn slots(output: &QueryOutput) -> Option<u64> {
    let names = names_of(output).into_iter();
    let behind = names.filter_map(|text| text.split_once("direct, ")).map(|(_, behind)| behind).next()?;
    behind.split(' ').next()?.parse().ok()
}
