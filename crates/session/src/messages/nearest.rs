//! Which word is meant by one that is not there.

use strsim::damerau_levenshtein;

/// The candidate that a word is most likely meant to be: it differs in few letters, or goes on where the word ends and is the only one
/// that does. Nothing where none is near.
pub fn nearest<'a, T: AsRef<str> + 'a + ?Sized>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a T>,
) -> Option<String> {
    let lower = word.to_lowercase();
    let most = (lower.chars().count() / 3).max(1);
    let (mut best, mut longer): (Option<(usize, &str)>, Vec<&str>) = (None, Vec::new());
    for candidate in candidates {
        let (candidate, other) = (candidate.as_ref(), candidate.as_ref().to_lowercase());
        let distance = damerau_levenshtein(&lower, &other);
        // Words that share no letter are not near, however short they are.
        let is_near =
            distance <= most && distance < other.chars().count().max(2) && lower.chars().count() > 1;
        if is_near && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
        if lower.len() >= 3 && other.starts_with(&lower) {
            longer.push(candidate);
        }
    }
    let only = || longer.first().filter(|_| longer.len() == 1).copied();
    best.map(|(_, candidate)| candidate).or_else(only).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_letters_differ_or_the_rest_is_missing() {
        let names = ["lineitem", "Orders", "o", "customer", "l_quantity"];
        let of = |word: &str| nearest(word, names.iter());
        for (word, expected) in [
            ("lineitme", Some("lineitem")),
            ("order", Some("Orders")),
            ("ORDRES", Some("Orders")),
            ("cust", Some("customer")),
            ("quantity", Some("l_quantity")),
            ("x", None),
            ("nothing", None),
            ("", None),
        ] {
            assert_eq!(of(word).as_deref(), expected, "{word}");
        }
    }
}
