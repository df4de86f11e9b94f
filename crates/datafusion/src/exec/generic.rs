//! Compiled parts of generic plans: each copy has the values of a run.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};

use super::compiled::{FellBack, KelpieExec};
use crate::parameters::Values;

/// A compiled part of a generic plan would have to run on DataFusion's operators.
#[derive(Debug, thiserror::Error)]
#[error("the generic plan cannot run: {0}")]
pub struct CannotRun(String);

impl CannotRun {
    pub(super) fn for_reason(reason: &FellBack) -> DataFusionError {
        DataFusionError::External(Box::new(CannotRun(reason.to_string())))
    }

    /// Whether an error is this one.
    pub fn is(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::External(error) if error.is::<CannotRun>())
    }
}

impl KelpieExec {
    /// One that has not run, with values of its parameters where it has some.
    pub fn unused(&self, values: Option<&Values>) -> Result<KelpieExec> {
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
    pub fn is_generic(&self) -> bool {
        self.translated.generic.is_some()
    }
}
