//! `kelpie plan` and `--plan`: queries as plans of Substrait, and the other way.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use kelpie_session::{AddedPlan, KelpieSession};

use crate::args::PlanArguments;

#[cfg(feature = "substrait")]
pub use with_substrait::{added, run};

#[cfg(not(feature = "substrait"))]
const MISSING: &str =
    "this program was built without Substrait: cargo install --path crates/cli --features substrait";

/// Says how to get plans.
#[cfg(not(feature = "substrait"))]
pub async fn added(_: &KelpieSession, _: &Path) -> Result<AddedPlan> {
    anyhow::bail!(MISSING)
}

/// Says how to get plans.
#[cfg(not(feature = "substrait"))]
pub async fn run(_: PlanArguments) -> Result<ExitCode> {
    anyhow::bail!(MISSING)
}

#[cfg(feature = "substrait")]
mod with_substrait {
    use std::io::Write;

    use anyhow::anyhow;
    use datafusion::error::DataFusionError;
    use kelpie_session::message;
    use kelpie_substrait::Form;

    use super::{AddedPlan, ExitCode, KelpieSession, Path, PlanArguments, Result};
    use crate::output::ResultFile;

    /// The plan of a file, which statements can run from now on.
    pub async fn added(session: &KelpieSession, path: &Path) -> Result<AddedPlan> {
        kelpie_substrait::add_file(session, path).await.map_err(plain)
    }

    /// Writes the plan of a query.
    pub async fn run(arguments: PlanArguments) -> Result<ExitCode> {
        let session = arguments.session.open().await?;
        let form = arguments.output.as_deref().map_or(Form::Json, Form::of);
        let plan = kelpie_substrait::write(&session, &arguments.sql, form).await.map_err(plain)?;
        match &arguments.output {
            Some(path) => {
                let mut file = ResultFile::create(path)?;
                file.begin()?.write_all(&plan)?;
                file.complete()?;
            }
            None => std::io::stdout().write_all(&plan)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plain(error: DataFusionError) -> anyhow::Error {
        anyhow!(message(&error))
    }
}
