//! The stages of an operator, one after the other.

use kelpie_compile::algebra::{Description, Operator, Output, Partition, block, pages, partition};
use kelpie_compile::primitives::look_back;
use kelpie_device::{Buffer, KernelArgument};

use super::stored::{Outcome, Paged, Relation, Stage, Stored};
use super::{Algebra, Family, MOST_INPUTS, MOST_RESULTS, refused, whole, words};
use crate::error::EngineError;

/// Sections for each block that runs at a time: so many share out what the largest of them take longer.
const SECTIONS_OF_BLOCK: u32 = 4;
/// Attempts of a run: each gives what the next needs, and the last is one too many.
const ATTEMPTS: u32 = 4;

/// How the inputs were cut.
struct Cut {
    /// Splits or sections.
    bounds: Buffer,
    sections: u32,
    tiles: u32,
    per_section: u32,
    /// The input tuples before each section, and all of them; and what each section has of the left and the right input, and how many are
    /// in no section, where they were found by search.
    before: Vec<u32>,
    shares: Vec<(u32, u32)>,
    dropped: u64,
    time_ns: u64,
}

/// Room for results.
struct Room {
    /// Tuples.
    capacity: u32,
    /// Where areas begin, and the last one ends, where they are not those of the inputs.
    areas: Option<Vec<u32>>,
}

/// What an attempt has come to.
enum Attempt {
    Done(Stored, Vec<Stage>, u64),
    /// So much room is needed.
    Again(Room),
}

/// A run's inputs.
struct Run<'a> {
    algebra: &'a Algebra,
    description: &'a Description,
    family: Family,
    left: &'a Relation,
    right: &'a Relation,
}

impl Algebra {
    /// Computes an operator over two relations; SELECT takes the left one alone.
    ///
    /// # Errors
    /// Where there is no such operator over such relations, the result has 2³² tuples or more, it was cancelled, or the device fails.
    pub fn run(
        &self,
        description: &Description,
        left: &Relation,
        right: &Relation,
    ) -> Result<Outcome, EngineError> {
        if let Some(problem) = description.problem(&self.shape) {
            return Err(refused(problem));
        }
        let none = Relation { rows: 0, ..right.clone() };
        let right = if matches!(description.operator, Operator::Select(_)) { &none } else { right };
        if left.tuples != description.tuples || right.tuples != description.tuples {
            return Err(refused("relations of other tuples than the operator's"));
        }
        let all = u64::from(left.rows) + u64::from(right.rows);
        if all >= MOST_INPUTS {
            return Err(refused(format!("inputs of {all} tuples")));
        }
        let family = Family::Operator(Box::new(description.clone()));
        Run { algebra: self, description, family, left, right }.run()
    }
}

