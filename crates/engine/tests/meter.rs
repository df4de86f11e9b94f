//! The meter counts what kernels really access, by what the memory is for, and changes no result.

use crate::common::*;
use kelpie_engine::{Accessed, Traffic, Transfer};

const ROWS: u64 = 10_000;

const COLUMNS: [Column; 3] =
    [("x", DataType::Int32, false), ("y", DataType::Int64, false), ("k", DataType::Int64, false)];

/// `x`: 0.. in steps that take 4 bytes; `y`: 8 bytes; `k`: 100 values.
fn table() -> Arc<Table> {
    let rows = 0..ROWS as i64;
    let columns = vec![
        ints(rows.clone().map(|row| row as i32 * 200_000)),
        longs(rows.clone().map(|row| (row - 5_000) << 40)),
        longs(rows.map(|row| row % 100)),
    ];
    table_of(&COLUMNS, columns)
}

fn scan(columns: &[usize]) -> Plan {
    let own: Vec<Column> = columns.iter().map(|column| COLUMNS[*column].clone()).collect();
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: columns.to_vec(), fields: fields_of(&own) })
}

/// The first so many rows, by the first column, which is `x`.
fn first(rows: i128, input: Plan) -> Plan {
    let predicate = compare_with(CompareOp::Lt, column(&input, 0), rows * 200_000);
    keep(input, predicate)
}

fn sum(input: Plan, keys: &[usize], argument: usize) -> Plan {
    let sum = of_longs(AggregateFunction::Sum, Some(column(&input, argument)));
    let keys = keys.iter().map(|key| column(&input, *key)).collect();
    groups_of(input, keys, vec![sum])
}

fn devices() -> Vec<QueryOptions> {
    let is_wanted = |options: &QueryOptions| {
        matches!(options.micro_model, MicroModel::Pipelined | MicroModel::Resolution)
    };
    let metered = |options| QueryOptions { meter: true, ..options };
    models(&lanes()).into_iter().filter(is_wanted).map(metered).collect()
}

fn run(engine: &Engine, plan: &Plan, options: &QueryOptions) -> (RecordBatch, QueryMetrics) {
    let output = crate::common::run(engine, plan, &table(), options);
    (output.batch, output.metrics)
}

fn traffic(plan: &Plan, options: &QueryOptions) -> Traffic {
    run(&Engine::new(), plan, options).1.traffic.expect("counts")
}

/// What was read and written. Under `resolution` lanes go together, so that some beyond the end read a row again: a few rows a
/// thread.
fn read_once(accessed: Accessed, bytes: u64, options: &QueryOptions) -> u64 {
    let threads = match options.device {
        DeviceChoice::Cuda => ROWS,
        _ => 6 * u64::from(options.simt_lanes),
    };
    let again = accessed.bytes().saturating_sub(bytes);
    let has_lanes = options.device != DeviceChoice::Cpu;
    let together = has_lanes && options.micro_model == MicroModel::Resolution && again < 8 * 4 * threads;
    if together { accessed.bytes() - again } else { accessed.bytes() }
}

#[test]
fn a_scan_reads_its_columns_once() {
    for options in devices() {
        for (plan, bytes) in [
            (sum(scan(&[0]), &[], 0), 4 * ROWS),
            (sum(scan(&[1]), &[], 0), 8 * ROWS),
            (sum(first(0, scan(&[0])), &[], 0), 4 * ROWS),
        ] {
            let traffic = traffic(&plan, &options);
            assert_eq!(read_once(traffic.input, bytes, &options), bytes, "{options:?}: {plan:?}");
            assert_eq!(traffic.link.bytes(), 0);
        }
    }
}

#[test]
fn a_result_is_written_once() {
    for options in devices() {
        for rows in [0, 1, 777, ROWS] {
            let traffic = traffic(&first(rows.into(), scan(&[0, 1])), &options);
            // The rows, and how many they are.
            let least = 12 * rows;
            let written = traffic.output.written;
            assert!(
                (least..least + 9 * rows + 4096).contains(&written),
                "{options:?}: {rows} rows, {written}"
            );
        }
    }
}

