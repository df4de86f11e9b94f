//! A SIMT device's form of the selection: a thread tries several rows of a table by its filters and runtime filters without a branch,
//! so that their loads are in flight together, and goes on with those that pass, one after the other. Which of them are left are bits
//! of a register. (Crystal's tiles, Shanbhag et al., SIGMOD 2020, section 3.2, without a block's memory: rows need not lie together.)
//!
//! A row alone waits for each load before the next one is known to be wanted: of a filter that keeps a seventh and a join behind it
//! a multiprocessor has some 8 KB in flight, where 40 KB are wanted to keep an H200's memory busy. Rows that lie side by side are loaded
//! and tried as wide rows (`context::wide`), in half the instructions.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, UnaryOp};

use super::grid::{Grid, GridTurn};
use super::lanes::Turn;
use super::{
    Candidate, Emitted, MOST_FILTERED, MOST_SELECTED, Rest, RowLoopStrategy, TurnRows, blocked_shape,
    runtime_filters,
};
use crate::context::lanes::any;
use crate::context::{Argument, Context, Unsupported, WIDE_ROWS};
use crate::expr::{Expr, ExprKind, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, supports_wide_rows};
use crate::operator::Flow;
use crate::operator::roles::{Arrival, Emitter};
use crate::pipeline::Pipeline;
use crate::pipeline::body::Body;
use crate::pipeline::points::ExchangePoint;
use crate::pipeline::row::{Pass, clamp, for_range, mark};
use crate::pipeline::variants::Facts;
use crate::variant::axes::{RowArrangement, WritePlaces};

/// Where filters leave a smaller share of the rows, another column is loaded only for those.
const LEAST_SHARE: f64 = 1.0 / 32.0;

/// The leading steps by which several rows of a thread are tried before any of them goes on.
#[derive(Debug)]
pub(super) struct StagedFiltering {
    /// The steps up to the first that does something else: projections and those of `tried` are carried out.
    leading: usize,
    /// Filters and runtime filters by which rows are tried, by number.
    tried: BTreeSet<usize>,
    /// The share of rows that is thought to pass.
    share: f64,
    /// Where the rows of a thread lie.
    arrangement: RowArrangement,
}

impl StagedFiltering {
    /// By what a pipeline's rows can be tried; or why they cannot.
    pub(super) fn possible(facts: &Facts<'_>) -> Result<Result<StagedFiltering, String>, Unsupported> {
        let why_not = StagedFiltering::why_not(facts);
        let of = |with_runtime_filters| match why_not {
            Some(why_not) => Err(why_not.to_string()),
            None => StagedFiltering::of(facts, with_runtime_filters),
        };
        let possible = of(true);
        let takes_them = runtime_filters(facts, possible.as_ref().err().map(String::as_str))?;
        Ok(if takes_them { possible } else { of(false) })
    }

