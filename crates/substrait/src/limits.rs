//! How large what somebody else has made may be. Parsers bound how deep it is: a hundred messages inside each other.

use datafusion::common::plan_err;
use datafusion::error::Result;

/// Bytes of a plan. In memory it takes many times as much.
pub(crate) const MOST_BYTES: u64 = 16 << 20;
/// Relations of a plan: trees that are walked by recursion may be as deep.
pub(crate) const MOST_RELATIONS: usize = 1024;
/// Columns that a relation computes, groups by or hands on. Each is given a name that none before has.
pub(crate) const MOST_COLUMNS: usize = 4096;
/// Parts of expressions that a relation hands on, with all their copies.
pub(crate) const MOST_PARTS: usize = 1 << 20;
/// Bytes of a column's name that is made of an expression. A column that is computed of it twice would have twice as long a name.
pub(crate) const MOST_NAME_BYTES: usize = 1024;
/// Characters of an error.
pub(crate) const MOST_CHARACTERS: usize = 1000;

/// An error where there are too many of something.
pub(crate) fn check(what: &str, count: usize, most: usize) -> Result<()> {
    match count > most {
        true => plan_err!("{count} {what} are in one place of the plan, and at most {most} are taken"),
        false => Ok(()),
    }
}
