//! The points at which the lanes of a warp look at texts together, or take other rows while they match their own.

use kelpie_kir::builder::V;

use super::{Bind, Turn, Way, read_all, types_of};
use crate::context::{Context, Lowered, Moved, Unsupported};
use crate::lower::WarpRows;
use crate::operator::Flow;
use crate::operator::match_refill::{Candidates, MatchRefill};
use crate::operator::roles::{Emitter, Next};
use crate::pipeline::body::Body;
use crate::pipeline::row::mark;

impl Body<'_> {
    /// The first steps, and a filter whose texts lanes match as one run of bytes. Rows stay in their lanes.
    pub(super) fn match_runs(
        &self,
        cx: &mut Context<'_>,
        (from, way): (Way, Way),
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let filter = self.variants.points.text_run(way.step)?;
        let no = cx.builder.bool(false);
        let wanted = cx.builder.var_of("wanted", no);
        let columns = filter.kept(&self.read_behind(way.step + 1));
        let arrived = self.to_point(cx, (from, way.step), (active, bind), &columns, &mut |cx| {
            mark(cx, way.step, Flow::Branch);
            filter.begin(cx, turn.row, wanted)
        })?;
        let (is_wanted, registers) = (cx.builder.read(wanted), arrived.registers(cx));
        let rows = WarpRows { row: turn.row, is_there: active, is_wanted };
        let passes = filter.passes(cx, &rows);
        let next_way = way.behind(way.step + 1);
        cx.with_carried(&arrived.row, &registers, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| filter.decided(cx, next);
            self.together(cx, next_way, (passes, bind), turn, emitter)
        })
    }

    /// The steps on the way `from` the last point, and a filter whose texts lanes match some bytes at a time.
    pub(super) fn match_texts(
        &self,
        cx: &mut Context<'_>,
        (from, way): (Way, Way),
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let points = &self.variants.points;
        let filter = points.text_match(way.step)?;
        let no = cx.builder.bool(false);
        let is_candidate = cx.builder.var_of("candidate", no);
        let (columns, mut text) = (filter.kept(&self.read_behind(way.step + 1)), Vec::new());
        let arrived = self.to_point(cx, (from, way.step), (active, bind), &columns, &mut |cx| {
            mark(cx, way.step, Flow::Branch);
            text = filter.begin(cx, is_candidate)?;
            Ok(())
        })?;
        let (is_there, row) = (cx.builder.read(is_candidate), arrived.registers(cx));
        let text = read_all(cx, &text);
        let types = [types_of(cx, &text), types_of(cx, &row)];
        let refill = MatchRefill::new(cx, &types[0], &types[1], points.threshold);
        let candidates = Candidates { is_there, text: &text, row: &row };
        // Behind the marks of the steps and the sink.
        let mark = self.pipeline.steps.len() as u32 + 1;
        let next_way = way.behind(way.step + 1);
        refill.emit(cx, &filter.matching, &candidates, (turn.is_last, mark), &mut |cx, passed, registers| {
            cx.with_carried(&arrived.row, registers, |cx| {
                let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| filter.decided(cx, next);
                self.together(cx, next_way, (passed, bind), turn, emitter)
            })
        })
    }

    /// The steps on the way `from` the last point, and the search for the keys of the step or the sink behind them, in which lanes look at
    /// texts together. Rows stay in their lanes.
    pub(super) fn find_keys(
        &self,
        cx: &mut Context<'_>,
        (from, way): (Way, Way),
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let step = self.pipeline.steps.get(way.step);
        let search = match step {
            Some(step) => step.key_search(),
            None => emitter.key_search(),
        };
        let Some(search) = search else {
            // The sink is another one, which takes some of the rows before.
            return self.together(cx, Way { point: from.point + 1, ..from }, (active, bind), turn, emitter);
        };
        let columns = self.read_behind(way.step);
        let (mut keys, mut registers) = (Vec::new(), Vec::new());
        let arrived = self.to_point(cx, (from, way.step), (active, bind), &columns, &mut |cx| {
            keys = search.keys(cx)?;
            let own = keys.iter().flat_map(Lowered::registers);
            registers = own.map(|register| (register, cx.builder.var_of("key", register))).collect();
            Ok(())
        })?;
        let moved = registers.iter().map(|(register, var)| (*register, cx.builder.read(*var)));
        let moved = Moved::between(moved);
        let keys: Vec<Lowered> = keys.iter().map(|key| key.moved(&moved)).collect();
        let (live, row) = (cx.builder.read(arrived.live), arrived.registers(cx));
        // Behind the marks of the steps, the sink, and the loop in which texts are matched.
        let mark = self.pipeline.steps.len() as u32 + 2;
        let found = search.find(cx, (&keys, live), (turn.row, mark))?;
        let next_way = Way { found: Some(found), ..way.behind(way.step) };
        cx.with_carried(&arrived.row, &row, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| next(cx, Flow::Branch);
            self.together(cx, next_way, (live, bind), turn, emitter)
        })
    }
}
