use super::*;
use crate::operator::aggregate::block_loop::for_each;
use crate::operator::aggregate::testing::{Kernel, for_each_of_block, orders};

const GROUPS: u32 = 7;
const CELLS: u32 = 2;
/// Bit of a row that the second count counts.
const SECOND: u64 = 1 << 32;

/// Counts the rows of the first state by their groups, each block its share of them, into the second. The third counts rows that counts
/// had no room for, and those that were taken back. Each row is counted so many times, which are looked at when all have come where they
/// are several.
fn kernel((bytes, times): (u64, u32), shape: (u32, u32), rows: u32) -> Kernel {
    let layout = CountLayout { cells: CELLS, bytes: CountBytes(bytes) };
    Kernel::new(shape, 3, &|cx, states| {
        let &[array, device, given] = states else { return cx.impossible("other states") };
        let Some(counts) = layout.declare(cx, GROUPS) else { return cx.impossible("no counts") };
        counts.clear(cx);
        cx.builder.barrier();
        let add_far = |cx: &mut Context<'_>, (group, cell): (V, usize), rows: V| {
            // Behind the groups is a byte that only carries come to.
            let is_group = cx.builder.lt_int(group, GROUPS);
            cx.begin_if(is_group);
            let b = &mut *cx.builder;
            let (first, zero, one) = (b.i64(cell as i64 * i64::from(GROUPS)), b.i64(0), b.u64(1));
            let index = b.add(first, group);
            let number = b.offset(device, index);
            b.atomic_discard(AtomicOp::Add, number, rows, Scope::Device);
            let rows = b.bitcast(rows, Scalar::I64);
            let is_taken = b.lt(rows, zero);
            let is_taken = b.convert(is_taken, Scalar::I64);
            let given = b.offset(given, is_taken);
            b.atomic_discard(AtomicOp::Add, given, one, Scope::Device);
            cx.end();
        };
        for_each_of_block(cx, (array, rows), &|cx, row| {
            let b = &mut *cx.builder;
            let (one, mask, bits) = (b.u64(1), b.u64(SECOND - 1), b.u64(32));
            let group = b.and(row, mask);
            let group = b.bitcast(group, Scalar::I64);
            let second = b.binary(BinaryOp::Shr, row, bits);
            if times > 1 {
                counts.begin_rows(cx, times);
            }
            for _ in 0..times {
                for (cell, value) in [(0, one), (1, second)] {
                    counts.add(cx, (group, cell), (value, None), (cell as usize, &add_far));
                }
            }
            counts.end_rows(cx, &add_far);
        });
        cx.builder.barrier();
        for_each(cx, GROUPS, |cx, group| {
            for cell in 0..CELLS {
                let count = counts.read(cx, (group, cell));
                let b = &mut *cx.builder;
                let first = b.i64((cell * GROUPS).into());
                let index = b.add(first, group);
                let pointer = b.offset(device, index);
                b.atomic_discard(AtomicOp::Add, pointer, count, Scope::Device);
            }
        });
    })
}

/// Counts come out, whichever of their bytes go round together and however warps come: in warps of any size, and in blocks of one and
/// of many. Bytes go round for rows that they never had, which is undone.
#[test]
fn counts_come_out_whatever_goes_round() {
    const BLOCKS: u32 = 2;
    for (bytes, times, shape, rows, seeds) in [
        (1, 1, (32, 1024), 20_000, 0..3),
        (1, 1, (32, 64), 10_000, 3..8),
        (1, 1, (4, 8), 5_000, 8..16),
        (1, 1, (1, 16), 5_000, 16..32),
        (1, 1, (32, 256), 300_000, 32..33),
        (1, 3, (32, 256), 10_000, 0..3),
        (1, 8, (4, 8), 1_000, 3..8),
        (2, 1, (32, 64), 40_000, 0..1),
        (2, 5, (32, 64), 10_000, 0..1),
    ] {
        let kernel = kernel((bytes, times), shape, rows);
        let mut all_taken = 0;
        for seed in seeds {
            let orders = orders((BLOCKS * rows) as usize, GROUPS.into(), seed);
            let is_long = rows > 100_000;
            for (name, groups) in orders.into_iter().filter(|(name, _)| !is_long || name.starts_with("one")) {
                let second = |row: usize| if (row * 7 + row / 50) % 5 < 3 { SECOND } else { 0 };
                let all = groups.iter().enumerate().map(|(row, group)| group | second(row));
                let mut expected = vec![0; (CELLS * GROUPS) as usize];
                for (row, group) in groups.iter().enumerate() {
                    expected[*group as usize] += u64::from(times);
                    expected[GROUPS as usize + *group as usize] += second(row) / SECOND * u64::from(times);
                }
                let mut states = [all.collect(), vec![0; expected.len()], vec![0; 2]];
                kernel.run(&mut states, BLOCKS, seed);
                let what = format!("{bytes} bytes, {times} at a time, {shape:?}, {name}, seed {seed}");
                assert_eq!(states[1], expected, "{what}");
                let &[given, taken] = states[2].as_slice() else { panic!("two numbers") };
                assert!(given > 0 || name != "one", "{what}");
                all_taken += taken;
            }
        }
        assert_eq!(all_taken > 0, bytes == 1, "{shape:?}");
    }
}
