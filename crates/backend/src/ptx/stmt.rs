//! Statements.

use kelpie_kir::{Block, Handle, Scope, Stmt, Value, uses};

use super::printer::{LoopLabels, Printer, instruction};
use super::registers::{Class, Operand, Piece, Wide};
use crate::BackendError;

impl Printer<'_> {
    /// Prints the statements of a block.
    pub fn block(&mut self, block: &Block) -> Result<(), BackendError> {
        block.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), BackendError> {
        match stmt {
            Stmt::Let(value) => self.definition(*value)?,
            Stmt::Assign { var, value } => {
                let to = self.frame.vars[var.index()].clone();
                for (lane, to) in to.into_iter().enumerate() {
                    self.lane = lane;
                    let from = self.piece(*value);
                    self.move_piece(to, from);
                }
                self.lane = 0;
            }
            Stmt::Store { pointer, value } => {
                let (space, scalar) = (self.space(*pointer), self.pointee(*pointer));
                let (address, value) = (self.operand_register(*pointer), self.piece(*value));
                self.store_to(space, scalar, address, value);
            }
            Stmt::StoreBytes { pointer, value } => self.store_bytes(*pointer, *value),
            Stmt::StoreVector { pointer, value, align } => self.store_vector(*pointer, *value, *align),
            Stmt::Compress { pointer, value, mask, result } => {
                self.compress(*pointer, *value, *mask, *result)
            }
            Stmt::If { condition, accept, reject } => self.if_stmt(*condition, accept, reject)?,
            Stmt::Loop(body) => self.loop_stmt(body)?,
            Stmt::Break => self.jump_in_loop(|labels| labels.end),
            Stmt::Continue => self.jump_in_loop(|labels| labels.head),
            Stmt::Atomic { op, pointer, value, scope, result } => {
                self.atomic(*op, *pointer, *value, *scope, *result);
            }
            Stmt::AtomicLoad { pointer, result, .. } => self.atomic_load(*pointer, *result),
            Stmt::Barrier => instruction!(self, "bar.sync 0"),
            Stmt::WarpBarrier => instruction!(self, "bar.warp.sync 0xffffffff"),
            Stmt::Fence(Scope::Device) => instruction!(self, "membar.gl"),
            Stmt::Fence(Scope::Block) => instruction!(self, "membar.cta"),
            Stmt::Pause(nanoseconds) => instruction!(self, "nanosleep.u32 {}", self.operand(*nanoseconds)),
            Stmt::Mark(_) => {}
            Stmt::Tally { counters } => self.tally(*counters),
            Stmt::UniformLoad { pointer, result } => {
                instruction!(self, "bar.sync 0");
                let address = self.operand_register(*pointer);
                let piece = self.load_from("shared", self.pointee(*pointer).into(), address, 0);
                self.frame.values[result.index()] = vec![piece];
                instruction!(self, "bar.sync 0");
            }
            Stmt::Call { function, args, result } => self.call(*function, args, *result)?,
            Stmt::Return(value) => {
                if let (Some(to), Some(value)) = (self.frame.result, value) {
                    let from = self.piece(*value);
                    self.move_piece(to, from);
                }
                self.jump(self.frame.end);
            }
            Stmt::Report { code } => self.report(*code),
            Stmt::Trap { code } => {
                self.report(*code);
                self.jump(self.exit);
            }
        }
        Ok(())
    }

    fn jump_in_loop(&mut self, target: impl Fn(&LoopLabels) -> super::printer::Label) {
        if let Some(label) = self.frame.loops.last().map(target) {
            self.jump(label);
        }
    }

    fn if_stmt(
        &mut self,
        condition: Handle<Value>,
        accept: &Block,
        reject: &Block,
    ) -> Result<(), BackendError> {
        let (condition, end) = (self.operand(condition), self.label());
        // A condition that only jumps is the jump's own.
        if let ([Stmt::Break], true) | ([Stmt::Continue], true) = (accept.as_slice(), reject.is_empty())
            && let Some(labels) = self.frame.loops.last()
        {
            let target = if accept[0] == Stmt::Break { labels.end } else { labels.head };
            instruction!(self, "@{condition} bra {target}");
            return Ok(());
        }
        if reject.is_empty() {
            instruction!(self, "@!{condition} bra {end}");
            self.block(accept)?;
        } else {
            let other = self.label();
            instruction!(self, "@!{condition} bra {other}");
            self.block(accept)?;
            if !accept.last().is_some_and(Stmt::is_jump) {
                self.jump(end);
            }
            self.place(other);
            self.block(reject)?;
        }
        self.place(end);
        Ok(())
    }

    fn loop_stmt(&mut self, body: &Block) -> Result<(), BackendError> {
        let labels = LoopLabels { head: self.label(), end: self.label() };
        self.frame.loops.push(labels);
        self.place(labels.head);
        self.block(body)?;
        if !body.last().is_some_and(Stmt::is_jump) {
            self.jump(labels.head);
        }
        self.place(labels.end);
        self.frame.loops.pop();
        Ok(())
    }

    /// Evaluates a value here, unless nobody uses it.
    fn definition(&mut self, value: Handle<Value>) -> Result<(), BackendError> {
        let function = self.frame.function;
        let definition = &function.values[value];
        if self.frame.uses[value.index()] == 0 && uses::may_drop(&definition.expr) {
            return Ok(());
        }
        let pieces = match definition.ty.lanes() {
            Some(_) => self.vector(value, &definition.expr)?,
            None => vec![self.expression(&definition.expr, definition.ty)?],
        };
        self.frame.values[value.index()] = pieces;
        Ok(())
    }

    /// The registers of a variable, set to zero.
    pub fn clear(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match *piece {
                Piece::One(register) => self.clear_register(register),
                Piece::Two(Wide { low, high }) => {
                    self.clear_register(low);
                    self.clear_register(high);
                }
            }
        }
    }

    fn clear_register(&mut self, register: Operand) {
        let zero = match register {
            Operand::Register(Class::Single, _) => Operand::Single(0),
            Operand::Register(Class::Double, _) => Operand::Double(0),
            _ => Operand::Integer(0),
        };
        self.move_to(register, zero);
    }
}
