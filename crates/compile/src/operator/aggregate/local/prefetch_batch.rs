//! Rows of a CPU's worker that wait for each other, so that their groups are looked for together.
//!
//! A row whose group lies far away waits for memory two or three times, one after the other: for the slot, for what it points to
//! (the bytes of a text), for the sums. A processor goes on with the next rows meanwhile, but with no more of them than fit its
//! window: two or three. So a worker keeps what some hundred rows need (their keys and arguments) in its own memory, and goes over
//! them several times: it computes their hashes and looks at their slots, then at the texts that these have, then adds the rows to
//! their groups, which lie in the cache by then. In each of these short loops many rows wait at the same time (group prefetching:
//! Chen et al., "Improving Hash Join Performance through Prefetching", 2004).

use crate::operator::aggregate::functions::word_pointer;
use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar};

use crate::MicroModel;
use crate::context::{Case, Context, Lowered, Repr, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::{columns_of, lower};
use crate::operator::aggregate::functions::Cells;
use crate::operator::aggregate::keys::{DistinctSet, Facts, KeyWord, RowKeys};
use crate::table::stored::{RecordLayout, StoredColumn};
use crate::types::DataType;
use crate::variant::axes::BatchRows;

/// Rows of the input from which on a batch pays, at least: tables of fewer lie in the cache.
const LEAST_ROWS: u64 = 1 << 18;
/// Most bytes of a batch: it should leave room for its slots in the second-level cache.
const MOST_BYTES: u64 = 64 << 10;

/// What a worker keeps of a row, and of how many.
#[derive(Debug)]
pub(crate) struct PrefetchBatch {
    rows: u32,
    /// What is computed of a row when it comes.
    exprs: Vec<Expr>,
    columns: Vec<StoredColumn>,
    words: u32,
}

/// The expressions of an aggregation, which become columns of a batch.
pub(crate) struct BatchedExprs<'p> {
    pub keys: &'p mut RowKeys,
    pub cells: &'p mut Cells,
    /// Their arguments are.
    pub sets: &'p mut [DistinctSet],
}

impl BatchedExprs<'_> {
    /// All different ones, the keys that tell groups apart first.
    fn distinct(&self) -> Vec<Expr> {
        let mut exprs: Vec<Expr> = Vec::new();
        let contributions = self.cells.cells.iter().flat_map(|cell| &cell.contribution.arguments);
        let keys = self.keys.telling.iter();
        let all = keys.chain(self.sets.iter().map(DistinctSet::argument)).chain(contributions);
        for expr in all.chain(&self.keys.dependent) {
            if !exprs.contains(expr) {
                exprs.push(expr.clone());
            }
        }
        exprs
    }

    /// Replaces each by the column of the batch that has it.
    fn replace(self, exprs: &[Expr]) {
        let column = |expr: &mut Expr| {
            let index = exprs.iter().position(|known| known == expr).unwrap_or_default();
            *expr = Expr::column(index, expr.data_type.clone(), expr.nullable);
        };
        let contributions = self.cells.cells.iter_mut().flat_map(|cell| &mut cell.contribution.arguments);
        let keys = self.keys.telling.iter_mut().chain(&mut self.keys.dependent);
        let sets = self.sets.iter_mut().map(DistinctSet::argument_mut);
        keys.chain(sets).chain(contributions).chain(&mut self.cells.distinct).for_each(column);
    }
}