impl Run<'_> {
    fn all(&self) -> u32 {
        self.left.rows + self.right.rows
    }

    fn run(&self) -> Result<Outcome, EngineError> {
        let cut = self.cut()?;
        let expected = match self.description.operator {
            Operator::Union | Operator::Join(_) => self.all(),
            _ => self.left.rows,
        };
        let mut room = Room { capacity: self.with_pages(expected.into(), &cut)?, areas: None };
        for repeats in 0..ATTEMPTS {
            match self.attempt(&cut, &room)? {
                Attempt::Again(more) => room = more,
                Attempt::Done(result, mut stages, skipped) => {
                    stages.insert(0, Stage { name: "partition", time_ns: cut.time_ns });
                    let (sections, dropped) = (cut.shares, cut.dropped);
                    return Ok(Outcome { result, stages, sections, dropped, skipped, repeats });
                }
            }
        }
        Err(EngineError::Internal("sorted algebra: results do not fit what they were counted to take".into()))
    }

    /// Room for so many results: of pages each section may begin one.
    fn with_pages(&self, results: u64, cut: &Cut) -> Result<u32, EngineError> {
        let room = match self.description.output {
            Output::Pages => {
                let page = u64::from(self.description.tuning.page);
                // Of each section's last page some may be empty.
                (results.div_ceil(page) + u64::from(cut.sections)) * page
            }
            _ => results,
        };
        if results > MOST_RESULTS || room > MOST_RESULTS {
            return Err(refused(format!(
                "a result of {results} tuples, in sections that take room for {room}"
            )));
        }
        Ok(room as u32)
    }

    fn cut(&self) -> Result<Cut, EngineError> {
        let (algebra, description) = (self.algebra, self.description);
        let (tile, all) = (description.tile(&algebra.shape).max(1), self.all());
        let tiles = all.div_ceil(tile).max(1);
        let most = algebra.shape.most_blocks.saturating_mul(SECTIONS_OF_BLOCK);
        if description.cut() == Partition::BinarySearch {
            return self.cut_by_search(tiles, most);
        }
        let per_section = match description.output {
            Output::SinglePass => 1,
            Output::Gather | Output::Pages => tiles.div_ceil(most).max(1),
        };
        let bounds = algebra.allocate((u64::from(tiles) + 1) * 4)?;
        let mut time_ns = 0;
        if !matches!(description.operator, Operator::Select(_)) {
            let mut arguments = self.inputs();
            arguments.extend([words(tiles), whole(&bounds)]);
            let blocks = algebra.blocks(u64::from(tiles) + 1);
            time_ns = algebra.launch((&self.family, partition::SPLITS), blocks, &arguments)?;
        }
        let sections = tiles.div_ceil(per_section);
        let size = u64::from(per_section) * u64::from(tile);
        let before = (0..=sections).map(|number| (u64::from(number) * size).min(all.into()) as u32).collect();
        Ok(Cut { bounds, sections, tiles, per_section, before, shares: Vec::new(), dropped: 0, time_ns })
    }

    fn cut_by_search(&self, tiles: u32, most: u32) -> Result<Cut, EngineError> {
        let algebra = self.algebra;
        let wanted = match self.description.tuning.sections {
            0 => tiles.min(most),
            sections => sections.min(1 << 20),
        };
        let sections = wanted.next_power_of_two();
        let bounds = algebra.allocate(u64::from(sections) * 16)?;
        let mut arguments = self.inputs();
        arguments.extend([words(sections.trailing_zeros()), whole(&bounds)]);
        let blocks = algebra.blocks(sections.into());
        let time_ns = algebra.launch((&self.family, partition::SECTIONS), blocks, &arguments)?;
        let found = algebra.read_words(&bounds, sections as usize * 4)?;
        let of = |bounds: &[u32]| match bounds {
            [left, left_end, right, right_end] => (left_end - left, right_end - right),
            _ => (0, 0),
        };
        let shares: Vec<(u32, u32)> = found.chunks_exact(4).map(of).collect();
        let first = |bounds: &[u32]| bounds.first().unwrap_or(&0) + bounds.get(2).unwrap_or(&0);
        let before = found.chunks_exact(4).map(first).chain([self.all()]).collect();
        let kept: u64 = shares.iter().map(|(left, right)| u64::from(*left) + u64::from(*right)).sum();
        let dropped = u64::from(self.all()).saturating_sub(kept);
        Ok(Cut { bounds, sections, tiles, per_section: 0, before, shares, dropped, time_ns })
    }

    fn inputs(&self) -> Vec<KernelArgument> {
        let (left, right) = (self.left, self.right);
        vec![whole(&left.buffer), whole(&right.buffer), words(left.rows), words(right.rows)]
    }

    fn attempt(&self, cut: &Cut, room: &Room) -> Result<Attempt, EngineError> {
        let algebra = self.algebra;
        let tuples = self.description.output();
        // Areas lie where the inputs lie.
        let places = if self.description.output == Output::Gather && room.areas.is_none() {
            self.all()
        } else {
            room.capacity
        };
        let out = algebra.allocate(u64::from(places) * u64::from(tuples.width.bytes()))?;
        let totals = algebra.zeroed(2)?;
        let mut arguments = self.inputs();
        arguments.extend([
            whole(&cut.bounds),
            words(cut.sections),
            words(cut.tiles),
            words(cut.per_section),
            whole(&out),
            words(places),
            whole(&totals),
        ]);
        match self.description.output {
            Output::SinglePass => self.single_pass(cut, (room, &out, &totals), arguments),
            Output::Gather => self.gather(cut, (room, &out, &totals), arguments),
            Output::Pages => self.pages(cut, (room, &out, &totals), arguments),
        }
    }

    fn compute(&self, cut: &Cut, arguments: &[KernelArgument]) -> Result<Stage, EngineError> {
        let kernel = (&self.family, block::COMPUTE);
        let time_ns = self.algebra.launch(kernel, cut.sections.into(), arguments)?;
        Ok(Stage { name: "compute", time_ns })
    }

    /// Results that there are, and tuples that were skipped.
    fn totals(&self, totals: &Buffer) -> Result<(u64, u64), EngineError> {
        let words = self.algebra.read_words(totals, 4)?;
        let word = |index: usize| {
            let half = |index: usize| u64::from(words.get(index).copied().unwrap_or_default());
            half(2 * index) | half(2 * index + 1) << 32
        };
        let (results, skipped) = (word(0), word(1));
        if results > MOST_RESULTS {
            return Err(refused(format!("a result of {results} tuples")));
        }
        Ok((results, skipped))
    }

    fn dense(&self, buffer: Buffer, rows: u64) -> Stored {
        Stored::Dense(Relation { buffer, rows: rows as u32, tuples: self.description.output() })
    }

    fn single_pass(
        &self,
        cut: &Cut,
        (room, out, totals): (&Room, &Buffer, &Buffer),
        mut arguments: Vec<KernelArgument>,
    ) -> Result<Attempt, EngineError> {
        let states = self.algebra.zeroed(look_back::words(cut.sections.into(), 1))?;
        arguments.push(whole(&states));
        let stage = self.compute(cut, &arguments)?;
        let (results, skipped) = self.totals(totals)?;
        if results > u64::from(room.capacity) {
            return Ok(Attempt::Again(Room { capacity: results as u32, areas: None }));
        }
        Ok(Attempt::Done(self.dense(out.clone(), results), vec![stage], skipped))
    }

    /// The counts of sections made places, with the number of all behind; the time in nanoseconds.
    fn scan(&self, counts: &Buffer, cut: &Cut) -> Result<Stage, EngineError> {
        let time_ns = self.algebra.scan(counts, u64::from(cut.sections) + 1)?;
        Ok(Stage { name: "scan", time_ns })
    }

    fn gather(
        &self,
        cut: &Cut,
        (room, out, totals): (&Room, &Buffer, &Buffer),
        mut arguments: Vec<KernelArgument>,
    ) -> Result<Attempt, EngineError> {
        let algebra = self.algebra;
        let bounds = room.areas.as_ref().unwrap_or(&cut.before);
        let (areas, counts) =
            (algebra.write_words(bounds)?, algebra.zeroed(u64::from(cut.sections).div_ceil(2) + 1)?);
        arguments.extend([whole(&areas), whole(&counts)]);
        let stage = self.compute(cut, &arguments)?;
        let (results, skipped) = self.totals(totals)?;
        if room.areas.is_some() {
            // Areas are the places.
            return Ok(Attempt::Done(self.dense(out.clone(), results), vec![stage], skipped));
        }
        let found = algebra.read_words(&counts, cut.sections as usize)?;
        let fits = found.iter().zip(bounds.windows(2)).all(|(count, area)| *count <= area[1] - area[0]);
        if !fits {
            let mut sum = 0;
            let after = found.iter().map(|count| {
                sum += count;
                sum
            });
            let areas = Some([0].into_iter().chain(after).collect());
            return Ok(Attempt::Again(Room { capacity: results as u32, areas }));
        }
        let scan = self.scan(&counts, cut)?;
        let dense = algebra.allocate(results * u64::from(self.description.output().width.bytes()))?;
        let arguments = [whole(&areas), whole(&counts), words(cut.sections), whole(out), whole(&dense)];
        let kernel = (&self.family, pages::GATHER);
        let time_ns = algebra.launch(kernel, cut.sections.into(), &arguments)?;
        let stages = vec![stage, scan, Stage { name: "gather", time_ns }];
        Ok(Attempt::Done(self.dense(dense, results), stages, skipped))
    }

    fn pages(
        &self,
        cut: &Cut,
        (room, pool, totals): (&Room, &Buffer, &Buffer),
        mut arguments: Vec<KernelArgument>,
    ) -> Result<Attempt, EngineError> {
        let algebra = self.algebra;
        let page = self.description.tuning.page;
        let next = algebra.allocate(u64::from(room.capacity / page) * 4)?;
        let (taken, head) = (algebra.zeroed(1)?, algebra.zeroed(1)?);
        let [firsts, lasts] =
            [algebra.allocate(u64::from(cut.sections) * 4), algebra.allocate(u64::from(cut.sections) * 4)];
        let (firsts, lasts) = (firsts?, lasts?);
        let counts = algebra.zeroed(u64::from(cut.sections).div_ceil(2) + 1)?;
        arguments.extend([&next, &taken, &firsts, &lasts, &counts].map(whole));
        let stage = self.compute(cut, &arguments)?;
        let (results, skipped) = self.totals(totals)?;
        let used = algebra.read_words(&taken, 1)?.first().copied().unwrap_or_default();
        if used > room.capacity / page || results > u64::from(room.capacity) {
            let capacity = self.with_pages(results, cut)?;
            return Ok(Attempt::Again(Room { capacity, areas: None }));
        }
        let scan = self.scan(&counts, cut)?;
        let arguments = [words(cut.sections), whole(&firsts), whole(&lasts), whole(&next), whole(&head)];
        let blocks = algebra.blocks(u64::from(cut.sections) + 1);
        let time_ns = algebra.launch((&self.family, pages::LINK), blocks, &arguments)?;
        let link = Stage { name: "link", time_ns };
        let head = algebra.read_words(&head, 1)?.first().copied().unwrap_or(pages::NOWHERE);
        let paged = Paged {
            pool: pool.clone(),
            next,
            firsts,
            places: counts,
            sections: cut.sections,
            head,
            page,
            pages: used,
            rows: results as u32,
            tuples: self.description.output(),
            family: self.family.clone(),
        };
        Ok(Attempt::Done(Stored::Paged(paged), vec![stage, scan, link], skipped))
    }
}
