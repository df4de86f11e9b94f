//! Why parts of the plans that the rule made lately are DataFusion's: who ran a plan asks for it afterwards, and finding it
//! out again would translate the plan again.

use std::collections::VecDeque;
use std::ptr;
use std::sync::{Arc, LazyLock, Weak};

use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use super::Node;

/// Plans that are remembered, the latest ones.
const PLANS: usize = 256;

/// A plan, known by its address, which the weak pointer keeps from being given to another; and its reasons.
type Noted = (Weak<dyn ExecutionPlan>, Vec<String>);

static NOTED: LazyLock<Mutex<VecDeque<Noted>>> = LazyLock::new(Mutex::default);

/// Remembers the reasons of a plan while it lives.
pub(super) fn note(plan: &Node, reasons: Vec<String>) {
    let mut noted = NOTED.lock();
    noted.retain(|(plan, _)| plan.strong_count() > 0);
    if noted.len() >= PLANS {
        noted.pop_front();
    }
    noted.push_back((Arc::downgrade(plan), reasons));
}

/// The reasons of a plan, where it is remembered.
pub(super) fn reasons_of(plan: &Node) -> Option<Vec<String>> {
    let noted = NOTED.lock();
    let found = noted.iter().rev().find(|(known, _)| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(plan)));
    found.map(|(_, reasons)| reasons.clone())
}
