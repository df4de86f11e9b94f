//! Why parts of the plans that the rule made lately are DataFusion's: who ran a plan asks for it afterwards, and finding it
//! out again would translate the plan again.

use std::collections::VecDeque;
use std::ptr;
use std::sync::{Arc, LazyLock, Weak};

use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use super::nodes::wrapped;
use crate::node::Node;

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

/// A query below the nodes around it.
pub(super) fn query_of(plan: &Node) -> &Node {
    match wrapped(plan) {
        Some(input) => query_of(input),
        None => plan,
    }
}

/// Remembers why parts of a plan are DataFusion's, for whoever runs it.
pub fn note_reasons(plan: &Node, reasons: Vec<String>) {
    note(query_of(plan), reasons);
}

/// What was remembered of a plan; nothing where the rule had nothing to do with it.
pub fn noted_reasons(plan: &Node) -> Option<Vec<String>> {
    reasons_of(query_of(plan))
}
