//! A GPU's block that brings rows into parts: it counts its rows and takes places for all of them ([`BlockParts`]).

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use super::held::{HeldRow, HeldValue, Stage};
use super::write::IntoParts;
use crate::context::{Context, Status, Unsupported};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job};
use crate::primitives::partition::{BlockParts, Shares};

/// A block, whose rows take places together.
pub(super) struct BlockEmitter<'s> {
    plan: &'s IntoParts,
    needed: &'s BTreeSet<usize>,
    shares: Shares,
    cursors: V,
    block: BlockParts,
    /// Of each row that a thread has at once: its part + 1, or 0 where there is none, and its rank; both `u32`.
    places: Vec<(Var, Var)>,
    held: Vec<HeldRow>,
    /// Rows for which the thread took places, `u64`, and the end of these, `u32`.
    rows: Var,
    end: Var,
}

impl<'s> BlockEmitter<'s> {
    pub(super) fn begin(plan: &'s IntoParts, cx: &mut Context<'_>, job: &Job<'s>) -> BlockEmitter<'s> {
        let (shares, cursors) = (plan.store.shares(cx), plan.store.cursors(cx));
        let block = BlockParts::begin(cx.builder, plan.store.parts);
        cx.builder.barrier();
        let rows_at_once = if job.arrival.has_flags() { cx.shape.rows_per_thread } else { 1 };
        let b = &mut *cx.builder;
        let places = (0..rows_at_once).map(|_| (b.var("part", Scalar::U32), b.var("rank", Scalar::U32)));
        let places = places.collect();
        let (none, zero) = (b.u64(0), b.u32(0));
        BlockEmitter {
            plan,
            needed: job.needed,
            shares,
            cursors,
            block,
            places,
            held: Vec::new(),
            rows: b.var_of("part_rows", none),
            end: b.var_of("part_end", zero),
        }
    }

    /// Writes the rows once places were taken: by way of the block's memory, or where that is too small, each thread its own.
    fn write(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let store = &self.plan.store;
        let rows = cx.shape.block_threads * self.places.len() as u32;
        let stage = self.held.first().and_then(|row| Stage::declare(cx, row, (rows, store)));
        self.each(cx, |cx, part, rank, row| {
            let rank = cx.builder.read(rank);
            let (place, exists) = self.block.place(cx.builder, &self.shares, (part, rank));
            if let Some(stage) = &stage {
                let position = self.block.position(cx.builder, (part, rank));
                return stage.put(cx, position, row, (place, exists));
            }
            cx.begin_if(exists);
            let place = cx.builder.convert(place, Scalar::I64);
            for (index, value) in row {
                let value = value.value(cx);
                store.column(*index)?.store(cx, &value, place)?;
            }
            cx.end();
            Ok(())
        })?;
        cx.builder.barrier();
        if let Some(stage) = stage {
            stage.write(cx, &self.block, store)?;
        }
        self.block.reset(cx.builder);
        cx.builder.barrier();
        Ok(())
    }

    /// Counts the thread's rows, which get their ranks.
    fn rank(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.each(cx, |cx, part, rank, _| {
            let own = self.block.rank(cx.builder, part);
            cx.builder.assign(rank, own);
            Ok(())
        })
    }

    /// Emits `body` for each row of the thread that there is, with its part (`u32`), rank and values.
    fn each(
        &self,
        cx: &mut Context<'_>,
        mut body: impl FnMut(&mut Context<'_>, V, Var, &HeldRow) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        for ((part, rank), values) in self.places.iter().zip(&self.held) {
            let b = &mut *cx.builder;
            let (part, zero, one) = (b.read(*part), b.u32(0), b.u32(1));
            let exists = b.ne(part, zero);
            cx.begin_if(exists);
            let part = cx.builder.sub(part, one);
            body(cx, part, *rank, values)?;
            cx.end();
        }
        Ok(())
    }
}

impl Emitter for BlockEmitter<'_> {
    fn rows_at_once(&self) -> i64 {
        self.places.len() as i64
    }

    fn begin_round(&mut self, cx: &mut Context<'_>) {
        for (part, _) in &self.places {
            let none = cx.builder.u32(0);
            cx.builder.assign(*part, none);
        }
    }

    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        let IntoParts { store, by, .. } = self.plan;
        let Some((own, _)) = self.places.get(self.held.len()).copied() else {
            return Err(Unsupported::internal("more rows of a thread at once than were foreseen"));
        };
        let (part, _) = by.part(cx, store.bits())?;
        let b = &mut *cx.builder;
        let (one, zero) = (b.u32(1), b.u32(0));
        let number = b.add(part, one);
        let number = match flow.active() {
            Some(active) => b.select(active, number, zero),
            None => number,
        };
        b.assign(own, number);
        let mut values = Vec::new();
        for (index, column) in store.used(self.needed) {
            let value = cx.column(index)?;
            values.push((index, HeldValue::keep(cx, &value, column.info().dictionary.is_some())?));
        }
        self.held.push(values);
        Ok(())
    }

    fn end_round(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.rank(cx)?;
        cx.builder.barrier();
        self.block.take(cx.builder, &self.shares, self.cursors, |b, taken| {
            let (rows, more) = (b.read(self.rows), b.convert(taken.rows, Scalar::U64));
            let rows = b.add(rows, more);
            b.assign(self.rows, rows);
            let end = b.read(self.end);
            let end = b.binary(BinaryOp::Max, end, taken.end);
            b.assign(self.end, end);
            b.begin_if(taken.is_first_beyond);
            b.report(Status::Grow as u32);
            b.end();
        });
        cx.builder.barrier();
        self.write(cx)?;
        self.held.clear();
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let (rows, end, none) = (b.read(self.rows), b.read(self.end), b.u64(0));
        let some = b.ne(rows, none);
        cx.begin_if(some);
        self.plan.store.count(cx, rows, end);
        cx.end();
        Ok(())
    }
}