#[test]
fn tables_and_stores_are_told_apart() {
    for options in devices() {
        let grouped = traffic(&sum(scan(&[2, 1]), &[0], 1), &options);
        assert!(grouped.table.written > 0 && grouped.table.read > 0, "{options:?}: {grouped:?}");
        assert_eq!(grouped.store.bytes(), grouped.store.bytes().min(4096), "{options:?}: {grouped:?}");

        let (build, probe) = (first(50, scan(&[0, 2])), scan(&[2, 1]));
        let keys = vec![(column(&build, 1), column(&probe, 0))];
        let kind = JoinKind::Inner;
        let join = join_of(kind, build, probe, keys);
        let joined = traffic(&sum(Plan::Join(Box::new(join)), &[], 3), &options);
        assert!(joined.table.written >= 50 * 4 && joined.table.read > 0, "{options:?}: {joined:?}");

        let input = scan(&[1]);
        let key = sort_key(column(&input, 0), true, false);
        let sorted = sorted(input, vec![key], None);
        // Not the host's: rows and keys are stored, and sorted by kernels around the pipelines.
        let options = QueryOptions { host_sort_rows: Some(0), ..options };
        let sorted = traffic(&sorted, &options);
        assert!(sorted.store.written > 16 * ROWS && sorted.store.read > 16 * ROWS, "{options:?}: {sorted:?}");
    }
}

#[test]
fn places_that_no_row_has_are_left_out() {
    for options in devices() {
        let (build, probe) = (first(1, scan(&[0])), scan(&[0]));
        let kind = ExprKind::Compare(
            CompareOp::Lt,
            Box::new(Expr::column(0, DataType::Int32, false)),
            Box::new(Expr::column(1, DataType::Int32, false)),
        );
        let residual = Some(Expr { kind, data_type: DataType::Boolean, nullable: false });
        let keys = Vec::new();
        let kind = JoinKind::Inner;
        let join = Join { residual, ..join_of(kind, build, probe, keys) };
        let traffic = traffic(&sum(Plan::Join(Box::new(join)), &[], 1), &options);
        let read = traffic.table.read + traffic.store.read;
        assert!(read <= ROWS * 32, "{options:?}: {traffic:?}");
    }
}

#[test]
fn host_memory_is_the_links() {
    for options in devices() {
        let plan = sum(scan(&[1]), &[], 0);
        let options = QueryOptions { macro_model: MacroModel::Batch, ..options };
        let zero_copy = QueryOptions { transfer: Transfer::ZeroCopy, ..options.clone() };
        let (_, metrics) = run(&Engine::new(), &plan, &zero_copy);
        let traffic = metrics.traffic.unwrap();
        // Where the link is memory, it counts as such; `pipelined` updates two words a row.
        let passes = if options.device == DeviceChoice::Cuda { 0.0..2.1 } else { 1.0..3.1 };
        assert!(passes.contains(&metrics.passes().unwrap()), "{zero_copy:?}: {metrics:?}");
        assert_eq!(read_once(traffic.link, 8 * ROWS, &zero_copy), 8 * ROWS, "{zero_copy:?}");
        assert_eq!(traffic.input.bytes(), 0);
        let copied = QueryOptions { transfer: Transfer::Copy, ..options };
        let traffic = self::traffic(&plan, &copied);
        assert_eq!(read_once(traffic.input, 8 * ROWS, &copied), 8 * ROWS, "{copied:?}");
        assert_eq!(traffic.link.bytes(), 0);
    }
}

#[test]
fn answers_are_the_same_and_pipelines_add_up() {
    let engine = Engine::new();
    let plan = sum(first(7_000, scan(&[0, 1, 2])), &[2], 1);
    for mut options in devices() {
        for micro_model in MicroModel::ALL {
            for resolution in Resolution::ALL {
                options = QueryOptions { micro_model, resolution, meter: true, ..options };
                let (_, metrics) = run(&engine, &plan, &options);
                let all = metrics.traffic.unwrap();
                let mut pipelines = Traffic::default();
                metrics.pipelines.iter().for_each(|pipeline| pipelines += pipeline.traffic.unwrap());
                assert_eq!(all.input, pipelines.input, "{options:?}");
                assert!(all.store.bytes() >= pipelines.store.bytes());
                assert!(metrics.passes().unwrap() > 0.5, "{:?}", metrics.passes());
                assert!(metrics.link_time_ns().unwrap() > 0.0 && metrics.memory_time_ns().unwrap() > 0.0);
                let plain = QueryOptions { meter: false, ..options.clone() };
                let (batch, metrics) = run(&engine, &plan, &plain);
                assert_eq!(batch.num_rows(), 100);
                assert!(metrics.traffic.is_none() && metrics.passes().is_none());
                assert!(metrics.pipelines.iter().all(|pipeline| pipeline.traffic.is_none()));
            }
        }
    }
}
