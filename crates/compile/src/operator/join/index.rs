//! A join's build side as its probe side finds it: the rows in a store, and the way from a key to the rows that have it.

use std::fmt;

use kelpie_kir::Scalar;
use kelpie_kir::builder::{V, Var};

use super::facts::JoinFacts;
use super::fill_buckets;
use super::key_codes::KeyEncoding;
use super::method::{self, AccessPath, BuildSide, DenseKey, Keys};
use super::methods::HashIndex;
use crate::context::{Constant, Context, Lowered, Unsupported};
use crate::lower::hashing::is_wide;
use crate::program::{Growth, States};
use crate::table::bounds::{Bounds, KeyBounds};
use crate::table::buckets::Buckets;
use crate::table::key_range::scalar_of;
use crate::table::key_rows::{KeyRows, Positions, entry_at};
use crate::table::rows::RowStore;

/// The build side of a join, planned. The first columns of its store are the keys.
#[derive(Debug)]
pub(crate) struct Index {
    pub(super) store: RowStore,
    /// The rows again, those of a key side by side in its bucket, where they are: what finds a key's rows finds places in it.
    pub(super) bucket_rows: Option<RowStore>,
    pub(super) path: Box<dyn AccessPath>,
    /// How the rows of a key follow each other.
    pub(super) rows: KeyRows,
    /// No two rows are assumed to have equal keys.
    pub(super) unique: bool,
    /// State of one `u32`, where that is assumed: it is known to be wrong.
    pub(super) not_unique: Option<usize>,
    /// How each key is encoded.
    pub(super) encodings: Vec<KeyEncoding>,
    /// Whether some side's values of each key go beyond 64 bits.
    pub(super) wide: Vec<bool>,
    /// NULL keys equal each other, and are put in as any value.
    finds_nulls: bool,
    /// Of the only key.
    bounds: Option<KeyBounds>,
}

/// A search for the rows of a key: what comes next (`table/key_rows`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    pub cursor: Var,
    /// Where the rows stand in an order: the position behind the last of them. Then the cursor is a position itself.
    pub end: Option<Var>,
}

impl Search {
    /// From a cursor that leads from one row to the next.
    pub(super) fn at(cursor: Var) -> Search {
        Search { cursor, end: None }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self.rows {
            KeyRows::One if self.unique => ", unique",
            KeyRows::Chained(_) => ", chains",
            KeyRows::Buckets(_) => ", buckets",
            KeyRows::One | KeyRows::All | KeyRows::Sorted(_) => "",
        };
        f.write_str(&self.path.name(rows))
    }
}

impl Index {
    /// Whether NULL keys find each other.
    pub(super) fn finds_nulls(&self) -> bool {
        self.finds_nulls
    }

    /// Chooses the method of a join and declares its states.
    pub(super) fn plan(facts: &JoinFacts<'_>, states: &mut States) -> Result<Index, Unsupported> {
        let method = method::choose(facts)?;
        let BuildSide { store, path, mut rows } = method.plan(facts, states)?;
        let pairs = facts.stored.iter().zip(&facts.probe_keys);
        let wide = pairs.map(|(a, b)| is_wide(a) || is_wide(b)).collect();
        let bounds = match facts.stored.as_slice() {
            // Of texts there are none: zones know nothing of codes.
            [key, ..]
                if !facts.has_null_pairs
                    && path.sorted().is_none()
                    && facts.encodings == [KeyEncoding::Value] =>
            {
                KeyBounds::plan(key, states)
            }
            _ => None,
        };
        let unique = facts.is_unique();
        let not_unique = unique.then(|| {
            let class = states.class(1, Growth::Fixed);
            states.state("broken_promise", 4, class)
        });
        let bucket_rows = match fill_buckets::take_rows(facts, rows, &store)? {
            true => {
                rows.in_buckets();
                Some(store.again(states)?)
            }
            false => None,
        };
        let finds_nulls = facts.input.join.null_equal && path.dense().is_none();
        let encodings = facts.encodings.clone();
        Ok(Index { store, bucket_rows, path, rows, unique, not_unique, encodings, wide, finds_nulls, bounds })
    }

