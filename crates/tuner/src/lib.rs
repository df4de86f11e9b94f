//! Finds the fastest of many variants while they are used (Rosenfeld et al., "The Operator Variant Selection Problem on Heterogeneous
//! Hardware", section 3). It knows no operator and no device: a variant is a [`Genome`], a point of a [`Space`].
//!
//! - A [`Pool`] holds the few variants that are in use. The first may be a rule's choice, which always stays ([`Pool::seeded`]).
//! - [`VwGreedy`] chooses one of them for each chunk of a running query, by what the chunks before have taken.
//! - A [`Search`] replaces those that were slow between queries.
//! - [`Pairs`] says when one variant has been faster than another often enough, side by side, to take its place.
//! - [`Regret`] bounds what all of this may cost.
//!
//! All that is drawn at random comes from a seed, so that the same times lead to the same choices.

mod evidence;
mod pool;
mod regret;
mod search;
mod space;
mod vw_greedy;

pub use self::evidence::{Pairs, Verdict};
pub use self::pool::{Arm, Pool};
pub use self::regret::Regret;
pub use self::search::Search;
pub use self::space::{Genome, Space};
pub use self::vw_greedy::{Schedule, VwGreedy};
pub use fastrand::Rng;
