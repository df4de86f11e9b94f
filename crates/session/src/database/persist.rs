//! `SET PERSIST option = value` and `RESET PERSIST option`: settings that a database keeps.

use std::borrow::Cow;

/// What a statement says of how long a setting lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persist {
    /// As long as the session.
    Session,
    /// As long as the database.
    Database,
}

impl Persist {
    /// Takes the word PERSIST out of a statement that has it behind SET or RESET.
    pub fn of(sql: &str) -> (Persist, Cow<'_, str>) {
        let found = ["set", "reset"].into_iter().find_map(|verb| {
            let behind_verb = behind(sql.trim_start(), verb)?;
            let rest = behind(behind_verb, "persist")?;
            // An option of that name is set, or the time zone that is called so.
            let is_option = rest.starts_with('=') || behind(rest, "to").is_some() || rest.is_empty();
            (!is_option).then(|| format!("{verb} {rest}"))
        });
        match found {
            Some(sql) => (Persist::Database, sql.into()),
            None => (Persist::Session, sql.into()),
        }
    }
}

/// What stands behind a word that a text begins with, in any case, and white space.
fn behind<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = text.split_at_checked(word.len())?;
    let is_word = first.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace);
    is_word.then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_stands_behind_set() {
        for (sql, expected) in [
            ("SET PERSIST a.b = 1", Some("set a.b = 1")),
            (" set\n persist\ta to 'ü'", Some("set a to 'ü'")),
            ("Reset Persist a.b", Some("reset a.b")),
            ("set persist = 1", None),
            ("set persist to 1", None),
            ("set persistent = 1", None),
            ("setpersist a = 1", None),
            ("select 'set persist a'", None),
            ("sé", None),
            ("", None),
        ] {
            let (persist, rest) = Persist::of(sql);
            assert_eq!((persist == Persist::Database).then_some(rest.as_ref()), expected, "{sql}");
        }
    }
}
