//! EXCLUDE in the frame of a window, which the parser does not take: of NO OTHERS nothing is to be done, and what leaves rows out is an error.

use datafusion::common::plan_err;
use datafusion::error::Result;

use super::words::{Change, Words};

/// Takes the word out where it says nothing.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    for place in (1..words.all.len()).filter(|place| words.is(*place, "exclude")) {
        // Behind `*` stand columns that are left out.
        if !words.is_any(place - 1, &["row", "preceding", "following"]) {
            continue;
        }
        let is = |first: &str, second: &str| words.is(place + 1, first) && words.is(place + 2, second);
        if is("no", "others") {
            changes.push(Change { from: words.byte(place), to: words.byte(place + 3), text: String::new() });
        } else if is("current", "row") {
            return plan_err!("EXCLUDE CURRENT ROW is not there: a frame has all rows between its bounds");
        } else if words.is_any(place + 1, &["group", "ties"]) {
            let what = words.text(place + 1).to_uppercase();
            return plan_err!("EXCLUDE {what} is not there: a frame has all rows between its bounds");
        }
    }
    Ok(())
}
