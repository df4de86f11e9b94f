//! A SIMT device's form of the selection: a thread tries several rows of a table by its filters and runtime filters without a branch,
//! so that their loads are in flight together, and goes on with those that pass, one after the other. Which of them are left are bits
//! of a register. (Crystal's tiles, Shanbhag et al., SIGMOD 2020, section 3.2, without a block's memory: rows need not lie together.)
//!
//! A row alone waits for each load before the next one is known to be wanted: of a filter that keeps a seventh and a join behind it
//! a multiprocessor has some 8 KB in flight, where 40 KB are wanted to keep an H200's memory busy.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, UnaryOp};

use super::Pipeline;
use super::body::Body;
use super::row::{Pass, clamp, mark};
use super::speculation::Speculation;
use super::wide::MOST_SIFTED;
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, ExprKind, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::can_fail;
use crate::operator::Flow;
use crate::operator::lanes::any;
use crate::operator::roles::{Emitter, Job};

/// Where filters leave a smaller share of the rows, another column is loaded only for those.
const LEAST_SHARE: f64 = 1.0 / 32.0;

/// The leading steps by which several rows of a thread are tried before any of them goes on.
#[derive(Debug)]
pub(super) struct Trial {
    /// The steps up to the first that does something else: projections and those of `tried` are carried out.
    leading: usize,
    /// Filters and runtime filters by which rows are tried, by number.
    tried: BTreeSet<usize>,
    /// The share of rows that is thought to pass.
    pub share: f64,
}

impl Trial {
    /// By what a pipeline's rows can be tried, with runtime filters where that is wanted; or why by nothing.
    pub(super) fn of(
        pipeline: &Pipeline,
        speculation: &Speculation<'_>,
        with_sieves: bool,
    ) -> Result<Trial, String> {
        let mut trial = Trial { leading: 0, tried: BTreeSet::new(), share: 1.0 };
        let (mut columns, mut is_plain, mut lacks) = (pipeline.source.columns(), true, None);
        for (index, step) in pipeline.steps.iter().enumerate() {
            let range_of = |index: usize| columns.get(index).and_then(|info: &ColumnInfo| info.range);
            if let Some(condition) = step.condition() {
                if speculation.of_step(index) {
                    trial.share *= share_kept(condition, &range_of);
                    trial.tried.insert(index);
                } else if !is_plain || can_fail(condition, &range_of) {
                    lacks.get_or_insert("a filter may fail, and is to see the rows that others leave");
                    break;
                } else {
                    lacks.get_or_insert("filters cost more than branches");
                }
            } else if let Some(exprs) = step.projection() {
                is_plain &= exprs.iter().all(|expr: &Expr| matches!(expr.kind, ExprKind::Column(_)));
            } else if let Some(sieve) = step.sieve() {
                if with_sieves && sieve.share() <= MOST_SIFTED && trial.share >= LEAST_SHARE {
                    trial.share *= sieve.share();
                    trial.tried.insert(index);
                }
            } else {
                break;
            }
            columns = step.columns(&columns).unwrap_or(columns);
            trial.leading = index + 1;
        }
        match trial.tried.is_empty() {
            true => Err(lacks.unwrap_or("there is no filter before other steps").into()),
            false => Ok(trial),
        }
    }

    /// Whether rows are tried by the step of a number.
    pub(super) fn has(&self, step: usize) -> bool {
        self.tried.contains(&step)
    }
}

impl Body<'_> {
    /// The rows of a thread in one turn of the row loop, `count`, which lie `threads` (`i64`) apart: all are tried, then those that
    /// passed go on. The lanes of a warp stay together between two rows.
    pub(super) fn tried_rows(
        &self,
        cx: &mut Context<'_>,
        (trial, first): (&Trial, V),
        job: &Job<'_>,
        (threads, count): (V, i64),
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let none = cx.builder.u32(0);
        let (mut row, mut passed) = (first, none);
        for index in 0..count {
            if index > 0 {
                row = cx.builder.add(row, threads);
            }
            cx.begin_repetition(index == 0);
            let passes = self.try_row(cx, trial, (row, job.rows))?;
            let b = &mut *cx.builder;
            let bit = b.u32(1 << index);
            let bit = b.select(passes, bit, none);
            passed = b.or(passed, bit);
        }
        cx.end_repetition();
        let left = cx.builder.var_of("left", passed);
        cx.begin_loop();
        let bits = cx.builder.read(left);
        let is_left = cx.builder.ne(bits, none);
        let goes_on = any(cx, is_left);
        let ends = cx.builder.not(goes_on);
        cx.builder.break_if(ends);
        emitter.begin_round(cx);
        cx.begin_if(is_left);
        let b = &mut *cx.builder;
        let (number, one) = (b.unary(UnaryOp::Ffs, bits), b.u32(1));
        let below = b.sub(bits, one);
        let rest = b.binary(BinaryOp::And, bits, below);
        b.assign(left, rest);
        let number = b.sub(number, one);
        let number = b.convert(number, Scalar::I64);
        let distance = b.mul(number, threads);
        let row = b.add(first, distance);
        self.row_in(cx, row, (Flow::Branch, Pass::Rest), emitter)?;
        cx.end();
        emitter.end_round(cx)?;
        cx.end();
        Ok(())
    }

    /// Whether a row passes what it is tried by (`bool`); one beyond the end does not.
    fn try_row(&self, cx: &mut Context<'_>, trial: &Trial, (row, rows): (V, V)) -> Result<V, Unsupported> {
        let (row, mut flow) = clamp(cx, row, rows);
        self.pipeline.source.bind(cx, row)?;
        for (index, step) in self.pipeline.steps.iter().take(trial.leading).enumerate() {
            if let (Some(sieve), true) = (step.sieve(), trial.has(index)) {
                mark(cx, index, flow);
                let passes = sieve.passes(cx, flow.active())?;
                let zero = cx.builder.i64(0);
                flow = Flow::Flag { active: Some(cx.builder.ne(passes, zero)) };
            } else if step.projection().is_some() || trial.has(index) {
                mark(cx, index, flow);
                step.consume(cx, flow, true, &mut |_, behind| {
                    flow = behind;
                    Ok(())
                })?;
            }
        }
        cx.end_row();
        flow.active().ok_or_else(|| Unsupported::internal("a row that is tried has no flag"))
    }
}
