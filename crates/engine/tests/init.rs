//! Small states become empty before the first kernel, each by a fill, or by a kernel: the same rows, run after run, by fewer
//! operations of the device.

use crate::common::*;
use crate::plans::{aggregate, filter, join, scan, table};
use kelpie_compile::plan::AggregateFunction::{Avg, Count, Sum};

const FORMS: [&str; 2] = ["each", "kernel"];

fn options(device: DeviceChoice, form: &str, forced: &[(&str, &str)]) -> QueryOptions {
    on(device, &[forced, &[("init", form)]].concat())
}

/// Sums by two keys of few values, as TPC-H 1 has them.
fn few_groups() -> Plan {
    let all = [(Sum, Some(1), false), (Sum, Some(4), false), (Avg, Some(4), false), (Sum, Some(0), false)];
    let counted = [(Count, None, false), (Count, Some(0), false)];
    aggregate(scan(0), &[2, 0], &[all.as_slice(), &counted].concat())
}

/// Sums by keys of dimensions, as SSB 2.1 has them: three joins on unique keys.
fn star() -> Plan {
    let dimension = |most| filter(scan(1), 1, CompareOp::Lt, most);
    let mut rows = scan(0);
    for (number, most) in [2_000, 2_500, 3_000].into_iter().enumerate() {
        rows = join(JoinKind::Inner, dimension(most), rows, &[(1, 5 * number + 1)], false);
    }
    aggregate(rows, &[0, 5], &[(Sum, Some(16), false)])
}

#[test]
fn fewer_operations_make_the_same_states_empty() {
    let sources = [table(3_000), table(4_000)];
    for (name, plan, least) in [("few groups", few_groups(), 2), ("star", star(), 4)] {
        for device in devices_with_warps() {
            for table in ["direct", "hash"] {
                let (mut expected, mut counts) = (None, Vec::new());
                for form in FORMS {
                    let engine = Engine::new();
                    // Again, as launches that nobody waits for.
                    for _ in 0..3 {
                        let output =
                            run(&engine, &plan, &sources, options(device, form, &[("group_table", table)]));
                        let rows = rows_of(&output.batch, false);
                        assert_eq!(*expected.get_or_insert_with(|| rows.clone()), rows, "{name}, {form}");
                        counts.push(output.metrics.clears);
                    }
                }
                println!("{name}, {table}: {counts:?}");
                let [each, kernel] = [counts[2], counts[5]];
                assert!(each >= least, "{device:?}: {name}, {table}: {counts:?}");
                assert!(kernel < each, "{device:?}: {name}, {table}: {counts:?}");
            }
        }
    }
}

/// A table that grows is cleared again, and so are those of its group.
#[test]
fn tables_that_grow_are_empty_again() {
    let sources = [table(20_000), table(60)];
    let plan = aggregate(scan(0), &[1, 2], &[(Sum, Some(1), false), (Count, None, false)]);
    let expected =
        rows_of(&run(&Engine::new(), &plan, &sources, options(DeviceChoice::Cpu, "each", &[])).batch, false);
    for device in devices_with_warps() {
        for form in FORMS {
            for forced in [
                [("group_table", "hash"), ("group_estimate", "none")],
                [("group_table", "hash"), ("group_estimate", "sketch")],
            ] {
                let engine = Engine::new();
                for _ in 0..2 {
                    let output = run(&engine, &plan, &sources, options(device, form, &forced));
                    assert_eq!(rows_of(&output.batch, false), expected, "{device:?}, {form}, {forced:?}");
                }
            }
        }
    }
}
