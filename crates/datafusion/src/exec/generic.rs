//! Compiled parts of generic plans: each copy has the values of a run.

use std::sync::Arc;

use datafusion::error::Result;

use super::KelpieExec;
use crate::parameters::Values;

impl KelpieExec {
    /// One that has not run, with values of its parameters where it has some.
    pub(crate) fn unused(&self, values: Option<&Values>) -> Result<KelpieExec> {
        let translated = match values {
            Some(values) => self.translated.with_values(values)?,
            None => None,
        };
        let copy = self.copy();
        Ok(match translated {
            Some(translated) => KelpieExec { translated: Arc::new(translated), ..copy },
            None => copy,
        })
    }

    /// Whether it has parameters. What such a part cannot run is planned again with the values, by who knows the statement.
    pub(crate) fn is_generic(&self) -> bool {
        self.translated.generic.is_some()
    }
}
