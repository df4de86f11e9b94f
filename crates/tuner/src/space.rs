//! The variants that there could be.

use fastrand::Rng;

/// A variant: of each variable of its [`Space`], the number of its value.
pub type Genome = Vec<u16>;

/// How many genomes are drawn for one that is allowed, at most.
const DRAWS: usize = 256;

/// A space of variants: variables, each with some values, and which combinations of them there are.
pub trait Space {
    /// How many values each variable has.
    fn counts(&self) -> &[u16];

    /// Whether there is such a variant. Genomes that are asked about have a value of each variable.
    fn allows(&self, genome: &[u16]) -> bool;

    /// A variant, drawn at random: each variable by itself, until the combination is allowed. `None` where nothing was found that way.
    fn random(&self, rng: &mut Rng) -> Option<Genome> {
        (0..DRAWS).find_map(|_| {
            let genome: Genome = self.counts().iter().map(|count| rng.u16(0..(*count).max(1))).collect();
            self.allows(&genome).then_some(genome)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Sums of values: genomes whose sum is odd do not exist.
    pub struct Sums(pub Vec<u16>);

    impl Space for Sums {
        fn counts(&self) -> &[u16] {
            &self.0
        }

        fn allows(&self, genome: &[u16]) -> bool {
            genome.iter().sum::<u16>() % 2 == 0
        }
    }

    /// No combination at all.
    struct Nothing;

    impl Space for Nothing {
        fn counts(&self) -> &[u16] {
            &[2, 2]
        }

        fn allows(&self, _: &[u16]) -> bool {
            false
        }
    }

    #[test]
    fn what_is_drawn_is_allowed() {
        let (space, mut rng) = (Sums(vec![4, 3, 1, 7]), Rng::with_seed(1));
        for _ in 0..200 {
            let genome = space.random(&mut rng).expect("half of all are allowed");
            assert!(space.allows(&genome) && genome.iter().zip(&space.0).all(|(value, count)| value < count));
        }
        assert_eq!(Nothing.random(&mut rng), None);
    }
}
