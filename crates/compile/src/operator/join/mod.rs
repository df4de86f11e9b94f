//! Hash joins and nested-loop joins of every kind. The build side is materialised as a store of rows ([`RowStore`]), which
//! a second pipeline indexes ([`Index`]); then the probe side streams past it in the pipeline that it stands in, and
//! further operators consume the pairs in the same kernel (DogQC, section 4; HorseQC, section 4).
//!
//! Kinds that keep the build side mark its rows as they match, in a word a row; what is left, or what matched, is
//! delivered by a source of its own afterwards (`KeptRows`).
//!
//! *At most one match.* A join that could expand is first compiled under the promise that the build side's keys are
//! unique, which shortens the probe and bounds the rows; building the index checks it ([`Status::Duplicate`](crate::context::Status::Duplicate)), and the
//! engine compiles again without it.

mod batches;
mod bloom;
mod buckets;
mod build;
mod codes;
mod expand;
mod mark;
mod parts;
mod place;
mod probe;
mod ranks;
mod rows;
mod runtime_filter;
mod together;

use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

pub(crate) use self::bloom::Filtered;
pub(crate) use self::build::{FillBuckets, IndexRows, StoreBuildSide};
use self::codes::KeyCodes;
pub(crate) use self::codes::MapEntries;
pub(crate) use self::mark::MarkMatches;
pub(crate) use self::parts::{BuildSideParts, ProbeParts, Sides};
pub(crate) use self::place::PlaceBuildSide;
pub(crate) use self::probe::Probe;
pub(crate) use self::ranks::NumberRows;
pub(crate) use self::rows::{KeptRows, StoredRows};
pub(crate) use self::runtime_filter::BuildSideFilter;
use crate::MicroModel;
use crate::choices::Choices;
use crate::context::{Argument, Context, Lowered, Repr, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::plan::{Join, JoinKind};
use crate::program::Growth;
use crate::program::States;
use crate::table::index::{BuildSide, Index, KeyEncoding, KeyForm, Wants};
use crate::table::joined::Joined;
use crate::table::rows::{Layout, RowStore};
use crate::table::set_bits;
use crate::types::{DataType, Range};
use crate::variant::Site;

/// A join, planned.
#[derive(Debug, Clone)]
pub struct JoinOperator {
    /// The number by which the promise that build keys are unique is broken.
    promise: usize,
    kind: JoinKind,
    /// Rows of the build side, at most.
    build_bound: u64,
    /// Those that are thought to come, where that is foreseen well.
    build_rows: Option<u64>,
    /// The build side's rows: keys, then what of its columns is no key.
    store: RowStore,
    index: Index,
    /// The rows again, those of a key side by side in its bucket, where they are: what finds a key's rows finds places in it.
    bucket_rows: Option<RowStore>,
    /// Over the build side's columns: the store's.
    stored: Vec<Expr>,
    /// The store's column of each of the build side's columns.
    places: Vec<usize>,
    probe_keys: Vec<Expr>,
    /// Of each key, where it is a text that is encoded by codes of the build side's dictionary.
    codes: Vec<Option<KeyCodes>>,
    probe_width: usize,
    residual: Option<Expr>,
    columns: Vec<ColumnInfo>,
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
    /// Chooses the index and declares the state. `unique`: the promise that no two build rows have equal keys; `serial`: workers are
    /// single threads; `layout`: of the store. Of the probe side: its columns, and an upper bound of its rows.
    pub(crate) fn plan(
        (join, promise, site): (&Join, usize, Site<'_>),
        (build, rows): (&[ColumnInfo], &BuildSide),
        (probe, probe_bound): (&[ColumnInfo], u64),
        (unique, serial, choices): (bool, bool, &Choices<'_>),
        (layout, states): (Layout, &mut States),
    ) -> Result<JoinOperator, Unsupported> {
        let kind = join.kind;
        let probe_keys: Vec<Expr> = join.keys.iter().map(|(_, key)| key.clone()).collect();
        let probe_infos: Vec<ColumnInfo> = probe_keys.iter().map(|key| column_of(key, probe)).collect();
        let build_infos: Vec<ColumnInfo> = join.keys.iter().map(|(key, _)| column_of(key, build)).collect();
        let codes = codes::choose((&build_infos, rows.bound), (&probe_infos, probe_bound), site, states)?;
        let encodings: Vec<KeyEncoding> = codes.iter().map(codes::encoding_of).collect();
        let (stored, places) = stored_columns(join, build, &encodings);
        let mut infos: Vec<ColumnInfo> = stored.iter().map(|expr| column_of(expr, build)).collect();
        infos.iter_mut().zip(&encodings).for_each(|(info, encoding)| codes::looked_up(info, *encoding));
        let first_only = join.residual.is_none()
            && matches!(kind, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark);
        let wants = Wants {
            null_equal: join.null_equal,
            unique,
            first_only,
            chained: serial,
            serial,
            least_slots: choices.calibration.index_slots(serial),
            direct_bytes: choices.direct_bytes,
            cache: choices.calibration.index_cache(serial),
            not_placed: not_placed(join),
            places_by_rule: choices.micro_model == MicroModel::Resolution,
        };
        let form = KeyForm::choose(&infos, (&probe_infos, encodings), rows, (wants, site))?;
        let store = match form.slots() {
            Some(slots) => RowStore::placed(&infos, slots, states)?,
            None => RowStore::plan(&infos, rows.bound, layout, states)?,
        };
        let index = Index::plan(form, (&store, rows.bound), &probe_infos, (wants, site), states)?;
        let keys = &infos[..probe_keys.len()];
        let build_side = (&store, keys, rows.bound);
        let probe_side = (probe_infos.as_slice(), probe_bound);
        let (index, bucket_rows) =
            buckets::plan((kind, index), build_side, probe_side, (serial, site), states)?;
        let matched = keeps_build(kind).then(|| states.state("matched", 4, store.class));
        let nulls = join.null_aware.then(|| {
            let class = states.class(1, Growth::Fixed);
            states.state("probe_nulls", 4, class)
        });
        Ok(JoinOperator {
            promise,
            kind,
            build_bound: rows.bound,
            build_rows: rows.expected,
            columns: columns(kind, build, probe),
            store,
            index,
            bucket_rows,
            stored,
            places,
            probe_keys,
            codes,
            probe_width: probe.len(),
            residual: join.residual.clone(),
            matched,
            nulls,
        })
    }

    /// Whether a probe row becomes one row at most, so that no loop is around what follows.
    pub fn is_single(&self) -> bool {
        use JoinKind::*;
        self.index.unique || matches!(self.kind, ProbeSemi | ProbeAnti | ProbeMark)
    }

    /// Whether a join of this kind gains by the promise that build keys are unique.
    pub fn wants_unique(join: &Join) -> bool {
        use JoinKind::*;
        !join.keys.is_empty() && matches!(join.kind, Inner | BuildOuter | ProbeOuter | FullOuter)
    }

    /// What is known of the result's columns.
    pub fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// Rows that one probe row becomes, at most.
    pub fn expansion(&self, build_bound: u64) -> u64 {
        use JoinKind::*;
        match self.kind {
            Inner | BuildOuter | ProbeOuter | FullOuter if !self.index.unique => build_bound.max(1),
            _ => 1,
        }
    }

    /// Whether nothing is delivered where the build side is empty, so that the probe side is not looked at: the kinds of which
    /// DataFusion's `HashJoinExec` says so, and its `CrossJoinExec`. (`NestedLoopJoinExec` does look.)
    pub(crate) fn needs_build_rows(&self) -> bool {
        use JoinKind::*;
        match self.kind {
            Inner if self.residual.is_none() => true,
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
            [_] => self.index.bounds().is_some() || self.sifts_codes() || self.index.has_bloom(),
            _ => self.index.has_bloom(),
        };
        if has_filter && self.ignores_unmatched() { keys } else { &[] }
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

    /// The probe side's keys.
    pub(crate) fn probe_keys(&self) -> &[Expr] {
        &self.probe_keys
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The build side's rows.
    pub fn store(&self) -> &RowStore {
        &self.store
    }

    /// The rows at whose places the index finds matches.
    fn matches(&self) -> &RowStore {
        self.bucket_rows.as_ref().unwrap_or(&self.store)
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
        let columns = self.matches().columns();
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

fn boolean(value: V) -> Lowered {
    Lowered { repr: Repr::Scalar(value), valid: None, range: Some(Range::new(0, 1)) }
}

/// Why the rows of a join's build side may not lie at the slots of their keys, where that is so: rows with a NULL key have none.
fn not_placed(join: &Join) -> Option<&'static str> {
    match () {
        () if keeps_build(join.kind) => Some("build rows are delivered too"),
        () if join.null_aware => Some("NULL keys of the build side count"),
        () => None,
    }
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
