use super::*;
use crate::expr::Expr;
use crate::operator::aggregate::functions::{Contribution, ContributionForm};
use crate::operator::aggregate::local::{BlockForm, CellForms};
use crate::operator::aggregate::testing::{Kernel, for_each_of_block, orders};
use crate::types::{DataType, Range};
use crate::variant::axes::{CountBytes, TableSlices};

const SLOTS: u64 = 10;
/// Bit of a row that the second count counts, and that of a row that is dead.
const SECOND: u64 = 1 << 32;
const DEAD: u64 = 1 << 33;

/// A table of two counts, of which a block has so many slices.
fn table(bytes: u64, slices: u32) -> (DirectTable, Cells) {
    let mut cells = Cells::default();
    let present = cells.row_count();
    let argument = Expr::column(0, DataType::Int64, true);
    cells.cell(
        CellOp::Add,
        Contribution::of(ContributionForm::Valid, &argument),
        None,
        Some(Range::new(0, 1)),
    );
    let forms = CellForms::counting(CountBytes(bytes));
    let form = BlockForm { copies: 1, slices: TableSlices(slices.into()), cells: forms };
    let place = CellMemory::Block { form, bytes: 0 };
    let row_bound = u64::MAX;
    let table = DirectTable {
        keys: Vec::new(),
        slots: SLOTS,
        class: 0,
        state: 0,
        count: Some(1),
        present,
        place,
        row_bound,
    };
    (table, cells)
}

/// Rows of the third state come to the groups of the first, which the second counts.
fn kernel((table, cells): (&DirectTable, &Cells), shape: (u32, u32), rows: u32) -> Kernel {
    Kernel::new(shape, 3, &|cx, states| {
        let &[_, _, array] = states else { return cx.impossible("other states") };
        let emitter = table.begin(cx, cells, u64::MAX);
        let add_rows = |cx: &mut Context<'_>| {
            for_each_of_block(cx, (array, rows), &|cx, row| {
                let b = &mut *cx.builder;
                let (one, zero, mask) = (b.u64(1), b.u64(0), b.u64(SECOND - 1));
                let (second, dead) = (b.u64(SECOND), b.u64(DEAD));
                let [second, dead] = [second, dead].map(|bit| {
                    let own = b.and(row, bit);
                    b.ne(own, zero)
                });
                let second = b.convert(second, Scalar::U64);
                let group = b.and(row, mask);
                let group = b.bitcast(group, Scalar::I64);
                let junk = b.i64((table.slice_slots() * u64::from(table.passes())) as i64);
                let slot = b.select(dead, junk, group);
                emitter.add(cx, Some(slot), &[vec![one], vec![second]]);
            });
        };
        match table.passes() {
            1 => add_rows(cx),
            passes => {
                for pass in 0..passes {
                    let pass = cx.builder.i64(pass.into());
                    emitter.begin_pass(cx, pass);
                    add_rows(cx);
                    emitter.end_pass(cx);
                }
            }
        }
        emitter.end(cx).expect("it ends");
    })
}

/// Groups have their counts, and are counted once each, where bytes of a word go round for rows that they never had before the device's
/// table has any row of their group; with groups that have none, in slices of which the last has slots behind the groups, and with
/// dead rows beside.
#[test]
fn groups_of_counts_of_a_byte_are_counted_once() {
    const BLOCKS: u32 = 2;
    for (bytes, slices, shape, rows) in
        [(1, 1, (32, 256), 4_000), (1, 3, (32, 64), 3_500), (1, 1, (1, 16), 2_500), (2, 3, (4, 8), 2_000)]
    {
        let (table, cells) = table(bytes, slices);
        let kernel = kernel((&table, &cells), shape, rows);
        for seed in 0..2 {
            for (name, groups) in orders((BLOCKS * rows) as usize, SLOTS - 2, seed) {
                let flags = |row: usize| match (row * 11 + row / 30) % 7 {
                    0..2 => SECOND,
                    2 => DEAD,
                    _ => 0,
                };
                let all: Vec<u64> =
                    groups.iter().enumerate().map(|(row, group)| group | flags(row)).collect();
                let mut expected = vec![0; 2 * SLOTS as usize];
                for row in all.iter().filter(|row| **row & DEAD == 0) {
                    let group = (row & (SECOND - 1)) as usize;
                    expected[2 * group] += 1;
                    expected[2 * group + 1] += (row & SECOND) / SECOND;
                }
                let counted = expected.iter().step_by(2).filter(|count| **count > 0).count() as u64;
                let mut states = [vec![0; expected.len()], vec![0], all];
                kernel.run(&mut states, BLOCKS, seed);
                let what = format!("{bytes} bytes, {slices} slices, {shape:?}, {name}, seed {seed}");
                assert_eq!((&states[0], &states[1]), (&expected, &vec![counted]), "{what}");
            }
        }
    }
}
