//! Queries that are cancelled end soon, also where one row meets millions: no worker, no memory and no thread stays with them.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;

/// Time that a query has before it is cancelled: its kernels run by then, or it is cancelled even earlier.
const BEFORE: Duration = Duration::from_millis(400);
/// Far more than a kernel takes to notice on a busy machine, and far less than these queries take.
const PATIENCE: Duration = Duration::from_secs(8);

const COLUMNS: [Column; 2] = [("k", DataType::Int64, true), ("v", DataType::Int32, false)];

/// Rows of which nearly all have the same key.
fn sides(rows: usize) -> Vec<Arc<dyn TableSource>> {
    let side = |salt: usize| {
        let keys = maybe_longs(
            (0..rows).map(|row| if row % 1000 == 7 { None } else { Some((row % 100 / 99) as i64) }),
        );
        let values = ints((0..rows).map(|row| ((row + salt) % 2001) as i32 - 1000));
        table_of(&COLUMNS, vec![keys, values]) as Arc<dyn TableSource>
    };
    vec![side(0), side(13)]
}

/// How many rows a join has that is by the key or by none, and by a condition that hardly any pair fulfils.
fn plan(kind: JoinKind, by_key: bool) -> Plan {
    let column = |index: usize| Expr { kind: ExprKind::Column(index), ..column_of(&COLUMNS, index % 2) };
    let keys = if by_key { vec![(column(0), column(0))] } else { Vec::new() };
    let sum = arithmetic(ArithmeticOp::Add, column(1), column(3));
    let residual = Some(compare_with(CompareOp::Lt, sum, -1998));
    let join = Join { residual, ..join_of(kind, scan_of(0, &COLUMNS), scan_of(1, &COLUMNS), keys) };
    groups_of(Plan::Join(Box::new(join)), Vec::new(), vec![of_longs(AggregateFunction::Count, None)])
}

#[test]
fn rows_that_meet_millions_end_with_their_query() {
    use JoinKind::*;
    let engine = Engine::new();
    for device in devices() {
        let rows = match device {
            DeviceChoice::Simt => 40_000,
            DeviceChoice::Cpu => 400_000,
            _ => 4_000_000,
        };
        let sources = sides(rows);
        let expansions: &[_] = match device {
            DeviceChoice::Cpu => &["lane"],
            _ => &["lane", "warp", "packed", "refill", "staged"],
        };
        let cases = [
            (Inner, true),
            (Inner, false),
            (ProbeOuter, true),
            (ProbeSemi, false),
            (ProbeAnti, true),
            (FullOuter, false),
        ];
        for (number, (kind, by_key)) in cases.into_iter().enumerate() {
            let expansion = expansions[number % expansions.len()];
            let options = on(device, &[("expansion", expansion)]);
            let query = query_of(plan(kind, by_key), &sources, &options);
            let cancel = CancelToken::default();
            let cancelled = thread::spawn({
                let cancel = cancel.clone();
                move || {
                    thread::sleep(BEFORE);
                    cancel.cancel();
                    Instant::now()
                }
            });
            let what = format!("{kind:?}, by a key: {by_key}, {expansion} on {device:?}");
            match engine.execute(&query, &cancel) {
                Err(EngineError::Cancelled) => {}
                other => panic!("{what}: {:?}", other.map(|output| rows_of(&output.batch, false))),
            }
            let took = cancelled.join().unwrap().elapsed();
            assert!(took < PATIENCE, "{what}: {took:?}");
        }
    }
}
