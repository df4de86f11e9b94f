//! Joins of every kind against a nested loop: keys × NULLs × duplicates × residual conditions × empty sides, on the
//! CPU and on the interpreter.

use crate::common::*;
use crate::sides::{Condition, Row, Spread, batch, column, expected, plan, rows, scan, table};

/// The sides of joins stay as they are written.
fn options(device: DeviceChoice) -> QueryOptions {
    QueryOptions { micro_model: MicroModel::Resolution, ..on(device, &[("build_side", "written")]) }
}

fn run(engine: &Engine, plan: Plan, sides: [&[Row]; 2], device: DeviceChoice) -> Vec<String> {
    crate::common::rows(engine, plan, &sides.map(table), options(device))
}

#[test]
fn every_kind_equals_a_nested_loop() {
    let engine = Engine::new();
    let sides: Vec<(Vec<Row>, Vec<Row>)> = vec![
        (rows(0, Spread::Dense, 0), rows(5, Spread::Dense, 1)),
        (rows(5, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(1, Spread::Dense, 0), rows(1, Spread::Dense, 0)),
        (rows(40, Spread::Dense, 0), rows(60, Spread::Dense, 1)),
        (rows(40, Spread::Sparse, 3), rows(60, Spread::Sparse, 1)),
        (rows(30, Spread::Duplicates, 0), rows(25, Spread::Dense, 1)),
        (rows(25, Spread::Sparse, 0), rows(30, Spread::Duplicates, 1)),
        (rows(30, Spread::Duplicates, 2), rows(30, Spread::Duplicates, 1)),
        (rows(12, Spread::One, 2), rows(40, Spread::One, 1)),
        (rows(30, Spread::SparseDuplicates, 2), rows(30, Spread::SparseDuplicates, 1)),
        (rows(70, Spread::Skewed, 1), rows(40, Spread::Skewed, 1)),
        (rows(70, Spread::DenseSkewed, 1), rows(40, Spread::DenseSkewed, 1)),
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
    ];
    let key_sets: [&[usize]; 6] = [&[0], &[1], &[0, 1], &[], &[3], &[3, 1, 0]];
    let mut cases = Vec::new();
    for number in 0..sides.len() {
        let mut devices = vec![DeviceChoice::Cpu, DeviceChoice::Simt];
        // Each plan costs NVRTC a tenth of a second.
        if gpu().is_some() && [3, 7, 9].contains(&number) {
            devices.push(DeviceChoice::Cuda);
        }
        for keys in key_sets {
            for (residual, null_equal) in [(false, false), (true, false), (false, true), (true, true)] {
                // One set of sides each for decimals, and two for pairs of all rows, do.
                let is_rare = (keys.contains(&3) && number != 9) || (keys.is_empty() && number > 4);
                if keys.is_empty() && null_equal || is_rare {
                    continue;
                }
                let condition = Condition { keys, residual, null_equal };
                let kinds = JoinKind::ALL
                    .into_iter()
                    .flat_map(|kind| devices.iter().map(move |device| (kind, *device)));
                cases.extend(kinds.map(|(kind, device)| (number, condition, kind, device)));
            }
        }
    }
    // Each kind of each pair of sides, under each condition.
    let cases = covering("joins", cases, 200, |(number, condition, kind, device)| {
        [format!("{number} {kind:?}"), format!("{condition:?} {device:?}"), format!("{kind:?} {device:?}")]
            .into()
    });
    for (number, condition, kind, device) in cases {
        let (build, probe) = &sides[number];
        let got = run(&engine, plan(kind, condition, false), [build, probe], device);
        let what = format!("{kind:?} {condition:?} {device:?} {:?}", (build.len(), probe.len()));
        assert_eq!(got, expected(kind, condition, build, probe), "{what}");
    }
}

#[test]
fn not_in_knows_nulls() {
    let engine = Engine::new();
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    let with_null = |nulls: bool| -> Vec<Row> {
        let mut rows = rows(6, Spread::Dense, 0);
        if nulls {
            rows.push((None, None, 1));
        }
        rows
    };
    for (outer_nulls, inner, passes) in [
        (false, vec![], 6),
        (true, vec![], 7),
        (true, vec![(Some(0), None, 0)], 5),
        (true, vec![(Some(99), None, 0)], 6),
        (true, vec![(Some(99), None, 0), (None, None, 0)], 0),
        (false, vec![(None, None, 0)], 0),
    ] {
        for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
            let outer = with_null(outer_nulls);
            let got = run(&engine, plan(JoinKind::BuildAnti, condition, true), [&outer, &inner], device);
            assert_eq!(got.len(), passes, "{outer_nulls} {inner:?} {device:?}");
        }
    }
}