impl PrefetchBatch {
    /// Whether rows are kept, and how many. Where they are, the aggregation's expressions become columns of what is kept. `is_near`: what
    /// rows look for lies in a worker's cache.
    pub fn plan(
        own: BatchedExprs<'_>,
        facts: &Facts<'_>,
        is_near: bool,
    ) -> Result<Option<PrefetchBatch>, Unsupported> {
        let Facts { input, .. } = facts;
        let exprs = own.distinct();
        let infos = columns_of(&exprs, input.columns);
        let far = are_far(&infos[..own.keys.telling.len().min(infos.len())], facts.keys.are_columns);
        let mut layout = RecordLayout::default();
        let columns: Result<Vec<StoredColumn>, _> =
            infos.iter().map(|info| StoredColumn::plan_record(info, false, &mut layout)).collect();
        let words = layout.stride(0);
        // Hash tables that a row is looked for in.
        let tables = u32::from(facts.table.is_hashed) + own.sets.len() as u32;
        let bytes = |rows: u64| rows * u64::from(words + 2 * tables) * 8;
        let room = u64::from(input.shape.table_bytes());
        let why_not = |BatchRows(rows): BatchRows| match &columns {
            _ if rows == 0 => Ok(()),
            _ if !input.is_serial() => Err("threads of a block wait for memory side by side".to_string()),
            _ if tables == 0 => Err("groups are not looked for".into()),
            _ if input.is_sorted => Err("rows come group by group".into()),
            _ if !facts.are_plain => Err("texts are compared when they come".into()),
            Err(why_not) => Err(why_not.to_string()),
            _ if bytes(rows) > room => Err(format!("{} bytes do not fit a worker's {room}", bytes(rows))),
            Ok(_) => Ok(()),
        };
        let some = BatchRows(256);
        let rule = match why_not(some) {
            Err(_) => (BatchRows(0), "rows cannot wait"),
            _ if input.choices.micro_model != MicroModel::Resolution => {
                (BatchRows(0), "the micro model takes one row at a time")
            }
            _ if input.row_bound < LEAST_ROWS => (BatchRows(0), "few rows"),
            _ if bytes(some.0) > MOST_BYTES => (BatchRows(0), "rows are wide"),
            Ok(()) if is_near => (BatchRows(0), "the groups lie in a worker's cache"),
            Ok(()) if !own.sets.is_empty() => (some, "sets of many values are waited for together"),
            Ok(()) if !own.keys.dependent.is_empty() => {
                (BatchRows(0), "rows would keep keys that new groups alone want")
            }
            Ok(()) if far => (some, "groups may lie far from each other, and are waited for together"),
            Ok(()) => (BatchRows(0), "computed keys and dictionaries seldom have many groups"),
        };
        let BatchRows(rows) = input.site.choose(rule, why_not)?;
        let (true, Ok(columns)) = (rows > 0, columns) else { return Ok(None) };
        own.replace(&exprs);
        let rows = u32::try_from(rows).map_err(Unsupported::internal)?;
        Ok(Some(PrefetchBatch { rows, exprs, columns, words }))
    }

    /// What is computed of a row when it comes.
    pub fn exprs(&self) -> &[Expr] {
        &self.exprs
    }

    /// Memory for the rows, and for words of their keys in so many tables.
    pub fn begin(&self, cx: &mut Context<'_>, tables: usize) -> BatchMemory<'_> {
        let mut array = |name: &str, words: u32| {
            cx.builder.shared(name, Pointee::Scalar(Scalar::U64), (self.rows * words).max(1))
        };
        let base = array("batch", self.words);
        let words = (0..tables).map(|table| array(&format!("batch_keys_{table}"), 2)).collect();
        let sight = array("sight", 1);
        let columns = self.columns.iter().map(|column| column.at(base, self.words)).collect();
        let (zero, nothing) = (cx.builder.i64(0), cx.builder.u64(0));
        let count = cx.builder.var_of("waiting", zero);
        let seen = cx.builder.var_of("seen", nothing);
        BatchMemory { plan: self, columns, words, sight, seen, count, cases: Vec::new() }
    }
}

/// Whether groups by these keys may be so many that tables of them lie beyond a second-level cache: texts, of which columns with few
/// values have dictionaries, and columns that are hashed.
fn are_far(keys: &[ColumnInfo], are_columns: bool) -> bool {
    let is_text = |key: &ColumnInfo| key.data_type == DataType::Utf8;
    let has_codes = |key: &ColumnInfo| key.dictionary.is_some();
    keys.iter().any(|key| is_text(key) && !has_codes(key)) || (are_columns && !keys.iter().any(has_codes))
}

pub(crate) struct BatchMemory<'s> {
    plan: &'s PrefetchBatch,
    columns: Vec<StoredColumn>,
    /// Of each table, the words of the rows' keys.
    words: Vec<V>,
    /// Where what was looked at goes, so that no compiler leaves out the look: `ptr<shared, u64>`.
    sight: V,
    seen: Var,
    /// Rows that wait, `i64`.
    count: Var,
    /// In which case texts are meant to be: they wait as they are.
    cases: Vec<Case>,
}