    /// Why no rows can be tried, whatever the steps are.
    fn why_not(facts: &Facts<'_>) -> Option<&'static str> {
        let Facts { pipeline, environment, points, .. } = *facts;
        match () {
            () if facts.is_counted => Some("places are counted a row of the table"),
            () if facts.alone == Arrival::Flags && points.is_empty() => {
                Some("all rows of a thread go on together, with flags")
            }
            () if points.has(ExchangePoint::Run) => Some("lanes match the texts of rows side by side"),
            () if points.longest.is_some() => {
                Some("long ranges wait for warps that bring no rows of their own")
            }
            () if points.in_block
                || facts.places == WritePlaces::Block
                || pipeline.sink.waits_in_blocks() =>
            {
                Some("threads of a block wait for each other")
            }
            () if environment.shape.rows_per_thread > u32::BITS => Some("more rows than a word has bits"),
            () => None,
        }
    }

    /// By what rows are tried, with runtime filters where that is wanted; or why by nothing.
    fn of(facts: &Facts<'_>, with_runtime_filters: bool) -> Result<StagedFiltering, String> {
        let Facts { pipeline, speculation, .. } = *facts;
        let arrangement = RowArrangement::Striped;
        let mut staged = StagedFiltering { leading: 0, tried: BTreeSet::new(), share: 1.0, arrangement };
        let (mut columns, mut is_plain, mut why_not) = (pipeline.source.columns(), true, None);
        for (index, step) in pipeline.steps.iter().enumerate() {
            let range_of = |index: usize| columns.get(index).and_then(|info: &ColumnInfo| info.range);
            if let Some(condition) = step.condition() {
                if speculation.of_step(index) {
                    staged.share *= share_kept(condition, &range_of);
                    staged.tried.insert(index);
                } else if !is_plain || can_fail(condition, &range_of) {
                    why_not.get_or_insert("a filter may fail, and is to see the rows that others leave");
                    break;
                } else {
                    why_not.get_or_insert("filters cost more than branches");
                }
            } else if let Some(exprs) = step.projection() {
                is_plain &= exprs.iter().all(|expr: &Expr| matches!(expr.kind, ExprKind::Column(_)));
            } else if let Some(runtime_filter) = step.runtime_filter() {
                if with_runtime_filters
                    && runtime_filter.share() <= MOST_FILTERED
                    && staged.share >= LEAST_SHARE
                {
                    staged.share *= runtime_filter.share();
                    staged.tried.insert(index);
                }
            } else {
                break;
            }
            columns = step.columns(&columns).unwrap_or(columns);
            staged.leading = index + 1;
        }
        match staged.tried.is_empty() {
            true => Err(why_not.unwrap_or("there is no filter before other steps").into()),
            false => Ok(staged),
        }
    }

    /// Why rows of a thread do not lie side by side: they are tried as a wide row then.
    fn why_not_blocked(&self, facts: &Facts<'_>) -> Result<(), String> {
        let Facts { pipeline, environment, points, .. } = *facts;
        let shape = blocked_shape(facts)?;
        supports_wide_rows((environment.target, environment.shape), |cx| {
            let row = cx.builder.i64(0);
            self.try_wide(cx, pipeline, row).map(drop)
        })?;
        pipeline.fits(environment.target, &shape, points.more_rows().and(TurnRows::Blocked))
    }

    /// Whether the row passes all that it is tried by (`bool`), if `active`.
    fn try_row(
        &self,
        cx: &mut Context<'_>,
        pipeline: &Pipeline,
        (row, active): (V, V),
    ) -> Result<V, Unsupported> {
        pipeline.source.bind(cx, row)?;
        let mut active = active;
        for (index, step) in pipeline.steps.iter().take(self.leading).enumerate() {
            mark(cx, index, Flow::Flag { active: Some(active) });
            if let (Some(runtime_filter), true) = (step.runtime_filter(), self.tried.contains(&index)) {
                let passes = runtime_filter.pass_of(cx, &[active])?;
                active = passes.first().copied().unwrap_or(active);
            } else if step.projection().is_some() || self.tried.contains(&index) {
                step.consume(cx, Flow::Flag { active: Some(active) }, true, &mut |_, behind| {
                    active = behind.active().unwrap_or(active);
                    Ok(())
                })?;
            }
        }
        cx.end_row();
        Ok(active)
    }

    /// The same of the wide row that begins at `row`: a bit a row (`u32`).
    fn try_wide(&self, cx: &mut Context<'_>, pipeline: &Pipeline, row: V) -> Result<V, Unsupported> {
        pipeline.source.bind(cx, row)?;
        let (mut mask, mut each): (Option<V>, Option<Vec<V>>) = (None, None);
        for (index, step) in pipeline.steps.iter().take(self.leading).enumerate() {
            if let (Some(runtime_filter), true) = (step.runtime_filter(), self.tried.contains(&index)) {
                let active = active_rows(cx, mask, each.as_deref());
                each = Some(runtime_filter.pass_of(cx, &active)?);
            } else if step.projection().is_some() || self.tried.contains(&index) {
                step.consume(cx, Flow::Flag { active: mask }, true, &mut |_, behind| {
                    mask = behind.active();
                    Ok(())
                })?;
            }
        }
        let active = active_rows(cx, mask, each.as_deref());
        let mut bits = cx.builder.u32(0);
        match (each, mask) {
            (None, Some(all)) => {
                let all = cx.each_row(all);
                bits = cx.builder.mask_bits(all);
            }
            (None, None) => bits = cx.builder.u32((1 << WIDE_ROWS) - 1),
            (Some(_), _) => {
                for (row, active) in active.into_iter().enumerate() {
                    bits = with_bit(cx, bits, (row as u32, active));
                }
            }
        }
        cx.end_row();
        Ok(bits)
    }
}

impl Candidate for StagedFiltering {
    fn why(&self) -> Result<&'static str, &'static str> {
        match self.share > MOST_SELECTED {
            true => Err("filters keep nearly all rows"),
            false => Ok("their loads hide each other's latency"),
        }
    }

