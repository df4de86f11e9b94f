//! How the rows of a block get their ranks within their parts where one value is frequent.
//!
//! Each row adds to the counter of its part in the block's memory, and what it finds there is its rank. Where one value is frequent, many
//! lanes of a warp add to the same counter, one after the other. So a warp keeps in mind a part that it met often: the lanes with that
//! part are told by a ballot, the first of them adds for all, and each counts those before it (Karnagel et al., section 5, have the
//! problem, warps that add up before they meet others are HorseQC's, section 6.1). The part is learned while running: where fewer than
//! two lanes have it, the next row asks for that of another lane.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, UnaryOp};

use crate::context::lanes;
use crate::context::{Context, Unsupported};
use crate::primitives::partition::BlockParts;
use crate::shape::LaunchShape;
use crate::variant::Site;
use crate::variant::axes::PartRanks;

/// Lanes with the part that a warp keeps in mind, from which on it stays with it.
const OFTEN: u32 = 2;

/// Who takes ranks. That lanes wait for each other costs less than it costs a warp to look, even where a sixth of the rows has one value
/// (`docs/log/performance.md`).
pub(crate) fn choose_ranks(shape: &LaunchShape, site: Site<'_>) -> Result<PartRanks, Unsupported> {
    let lacks = shape.is_serial().then_some("a CPU's worker counts its rows one after the other");
    let rule = (PartRanks::Row, lacks.unwrap_or("lanes that wait for each other cost less than votes"));
    site.choose(rule, |value| match (value, lacks) {
        (PartRanks::Warp, Some(lacks)) => Err(lacks.into()),
        _ => Ok(()),
    })
}

/// What a warp keeps in mind.
pub(super) struct WarpRanks {
    /// The part that it met often, plus 1 (`u32`), or no part's number: the same in all of its lanes.
    often: Var,
}

impl WarpRanks {
    /// Begins with no part.
    pub(super) fn begin(cx: &mut Context<'_>) -> WarpRanks {
        let none = cx.builder.u32(u32::MAX);
        WarpRanks { often: cx.builder.var_of("often_part", none) }
    }

    /// The rank (`u32`) of a row by its part plus 1 (`u32`), which is 0 where there is no row; then it is any number. `turn`: which of the
    /// thread's rows it is. At uniform control flow of the warp.
    pub(super) fn rank(&self, cx: &mut Context<'_>, block: &BlockParts, (part, turn): (V, u32)) -> V {
        let b = &mut *cx.builder;
        let often = b.read(self.often);
        let has_it = b.eq(part, often);
        let mask = lanes::ballot(cx, has_it);
        let (many, before) = (lanes::count(cx, mask), lanes::rank(cx, mask));
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let is_first = b.eq(before, zero);
        let of_all = b.select(is_first, many, zero);
        let adds = b.select(has_it, of_all, one);
        let exists = b.ne(part, zero);
        let adds = b.select(exists, adds, zero);
        let found = b.var_of("found", zero);
        let any = b.ne(adds, zero);
        cx.begin_if(any);
        let number = cx.builder.sub(part, one);
        let first = block.rank(cx.builder, (number, adds));
        cx.builder.assign(found, first);
        cx.end();
        let b = &mut *cx.builder;
        let (own, leader) = (b.read(found), b.unary(UnaryOp::Ffs, mask));
        let leader = b.binary(BinaryOp::Max, leader, one);
        let leader = b.sub(leader, one);
        let first = lanes::read_lane(cx, own, leader);
        let candidate = cx.builder.u32(turn % cx.shape.lanes.max(1));
        let candidate = lanes::read_lane(cx, part, candidate);
        let b = &mut *cx.builder;
        let together = b.add(first, before);
        let rank = b.select(has_it, together, own);
        let least = b.u32(OFTEN);
        let is_rare = b.lt(many, least);
        let is_part = b.ne(candidate, zero);
        let changes = b.and(is_rare, is_part);
        let next = b.select(changes, candidate, often);
        b.assign(self.often, next);
        rank
    }
}
