//! Sketches of how many groups there are (HyperLogLog: Flajolet et al. 2007), where nothing is known of that: of computed keys, of several
//! keys, of what joins and filters leave. A table that is too small is found out by the rows that fill it, and then filled anew.
//!
//! A kernel of its own brings some rows of the pipeline through the same steps, and takes of each no more than the hash of its keys,
//! which is also the table's: the hash's first bits say which register it goes to, and the place of the first bit that is set among the
//! others is its rank, of which the register has the greatest. Equal keys have one rank, and of twice as many keys the ranks are greater by one.
//! A block has registers in its own memory, and at the end brings them to those of all. What follows from them for the
//! table is the engine's to say (`engine/src/stage/sketching`).
//!
//! Keys that are looked at here are looked at when the table is filled too: a row that makes the sketch fail would make the query fail.

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Pointee, Scalar, Scope, Type, UnaryOp};

use super::distinct_sets::DistinctSet;
use super::domain::key_values;
use super::input::Input;
use super::key_table::KeyTable;
use crate::context::{Argument, Context, Unsupported};
use crate::expr::Expr;
use crate::lower::hashing::mix;
use crate::lower::lower;
use crate::operator::Flow;
use crate::operator::aggregate::block_loop::{clear, for_each};
use crate::operator::roles::{Emitter, Job, Needs, Sink, Sketch};
use crate::program::States;
use crate::program::{Growth, SketchStates, SketchedTable};
use crate::variant::axes::GroupEstimate;

/// Rows from which on a sketch pays: those of fewer are soon brought to their groups once more.
const LEAST_ROWS: u64 = 1 << 20;
/// Tables of one aggregation that are sketched, at most: each takes registers.
const MOST_TABLES: usize = 2;
/// The share of a block's memory that registers may take.
const MOST_SHARE: u64 = 2;

/// A sketch of the tables of an aggregation.
#[derive(Debug)]
pub(crate) struct GroupSketch {
    /// The keys over the input's rows.
    keys: Vec<Expr>,
    /// One a table of [`SketchStates`].
    tables: Vec<Sketched>,
    states: SketchStates,
}

/// A table whose entries are estimated.
#[derive(Debug, Clone)]
enum Sketched {
    Groups(KeyTable),
    Set(DistinctSet),
}

impl Sketched {
    fn table(&self) -> &KeyTable {
        match self {
            Sketched::Groups(table) => table,
            Sketched::Set(set) => set.table(),
        }
    }

    /// Whether it is known how many entries it will have at most, or about, or whether it has room for all rows.
    fn is_known(&self, input: &Input<'_>, states: &States) -> bool {
        let table = self.table();
        let Some(class) = states.classes.get(table.class) else { return true };
        let Growth::Table(growth) = class.growth else { return true };
        let has_room = |entries: u64| growth.fill.slots(entries) <= class.initial;
        let columns = table.columns();
        let values = columns.iter().map(key_values);
        let all = values.reduce(|all, own| Some(all?.saturating_mul(own?))).flatten();
        // A column's own values are what its table begins with.
        let is_column = matches!(columns, [column] if column.scattered.is_some());
        is_column || has_room(input.row_bound) || all.is_some_and(has_room)
    }
}

impl GroupSketch {
    /// Chooses whether the tables of an aggregation are sketched; `None` where none of them is a hash table, too.
    pub(crate) fn plan(
        keys: &[Expr],
        groups: Option<&KeyTable>,
        sets: &[DistinctSet],
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<Option<GroupSketch>, Unsupported> {
        let groups = groups.cloned().map(Sketched::Groups).into_iter();
        let all: Vec<Sketched> = groups.chain(sets.iter().cloned().map(Sketched::Set)).collect();
        if all.is_empty() {
            return Ok(None);
        }
        let unknown: Vec<Sketched> =
            all.iter().filter(|table| !table.is_known(input, states)).cloned().collect();
        let bytes = u64::from(SketchedTable::REGISTERS) * 4;
        let most =
            (u64::from(input.shape.table_bytes()) / MOST_SHARE / bytes).min(MOST_TABLES as u64) as usize;
        let why_not = match () {
            () if input.parts.is_some() => {
                Some("rows that come in parts are of a number of groups that is known")
            }
            () if most == 0 => Some("registers have no room in a block's memory"),
            () => None,
        };
        let rule = match why_not {
            Some(why_not) => (GroupEstimate::None, why_not),
            None if unknown.is_empty() => (GroupEstimate::None, "it is known about how many there are"),
            None if input.row_bound < LEAST_ROWS => (GroupEstimate::None, "few rows are soon added up anew"),
            None if input.is_sorted => (GroupEstimate::None, "rows of one group come together"),
            None => (GroupEstimate::Sketch, "a table that is too small is filled anew"),
        };
        let chosen = input.site.choose(rule, |value| match (value, why_not) {
            (GroupEstimate::Sketch, Some(why_not)) => Err(why_not.into()),
            _ => Ok(()),
        })?;
        if chosen == GroupEstimate::None {
            return Ok(None);
        }
        let is_forced = rule.0 == GroupEstimate::None;
        let mut tables = if is_forced { all } else { unknown };
        tables.truncate(most);
        let sketched = tables.iter().map(|table| {
            let class = states.class(SketchedTable::REGISTERS.into(), Growth::Fixed);
            SketchedTable { registers: states.state("registers", 4, class), class: table.table().class }
        });
        let states = SketchStates {
            tables: sketched.collect(),
            rows: states.counter("sketched_rows"),
            morsels: input.is_serial().then(|| states.counter("sketch_morsels")),
            least_rows: if is_forced { 0 } else { LEAST_ROWS },
        };
        Ok(Some(GroupSketch { keys: keys.to_vec(), tables, states }))
    }
}

impl Sketch for GroupSketch {
    fn sink(&self) -> &dyn Sink {
        self
    }