    /// Where the rows of a thread lie.
    fn settle(&mut self, facts: &Facts<'_>) -> Result<(), Unsupported> {
        let why_not = self.why_not_blocked(facts).err();
        let values = [RowArrangement::Striped, RowArrangement::Blocked];
        let why = Ok("one load brings a column's values of all of them");
        let is_blocked = facts.takes(values, why_not.as_deref(), why, None)?;
        self.arrangement = if is_blocked { RowArrangement::Blocked } else { RowArrangement::Striped };
        Ok(())
    }
}

impl RowLoopStrategy for StagedFiltering {
    fn turn_rows(&self) -> TurnRows {
        match self.arrangement {
            RowArrangement::Striped => TurnRows::Several,
            RowArrangement::Blocked => TurnRows::Blocked,
        }
    }

    fn rest(&self, step: usize) -> Rest<'_> {
        if self.tried.contains(&step) { Rest::Nothing } else { Rest::Step }
    }

    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        let rows_at_once = cx.shape.rows_per_thread.into();
        let grid = Grid { body, rows_at_once };
        let trial = Trial { staged: self, body, rows: body.rows, count: rows_at_once };
        grid.emit(cx, emitter, &mut |cx, turn, emitter| trial.emit(cx, turn, emitter))
    }
}

/// Which rows of a wide row are active (`bool` each): by a mask of all, and by what was found out of each since.
fn active_rows(cx: &mut Context<'_>, mask: Option<V>, each: Option<&[V]>) -> Vec<V> {
    let mask = mask.map(|mask| cx.each_row(mask));
    let mut rows = Vec::new();
    for row in 0..WIDE_ROWS {
        let of_all = mask.map(|mask| cx.builder.lane(mask, row));
        let own = each.and_then(|each| each.get(usize::from(row)).copied());
        rows.push(match (of_all, own) {
            (Some(of_all), Some(own)) => cx.builder.and(of_all, own),
            (active, own) => active.or(own).unwrap_or_else(|| cx.builder.bool(true)),
        });
    }
    rows
}

/// Bits with one more, where `set` (`bool`).
fn with_bit(cx: &mut Context<'_>, bits: V, (number, set): (u32, V)) -> V {
    let (bit, none) = (cx.builder.u32(1 << number), cx.builder.u32(0));
    let bit = cx.builder.select(set, bit, none);
    cx.builder.or(bits, bit)
}

/// The trial of the rows of a thread, so many in a turn, of those before an end (`i64`).
struct Trial<'t> {
    staged: &'t StagedFiltering,
    body: &'t Body<'t>,
    rows: V,
    count: i64,
}