    /// The rows at whose places searches find matches.
    pub(super) fn matches(&self) -> &RowStore {
        self.bucket_rows.as_ref().unwrap_or(&self.store)
    }

    /// The state of the bounds of the only key ([`KeyBounds`]).
    pub fn bounds(&self) -> Option<usize> {
        self.bounds.map(|KeyBounds(state)| state)
    }

    /// Whether no two rows are assumed to have equal keys.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Whether every row of the store is a candidate.
    pub fn tries_all(&self) -> bool {
        matches!(self.rows, KeyRows::All)
    }

    pub(super) fn hash(&self) -> Result<&HashIndex, Unsupported> {
        self.path.hash().ok_or_else(|| Unsupported::internal("a join without a hash table"))
    }

    pub(super) fn buckets(&self) -> Result<Buckets, Unsupported> {
        self.rows.buckets().ok_or_else(|| Unsupported::internal("a join without buckets"))
    }

    /// States to clear before rows are put in.
    pub(super) fn zeroed(&self) -> Vec<usize> {
        let counts = self.rows.buckets().map(|buckets| buckets.offsets());
        let own = self.bounds().into_iter().chain(counts).chain(self.not_unique);
        own.chain(self.path.zeroed()).collect()
    }

    /// Before the loop over the rows that are put in.
    pub(super) fn begin_bounds(&self, cx: &mut Context<'_>) -> Option<Bounds> {
        self.bounds.map(|bounds| bounds.begin(cx))
    }

    /// After it.
    pub(super) fn end_bounds(&self, cx: &mut Context<'_>, bounds: Option<Bounds>) {
        if let (Some(state), Some(bounds)) = (self.bounds, bounds) {
            state.end(cx, bounds);
        }
    }

    /// The keys of a row of the store, which is the current row.
    pub(super) fn keys_of_row(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        let key_of = |(number, encoding): (usize, &KeyEncoding)| {
            let key = cx.column(number)?;
            encoding.encode(cx, key)
        };
        self.encodings.iter().enumerate().map(key_of).collect()
    }

