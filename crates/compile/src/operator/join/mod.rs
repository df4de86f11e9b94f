//! Joins of every kind. The build side is materialised as a store of rows, and made an [`Index`] by the join's `method`; then
//! the probe side streams past it in the pipeline that it stands in, and further operators consume the pairs in the same kernel (DogQC,
//! section 4; HorseQC, section 4).
//!
//! Kinds that keep the build side mark its rows as they match, in a word a row; what is left, or what matched, is
//! delivered by a source of its own afterwards (`KeptRows`).
//!
//! *At most one match.* A join that could expand is first compiled under the assumption that the build side's keys are
//! unique, which shortens the probe and bounds the rows; building the index checks it ([`Status::NotUnique`](crate::context::Status::NotUnique)), and the
//! engine compiles again without it.

mod bloom_rule;
mod build;
mod build_side_rows;
mod code_maps;
mod facts;
mod fill_buckets;
mod index;
mod key_codes;
mod mark;
mod match_ranges;
mod method;
mod methods;
mod partitioned_join;
mod place_rows;
mod probe;
mod probe_batches;
mod runtime_filter;
mod search_range;
mod shared_key_texts;
mod sorted_rows;

use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

pub(crate) use self::bloom_rule::Filtered;
pub(crate) use self::build_side_rows::{KeptRows, StoredRows};
pub(crate) use self::code_maps::{Entries, MapEntries};
use self::facts::JoinFacts;
pub(crate) use self::index::Index;
use self::key_codes::{KeyCodes, KeyEncoding};
pub(crate) use self::mark::MarkMatches;
pub(crate) use self::partitioned_join::{PartsOfSide, Sides};
pub(crate) use self::probe::Probe;
pub(crate) use self::runtime_filter::BuildSideFilter;
use self::search_range::OrderedColumns;
pub(crate) use self::search_range::SearchRange;
pub(crate) use self::sorted_rows::{IndexedKeys, IndexedRows, NoteOrder};
use crate::choices::Choices;
use crate::context::{Argument, Context, Lowered, Repr, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::operator::roles::Sink;
use crate::operator::sort::SortOperator;
use crate::plan::{Join, JoinKind};
use crate::program::{Growth, States};
use crate::shape::LaunchShape;
use crate::table::joined::Joined;
use crate::table::rows::Layout;
use crate::table::set_bits;
use crate::types::{DataType, Range};
use crate::variant::Site;

/// The assumption that no two rows of a build side have equal keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UniqueAssumption {
    /// The number by which it is known to be wrong.
    pub number: usize,
    /// The join is planned under it.
    pub is_made: bool,
}

/// What is known of how many rows come from a side of a join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SideRows {
    /// Rows at most.
    pub bound: u64,
    /// There are exactly so many.
    pub is_exact: bool,
    /// Rows that are thought to come, of a table; how many a join leaves is not foreseen well.
    pub expected: Option<u64>,
}

/// A side of a join that is to be planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinSide<'a> {
    pub columns: &'a [ColumnInfo],
    pub rows: SideRows,
}

/// A join that is to be planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinInput<'a> {
    pub join: &'a Join,
    pub assumption: UniqueAssumption,
    pub build: JoinSide<'a>,
    pub probe: JoinSide<'a>,
    /// How the store of the build side gives out its places.
    pub layout: Layout,
    /// The shape of the launches.
    pub shape: &'a LaunchShape,
    pub choices: &'a Choices<'a>,
    pub site: Site<'a>,
}

/// A join, planned.
#[derive(Debug)]
pub(crate) struct JoinOperator {
    /// The number by which the assumption that build keys are unique is known to be wrong.
    assumption: usize,
    kind: JoinKind,
    /// What is known of the build side's rows.
    build_rows: SideRows,
    /// The build side.
    index: Index,
    /// Over the build side's columns: the store's, which are the keys and then what is no key.
    stored: Vec<Expr>,
    /// The store's column of each of the build side's columns.
    places: Vec<usize>,
    pub probe_keys: Vec<Expr>,
    /// Of each key, where it is a text that is encoded by codes of the build side's dictionary.
    codes: Vec<Option<KeyCodes>>,
    probe_width: usize,
    /// What is left to be checked of the rows that a search gives.
    residual: Option<Expr>,
    /// Whether the plan's join has a residual condition, which a search may have taken over.
    is_conditional: bool,
    /// What is known of the result's columns.
    pub columns: Vec<ColumnInfo>,
    /// State of one `u32` a row of the store: it has a match.
    matched: Option<usize>,
    /// State of one `u32`, for `NOT IN`: bit 0 = the probe side has a row, bit 1 = it has a NULL key.
    nulls: Option<usize>,
}

impl fmt::Display for JoinOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.kind, self.index)
    }
}

