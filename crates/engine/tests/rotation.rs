//! Variants of a pipeline that the blocks of a resident table take in turn: whichever works on a block, the rows are the same.

use crate::common::*;
use crate::plans::{plans, table};
use kelpie_compile::variant::{Forced, Level, axes};

/// Rows of a block: a table of [`ROWS`] is four of them.
const BLOCK_ROWS: u64 = 64;
const ROWS: [usize; 2] = [250, 130];

/// Three sets of choices of how rows are gone through, of axes that begin at number `first`.
fn rotation(first: usize) -> Vec<Forced> {
    let axes: Vec<_> = axes::ALL.iter().filter(|axis| axis.level == Level::Chunk).collect();
    let value = |set: usize| {
        let axis = axes[(first + set) % axes.len()];
        let values = axis.values;
        (axis.name, values[(first / axes.len() + set) % values.len()])
    };
    (0..3).map(|set| force([value(set), value(set + 7)])).collect()
}

#[test]
fn blocks_that_take_variants_in_turn_give_the_same_rows() {
    let engine = Engine::new();
    let (sources, plans) = (ROWS.map(table), plans());
    let cases = plans.iter().enumerate().flat_map(|(number, plan)| {
        lanes().into_iter().map(move |lanes| (number, plan, on_lanes(lanes, &[])))
    });
    let cases = covering("variants in turn", cases, 60, |(_, (name, ..), options)| {
        facets_and(options, &[&name.split(" on [").next()])
    });
    let mut in_turn = 0;
    for (number, (name, plan, ordered), options) in cases {
        let alone = rows_of(&run(&engine, plan, &sources, &options).batch, *ordered);
        let rotated = QueryOptions { rotation: rotation(number), block_rows: Some(BLOCK_ROWS), ..options };
        // The second run begins with the sizes of the first.
        for _ in 0..2 {
            let output = run(&engine, plan, &sources, &rotated);
            assert_eq!(rows_of(&output.batch, *ordered), alone, "{name}: {rotated:?}");
            let takes_turns = |rows: &Vec<u64>| rows.iter().filter(|rows| **rows > 0).count() > 1;
            in_turn += output.metrics.pipelines.iter().filter(|own| takes_turns(&own.variant_rows)).count();
        }
    }
    assert!(in_turn >= 20, "{in_turn}");
}

#[test]
fn a_rotation_without_another_variant_is_no_rotation() {
    let engine = Engine::new();
    let (sources, (name, plan, ordered)) = (ROWS.map(table), &plans()[1]);
    let options = QueryOptions { rotation: vec![Forced::default(); 2], ..cpu() };
    let output = run(&engine, plan, &sources, &options);
    assert_eq!(
        rows_of(&output.batch, *ordered),
        rows_of(&run(&engine, plan, &sources, cpu()).batch, *ordered)
    );
    assert!(output.metrics.pipelines.iter().all(|own| own.variant_rows.len() == 1), "{name}");
}
