//! Ranks of the keys of a join's build side (`table/ranks`): after the rows have set their bits, the engine gives each word of the bitmap
//! its rank, and the rows come to the ranks of their keys.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, Unsupported};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::program::{HostAction, Task, When};

/// Puts the rows of the store at the ranks of their keys, or counts them into the buckets there.
#[derive(Debug)]
pub(crate) struct NumberRows(pub Arc<JoinOperator>);

impl fmt::Display for NumberRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranks")
    }
}

impl Sink for NumberRows {
    fn needs(&self) -> Needs {
        let JoinOperator { store, index, .. } = &*self.0;
        let rank = |words| HostAction { when: When::BeforeChain, task: Task::Rank(words) };
        let around = index.word_ranks().map(rank).into_iter().collect();
        Needs { zeroed: Vec::new(), produced: Some(store.row_count()), around }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        (0..self.0.probe_keys.len()).collect()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(NumberEmitter(&self.0)))
    }
}

struct NumberEmitter<'s>(&'s JoinOperator);

impl Emitter for NumberEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        self.0.index.number(cx, row)
    }
}
