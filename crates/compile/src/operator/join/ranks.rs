//! Ranks of the keys of a join's build side (`table/ranks`): after the rows have set their bits, the bits of each word of the bitmap are
//! counted, the engine turns the counts into their prefix sum, and the rows come to the ranks of their keys.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink, Source};
use crate::program::{HostAction, RowCount, Task, When};
use crate::table::ranks::Ranks;

/// The words of the bitmap of an index by ranks, as rows of no columns.
#[derive(Debug)]
pub(crate) struct BitmapWords(pub Ranks);

impl fmt::Display for BitmapWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bitmap")
    }
}

impl Source for BitmapWords {
    fn rows(&self) -> RowCount {
        RowCount::Class(self.0.words())
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        Vec::new()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, _row: V) -> Result<(), Unsupported> {
        cx.begin_values(Vec::new());
        Ok(())
    }

    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) {}
}

/// Counts the bits of each word.
#[derive(Debug)]
pub(crate) struct CountBits(pub Ranks);

impl fmt::Display for CountBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counts of bits")
    }
}

impl Sink for CountBits {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    fn keeps_text(&self) -> bool {
        false
    }

    fn rows_foreseen(&self, _rows: u64) -> Option<u64> {
        None
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(CountEmitter(self.0)))
    }
}

struct CountEmitter(Ranks);

impl Emitter for CountEmitter {
    fn row(&mut self, cx: &mut Context<'_>, word: V, _flow: Flow) -> Result<(), Unsupported> {
        self.0.count_word(cx, word);
        Ok(())
    }
}

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
        let summed = index.ranks().map(|ranks| ranks.counts());
        let around = HostAction::each(When::BeforeChain, Vec::from_iter(summed), Task::PrefixSum);
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