impl JoinOperator {
    /// Chooses the method and declares the states.
    pub fn plan(input: &JoinInput<'_>, states: &mut States) -> Result<JoinOperator, Unsupported> {
        let (join, build, probe) = (input.join, input.build.columns, input.probe.columns);
        let kind = join.kind;
        let probe_keys: Vec<Expr> = join.keys.iter().map(|(_, key)| key.clone()).collect();
        let probe_infos: Vec<ColumnInfo> = probe_keys.iter().map(|key| column_of(key, probe)).collect();
        let build_infos: Vec<ColumnInfo> = join.keys.iter().map(|(key, _)| column_of(key, build)).collect();
        let codes = key_codes::choose(input, &build_infos, &probe_infos, states)?;
        let encodings: Vec<KeyEncoding> = codes.iter().map(key_codes::encoding_of).collect();
        let range = SearchRange::of(join, (build, probe));
        let (mut stored, places) = stored_columns(join, build, &encodings);
        let mut place = |expr: &Expr| stored_place(&mut stored, expr, join.keys.len());
        let ordered = range.as_ref().map(|range| {
            let second = range.second.as_ref().map(|second| place(&second.order));
            OrderedColumns { order: place(&range.order), second }
        });
        let mut infos: Vec<ColumnInfo> = stored.iter().map(|expr| column_of(expr, build)).collect();
        infos.iter_mut().zip(&encodings).for_each(|(info, encoding)| key_codes::looked_up(info, *encoding));
        let facts = JoinFacts {
            range: range.as_ref().zip(ordered),
            ..JoinFacts::of(input, infos, probe_infos, encodings)
        };
        let index = Index::plan(&facts, states)?;
        let matched = keeps_build(kind).then(|| states.state("matched", 4, index.store.class));
        let nulls = join.null_aware.then(|| {
            let class = states.class(1, Growth::Fixed);
            states.state("other_nulls", 4, class)
        });
        Ok(JoinOperator {
            assumption: input.assumption.number,
            kind,
            build_rows: input.build.rows,
            columns: columns(kind, build, probe),
            stored,
            places,
            probe_keys,
            codes,
            probe_width: probe.len(),
            residual: index.path.left_to_check(join),
            is_conditional: join.residual.is_some(),
            index,
            matched,
            nulls,
        })
    }

    /// The sinks of the pipelines that make the build side ready to be probed, as its access path has them.
    pub fn build_passes(self: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        self.index.path.passes(self)
    }

    /// The sort of the build side's rows, where searches are in their order.
    pub fn build_sort(&self) -> Option<&Arc<SortOperator>> {
        self.index.path.sorted().map(|sorted| &sorted.sort)
    }

    /// Whether a join of this kind gains by the assumption that build keys are unique.
    pub fn wants_unique(join: &Join) -> bool {
        !join.keys.is_empty() && makes_pairs(join.kind)
    }

    /// Whether a probe row may become several rows, so that a loop is around what follows.
    fn expands(&self) -> bool {
        makes_pairs(self.kind) && !self.index.unique
    }

    /// Rows that one probe row becomes, at most.
    pub fn most_matches(&self) -> u64 {
        if self.expands() { self.build_rows.bound.max(1) } else { 1 }
    }

    /// Whether nothing is delivered where the build side is empty, so that the probe side is not looked at: the kinds of which
    /// DataFusion's `HashJoinExec` says so, and its `CrossJoinExec`. (`NestedLoopJoinExec` does look.)
    pub(crate) fn needs_build_rows(&self) -> bool {
        use JoinKind::*;
        match self.kind {
            Inner if !self.is_conditional => true,
            Inner | BuildOuter | BuildSemi | BuildAnti | BuildMark | ProbeSemi => !self.probe_keys.is_empty(),
            ProbeOuter | FullOuter | ProbeAnti | ProbeMark => false,
        }
    }

    /// Whether rows of the probe side that match nothing have no effect.
    fn ignores_unmatched(&self) -> bool {
        use JoinKind::*;
        match self.kind {
            Inner | BuildOuter | ProbeSemi | BuildSemi | BuildMark => true,
            BuildAnti => self.nulls.is_none(),
            ProbeOuter | FullOuter | ProbeAnti | ProbeMark => false,
        }
    }

    /// The keys of the probe side, where rows that do not match them have no effect and a finished build side can filter them at their
    /// scan; none where that is not so.
    pub(crate) fn filtering_keys(&self) -> &[Expr] {
        let keys = self.probe_keys.as_slice();
        let has_filter = match keys {
            [_] => self.index.bounds().is_some() || self.has_code_filter() || self.index.has_bloom(),
            _ => self.index.has_bloom(),
        };
        if has_filter && self.ignores_unmatched() { keys } else { &[] }
    }

    /// Whether NULL keys find each other.
    pub(crate) fn finds_nulls(&self) -> bool {
        self.index.finds_nulls()
    }

