//! The points at which the lanes of a warp look at texts together, or take other rows while they match their own.

use super::{Coming, Segment, Turn, Way, read_all, types_of};
use crate::context::{Context, Lowered, Moved, Unsupported};
use crate::lower::WarpRows;
use crate::operator::Flow;
use crate::operator::match_refill::{Candidates, MatchRefill};
use crate::operator::roles::{Emitter, Next};
use crate::pipeline::row::mark;
use crate::pipeline::row_loop::Emitted;

impl Turn<'_> {
    /// The first steps, and a filter whose texts lanes match as one run of bytes. Rows stay in their lanes.
    pub(super) fn match_runs(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let run = self.points().texts.run_at(way.end);
        let filter = run.ok_or_else(|| Unsupported::internal("a filter without a run of texts"))?;
        let is_there = coming.active;
        let no = cx.builder.bool(false);
        let wanted = cx.builder.var_of("wanted", no);
        let columns = filter.around.kept(&self.body.read_behind(way.end + 1));
        let arrived = self.to_point(cx, Segment { way, columns: &columns }, coming, &mut |cx| {
            mark(cx, way.end, Flow::Branch);
            filter.begin(cx, self.row, wanted)
        })?;
        let (is_wanted, registers) = (cx.builder.read(wanted), arrived.registers(cx));
        let rows = WarpRows { row: self.row, is_there, is_wanted };
        let active = filter.passes(cx, &rows);
        cx.with_live_columns(&arrived.row, &registers, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| filter.around.end(cx, next);
            self.together(cx, way.behind(way.end + 1), Coming { active, bind }, emitter)
        })
    }

    /// The steps up to a point, and a filter whose texts lanes match some bytes at a time.
    pub(super) fn match_texts(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let points = self.points();
        let filter = points.texts.match_at(way.end);
        let filter = filter.ok_or_else(|| Unsupported::internal("a filter without a match"))?;
        let no = cx.builder.bool(false);
        let is_candidate = cx.builder.var_of("candidate", no);
        let (columns, mut text) = (filter.around.kept(&self.body.read_behind(way.end + 1)), Vec::new());
        let arrived = self.to_point(cx, Segment { way, columns: &columns }, coming, &mut |cx| {
            mark(cx, way.end, Flow::Branch);
            text = filter.begin(cx, is_candidate)?;
            Ok(())
        })?;
        let (is_there, row) = (cx.builder.read(is_candidate), arrived.registers(cx));
        let text = read_all(cx, &text);
        let types = [types_of(cx, &text), types_of(cx, &row)];
        let refill = MatchRefill::new(cx, &types[0], &types[1], points.threshold);
        let candidates = Candidates { matching: &filter.matching, is_there, text: &text, row: &row };
        // Behind the marks of the steps and the sink.
        let mark = self.body.pipeline.steps.len() as u32 + 1;
        refill.emit(cx, &candidates, (self.is_last, mark), &mut |cx, active, registers| {
            cx.with_live_columns(&arrived.row, registers, |cx| {
                let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| filter.around.end(cx, next);
                self.together(cx, way.behind(way.end + 1), Coming { active, bind }, emitter)
            })
        })
    }

    /// The steps up to a point, and the search for the keys of the step or the sink behind them, in which lanes look at
    /// texts together. Rows stay in their lanes.
    pub(super) fn find_keys(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let step = self.body.pipeline.steps.get(way.end);
        let search = match step {
            Some(step) => step.key_search(),
            None => emitter.key_search(),
        };
        let Some(search) = search else {
            // The sink is another one, which takes some of the rows before.
            return self.together(cx, Way { point: way.point + 1, ..way }, coming, emitter);
        };
        let columns = self.body.read_behind(way.end);
        let (mut keys, mut registers) = (Vec::new(), Vec::new());
        let arrived = self.to_point(cx, Segment { way, columns: &columns }, coming, &mut |cx| {
            keys = search.keys(cx)?;
            let own = keys.iter().flat_map(Lowered::registers);
            registers = own.map(|register| (register, cx.builder.var_of("key", register))).collect();
            Ok(())
        })?;
        let moved = registers.iter().map(|(register, var)| (*register, cx.builder.read(*var)));
        let moved = Moved::between(moved);
        let keys: Vec<Lowered> = keys.iter().map(|key| key.moved(&moved)).collect();
        let (active, row) = (cx.builder.read(arrived.live), arrived.registers(cx));
        // Behind the marks of the steps, the sink, and the loop in which texts are matched.
        let mark = self.body.pipeline.steps.len() as u32 + 2;
        let found = search.find(cx, (&keys, active), (self.row, mark))?;
        let next_way = Way { found: Some(found), ..way.behind(way.end) };
        cx.with_live_columns(&arrived.row, &row, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| next(cx, Flow::Branch);
            self.together(cx, next_way, Coming { active, bind }, emitter)
        })
    }
}
