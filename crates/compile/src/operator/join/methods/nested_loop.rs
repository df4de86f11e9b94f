//! Nested loops: without keys every row of the build side is a candidate.

use std::borrow::Cow;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use crate::context::{Argument, Context, Unsupported};
use crate::operator::join::JoinOperator;
use crate::operator::join::build::StoreBuildSide;
use crate::operator::join::facts::JoinFacts;
use crate::operator::join::method::{AccessPath, BuildSide, JoinMethod, Keys};
use crate::operator::roles::Sink;
use crate::program::States;
use crate::table::key_rows::{KeyRows, Positions};

pub(in crate::operator::join) struct NestedLoop;

#[derive(Debug)]
struct EveryRow;

impl JoinMethod for NestedLoop {
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String> {
        (!facts.keys.is_empty()).then(|| "rows are found by their keys".into())
    }

    fn why(&self, _facts: &JoinFacts<'_>) -> Option<Cow<'static, str>> {
        Some("there are no keys".into())
    }

    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported> {
        Ok(BuildSide { store: facts.store(states)?, path: Box::new(EveryRow), rows: KeyRows::All })
    }
}

impl AccessPath for EveryRow {
    fn name(&self, _rows: &str) -> String {
        "every pair".into()
    }

    fn passes(&self, join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        vec![Arc::new(StoreBuildSide(Arc::clone(join)))]
    }

    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let count = places(cx, keys);
        cx.builder.assign(cursor, count);
        Ok(())
    }

    fn positions(&self, cx: &mut Context<'_>, keys: Keys<'_>, to: Positions) -> Result<(), Unsupported> {
        let count = places(cx, keys);
        cx.builder.assign(to.count, count);
        Ok(())
    }
}

/// How many places of the store are given out, `u32`.
fn places(cx: &mut Context<'_>, keys: Keys<'_>) -> V {
    let state = Argument::State(keys.index.store.place_count());
    let count = cx.argument("place_count", Type::global(Scalar::U64), state);
    let count = cx.builder.load(count);
    cx.builder.convert(count, Scalar::U32)
}