    /// The probe side's column that a column of the result is, where it is one.
    pub(crate) fn probe_column(&self, column: usize) -> Option<usize> {
        use JoinKind::*;
        match self.kind {
            Inner | BuildOuter | ProbeOuter | FullOuter => column.checked_sub(self.places.len()),
            ProbeSemi | ProbeAnti | ProbeMark => (column < self.probe_width).then_some(column),
            BuildSemi | BuildAnti | BuildMark => None,
        }
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The state that counts the build side's rows.
    pub fn row_count(&self) -> usize {
        self.index.store.row_count()
    }

    /// Notes that the row at `place` has a match.
    fn mark(&self, cx: &mut Context<'_>, place: V) {
        let Some(state) = self.matched else { return };
        let flags = cx.argument("matched", Type::global(Scalar::U32), Argument::State(state));
        let pointer = cx.builder.offset(flags, place);
        let one = cx.builder.u32(1);
        set_bits(cx, pointer, one);
    }

    /// Notes that the row at `place` has a match where `found` (`bool`) is true.
    fn mark_if(&self, cx: &mut Context<'_>, found: V, place: V) {
        if self.matched.is_some() {
            cx.begin_if(found);
            self.mark(cx, place);
            cx.end();
        }
    }

    /// The build side's columns at a place, NULL where `present` (if given) is false.
    fn build_columns(&self, place: V, present: Option<V>) -> Vec<Joined> {
        let columns = self.index.matches().columns();
        self.places.iter().map(|index| Joined::stored(&columns[*index], place, present)).collect()
    }
}

/// What a store has of the build side: keys, then what of its columns is no key as it is; and where each of its columns stands there.
fn stored_columns(join: &Join, build: &[ColumnInfo], encodings: &[KeyEncoding]) -> (Vec<Expr>, Vec<usize>) {
    let mut stored: Vec<Expr> = join.keys.iter().map(|(key, _)| key.clone()).collect();
    let mut places = Vec::new();
    for (index, info) in build.iter().enumerate() {
        // Of a text that is looked up the store has no more than a code.
        let has_value = |key: usize| !matches!(encodings.get(key), Some(KeyEncoding::LookedUp(_)));
        let is_it = |(key, expr): (usize, &Expr)| has_value(key) && expr.kind == ExprKind::Column(index);
        let known = stored.iter().enumerate().position(is_it);
        places.push(known.unwrap_or_else(|| {
            stored.push(Expr::column(index, info.data_type.clone(), info.nullable));
            stored.len() - 1
        }));
    }
    (stored, places)
}

/// The place among the stored columns of what rows are ordered by, which is stored in addition where it is no column.
fn stored_place(stored: &mut Vec<Expr>, order: &Expr, keys: usize) -> usize {
    let known = stored.iter().skip(keys).position(|expr| expr == order);
    known.map_or_else(
        || {
            stored.push(order.clone());
            stored.len() - 1
        },
        |place| keys + place,
    )
}

fn boolean(value: V) -> Lowered {
    Lowered { repr: Repr::Scalar(value), valid: None, range: Some(Range::new(0, 1)) }
}

/// Whether a kind's rows are pairs of a build row and a probe row.
fn makes_pairs(kind: JoinKind) -> bool {
    matches!(kind, JoinKind::Inner | JoinKind::BuildOuter | JoinKind::ProbeOuter | JoinKind::FullOuter)
}

/// Whether a kind needs to know which build rows have a match.
fn keeps_build(kind: JoinKind) -> bool {
    use JoinKind::*;
    matches!(kind, BuildOuter | FullOuter | BuildSemi | BuildAnti | BuildMark)
}

fn columns(kind: JoinKind, build: &[ColumnInfo], probe: &[ColumnInfo]) -> Vec<ColumnInfo> {
    use JoinKind::*;
    let mark = ColumnInfo::new(DataType::Boolean, false, None);
    // A build side's rows come in the order of their matches.
    let of_matches = |info: &ColumnInfo| ColumnInfo { is_clustered: false, ..info.stored() };
    let build = &build.iter().map(of_matches).collect::<Vec<_>>();
    // A NULL that stands for a missing row has no code in a dictionary; a build column's place has one to read.
    let absent = |info: &ColumnInfo| ColumnInfo { nullable: true, dictionary: None, ..info.stored() };
    let nullable = |info: &ColumnInfo| ColumnInfo { nullable: true, ..info.clone() };
    match kind {
        Inner => build.iter().chain(probe).cloned().collect(),
        BuildOuter => build.iter().cloned().chain(probe.iter().map(absent)).collect(),
        ProbeOuter => build.iter().map(nullable).chain(probe.iter().cloned()).collect(),
        FullOuter => build.iter().map(nullable).chain(probe.iter().map(absent)).collect(),
        BuildSemi | BuildAnti => build.clone(),
        BuildMark => build.iter().cloned().chain([mark]).collect(),
        ProbeSemi | ProbeAnti => probe.to_vec(),
        ProbeMark => probe.iter().cloned().chain([mark]).collect(),
    }
}
