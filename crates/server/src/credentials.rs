//! Who may connect: tokens, and users with passwords.

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// Digests have one length, so that comparing them tells nothing of the length of a secret either.
type Digest = [u8; 32];

/// The tokens and passwords that a server knows. Where there are none, everybody may connect.
#[derive(Clone, Default)]
pub struct Credentials {
    tokens: Vec<Digest>,
    users: Vec<User>,
}

#[derive(Clone)]
struct User {
    name: String,
    /// Of the name and the password.
    digest: Digest,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({} tokens, {} users)", self.tokens.len(), self.users.len())
    }
}

/// The lines of a file of secrets that are neither empty nor comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn digest(parts: [&str; 2]) -> Digest {
    let mut hash = Sha256::new();
    // The length keeps `ab` and `c` apart from `a` and `bc`.
    hash.update((parts[0].len() as u64).to_le_bytes());
    hash.update(parts[0]);
    hash.update(parts[1]);
    hash.finalize().into()
}

impl Credentials {
    /// Adds the tokens of a text, one a line; an error where it has none.
    pub fn add_tokens(&mut self, text: &str) -> Result<(), String> {
        let before = self.tokens.len();
        self.tokens.extend(lines(text).map(|token| digest(["", token])));
        match self.tokens.len() > before {
            true => Ok(()),
            false => Err("there is no token: one is wanted a line".into()),
        }
    }

    /// Adds the users of a text, `name:password` a line; an error names the first line that is none.
    pub fn add_users(&mut self, text: &str) -> Result<(), String> {
        let before = self.users.len();
        for (place, line) in lines(text).enumerate() {
            // A line is not shown: it may be a password.
            let wrong = || format!("user {} is not written as name:password", place + 1);
            let (name, password) = line.split_once(':').ok_or_else(wrong)?;
            if name.is_empty() || password.is_empty() {
                return Err(wrong());
            }
            if self.users.iter().any(|user| user.name == name) {
                return Err(format!("the user {name} is there twice"));
            }
            self.users.push(User { name: name.to_string(), digest: digest([name, password]) });
        }
        match self.users.len() > before {
            true => Ok(()),
            false => Err("there is no user: name:password is wanted a line".into()),
        }
    }

    /// Whether everybody may connect.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.users.is_empty()
    }

    /// Whether a token is one of these. All are compared, and whole, so that the time that it takes tells nothing.
    pub fn has_token(&self, token: &str) -> bool {
        let asked = digest(["", token]);
        let found = self.tokens.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&asked));
        found.into()
    }

    /// Whether a user has a password, compared as tokens are.
    pub(crate) fn has_user(&self, name: &str, password: &str) -> bool {
        let asked = digest([name, password]);
        let found = self.users.iter().fold(Choice::from(0), |found, user| found | user.digest.ct_eq(&asked));
        found.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_let_in() {
        let mut credentials = Credentials::default();
        assert!(credentials.is_open());
        credentials.add_tokens("# ours\n\n  s3cret \nother\n").unwrap();
        credentials.add_users("ä:b:c\nann:x\n").unwrap();
        assert!(!credentials.is_open());
        for (token, is_in) in
            [("s3cret", true), ("other", true), ("S3cret", false), ("s3cre", false), ("", false)]
        {
            assert_eq!(credentials.has_token(token), is_in, "{token}");
        }
        for (name, password, is_in) in [
            ("ä", "b:c", true),
            ("ann", "x", true),
            ("ann", "b:c", false),
            ("an", "nx", false),
            ("Ann", "x", false),
            ("", "s3cret", false),
            ("ann", "", false),
        ] {
            assert_eq!(credentials.has_user(name, password), is_in, "{name}:{password}");
        }
    }

    #[test]
    fn bad_files_are_told_without_their_secrets() {
        let error = |text| Credentials::default().add_users(text).unwrap_err();
        assert_eq!(error("ann:x\nsecret"), "user 2 is not written as name:password");
        assert_eq!(error("ann:"), "user 1 is not written as name:password");
        assert_eq!(error("ann:x\nann:y"), "the user ann is there twice");
        assert!(error("# none").contains("no user"));
        assert!(Credentials::default().add_tokens("\n#x\n").is_err());
    }
}
