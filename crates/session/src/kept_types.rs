//! Types that outlast a session, where something keeps them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use datafusion::error::Result;

/// The values of types, by the types' names.
pub(crate) type NamedTypes = BTreeMap<String, Vec<String>>;

/// What keeps types longer than a session.
pub(crate) trait KeepsTypes: Debug + Send + Sync {
    /// Looks at them, or changes them.
    fn with_types(&self, change: &mut dyn FnMut(&mut NamedTypes)) -> Result<()>;
}
