//! Uniformity: which threads are known to agree on a value, and which of them reach a statement together.
//!
//! A fixpoint from above: every value, variable and loop begins as uniform in the block, and a walk over the body
//! lowers what it must until nothing changes. Three levels make that short. A last walk checks the statements that
//! need threads together. The rules are in the crate documentation.

use super::{ValidationError, statement_error};
use crate::arena::Handle;
use crate::module::*;
use crate::text::statement_text;

/// Which threads agree on a value, or reach a statement together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uniformity {
    /// Each thread for itself.
    Divergent,
    /// The threads of a warp.
    Warp,
    /// The threads of a block.
    Block,
}

use Uniformity::{Block as InBlock, Divergent, Warp};

/// What is known of a function.
pub(super) struct Analysis {
    /// Level of each value.
    pub(super) values: Vec<Uniformity>,
    /// Level of a device function's result where all its arguments are uniform in the block.
    pub(super) result: Uniformity,
}

/// A level, and the value that lowered it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    level: Uniformity,
    cause: Option<Handle<Value>>,
}

impl Level {
    const TOP: Level = Level { level: InBlock, cause: None };

    /// The lower of two levels; the first where they are equal.
    fn min(self, other: Level) -> Level {
        if other.level < self.level { other } else { self }
    }
}

/// The lowest levels at which threads jump out of a piece of code; [`Level::TOP`] where none does, or all do.
#[derive(Clone, Copy)]
struct Jumps {
    /// By `break` and `continue`, to an end of the innermost loop.
    of_loop: Level,
    /// By `return` and `trap`.
    of_function: Level,
}

impl Jumps {
    const NONE: Jumps = Jumps { of_loop: Level::TOP, of_function: Level::TOP };

    fn min(self, other: Jumps) -> Jumps {
        Jumps {
            of_loop: self.of_loop.min(other.of_loop),
            of_function: self.of_function.min(other.of_function),
        }
    }

    fn lowest(self) -> Level {
        self.of_loop.min(self.of_function)
    }
}

struct Walk<'a> {
    module: &'a Module,
    function: &'a Function,
    /// Result levels of the functions before.
    summaries: &'a [Uniformity],
    values: Vec<Uniformity>,
    vars: Vec<Level>,
    /// Of each loop, in the order of the text: how the threads that left or skipped part of an iteration differ.
    loops: Vec<Level>,
    next_loop: usize,
    result: Uniformity,
    /// Number of the next statement.
    statement: usize,
    changed: bool,
    /// The last walk: requirements are checked.
    checking: bool,
}

/// The levels of a function's values; an error where a statement needs threads together that may be apart.
pub(super) fn analyse(
    module: &Module,
    function: &Function,
    summaries: &[Uniformity],
) -> Result<Analysis, ValidationError> {
    let mut walk = Walk {
        module,
        function,
        summaries,
        values: vec![InBlock; function.values.len()],
        vars: vec![Level::TOP; function.vars.len()],
        loops: Vec::new(),
        next_loop: 0,
        result: InBlock,
        statement: 0,
        changed: true,
        checking: false,
    };
    while walk.changed {
        walk.once()?;
    }
    walk.checking = true;
    walk.once()?;
    Ok(Analysis { values: walk.values, result: walk.result })
}