impl BatchMemory<'_> {
    pub fn waiting(&self) -> Var {
        self.count
    }

    /// Keeps the current row; whether there is no room for another one (`bool`).
    pub fn keep(&mut self, cx: &mut Context<'_>) -> Result<V, Unsupported> {
        let place = cx.builder.read(self.count);
        self.cases.clear();
        for (expr, column) in self.plan.exprs.iter().zip(&self.columns) {
            let mut value = lower(cx, expr)?;
            let mut case = Case::Keep;
            if let Repr::Text(text) = &mut value.repr {
                case = std::mem::replace(&mut text.case, Case::Keep);
            }
            self.cases.push(case);
            column.store(cx, &value, place)?;
        }
        let b = &mut *cx.builder;
        let (one, most) = (b.i64(1), b.i64(self.plan.rows.into()));
        let count = b.add(place, one);
        b.assign(self.count, count);
        Ok(b.ge(count, most))
    }

    /// `body` for the number (`i64`) of each row that waits.
    pub fn each(
        &self,
        cx: &mut Context<'_>,
        body: &mut dyn FnMut(&mut Context<'_>, V) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let zero = cx.builder.i64(0);
        let number = cx.builder.var_of("number", zero);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (current, count) = (b.read(number), b.read(self.count));
        let done = b.ge(current, count);
        b.break_if(done);
        body(cx, current)?;
        let one = cx.builder.i64(1);
        let next = cx.builder.add(current, one);
        cx.builder.assign(number, next);
        cx.end();
        Ok(())
    }

    /// Makes a row that waits the current one, until [`Context::pop_layer`].
    pub fn bind(&self, cx: &mut Context<'_>, number: V) {
        let mut values: Vec<Lowered> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let mut value = column.load(cx, number, None);
            if let (Repr::Text(text), Some(case)) = (&mut value.repr, self.cases.get(index)) {
                text.case = *case;
            }
            values.push(value);
        }
        cx.begin_values(values);
    }

    pub fn clear(&self, cx: &mut Context<'_>) {
        let zero = cx.builder.i64(0);
        cx.builder.assign(self.count, zero);
        let seen = cx.builder.read(self.seen);
        cx.builder.store(self.sight, seen);
    }

    /// Keeps the word of a row's keys in a table.
    pub fn store_word(&self, cx: &mut Context<'_>, table: usize, number: V, word: KeyWord) {
        let Some(base) = self.word_pointer(cx, table, number) else { return };
        cx.builder.store(base, word.entry);
        let hash = word_pointer(cx, base, 1);
        cx.builder.store(hash, word.hash);
    }

    /// The word of a row's keys in a table.
    pub fn word(&self, cx: &mut Context<'_>, table: usize, number: V) -> Option<KeyWord> {
        let base = self.word_pointer(cx, table, number)?;
        let entry = cx.builder.load(base);
        let hash = word_pointer(cx, base, 1);
        Some(KeyWord { entry, hash: cx.builder.load(hash) })
    }

    fn word_pointer(&self, cx: &mut Context<'_>, table: usize, number: V) -> Option<V> {
        let Some(words) = self.words.get(table) else {
            cx.impossible("a table without words");
            return None;
        };
        let index = cx.builder.shl_int(number, 1);
        Some(cx.builder.offset(*words, index))
    }

    /// Notes what was looked at (`u64`).
    pub fn see(&self, cx: &mut Context<'_>, seen: V) {
        let before = cx.builder.read(self.seen);
        let all = cx.builder.binary(BinaryOp::Xor, before, seen);
        cx.builder.assign(self.seen, all);
    }
}