/// The index that a join's build side gets.
#[test]
fn forms_of_the_index() {
    let engine = Engine::new();
    let [dense, nearly, sparse] =
        [Spread::Dense, Spread::NearlyDense, Spread::Sparse].map(|spread| rows(40, spread, 0));
    let [dense_twice, sparse_twice] =
        [Spread::Duplicates, Spread::SparseDuplicates].map(|spread| rows(40, spread, 0));
    let condition = |residual| Condition { keys: &[0], residual, null_equal: false };
    for (kind, residual, build, form) in [
        (JoinKind::Inner, false, &dense, "rows at their keys, all"),
        (JoinKind::ProbeOuter, false, &dense, "rows at their keys, all"),
        (JoinKind::Inner, false, &nearly, "direct, many"),
        (JoinKind::BuildOuter, false, &dense, "direct, unique"),
        (JoinKind::Inner, false, &dense_twice, "direct, many"),
        (JoinKind::Inner, false, &sparse, "hash, unique"),
        (JoinKind::Inner, false, &sparse_twice, "hash, many"),
        (JoinKind::ProbeSemi, false, &dense_twice, "direct"),
        (JoinKind::ProbeSemi, false, &sparse_twice, "hash"),
        (JoinKind::ProbeSemi, true, &dense_twice, "direct, many"),
        (JoinKind::ProbeSemi, true, &sparse_twice, "hash, many"),
    ] {
        for (device, many) in [(DeviceChoice::Cpu, "chains"), (DeviceChoice::Simt, "buckets")] {
            let form = form.replace("many", many);
            let sources = [build, &sparse].map(|rows| table(rows));
            let query = query_of(plan(kind, condition(residual), false), &sources, options(device));
            // What was found of the data is known afterwards.
            engine.execute(&query, &CancelToken::default()).expect("the join runs");
            let names = engine.explain(&query, ExplainStage::Pipelines).expect("an explanation");
            let is_there =
                ["index", "build side"].map(|sink| names.contains(&format!("→ {sink} ({form})\n")));
            assert!(is_there.contains(&true), "{kind:?} {form}: {names}");
        }
    }
}

/// One key on very many rows: each side may have it, in any form of the index.
#[test]
fn a_key_on_very_many_rows() {
    let engine = Engine::new();
    let many = |key: i64, count: usize| -> Vec<Row> {
        let own = (0..100).map(|index| (Some(key + 1 + index), None, 1));
        (0..count).map(|_| (Some(key), None, 1)).chain(own).collect()
    };
    let few = |key: i64| -> Vec<Row> {
        vec![(Some(key), None, 1), (Some(key + 7), None, 1), (Some(key - 1), None, 1), (None, None, 1)]
    };
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    let gpu = gpu().map(|device| (device, 70_000));
    let devices = [(DeviceChoice::Cpu, 70_000), (DeviceChoice::Simt, 600)];
    for (device, count) in devices.into_iter().chain(gpu) {
        // Dense keys, and keys with another far away.
        for (key, far) in [(10, None), (i64::MIN + 10, Some((Some(i64::MAX), None, 1)))] {
            let large: Vec<Row> = many(key, count).into_iter().chain(far.clone()).collect();
            let small: Vec<Row> = few(key).into_iter().chain(far).collect();
            let shared = small.len() - 3;
            for (kind, swapped, rows) in [
                (JoinKind::Inner, false, count + shared),
                (JoinKind::Inner, true, count + shared),
                (JoinKind::FullOuter, false, large.len() + 2),
                (JoinKind::BuildSemi, false, count + shared),
                (JoinKind::BuildSemi, true, 1 + shared),
                (JoinKind::BuildAnti, false, 99),
                (JoinKind::BuildMark, false, large.len()),
                (JoinKind::ProbeSemi, false, 1 + shared),
                (JoinKind::ProbeAnti, true, 99),
            ] {
                let sides: [&[Row]; 2] = if swapped { [&small, &large] } else { [&large, &small] };
                let got = run(&engine, plan(kind, condition, false), sides, device);
                assert_eq!(got.len(), rows, "{kind:?} {device:?} {key} swapped: {swapped}");
            }
        }
        // Every row of one side meets every row of the other: the build side's rows are marked once, not by each.
        let (build, probe) = (many(10, count), many(10, count));
        let got = run(&engine, plan(JoinKind::BuildSemi, condition, false), [&build, &probe], device);
        assert_eq!(got.len(), build.len(), "{device:?}");
    }
}