    fn states(&self) -> &SketchStates {
        &self.states
    }
}

displayed!(GroupSketch = "sketch");

impl Sink for GroupSketch {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        // Nothing of a text is kept but what its hash is.
        cx.make_rows_scratch(None);
        cx.declare_scratch();
        let registers = (0..self.tables.len()).map(|table| {
            let name = format!("registers_{table}");
            let own = cx.builder.shared(&name, Pointee::Scalar(Scalar::U32), SketchedTable::REGISTERS);
            clear(cx, own, Scalar::U32, SketchedTable::REGISTERS);
            own
        });
        let registers = registers.collect();
        let block_rows = cx.builder.shared("block_rows", Pointee::Scalar(Scalar::U64), 1);
        clear(cx, block_rows, Scalar::U64, 1);
        cx.builder.barrier();
        let zero = cx.builder.u64(0);
        let rows = cx.builder.var_of("sketched", zero);
        Ok(Box::new(SketchEmitter { plan: self, registers, block_rows, rows }))
    }
}

struct SketchEmitter<'s> {
    plan: &'s GroupSketch,
    /// The block's registers, one a table: `ptr<shared, u32>`.
    registers: Vec<V>,
    /// The rows that came to the block: `ptr<shared, u64>`.
    block_rows: V,
    /// The rows that came to the thread, `u64`.
    rows: Var,
}

impl Emitter for SketchEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        let active = flow.active();
        if let Some(active) = active {
            cx.begin_if(active);
        }
        if !cx.scratch_of_rows() {
            cx.clear_scratch();
        }
        let was_open = cx.open_scratch(true);
        let keys = self.plan.keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
        for (table, registers) in self.plan.tables.iter().zip(&self.registers) {
            let word = match table {
                Sketched::Groups(table) => table.word(cx, &keys)?,
                Sketched::Set(set) => set.word(cx, &keys)?,
            };
            note(cx, *registers, word.hash);
        }
        cx.open_scratch(was_open);
        let (rows, one) = (cx.builder.read(self.rows), cx.builder.u64(1));
        let rows = cx.builder.add(rows, one);
        cx.builder.assign(self.rows, rows);
        if active.is_some() {
            cx.end();
        }
        Ok(())
    }

    /// Brings the block's registers to those of all.
    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let rows = cx.builder.read(self.rows);
        cx.builder.atomic_discard(AtomicOp::Add, self.block_rows, rows, Scope::Block);
        cx.builder.barrier();
        let b = &mut *cx.builder;
        let (thread, zero) = (b.builtin(Builtin::ThreadId), b.u32(0));
        let is_first = b.eq(thread, zero);
        cx.begin_if(is_first);
        let all = Argument::State(self.plan.states.rows);
        let all = cx.argument("sketched_rows", Type::global(Scalar::U64), all);
        let rows = cx.builder.load(self.block_rows);
        cx.builder.atomic_discard(AtomicOp::Add, all, rows, Scope::Device);
        cx.end();
        for (number, (table, own)) in self.plan.states.tables.iter().zip(&self.registers).enumerate() {
            let all = Argument::State(table.registers);
            let all = cx.argument(&format!("all_registers_{number}"), Type::global(Scalar::U32), all);
            for_each(cx, SketchedTable::REGISTERS, |cx, index| {
                let own = cx.builder.offset(*own, index);
                let rank = cx.builder.load(own);
                let register = cx.builder.offset(all, index);
                keep_greatest(cx, register, rank, Scope::Device);
            });
        }
        Ok(())
    }
}

/// Takes a hash (`u64`) to its register.
fn note(cx: &mut Context<'_>, registers: V, hash: V) {
    // Tables are content with hashes of which only the upper bits are good ones.
    let hash = mix(cx, hash);
    let bits = SketchedTable::REGISTER_BITS;
    let b = &mut *cx.builder;
    let (shift, width) = (b.u64(u64::from(u64::BITS - bits)), b.u64(bits.into()));
    let register = b.binary(BinaryOp::Shr, hash, shift);
    let register = b.bitcast(register, Scalar::I64);
    // A bit behind the others ends the search for the first that is set.
    let rest = b.binary(BinaryOp::Shl, hash, width);
    let last = b.u64(1 << (bits - 1));
    let rest = b.or(rest, last);
    let (zeros, one) = (b.unary(UnaryOp::Clz, rest), b.u32(1));
    let rank = b.add(zeros, one);
    let register = b.offset(registers, register);
    keep_greatest(cx, register, rank, Scope::Block);
}

/// Keeps the greater of a register and a rank (`u32`). Most ranks are too small, and are no more than compared.
fn keep_greatest(cx: &mut Context<'_>, register: V, rank: V, scope: Scope) {
    let is_own = scope == Scope::Block && cx.shape.is_serial();
    let b = &mut *cx.builder;
    let current = if is_own { b.load(register) } else { b.atomic_load(register, scope) };
    let is_greater = b.lt(current, rank);
    b.begin_if(is_greater);
    match is_own {
        true => b.store(register, rank),
        false => b.atomic_discard(AtomicOp::Max, register, rank, scope),
    }
    b.end();
}
