//! Plans of Substrait as statements, where the server is built with them.

use arrow_flight::sql::SubstraitPlan;
use prost::bytes::Bytes;
use tonic::Status;

#[cfg(feature = "substrait")]
pub(crate) use with_substrait::{describe, plan};
#[cfg(not(feature = "substrait"))]
pub(crate) use without_substrait::{describe, plan};

/// Whether they are taken.
pub(crate) const ARE_TAKEN: bool = cfg!(feature = "substrait");

/// The bytes of a plan that a client sends.
pub(crate) fn bytes_of(plan: Option<SubstraitPlan>) -> Result<Bytes, Status> {
    if !ARE_TAKEN {
        return Err(Status::unimplemented("this server was built without Substrait: send SQL"));
    }
    match plan {
        Some(plan) => Ok(plan.plan),
        None => Err(Status::invalid_argument("the message has no plan")),
    }
}

/// What a plan is called in logs.
pub(crate) fn name_of(plan: &Bytes) -> String {
    format!("plan of Substrait, {} bytes", plan.len())
}

#[cfg(feature = "substrait")]
mod with_substrait {
    use datafusion::common::ParamValues;
    use datafusion::error::Result;
    use kelpie_session::{Described, KelpieSession, PlannedQuery};
    use prost::bytes::Bytes;

    /// Plans it.
    pub async fn plan(
        session: &KelpieSession,
        plan: Bytes,
        parameters: Option<ParamValues>,
    ) -> Result<PlannedQuery> {
        kelpie_substrait::plan(session, plan.into(), parameters).await
    }

    /// What it gives and asks for.
    pub async fn describe(session: &KelpieSession, plan: Bytes) -> Result<Described> {
        kelpie_substrait::describe(session, plan.into()).await
    }
}

#[cfg(not(feature = "substrait"))]
mod without_substrait {
    use datafusion::common::{ParamValues, plan_err};
    use datafusion::error::Result;
    use kelpie_session::{Described, KelpieSession, PlannedQuery};
    use prost::bytes::Bytes;

    /// An error: nothing asks for it, as there are no bytes of plans.
    pub async fn plan(_: &KelpieSession, _: Bytes, _: Option<ParamValues>) -> Result<PlannedQuery> {
        plan_err!("there is no Substrait")
    }

    /// An error, likewise.
    pub async fn describe(_: &KelpieSession, _: Bytes) -> Result<Described> {
        plan_err!("there is no Substrait")
    }
}
