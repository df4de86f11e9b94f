//! The probe side of a join that delivers only the build side's rows: a sink that marks those that match.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::JoinOperator;
use super::index::Search;
use crate::context::{Context, Unsupported};
use crate::operator::Flow;
use crate::operator::key_texts::KeySearch;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::table::shared_keys::Found;

#[derive(Debug)]
pub(crate) struct MarkMatches(pub Arc<JoinOperator>);

impl fmt::Display for MarkMatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "join {}", self.0)
    }
}

impl Sink for MarkMatches {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.0.read_keys(states)
    }

    fn shared_texts(&self) -> Option<Vec<usize>> {
        self.0.shared_key_texts()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(MarkEmitter(&self.0)))
    }
}

struct MarkEmitter<'s>(&'s JoinOperator);

impl Emitter for MarkEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, _row: V, _flow: Flow) -> Result<(), Unsupported> {
        let join = self.0;
        let keys = join.keys_of_probe(cx, &[])?;
        join.note_nulls(cx, &keys);
        let search = join.index.search(cx, &keys)?;
        self.mark_all(cx, search)
    }

    fn key_search(&self) -> Option<&dyn KeySearch> {
        Some(self.0)
    }

    fn row_found(&mut self, cx: &mut Context<'_>, _row: V, found: Found) -> Result<(), Unsupported> {
        let keys = self.0.keys_of_probe(cx, &[])?;
        self.0.note_nulls(cx, &keys);
        self.mark_all(cx, Search::at(found.hit))
    }
}

impl MarkEmitter<'_> {
    /// Marks what a search finds.
    fn mark_all(&self, cx: &mut Context<'_>, search: Search) -> Result<(), Unsupported> {
        let opened = self.0.begin_if_unmarked(cx, search);
        self.0.every_match(cx, search, &mut |_, _| Ok(()))?;
        for _ in 0..opened {
            cx.end();
        }
        Ok(())
    }
}
