//! Spaces of operator variants (Rosenfeld, Heimel, Viebig and Markl, “The Operator Variant Selection Problem on Heterogeneous Hardware”,
//! ADMS 2015): two small operators, each as thousands of kernels that do the same.
//!
//! | operator | what it does | variants |
//! |---|---|---|
//! | [`selection`] | a bitmap of the rows where a predicate holds (section 2.1) | six kinds × bits of an element × branches or predication × unrolling × elements a thread × threads a block |
//! | [`aggregation`] | the sum of a column (section 2.2) | two kinds × unrolling × accumulators × vectors × threads a block × blocks |
//!
//! A variant is a [`Genome`]: for each [`Variable`] of its [`Space`] the number of a value (section 3.3, listing 1). Who searches a space
//! needs to know no more of it.
//!
//! **Threads.** A kernel is written as phases, each of which all threads of a block go through before the next begins (`group`). A GPU's
//! block has these threads, and barriers between phases; a CPU's worker goes through each phase in a loop over the threads. So one
//! description gives both, and the size of a block says the same on every device.

pub mod aggregation;
mod group;
pub mod predicate;
pub mod selection;

pub use self::aggregation::{Aggregation, AggregationSpace};
pub use self::predicate::{Comparison, Predicate};
pub use self::selection::{Kind, Selection, SelectionSpace};

/// For each variable of a space the number of the value that it has.
pub type Genome = Vec<u16>;

/// Threads of a block, at most, as a power of two.
const MOST_THREADS_POWER: u32 = 10;

/// A variable of a genome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The names of its values, at least one.
    pub values: Vec<String>,
}

impl Variable {
    fn new<T: ToString>(name: &'static str, values: impl IntoIterator<Item = T>) -> Variable {
        Variable { name, values: values.into_iter().map(|value| value.to_string()).collect() }
    }
}

/// A space of variants.
pub trait Space {
    /// What is known of a variant beside its genome.
    type Variant;

    /// The variables of a genome, in order.
    fn variables(&self) -> &[Variable];

    /// The variant of a genome; `None` where the genome has another number of values, a value does not exist, or there is no kernel for
    /// them together.
    fn variant(&self, genome: &[u16]) -> Option<Self::Variant>;

    /// Whether each value of a genome exists.
    fn has_values(&self, genome: &[u16]) -> bool {
        let exists = |(value, variable): (&u16, &Variable)| usize::from(*value) < variable.values.len();
        genome.len() == self.variables().len() && genome.iter().zip(self.variables()).all(exists)
    }

    /// Whether there is a variant of a genome.
    fn allowed(&self, genome: &[u16]) -> bool {
        self.variant(genome).is_some()
    }

    /// Every genome that is allowed, in the order of their values: the number of a variant is its place here.
    fn genomes(&self) -> Vec<Genome> {
        let variables = self.variables();
        let all: usize = variables.iter().map(|variable| variable.values.len()).product();
        let genome = |mut number: usize| {
            let mut genome: Genome = vec![0; variables.len()];
            for (value, variable) in genome.iter_mut().zip(variables).rev() {
                *value = (number % variable.values.len()) as u16;
                number /= variable.values.len();
            }
            genome
        };
        (0..all).map(genome).filter(|genome| self.allowed(genome)).collect()
    }

    /// A genome for people: `kind=sequential element_bits=8 …`.
    fn describe(&self, genome: &[u16]) -> String {
        let named = genome.iter().zip(self.variables()).map(|(value, variable)| {
            let value = variable.values.get(usize::from(*value));
            format!("{}={}", variable.name, value.map_or("?", String::as_str))
        });
        named.collect::<Vec<_>>().join(" ")
    }
}

/// Powers of two up to one of them.
fn powers(most: u32) -> impl Iterator<Item = u32> + Clone {
    (0..=most).map(|power| 1 << power)
}