/// Where the build side is empty, some kinds do not look at the probe side, whose keys cannot be computed here.
#[test]
fn an_empty_build_side() {
    use JoinKind::*;
    let engine = Engine::new();
    let cast = |text: Expr| cast(text, DataType::Int64);
    // The cast stands in the key, or below an aggregation: in the pipeline of the join, or in one before it.
    for is_below in [false, true] {
        for kind in JoinKind::ALL {
            let skips = !matches!(kind, ProbeOuter | FullOuter | ProbeAnti | ProbeMark);
            let probe = match is_below {
                false => scan(1),
                true => {
                    groups_of(scan(1), vec![cast(column(1)), column(1), column(2), column(3)], Vec::new())
                }
            };
            let key = if is_below { column(0) } else { cast(column(1)) };
            let join = |build| {
                Plan::Join(Box::new(join_of(kind, build, probe.clone(), vec![(column(0), key.clone())])))
            };
            let (some, bad) = (rows(3, Spread::Dense, 0), vec![(Some(1), Some("ключ".to_string()), 1)]);
            for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
                for (build, fails) in [(&[][..], !skips), (some.as_slice(), true)] {
                    let sources = [build, &bad].map(table);
                    let got = try_run(&engine, join(scan(0)), &sources, options(device));
                    let rows = got.ok().map(|output| output.batch.num_rows());
                    let expected = if fails { None } else { Some(0) };
                    assert_eq!(rows, expected, "{kind:?} {device:?} {} {is_below}", build.len());
                }
            }
        }
    }
}

/// Parts of a table that no build row can match are not read, also between parts that are.
#[test]
fn parts_between_others_are_left_out() {
    const ROWS: i64 = 100_000;
    let engine = Engine::new();
    let part = |first: i64| -> Vec<Row> { (first..first + ROWS).map(|key| (Some(key), None, 1)).collect() };
    let parts: Vec<RecordBatch> = (0..5).map(|index| batch(&part(index * ROWS))).collect();
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    // By keys from the first part to the last, in two parts, in one, in two of which one comes twice.
    for (order, keys, kept, launches) in [
        ([0, 1, 2, 3, 4], [7, 5 * ROWS - 1], 5, 1),
        ([0, 1, 2, 3, 4], [0, ROWS], 2, 1),
        ([0, 1, 2, 3, 4], [2 * ROWS, 2 * ROWS + 9], 1, 1),
        ([3, 0, 1, 3, 4], [3 * ROWS + 5, 3 * ROWS + 6], 2, 2),
        ([2, 0, 3, 1, 2], [2 * ROWS, 4 * ROWS - 1], 3, 3),
    ] {
        let build: Vec<Row> = keys.map(|key| (Some(key), None, 2)).to_vec();
        let table_of_parts = Table(order.map(|index| parts[index].clone()).to_vec());
        let rows = order.iter().flat_map(|index| keys.map(|key| (key / ROWS) as usize == *index));
        let sources: [Arc<dyn TableSource>; 2] = [table(&build), Arc::new(table_of_parts)];
        let plan = plan(JoinKind::Inner, condition, false);
        let output = crate::common::run(&engine, plan, &sources, options(DeviceChoice::Cpu));
        assert_eq!(output.batch.num_rows(), rows.filter(|is_match| *is_match).count(), "{order:?}");
        let probe = output.metrics.pipelines.last().expect("a pipeline");
        assert_eq!((probe.rows_in, probe.launches), (kept * ROWS as u64, launches), "{order:?} {keys:?}");
    }
}

/// More build rows than a store starts with is too much for a test; more than a chunk, and than workers have chunks, is not.
#[test]
fn larger_sides() {
    let engine = Engine::new();
    let (build, probe) = (rows(5000, Spread::Dense, 1), rows(7003, Spread::Dense, 2));
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    for kind in [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildAnti] {
        let got = run(&engine, plan(kind, condition, false), [&build, &probe], DeviceChoice::Cpu);
        let size = match kind {
            JoinKind::Inner => 5000,
            JoinKind::FullOuter => 7003,
            _ => 0,
        };
        assert_eq!(got.len(), size, "{kind:?}");
    }
}
