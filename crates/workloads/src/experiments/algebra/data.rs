//! Keys in order, of several distributions (section 5.1 of the paper).

use super::super::memory::random;

/// How the keys of a relation are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keys {
    /// Anywhere in four times as many as there are tuples.
    Uniform,
    /// Each number once, the same in both relations.
    Dense,
    /// By a normal distribution.
    Normal,
    /// By a Pareto distribution of a shape: the smaller, the more distinct keys.
    Pareto(f64),
}

impl Keys {
    /// Those of the figures on partitions.
    pub const COMPARED: [Keys; 5] =
        [Keys::Uniform, Keys::Normal, Keys::Pareto(0.5), Keys::Pareto(1.0), Keys::Pareto(3.0)];

    /// For people.
    pub fn name(self) -> String {
        match self {
            Keys::Uniform => "uniform".into(),
            Keys::Dense => "dense".into(),
            Keys::Normal => "normal".into(),
            Keys::Pareto(shape) => format!("pareto {shape}"),
        }
    }

    /// So many keys in order, all of them below `most`; `number` tells relations apart.
    pub fn make(self, count: u32, most: u64, number: u64) -> Vec<u64> {
        if self == Keys::Dense {
            return (0..u64::from(count)).map(|key| key.min(most - 1)).collect();
        }
        let range = most.min(u64::from(count) * 4).max(1) as f64;
        let place = |share: f64| match self {
            Keys::Uniform | Keys::Dense => share * range,
            // Six deviations are the range.
            Keys::Normal => (0.5 + quantile(share) / 6.0).clamp(0.0, 1.0) * range,
            Keys::Pareto(shape) => ((1.0 - share).powf(-1.0 / shape) - 1.0) * range / 1000.0,
        };
        shares(count, number).map(|share| (place(share) as u64).min(most - 1)).collect()
    }
}

/// Uniform numbers between 0 and 1 in order, without a sort: the distances between them are exponential (Devroye 1986, chapter V.3).
fn shares(count: u32, number: u64) -> impl Iterator<Item = f64> {
    let distance = move |index: u64| {
        let uniform = (random(number, index) >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - uniform).max(f64::MIN_POSITIVE).ln()
    };
    let all: f64 = (0..=u64::from(count)).map(distance).sum();
    let mut sum = 0.0;
    (0..u64::from(count)).map(move |index| {
        sum += distance(index);
        (sum / all).clamp(0.0, 1.0 - f64::EPSILON)
    })
}

/// The quantile of the normal distribution, to about a thousandth (Abramowitz and Stegun 1964, 26.2.23).
fn quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share).max(1e-300);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = t
        - (2.515_517 + t * (0.802_853 + t * 0.010_328))
            / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if share < 0.5 { -above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_within_their_range() {
        for keys in Keys::COMPARED.into_iter().chain([Keys::Dense]) {
            for (count, most) in [(0, 10), (1, 1), (1000, 1 << 20), (1000, 50)] {
                let made = keys.make(count, most, 1);
                assert_eq!(made.len(), count as usize);
                assert!(made.is_sorted() && made.iter().all(|key| *key < most), "{keys:?}");
            }
        }
        let [few, many] = [3.0, 0.5].map(|shape| {
            let mut keys = Keys::Pareto(shape).make(10_000, 1 << 28, 1);
            keys.dedup();
            keys.len()
        });
        assert!(few < many / 4, "{few} {many}");
    }
}
