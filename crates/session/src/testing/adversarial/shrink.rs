//! A failing query, its parts left out as long as it still fails.

use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;

use super::super::compare::{Outcome, compare_by};
use super::statements::Query;
use crate::KelpieSession;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A smaller query that differs, and how: as text.
pub(super) async fn shrink(
    mut query: Query,
    how: &str,
    plain: &SessionContext,
    kelpie: &KelpieSession,
) -> String {
    let (start, kind) = (Instant::now(), kind_of(how));
    let mut shown = None;
    'smaller: loop {
        for smaller in query.smaller() {
            if start.elapsed() > LIMIT {
                break 'smaller;
            }
            if let Outcome::Different(how) =
                compare_by(plain, kelpie, &smaller.generated(), smaller.nature()).await
                && kind_of(&how) == kind
            {
                (query, shown) = (smaller, Some(how));
                continue 'smaller;
            }
        }
        break;
    }
    match shown {
        Some(how) => format!("  smaller: {}\n  {how}\n", query.generated().sql),
        None => String::new(),
    }
}

/// What stays the same while a query shrinks: how it differs, without values.
fn kind_of(how: &str) -> String {
    let words = how.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    words
        .take(if how.starts_with("only") || how.starts_with("Kelpie") { 8 } else { 1 })
        .collect::<Vec<_>>()
        .join(" ")
}
