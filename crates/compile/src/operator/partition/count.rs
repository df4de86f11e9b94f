//! Counts the rows of each part: the kernel before the one that writes them, where parts follow each other
//! ([`layout`](super::layout)).
//!
//! A block counts all of its rows in its own memory, and adds what it has of each part to the device's counter in the end.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Pointee, Scalar, Scope, Type};

use super::{PartStore, RowParts};
use crate::context::{Argument, Context, Unsupported};
use crate::expr::{Expr, columns_read};
use crate::operator::Flow;
use crate::operator::aggregate::threads::{clear, for_each};
use crate::operator::roles::{Emitter, Job, Needs, Sink};

/// Counts the rows of parts that follow each other.
#[derive(Debug)]
pub(crate) struct CountParts {
    pub store: Arc<PartStore>,
    /// What gives a row its part.
    pub by: Arc<dyn RowParts>,
}

impl fmt::Display for CountParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count of {} parts", self.store.parts)
    }
}

impl CountParts {
    /// The state of the counts.
    fn counts(&self) -> Result<usize, Unsupported> {
        self.store
            .starts
            .ok_or_else(|| Unsupported::internal("a count of parts that do not follow each other"))
    }
}

impl Sink for CountParts {
    fn needs(&self) -> Needs {
        let zeroed = self.store.starts.into_iter().chain([self.store.wanted]).collect();
        Needs { zeroed, produced: Some(self.store.wanted), around: Vec::new() }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.by.keys().iter().flat_map(columns_read).collect()
    }

    fn keeps_text(&self) -> bool {
        false
    }

    fn takes_flags(&self, is_speculative: &dyn Fn(&Expr) -> bool) -> bool {
        self.by.keys().iter().all(is_speculative)
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let counts = cx.argument("part_counts", Type::global(Scalar::U32), Argument::State(self.counts()?));
        let wanted = PartStore::counter(cx, self.store.wanted);
        // A worker has one row after the other, and no rounds.
        let rows_at_once = if job.flags && !cx.shape.is_serial() { cx.shape.rows_per_thread } else { 0 };
        let own = cx.builder.shared("own_parts", Pointee::Scalar(Scalar::U32), self.store.parts);
        clear(cx, own, Scalar::U32, self.store.parts);
        let is_serial = cx.shape.is_serial();
        let b = &mut *cx.builder;
        if !is_serial {
            b.barrier();
        }
        let parts = (0..rows_at_once).map(|_| b.var("part", Scalar::U32)).collect();
        let none = b.u64(0);
        let rows = b.var_of("part_rows", none);
        Ok(Box::new(CountEmitter { plan: self, counts, wanted, own, parts, next: 0, rows }))
    }
}

/// A block that counts.
struct CountEmitter<'s> {
    plan: &'s CountParts,
    /// `ptr<global, u32>`, one a part; and `ptr<global, u64>`, of all of them.
    counts: V,
    wanted: V,
    /// Shared, `u32` a part: the block's rows.
    own: V,
    /// Where rows come with a flag: of each that a thread has at once, its part + 1, or 0 where there is none, `u32`; and whose turn it
    /// is.
    parts: Vec<Var>,
    next: usize,
    /// What the thread adds to `wanted`, `u64`.
    rows: Var,
}

impl CountEmitter<'_> {
    /// Counts a row of a part (`u32`).
    fn count(&self, cx: &mut Context<'_>, part: V) {
        let b = &mut *cx.builder;
        let (pointer, one) = (b.offset(self.own, part), b.u32(1));
        b.atomic_discard(AtomicOp::Add, pointer, one, Scope::Block);
    }
}

impl Emitter for CountEmitter<'_> {
    fn rows_at_once(&self) -> i64 {
        self.parts.len().max(1) as i64
    }

    fn begin_round(&mut self, cx: &mut Context<'_>) {
        self.next = 0;
        for part in &self.parts {
            let none = cx.builder.u32(0);
            cx.builder.assign(*part, none);
        }
    }

    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        let CountParts { store, by } = self.plan;
        let (part, _) = by.part(cx, store.bits())?;
        // Rows of a thread are looked at before the first is counted: their loads are in flight together.
        if let Some(own) = self.parts.get(self.next) {
            self.next += 1;
            let b = &mut *cx.builder;
            let (one, zero) = (b.u32(1), b.u32(0));
            let number = b.add(part, one);
            let number = flow.active().map_or(number, |active| b.select(active, number, zero));
            b.assign(*own, number);
            return Ok(());
        }
        match flow.active() {
            None => self.count(cx, part),
            Some(active) => {
                cx.begin_if(active);
                self.count(cx, part);
                cx.end();
            }
        }
        Ok(())
    }

    fn end_round(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        for part in self.parts.iter().take(self.next) {
            let b = &mut *cx.builder;
            let (number, zero, one) = (b.read(*part), b.u32(0), b.u32(1));
            let exists = b.ne(number, zero);
            cx.begin_if(exists);
            let part = cx.builder.sub(number, one);
            self.count(cx, part);
            cx.end();
        }
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        if !cx.shape.is_serial() {
            cx.builder.barrier();
        }
        for_each(cx, self.plan.store.parts, |cx, part| {
            let b = &mut *cx.builder;
            let pointer = b.offset(self.own, part);
            let (own, none) = (b.load(pointer), b.u32(0));
            let any = b.ne(own, none);
            b.begin_if(any);
            let pointer = b.offset(self.counts, part);
            b.atomic_discard(AtomicOp::Add, pointer, own, Scope::Device);
            let (before, own) = (b.read(self.rows), b.convert(own, Scalar::U64));
            let rows = b.add(before, own);
            b.assign(self.rows, rows);
            b.end();
        });
        let b = &mut *cx.builder;
        let (rows, none) = (b.read(self.rows), b.u64(0));
        let any = b.ne(rows, none);
        b.begin_if(any);
        b.atomic_discard(AtomicOp::Add, self.wanted, rows, Scope::Device);
        b.end();
        Ok(())
    }
}