impl Trial<'_> {
    /// All rows of a turn are tried, then those that passed go on. The lanes of a warp stay together between two rows.
    fn emit(&self, cx: &mut Context<'_>, turn: &GridTurn, emitter: &mut dyn Emitter) -> Emitted {
        let exchanges = !self.body.variants.points.is_empty();
        let is_last = exchanges.then(|| cx.builder.ge(turn.current, self.rows));
        let (passed, apart) = match self.staged.arrangement {
            RowArrangement::Striped => (self.try_striped(cx, turn)?, turn.threads),
            RowArrangement::Blocked => (self.try_blocked(cx, turn.row)?, cx.builder.i64(1)),
        };
        let (none, no) = (cx.builder.u32(0), cx.builder.bool(false));
        let left = cx.builder.var_of("left", passed);
        // What waits where lanes exchange rows comes through in turns that bring none.
        let flushes = is_last.map(|is_last| (is_last, cx.builder.var_of("flushes", is_last)));
        cx.begin_loop();
        let bits = cx.builder.read(left);
        let is_left = cx.builder.ne(bits, none);
        let wanted = flushes.map(|(_, flushes)| cx.builder.read(flushes));
        let wanted = wanted.map_or(is_left, |flushes| cx.builder.or(is_left, flushes));
        let goes_on = any(cx, wanted);
        let ends = cx.builder.not(goes_on);
        cx.builder.break_if(ends);
        emitter.begin_round(cx);
        let b = &mut *cx.builder;
        let (place, one) = (b.unary(UnaryOp::Ffs, bits), b.u32(1));
        let number = b.sub(place, one);
        let below = b.sub_int(bits, 1);
        let rest = b.binary(BinaryOp::And, bits, below);
        b.assign(left, rest);
        let distance = b.convert(number, Scalar::I64);
        let distance = b.mul(distance, apart);
        let row = b.add(turn.row, distance);
        match flushes {
            Some((is_last, flushes)) => {
                cx.builder.assign(flushes, no);
                Turn { body: self.body, row, in_range: is_left, is_last }.emit(cx, emitter)?;
            }
            None => {
                cx.begin_if(is_left);
                self.body.row_in(cx, row, (Flow::Branch, Pass::Rest), emitter)?;
                cx.end();
            }
        }
        emitter.end_round(cx)?;
        cx.end();
        Ok(())
    }

    /// Which of the rows pass: a bit each (`u32`).
    fn try_striped(&self, cx: &mut Context<'_>, turn: &GridTurn) -> Result<V, Unsupported> {
        let (mut row, mut passed) = (turn.row, cx.builder.u32(0));
        for index in 0..self.count {
            if index > 0 {
                row = cx.builder.add(row, turn.threads);
            }
            cx.begin_repetition(index == 0);
            let passes = self.try_clamped(cx, row)?;
            passed = with_bit(cx, passed, (index as u32, passes));
        }
        cx.end_repetition();
        Ok(passed)
    }

    /// The same of rows side by side: as a wide row, but for one of which some rows are before the first that is worked on, or beyond
    /// the end.
    fn try_blocked(&self, cx: &mut Context<'_>, first: V) -> Result<V, Unsupported> {
        let b = &mut *cx.builder;
        let none = b.u32(0);
        let passed = b.var_of("passed", none);
        let end = b.add_int(first, WIDE_ROWS);
        let least = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let (begins, ends) = (b.ge(first, least), b.ge(self.rows, end));
        let is_whole = b.and(begins, ends);
        cx.begin_if(is_whole);
        cx.begin_wide();
        let tried = self.staged.try_wide(cx, self.body.pipeline, first);
        cx.end_wide();
        cx.builder.assign(passed, tried?);
        cx.begin_else();
        let from = cx.builder.binary(BinaryOp::Max, first, least);
        let end = cx.builder.binary(BinaryOp::Min, end, self.rows);
        for_range(cx, "row", from, end, |cx, row| {
            let passes = self.try_clamped(cx, row)?;
            let b = &mut *cx.builder;
            let distance = b.sub(row, first);
            let distance = b.convert(distance, Scalar::U32);
            let one = b.u32(1);
            let bit = b.binary(BinaryOp::Shl, one, distance);
            let bit = b.select(passes, bit, none);
            let before = b.read(passed);
            let bits = b.or(before, bit);
            b.assign(passed, bits);
            Ok(())
        })?;
        cx.end();
        Ok(cx.builder.read(passed))
    }

    /// Whether a row passes; one beyond the end does not.
    fn try_clamped(&self, cx: &mut Context<'_>, row: V) -> Result<V, Unsupported> {
        let (row, flow) = clamp(cx, row, self.rows);
        let active =
            flow.active().ok_or_else(|| Unsupported::internal("a row that may be beyond the end"))?;
        self.staged.try_row(cx, self.body.pipeline, (row, active))
    }
}
