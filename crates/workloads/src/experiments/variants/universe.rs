//! The variants that are measured: all of a space, or those of few workloads, where each takes long to compile or to run.

use kelpie_session::spaces::{Genome, Space};
use kelpie_tuner::Rng;

/// How many variants are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breadth {
    /// All.
    All,
    /// Those of some sizes of blocks, and few numbers of elements or blocks; of sums those whose code has 64 additions at most.
    Some,
    /// Few of these: for tests.
    Few,
}

impl Breadth {
    /// Whether a selection is among them, by the numbers of its values.
    pub fn has_selection(self, genome: &[u16]) -> bool {
        let [.., elements, threads] = genome else { return false };
        match self {
            Breadth::All => true,
            // 1, 4 and 32 elements; the device's choice, 32, 128, 256 and 1,024 threads.
            Breadth::Some => [0, 2, 5].contains(elements) && [0, 6, 8, 9, 11].contains(threads),
            Breadth::Few => [0, 2].contains(elements) && *threads == 7,
        }
    }

    /// Whether a sum is among them.
    pub fn has_sum(self, genome: &[u16]) -> bool {
        let [_, unroll, _, vector, threads, blocks] = genome else { return false };
        match self {
            Breadth::All => true,
            // 32 to 1,024 threads; 1, 4 and 16 blocks a multiprocessor.
            Breadth::Some => {
                unroll + vector <= 6 && [5, 7, 8, 10].contains(threads) && [0, 2, 4].contains(blocks)
            }
            Breadth::Few => unroll + vector <= 2 && *threads == 5 && *blocks == 0,
        }
    }
}

/// Whether a genome is a part of a space.
type IsPart<'a> = Box<dyn Fn(&[u16]) -> bool + 'a>;

/// A space for who searches it, or the part of it whose variants are measured.
pub struct Searched<'a, S> {
    space: &'a S,
    counts: Vec<u16>,
    is_part: IsPart<'a>,
    genomes: Vec<Genome>,
}

impl<'a, S: Space> Searched<'a, S> {
    /// The genomes of a space that are a part of it.
    pub fn new(space: &'a S, is_part: impl Fn(&[u16]) -> bool + 'a) -> Searched<'a, S> {
        let counts = space.variables().iter().map(|variable| variable.values.len() as u16).collect();
        let genomes = space.genomes().into_iter().filter(|genome| is_part(genome)).collect();
        Searched { space, counts, is_part: Box::new(is_part), genomes }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.genomes.len()
    }
}

impl<S: Space> kelpie_tuner::Space for Searched<'_, S> {
    fn counts(&self) -> &[u16] {
        &self.counts
    }

    fn allows(&self, genome: &[u16]) -> bool {
        (self.is_part)(genome) && self.space.allowed(genome)
    }

    /// Each as likely, as it is where values are drawn until a genome is allowed, though few of them may be.
    fn random(&self, rng: &mut Rng) -> Option<Genome> {
        rng.choice(&self.genomes).cloned()
    }
}
