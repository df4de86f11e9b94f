//! The sessions that are compared.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion_sqllogictest::TestContext;
use kelpie_engine::Engine;
use kelpie_session::install;

/// What makes Kelpie compile everything that it can, however small, on the device that every machine has.
/// DataFusion's answers are the expected ones, whether or not they are SQL's.
const SETTINGS: [(&str, &str); 3] =
    [("kelpie.device", "cpu"), ("kelpie.min_rows", "0"), ("kelpie.corrections", "off")];

/// A session for one file.
pub struct Session {
    /// The session itself.
    pub context: SessionContext,
    /// Has the folder of the tables that DataFusion's runner registers for some files.
    _test: TestContext,
}

impl Session {
    /// The session of DataFusion's own runner with so many partitions, and with Kelpie where there is an engine; nothing where the
    /// runner skips the file.
    pub async fn new(
        file: &Path,
        partitions: usize,
        engine: Option<&Arc<Engine>>,
    ) -> Result<Option<Session>> {
        let Some(test) = TestContext::try_new_for_test_file(file).await else { return Ok(None) };
        let mut builder = SessionStateBuilder::new_from_existing(test.session_ctx().state());
        let config = builder.config().get_or_insert_default();
        config.options_mut().execution.target_partitions = partitions;
        if let Some(engine) = engine {
            builder = install(builder, Arc::clone(engine));
            let config = builder.config().get_or_insert_default();
            for (name, value) in SETTINGS {
                config.options_mut().set(name, value)?;
            }
        }
        let context = SessionContext::new_with_state(builder.build());
        register_functions(test.session_ctx(), &context);
        Ok(Some(Session { context, _test: test }))
    }
}

/// Gives each name the function that it had: a builder that is made from a session registers its functions in any order, so that
/// the alias of one may take the name of another (Spark's `array_contains`).
fn register_functions(from: &SessionContext, to: &SessionContext) {
    let (from, found) = (from.state(), to.state());
    for (name, function) in from.scalar_functions() {
        if found.scalar_functions().get(name) != Some(function) && function.name() == name {
            to.register_udf(function.as_ref().clone());
        }
    }
    for (name, function) in from.aggregate_functions() {
        if found.aggregate_functions().get(name) != Some(function) && function.name() == name {
            to.register_udaf(function.as_ref().clone());
        }
    }
    for (name, function) in from.window_functions() {
        if found.window_functions().get(name) != Some(function) && function.name() == name {
            to.register_udwf(function.as_ref().clone());
        }
    }
}