    /// Emits `then` for the row of the store that is the current row, where it is to be put in.
    pub(super) fn if_indexed(
        &self,
        cx: &mut Context<'_>,
        then: impl FnOnce(&mut Context<'_>, Keys<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let values = self.keys_of_row(cx)?;
        let guard = self.is_indexed(cx, &values)?.map(|is_indexed| cx.begin_if(is_indexed));
        then(cx, Keys { index: self, values: &values })?;
        if guard.is_some() {
            cx.end();
        }
        Ok(())
    }

    /// Whether a search may be for the keys of a row of the store (`bool`; `None`: it always may): none is NULL, unless NULLs are equal to each
    /// other, and texts that were looked up are entries of the dictionary.
    pub(super) fn is_indexed(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
    ) -> Result<Option<V>, Unsupported> {
        let mut all: Vec<V> = self.no_nulls(cx, keys).into_iter().collect();
        for (key, encoding) in keys.iter().zip(&self.encodings) {
            let KeyEncoding::LookedUp(entries) = encoding else { continue };
            let value = scalar_of(key)?;
            let value = cx.builder.convert(value, Scalar::I32);
            let end = cx.constant(Constant::Int(Scalar::I32, (*entries).into()));
            let mut is_entry = cx.builder.lt(value, end);
            if let (Some(valid), true) = (key.valid, self.finds_nulls) {
                let null = cx.builder.not(valid);
                is_entry = cx.builder.or(null, is_entry);
            }
            all.push(is_entry);
        }
        Ok(all.into_iter().reduce(|all, one| cx.builder.and(all, one)))
    }

    /// Whether no key is NULL (`bool`); `None` where none can be, or NULLs equal each other and are put in as any value.
    pub(super) fn no_nulls(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Option<V> {
        let valid = keys.iter().filter_map(|key| key.valid).filter(|_| !self.finds_nulls);
        valid.reduce(|all, valid| cx.builder.and(all, valid))
    }

    /// Whether keys that are looked up may be there (`bool`); `None` where they always may.
    pub(super) fn may_be_found(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
    ) -> Result<Option<V>, Unsupported> {
        match (self.path.dense(), keys) {
            (Some(DenseKey { range, .. }), [key]) => range.has_key(cx, key),
            _ => Ok(self.no_nulls(cx, keys)),
        }
    }

    /// Emits `then` where keys that are looked up may be there.
    pub(super) fn if_possible(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        then: impl FnOnce(&mut Context<'_>, Keys<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let guard = self.may_be_found(cx, keys)?.map(|live| cx.begin_if(live));
        then(cx, Keys { index: self, values: keys })?;
        if guard.is_some() {
            cx.end();
        }
        Ok(())
    }

    /// Begins the search for rows whose keys equal `keys`. All rows that it gives have them.
    pub(super) fn search(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<Search, Unsupported> {
        let zero = cx.builder.u32(0);
        let cursor = cx.builder.var_of("cursor", zero);
        if let KeyRows::Sorted(_) = self.rows {
            let count = cx.builder.var_of("end", zero);
            let to = Positions { begin: cursor, count };
            self.if_possible(cx, keys, |cx, keys| self.path.positions(cx, keys, to))?;
            let (begin, rows) = (cx.builder.read(cursor), cx.builder.read(count));
            let end = cx.builder.add(begin, rows);
            cx.builder.assign(count, end);
            return Ok(Search { cursor, end: Some(count) });
        }
        self.if_possible(cx, keys, |cx, keys| self.path.search(cx, keys, cursor))?;
        Ok(Search::at(cursor))
    }

    /// Takes the next row: its place (`i64`). Leaves the innermost loop where there is none.
    pub(super) fn advance(&self, cx: &mut Context<'_>, search: Search) -> V {
        let current = cx.builder.read(search.cursor);
        if let (Some(end), KeyRows::Sorted(entries)) = (search.end, self.rows) {
            let (end, one) = (cx.builder.read(end), cx.builder.u32(1));
            let done = cx.builder.ge(current, end);
            cx.builder.break_if(done);
            let next = cx.builder.add(current, one);
            cx.builder.assign(search.cursor, next);
            return entry_at(cx, entries, current);
        }
        let zero = cx.builder.u32(0);
        let none = cx.builder.eq(current, zero);
        cx.builder.break_if(none);
        let (place, following) = self.rows.step(cx, &self.store, (current, zero));
        cx.builder.assign(search.cursor, following);
        place
    }

    /// Opens `if` a search has found a row, which is the first of several with the key: its place (`i64`). `None` where no
    /// key has several.
    pub(super) fn begin_if_several(&self, cx: &mut Context<'_>, search: Search) -> Option<V> {
        if let KeyRows::One | KeyRows::All | KeyRows::Sorted(_) = self.rows {
            return None;
        }
        let cursor = cx.builder.read(search.cursor);
        let zero = cx.builder.u32(0);
        let found = cx.builder.ne(cursor, zero);
        cx.begin_if(found);
        Some(self.rows.place(cx, cursor))
    }

    /// Where no key has two rows that a search gives: whether there is one (`bool`), and its place (`i64`, else 0).
    pub(super) fn only(&self, cx: &mut Context<'_>, search: Search) -> Option<(V, V)> {
        let KeyRows::One = self.rows else { return None };
        let cursor = cx.builder.read(search.cursor);
        let (zero, one) = (cx.builder.u32(0), cx.builder.u32(1));
        let found = cx.builder.ne(cursor, zero);
        let place = cx.builder.sub(cursor, one);
        let place = cx.builder.select(found, place, zero);
        Some((found, cx.builder.convert(place, Scalar::I64)))
    }
}
