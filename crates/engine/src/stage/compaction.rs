//! Places that a CPU's workers have taken and not used (`compile/table/chunks`): the last rows of the array are moved there, so that each
//! place below the count has a row. They are a thousand a worker, at most, whatever the number of rows.

use std::ops::Range;

use kelpie_compile::pipeline::Compaction;

use super::run::Run;
use super::store::Move;
use crate::error::EngineError;

impl Run<'_> {
    /// Fills the places that workers have left, and sets the count to that of the rows. Nothing where no worker has left any.
    pub fn compact(&mut self, compaction: &Compaction) -> Result<(), EngineError> {
        let Compaction { count, class, left } = *compaction;
        let mut noted = vec![0; self.store.bytes(left)?];
        self.store.read_small(left, &mut noted)?;
        let words: Vec<u64> = noted.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let holes: Vec<Range<u64>> = words.as_chunks::<2>().0.iter().map(|[from, to]| *from..*to).collect();
        if holes.iter().all(Range::is_empty) {
            return Ok(());
        }
        let taken = self.store.read_word(count)?;
        let (rows, moves) = moves(taken, holes);
        self.store.move_elements(class, &moves)?;
        self.store.set_word(count, rows)
    }
}

/// How many rows there are where so many places are taken and some have no row, and how these places get the last rows. What is moved
/// ascends, as does where it goes.
fn moves(taken: u64, mut holes: Vec<Range<u64>>) -> (u64, Vec<Move>) {
    holes.retain(|hole| !hole.is_empty());
    holes.sort_unstable_by_key(|hole| hole.start);
    let rows = holes.iter().fold(taken, |rows, hole| rows.saturating_sub(hole.end - hole.start));
    // What stands behind the rows that will be, between the holes there.
    let mut tails = Vec::new();
    let mut from = rows;
    for hole in holes.iter().filter(|hole| hole.end > rows) {
        tails.push(from..hole.start.max(from));
        from = hole.end;
    }
    tails.push(from..taken.max(from));
    let mut tails = tails.into_iter().filter(|tail| !tail.is_empty());
    let mut tail = tails.next().unwrap_or_default();
    let mut moves = Vec::new();
    for hole in holes.iter().filter(|hole| hole.start < rows) {
        let mut to = hole.start;
        let end = hole.end.min(rows);
        while to < end && !tail.is_empty() {
            let count = (end - to).min(tail.end - tail.start);
            moves.push(Move { from: tail.start, to, rows: count });
            (to, tail.start) = (to + count, tail.start + count);
            if tail.is_empty() {
                tail = tails.next().unwrap_or_default();
            }
        }
    }
    (rows, moves)
}

#[cfg(test)]
mod tests {
    use super::moves;

    /// Carries the moves out, and looks for a row at each place.
    fn check(taken: u64, holes: &[(u64, u64)]) {
        let is_hole = |place: u64| holes.iter().any(|(from, to)| (*from..*to).contains(&place));
        let mut places: Vec<Option<u64>> =
            (0..taken).map(|place| (!is_hole(place)).then_some(place)).collect();
        let mut wanted: Vec<u64> = places.iter().flatten().copied().collect();
        let (rows, moves) = moves(taken, holes.iter().map(|(from, to)| *from..*to).collect());
        assert_eq!(rows as usize, wanted.len(), "{holes:?} of {taken}");
        for step in &moves {
            assert!(step.from >= rows && step.to + step.rows <= rows, "{step:?} of {rows} rows");
            for row in 0..step.rows {
                places[(step.to + row) as usize] = places[(step.from + row) as usize].take();
            }
        }
        let mut found: Vec<u64> = places.drain(..rows as usize).flatten().collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{holes:?} of {taken}");
    }

    #[test]
    fn each_place_gets_a_row() {
        check(0, &[]);
        check(8, &[(8, 8)]);
        check(8, &[(0, 8)]);
        check(8, &[(7, 8)]);
        check(8, &[(0, 1)]);
        check(16, &[(3, 8), (12, 16)]);
        check(16, &[(12, 16), (3, 8)]);
        check(24, &[(1, 8), (9, 16), (17, 24)]);
        check(24, &[(7, 8), (15, 16), (16, 24)]);
        check(32, &[(2, 8), (16, 24), (30, 32), (0, 0)]);
        check(40, &[(8, 16), (39, 40), (31, 32)]);
    }

    #[test]
    fn places_of_any_chunks() {
        // Four workers with chunks of eight among ten, of which each has left some.
        for seed in 0..2_000_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut next = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut chunks: Vec<u64> = (0..10).collect();
            let holes: Vec<(u64, u64)> = (0..4)
                .map(|_| {
                    let chunk = chunks.swap_remove(next(chunks.len() as u64) as usize);
                    (chunk * 8 + next(9), chunk * 8 + 8)
                })
                .collect();
            check(80, &holes);
        }
    }
}
