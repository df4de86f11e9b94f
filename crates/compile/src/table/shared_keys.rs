//! Keys that the lanes of a warp look for together in a hash table, where texts are among them (push-down parallelism over characters;
//! DogQC, section 3.4).
//!
//! A lane has a row, and looks at slots by itself. What takes long is done by all lanes while they are together: the words of the warp's
//! texts are hashed before the search, and where slots have keys that may be the rows' own, the texts of these pairs are compared. Who
//! shares words out among lanes lies above ([`Together`]). As a text's words come to several lanes, its hash is one that they can make in
//! any order ([`TextHash::AnyOrder`]), for everybody who uses the table.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::stored::{StoredColumn, equal_or_null};
use crate::context::{Case, Context, Lowered, Repr, Text, Unsupported};
use crate::lower::hashing::{KeyHash, TextHash, key_bits, or_null_bits, spread, with_bits};
use crate::variant::Site;
use crate::variant::axes::{HashFunction, KeyTextLanes};

/// The rule for every table, and why: one place to change it.
const RULE: (KeyTextLanes, &str) = (
    KeyTextLanes::Lane,
    "it is not known how long texts are, and what it is worth to share them was not measured",
);

/// What the lanes of a warp do with texts together, at uniform control flow of the warp.
pub(crate) trait Together {
    /// The hash in any order (`u64`) of a text of each lane that is `active` (`bool`).
    fn hashes(&self, cx: &mut Context<'_>, text: &Text, active: V) -> Result<V, Unsupported>;

    /// Whether two texts of the same length differ (`bool`), in each lane; not where it is not `active`.
    fn differ(&self, cx: &mut Context<'_>, texts: (&Text, &Text), active: V) -> Result<V, Unsupported>;
}

/// What a search has found for the row of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// The slot where it ended, `i64`.
    pub slot: Var,
    /// Of groups whether they are in the slot, of an index's own rows whether they have one (`bool`); of rows that an index is searched
    /// for the number there or 0 (`u32`).
    pub hit: Var,
}

/// Chooses who looks at the texts of a table's keys on a SIMT device, where there are texts.
pub(crate) fn choose(keys: &[StoredColumn], site: Site<'_>) -> Result<KeyTextLanes, Unsupported> {
    match keys.iter().any(StoredColumn::is_text) {
        true => site.choose(RULE, |_| Ok(())),
        false => Ok(KeyTextLanes::Lane),
    }
}

/// How the keys of a table are hashed whose texts such lanes look at.
pub(crate) fn key_hash(function: HashFunction, lanes: KeyTextLanes) -> KeyHash {
    let texts = match lanes {
        KeyTextLanes::Lane => TextHash::Chained,
        KeyTextLanes::Warp => TextHash::AnyOrder,
    };
    KeyHash { function, texts }
}

/// Keys of a row, and the columns that a table has them in.
#[derive(Clone, Copy)]
pub(crate) struct SharedKeys<'k> {
    pub columns: &'k [StoredColumn],
    pub keys: &'k [Lowered],
}

impl SharedKeys<'_> {
    /// The hash (`u64`) of the keys of each lane that is `live`, at uniform control flow of the warp.
    pub(crate) fn hash(
        self,
        cx: &mut Context<'_>,
        (wide, function): (&[bool], HashFunction),
        live: V,
        together: &dyn Together,
    ) -> Result<V, Unsupported> {
        let mut hash: Option<V> = None;
        for ((key, column), wide) in self.keys.iter().zip(self.columns).zip(wide) {
            let bits = match &key.repr {
                Repr::Text(text) if column.is_text() => {
                    let active = key.valid.map_or(live, |valid| cx.builder.and(live, valid));
                    let bits = together.hashes(cx, text, active)?;
                    or_null_bits(cx, bits, key.valid)
                }
                _ => {
                    // A dictionary's text is looked at for rows alone that are there.
                    let nothing = cx.builder.u64(0);
                    let own = cx.builder.var_of("key_bits", nothing);
                    cx.begin_if(live);
                    let bits = key_bits(cx, (key, *wide), TextHash::AnyOrder);
                    cx.builder.assign(own, bits);
                    cx.end();
                    cx.builder.read(own)
                }
            };
            hash = Some(with_bits(cx, function, hash, bits));
        }
        Ok(match hash {
            Some(hash) => spread(cx, function, hash),
            None => cx.builder.u64(0),
        })
    }
}

/// The texts of a slot's keys that are to be compared with those of a lane's row.
pub(crate) struct Pairs<'k> {
    keys: SharedKeys<'k>,
    /// One a key; `None` where its lane compares it.
    others: Vec<Option<Other>>,
}

/// A text of a slot that may be the row's, which is as long.
#[derive(Clone, Copy)]
struct Other {
    /// `ptr<global, u8>`.
    data: Var,
    /// Whether neither is NULL, and bytes are to be compared, `bool`.
    is_text: Var,
}

impl Pairs<'_> {
    /// No pairs yet.
    pub(crate) fn new<'k>(cx: &mut Context<'_>, keys: SharedKeys<'k>) -> Pairs<'k> {
        let mut other = |column: &StoredColumn| {
            column.is_text().then(|| Other {
                data: cx.builder.var("other", Type::global(Scalar::U8)),
                is_text: cx.builder.var("is_text", Scalar::Bool),
            })
        };
        Pairs { keys, others: keys.columns.iter().map(&mut other).collect() }
    }

    /// Proposes the keys at a place (`i64`) to be compared: whether they may be the row's (`bool`), which they are unless
    /// [`Pairs::differ`] finds otherwise. In a lane.
    pub(crate) fn propose(&self, cx: &mut Context<'_>, place: V) -> Result<V, Unsupported> {
        let mut same = cx.builder.bool(true);
        let SharedKeys { columns, keys } = self.keys;
        for ((key, column), other) in keys.iter().zip(columns).zip(&self.others) {
            let equal = match (other, &key.repr) {
                (Some(other), Repr::Text(text)) => {
                    let Some(theirs) = column.candidate(cx, text, place) else {
                        return Err(Unsupported::internal("a text that is stored as something else"));
                    };
                    let valid = [key.valid, theirs.valid].into_iter().flatten();
                    let is_text = valid.fold(theirs.is_open, |all, valid| cx.builder.and(all, valid));
                    cx.builder.assign(other.data, theirs.data);
                    cx.builder.assign(other.is_text, is_text);
                    equal_or_null(cx, theirs.may_be, key.valid, theirs.valid)
                }
                _ => column.equals(cx, key, place)?,
            };
            same = cx.builder.and(same, equal);
        }
        Ok(same)
    }

    /// Whether a text of the keys that were proposed differs from the row's (`bool`), in the lanes that have proposed some (`open`), at
    /// uniform control flow of the warp.
    pub(crate) fn differ(
        &self,
        cx: &mut Context<'_>,
        open: V,
        together: &dyn Together,
    ) -> Result<V, Unsupported> {
        let mut differ = cx.builder.bool(false);
        for (key, other) in self.keys.keys.iter().zip(&self.others) {
            let (Some(other), Repr::Text(text)) = (other, &key.repr) else { continue };
            let b = &mut *cx.builder;
            let (is_text, agree) = (b.read(other.is_text), b.not(differ));
            let active = b.and(open, is_text);
            let active = b.and(active, agree);
            let data = b.read(other.data);
            let theirs = Text { data, length: text.length, case: Case::Keep, code: None };
            let differs = together.differ(cx, (text, &theirs), active)?;
            differ = cx.builder.or(differ, differs);
        }
        Ok(differ)
    }
}