impl Walk<'_> {
    fn once(&mut self) -> Result<(), ValidationError> {
        (self.changed, self.statement, self.next_loop) = (false, 0, 0);
        self.block(&self.function.body, Level::TOP).map(|_| ())
    }

    /// Walks a block that is entered at the level `control`. The code after a jump is reached by those threads that
    /// did not take it.
    fn block(&mut self, block: &Block, mut control: Level) -> Result<Jumps, ValidationError> {
        let mut jumps = Jumps::NONE;
        for stmt in block {
            let jump = self.statement(stmt, control)?;
            control = control.min(jump.lowest());
            jumps = jumps.min(jump);
        }
        Ok(jumps)
    }

    fn statement(&mut self, stmt: &Stmt, control: Level) -> Result<Jumps, ValidationError> {
        let number = self.statement;
        self.statement += 1;
        if self.checking {
            self.check(stmt, control, number)?;
        }
        match stmt {
            Stmt::Let(value) => {
                let level = self.expr(&self.function.values[*value].expr);
                self.lower(*value, level);
            }
            Stmt::Assign { var, value } => {
                let level = control.min(self.level(*value));
                self.lower_var(*var, level);
            }
            Stmt::Atomic { result: Some(result), .. } | Stmt::AtomicLoad { result, .. } => {
                self.lower(*result, Divergent);
            }
            Stmt::Compress { mask, result: Some(result), .. } => {
                let level = self.values[mask.index()];
                self.lower(*result, level);
            }
            Stmt::Call { function, args, result: Some(result) } => {
                let summary = self.summaries.get(function.index()).copied().unwrap_or(Divergent);
                let level = args.iter().map(|arg| self.values[arg.index()]).fold(summary, Ord::min);
                self.lower(*result, level);
            }
            Stmt::If { condition, accept, reject } => {
                let inside = control.min(self.level(*condition));
                let accept = self.block(accept, inside)?;
                let reject = self.block(reject, inside)?;
                return Ok(accept.min(reject));
            }
            Stmt::Loop(body) => return self.repeat(body, control),
            Stmt::Break | Stmt::Continue => {
                return Ok(Jumps { of_loop: control, ..Jumps::NONE });
            }
            Stmt::Return(value) => {
                let value = value.map_or(InBlock, |value| self.values[value.index()]);
                self.result = self.result.min(value).min(control.level);
                return Ok(Jumps { of_function: control, ..Jumps::NONE });
            }
            Stmt::Trap { .. } => return Ok(Jumps { of_function: control, ..Jumps::NONE }),
            Stmt::UniformLoad { .. }
            | Stmt::Atomic { result: None, .. }
            | Stmt::Call { result: None, .. }
            | Stmt::Compress { result: None, .. }
            | Stmt::Store { .. }
            | Stmt::StoreBytes { .. }
            | Stmt::StoreVector { .. }
            | Stmt::Barrier
            | Stmt::WarpBarrier
            | Stmt::Fence(_)
            | Stmt::Pause(_)
            | Stmt::Mark(_)
            | Stmt::Tally { .. }
            | Stmt::Report { .. } => {}
        }
        Ok(Jumps::NONE)
    }

    /// A loop: threads that leave it early, or skip the rest of an iteration, are apart from the others in all of it,
    /// and together again after it, unless they left the function.
    fn repeat(&mut self, body: &Block, control: Level) -> Result<Jumps, ValidationError> {
        let index = self.next_loop;
        self.next_loop += 1;
        if self.loops.len() <= index {
            self.loops.push(Level::TOP);
        }
        let jumps = self.block(body, control.min(self.loops[index]))?;
        let lowest = jumps.lowest();
        if lowest.level < self.loops[index].level {
            self.loops[index] = lowest;
            self.changed = true;
        }
        Ok(Jumps { of_loop: Level::TOP, ..jumps })
    }

    fn level(&self, value: Handle<Value>) -> Level {
        Level { level: self.values[value.index()], cause: Some(value) }
    }

    fn lower(&mut self, value: Handle<Value>, level: Uniformity) {
        let known = &mut self.values[value.index()];
        if level < *known {
            *known = level;
            self.changed = true;
        }
    }

    fn lower_var(&mut self, var: Handle<Variable>, level: Level) {
        let known = &mut self.vars[var.index()];
        if level.level < known.level {
            *known = level;
            self.changed = true;
        }
    }

    /// The level of an expression among the threads that evaluate it together.
    fn expr(&self, expr: &Expr) -> Uniformity {
        let operands = expr.operands().map(|operand| self.values[operand.index()]).fold(InBlock, Ord::min);
        match *expr {
            Expr::Builtin(Builtin::ThreadId | Builtin::LaneId | Builtin::Status) => Divergent,
            Expr::Builtin(Builtin::BlockId | Builtin::BlockDim | Builtin::GridDim | Builtin::Lanes) => {
                InBlock
            }
            Expr::Read(var) => self.vars[var.index()].level,
            Expr::Load { reads: Reads::Shared, .. }
            | Expr::LoadVector { reads: Reads::Shared, .. }
            | Expr::LoadBytes(_) => Divergent,
            Expr::Ballot(_) | Expr::Any(_) | Expr::All(_) => Warp,
            Expr::Shuffle { mode, value, lane } => {
                let one_lane = mode == ShuffleMode::Index && self.values[lane.index()] >= Warp;
                self.values[value.index()].max(if one_lane { Warp } else { Divergent })
            }
            Expr::Binary(BinaryOp::Div, a, b) if self.is_warp_number(a, b) => Warp,
            // Results are lowered by the statement that defines them.
            Expr::Result
            | Expr::Literal(_)
            | Expr::Param(_)
            | Expr::Shared(_)
            | Expr::Unary(..)
            | Expr::Binary(..)
            | Expr::Overflows(..)
            | Expr::Compare(..)
            | Expr::Select { .. }
            | Expr::Convert(..)
            | Expr::Bitcast(..)
            | Expr::Offset { .. }
            | Expr::Field { .. }
            | Expr::Load { reads: Reads::ReadOnly, .. }
            | Expr::LoadVector { reads: Reads::ReadOnly, .. }
            | Expr::LoadField { .. }
            | Expr::Splat { .. }
            | Expr::Iota(..)
            | Expr::Lane { .. }
            | Expr::Reduce(..)
            | Expr::MaskBits(_)
            | Expr::BitsMask { .. }
            | Expr::FirstLanes { .. } => operands,
        }
    }

    /// `thread_id / lanes`, the number of the warp in its block.
    fn is_warp_number(&self, dividend: Handle<Value>, divisor: Handle<Value>) -> bool {
        let values = &self.function.values;
        values[dividend].expr == Expr::Builtin(Builtin::ThreadId)
            && values[divisor].expr == Expr::Builtin(Builtin::Lanes)
    }

    // ---- requirements

    fn check(&self, stmt: &Stmt, control: Level, number: usize) -> Result<(), ValidationError> {
        let (what, needed) = match stmt {
            Stmt::Barrier => ("a barrier", InBlock),
            Stmt::WarpBarrier => ("a barrier of a warp", Warp),
            Stmt::UniformLoad { .. } => ("a uniform load", InBlock),
            Stmt::Let(value) if self.function.values[*value].expr.is_lane_operation() => {
                ("a lane operation", Warp)
            }
            _ => return Ok(()),
        };
        let group = if needed == InBlock { "block" } else { "warp" };
        if control.level < needed {
            let cause = self.explain(control.cause, needed);
            return Err(statement_error(
                self.module,
                self.function,
                number,
                format!("{what} must be reached by all threads of a {group} together, but {cause}"),
            ));
        }
        if let Stmt::UniformLoad { pointer, .. } = stmt
            && self.values[pointer.index()] < InBlock
        {
            let cause = self.explain(Some(*pointer), InBlock);
            let message = format!("a uniform load needs one address in the block, but {cause}");
            return Err(statement_error(self.module, self.function, number, message));
        }
        Ok(())
    }

    /// "%7 may differ between threads of a warp, as `%3 = builtin lane_id` does".
    fn explain(&self, value: Option<Handle<Value>>, needed: Uniformity) -> String {
        let Some(value) = value else { return "control flow is divergent".to_string() };
        let group = if needed == InBlock { "block" } else { "warp" };
        let differs = format!("%{} may differ between threads of a {group}", value.index());
        let source = self.source(value, needed);
        match statement_text(self.module, self.function, source) {
            Some(text) if source != value => format!("{differs}, as `{text}` does"),
            Some(text) => format!("{differs}: `{text}`"),
            None => differs,
        }
    }

    /// Follows a value that is lower than `needed` to where that comes from.
    fn source(&self, mut value: Handle<Value>, needed: Uniformity) -> Handle<Value> {
        let mut seen = vec![false; self.values.len()];
        loop {
            seen[value.index()] = true;
            let expr = self.function.values[value].expr;
            let low =
                |operand: &Handle<Value>| self.values[operand.index()] < needed && !seen[operand.index()];
            let next = match expr {
                Expr::Read(var) => self.vars[var.index()].cause.filter(low),
                // A vote is one's own warp's whatever is voted on.
                Expr::Ballot(_) | Expr::Any(_) | Expr::All(_) => None,
                _ => expr.operands().find(low),
            };
            match next {
                Some(next) => value = next,
                None => return value,
            }
        }
    }
}
