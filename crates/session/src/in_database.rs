//! A session in a database.

use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::error::Result;

use crate::database::Database;
use crate::dialect::Types;
use crate::messages::message;
use crate::sequences::Sequences;
use crate::session::{KelpieSession, SessionOptions};

/// A session, and what of its database could not be brought back.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenedSession {
    /// The session.
    pub session: KelpieSession,
    /// Views and settings that it does not have, each with the reason.
    pub problems: Vec<String>,
}

impl KelpieSession {
    /// A session in a database: it has the tables, views and settings of it, and `CREATE TABLE`, `CREATE VIEW`, `INSERT`, `DROP` and
    /// `SET PERSIST` change it. Settings of `options` come before those of the database. Several sessions may share it, and see each
    /// other's tables at once; views and settings are those that there are when a session begins.
    pub async fn in_database(options: SessionOptions, database: &Arc<Database>) -> Result<OpenedSession> {
        let given: Vec<String> = options.settings.iter().map(|(name, _)| name.to_lowercase()).collect();
        let mut session = KelpieSession::new(options)?;
        let mut problems = Vec::new();
        for (name, value) in database.settings().into_iter().filter(|(name, _)| !given.contains(name)) {
            if let Err(error) = session.set(&name, &value) {
                problems
                    .push(format!("the setting {name} of the database does not hold: {}", message(&error)));
            }
        }
        match &session.files {
            Some(tables) => tables.take_from(database),
            None => return plan_err!("the session has no default schema that takes tables of a database"),
        }
        problems.extend(session.take_views(database).await);
        session.context().state_ref().write().config_mut().set_extension(database.writing());
        if let Some(sequences) = session.context().state().config().get_extension::<Sequences>() {
            sequences.keep_in(Arc::clone(database) as _);
        }
        if let Some(types) = session.context().state().config().get_extension::<Types>() {
            types.keep_in(Arc::clone(database) as _);
        }
        // From now on what is made is kept.
        session.database = Some(Arc::clone(database));
        Ok(OpenedSession { session, problems })
    }

    /// Makes the views of a database; gives what keeps some from being there. One that was replaced stands behind those that name it.
    async fn take_views(&self, database: &Database) -> Vec<String> {
        let mut left = database.views();
        loop {
            let (mut failed, mut problems) = (Vec::new(), Vec::new());
            let tried = left.len();
            for (name, statement) in left {
                if let Err(error) = self.sql(&statement).await {
                    problems
                        .push(format!("the view {name} of the database is not there: {}", message(&error)));
                    failed.push((name, statement));
                }
            }
            if failed.is_empty() || failed.len() == tried {
                return problems;
            }
            left = failed;
        }
    }
}
