//! Statements and control flow.

use cranelift_codegen::ir::{self, InstBuilder};
use cranelift_frontend::Variable;
use kelpie_kir::{Block, Expr, Function, Handle, Stmt, Value};

use super::function::{Frame, LoopTargets, Operand, Returns, Translator};
use super::types::value_type;

/// A loop's head is evaluated in two places only where it has at most this many values.
const ROTATED_VALUES: usize = 24;

/// A loop that begins with values and the test that leaves it.
struct WhileLoop<'m> {
    head: &'m [Stmt],
    condition: Handle<Value>,
    /// Whether the condition leaves the loop where it is true, or where it is false.
    leaves_where: bool,
    /// The rest: the other branch of the test, and what follows the test.
    body: [&'m [Stmt]; 2],
}

/// Statements of a block with those of the functions that are inlined into it. `costs` has one entry a function: 1
/// for those that are called.
pub(super) fn inlined_statements(block: &Block, costs: &[usize]) -> usize {
    let mut total = 0usize;
    for stmt in block {
        let inner = match stmt {
            Stmt::If { accept, reject, .. } => {
                inlined_statements(accept, costs).saturating_add(inlined_statements(reject, costs))
            }
            Stmt::Loop(body) => inlined_statements(body, costs),
            Stmt::Call { function, .. } => costs.get(function.index()).copied().unwrap_or(0),
            _ => 0,
        };
        total = total.saturating_add(inner).saturating_add(1);
    }
    total
}

impl<'m> Translator<'m, '_> {
    /// Translates statements; whether control reaches their end. What follows a statement that leaves is dead.
    pub(super) fn block(&mut self, block: &'m [Stmt]) -> bool {
        let open = self.frame.overflow_values.len();
        let reaches_end = block.iter().all(|stmt| self.stmt(stmt));
        self.frame.overflow_values.truncate(open);
        reaches_end
    }

    fn stmt(&mut self, stmt: &'m Stmt) -> bool {
        match stmt {
            Stmt::Let(value) => self.let_value(*value),
            Stmt::Assign { var, value } if self.ty(*value).lanes().is_some() => {
                self.assign_vector(var.index(), *value);
            }
            Stmt::Assign { var, value } => {
                let value = self.value(*value);
                match self.frame.vars.get(var.index()).and_then(|variables| variables.first()) {
                    Some(&variable) => self.builder.def_var(variable, value),
                    None => self.fail("a variable does not exist"),
                }
            }
            Stmt::Store { pointer, value, .. } => self.store(*pointer, *value),
            Stmt::StoreBytes { pointer, value } => self.store_bytes(*pointer, *value),
            Stmt::StoreVector { pointer, value, align } => self.store_vector(*pointer, *value, *align),
            Stmt::Compress { pointer, value, mask, result } => {
                let count = self.compress(*pointer, *value, *mask);
                if let Some(result) = result {
                    self.set(*result, Operand::Value(count));
                }
            }
            Stmt::If { condition, accept, reject } => return self.branch(*condition, accept, reject),
            Stmt::Loop(body) => {
                return match while_loop(self.frame.function, body) {
                    Some(rotated) => self.rotated_loop(&rotated),
                    None => self.plain_loop(body),
                };
            }
            Stmt::Break => return self.leave_iteration(true),
            Stmt::Continue => return self.leave_iteration(false),
            Stmt::Atomic { op, pointer, value, scope, result } => {
                let old = self.atomic(*op, *pointer, *value, *scope);
                if let Some(result) = result {
                    self.set(*result, Operand::Value(old));
                }
            }
            Stmt::AtomicLoad { pointer, scope, result } => {
                let value = self.atomic_load(*pointer, *scope);
                self.set(*result, Operand::Value(value));
            }
            Stmt::Tally { counters } => self.tally(*counters),
            // A block has one thread: it waits for nobody, and sees what it wrote. Its worker has a core, and nothing better to do.
            Stmt::Barrier | Stmt::WarpBarrier | Stmt::Mark(_) | Stmt::Pause(_) => {}
            // Loads stay in order among themselves on x86-64, so do stores, and an atomic that writes is a full fence: that
            // is all that publications and locks rely on. (MFENCE would keep the loads of the rows that follow waiting.) The
            // compiler must keep the order too: what it knows of memory ends at a sequence point.
            Stmt::Fence(_) if cfg!(target_arch = "x86_64") => {
                self.builder.ins().sequence_point();
            }
            Stmt::Fence(_) => {
                self.builder.ins().fence();
            }
            Stmt::UniformLoad { pointer, result } => {
                let value = self.load(*pointer, self.ty(*result), false);
                self.set(*result, value);
            }
            Stmt::Call { function, args, result } => self.call(*function, args, *result),
            Stmt::Return(value) => {
                let value = value.map(|value| self.value(value));
                self.return_with(value);
                return false;
            }
            Stmt::Report { code } => self.report(*code),
            Stmt::Trap { code } => {
                self.report(*code);
                self.return_default();
                return false;
            }
        }
        true
    }

    fn branch(&mut self, condition: Handle<Value>, accept: &'m Block, reject: &'m Block) -> bool {
        let condition = self.value(condition);
        let join = self.builder.create_block();
        let mut arm = |block: &Block| {
            if block.is_empty() {
                return join;
            }
            let start = self.builder.create_block();
            if block.iter().any(|stmt| matches!(stmt, Stmt::Trap { .. } | Stmt::Report { .. })) {
                self.builder.set_cold_block(start);
            }
            start
        };
        let (accept_start, reject_start) = (arm(accept), arm(reject));
        self.builder.ins().brif(condition, accept_start, &[], reject_start, &[]);
        let mut joins = false;
        for (start, block) in [(accept_start, accept), (reject_start, reject)] {
            if start == join {
                joins = true;
                continue;
            }
            self.start(start);
            if self.block(block) {
                self.builder.ins().jump(join, &[]);
                joins = true;
            }
        }
        if joins {
            self.start(join);
        }
        joins
    }

    fn leave_iteration(&mut self, is_break: bool) -> bool {
        match self.loops.last_mut() {
            Some(targets) if is_break => {
                targets.exit_used = true;
                let exit = targets.exit;
                self.builder.ins().jump(exit, &[]);
            }
            Some(targets) => {
                targets.next_used = true;
                let next = targets.next;
                self.builder.ins().jump(next, &[]);
            }
            None => {
                self.fail("break or continue outside a loop");
                self.return_default();
            }
        }
        false
    }

    fn push_loop(&mut self, next: ir::Block) -> ir::Block {
        let exit = self.builder.create_block();
        self.loops.push(LoopTargets { next, exit, next_used: false, exit_used: false });
        exit
    }

    fn plain_loop(&mut self, body: &'m Block) -> bool {
        let header = self.builder.create_block();
        self.builder.ins().jump(header, &[]);
        self.builder.switch_to_block(header);
        let exit = self.push_loop(header);
        if self.block(body) {
            self.builder.ins().jump(header, &[]);
        }
        self.builder.seal_block(header);
        let exit_used = self.loops.pop().is_some_and(|targets| targets.exit_used);
        if exit_used {
            self.start(exit);
        }
        exit_used
    }

    /// Tests at the bottom, so that an iteration has one branch: head; test; { body; head; test }.
    fn rotated_loop(&mut self, rotated: &WhileLoop<'m>) -> bool {
        let (header, latch) = (self.builder.create_block(), self.builder.create_block());
        let exit = self.push_loop(latch);
        let kept = self.kept_values(rotated);
        self.loop_test(rotated, &kept, header, exit);

        self.builder.switch_to_block(header);
        let open = self.frame.overflow_values.len();
        for stmt in rotated.head {
            if let Stmt::Let(value) = stmt {
                match kept.iter().find(|(kept, _)| kept == value) {
                    Some(&(_, variable)) => {
                        let current = self.builder.use_var(variable);
                        self.set(*value, Operand::Value(current));
                    }
                    None => self.let_value(*value),
                }
            }
        }
        let reaches_end = self.block(rotated.body[0]) && self.block(rotated.body[1]);
        self.frame.overflow_values.truncate(open);
        if reaches_end {
            self.builder.ins().jump(latch, &[]);
        }
        let next_used = self.loops.pop().is_some_and(|targets| targets.next_used);
        if reaches_end || next_used {
            self.start(latch);
            self.loop_test(rotated, &kept, header, exit);
        }
        self.builder.seal_block(header);
        self.start(exit);
        true
    }

    /// Values of a loop's head that the body must not compute again, because they read memory; each in a variable,
    /// since there are two places that define it.
    fn kept_values(&mut self, rotated: &WhileLoop<'m>) -> Vec<(Handle<Value>, Variable)> {
        let mut kept = Vec::new();
        for stmt in rotated.head {
            if let Stmt::Let(handle) = stmt
                && let Some(value) = self.frame.function.values.get(*handle)
                && reads_memory(&value.expr)
            {
                kept.push((*handle, self.builder.declare_var(value_type(value.ty))));
            }
        }
        kept
    }

    fn loop_test(
        &mut self,
        rotated: &WhileLoop<'m>,
        kept: &[(Handle<Value>, Variable)],
        header: ir::Block,
        exit: ir::Block,
    ) {
        self.block(rotated.head);
        for &(handle, variable) in kept {
            let value = self.value(handle);
            self.builder.def_var(variable, value);
        }
        let condition = self.value(rotated.condition);
        let (accept, reject) = if rotated.leaves_where { (exit, header) } else { (header, exit) };
        self.builder.ins().brif(condition, accept, &[], reject, &[]);
    }

    fn call(&mut self, function: Handle<Function>, args: &'m [Handle<Value>], result: Option<Handle<Value>>) {
        let module = self.module;
        let Some(callee) = module.functions.get(function) else {
            return self.fail("a function does not exist");
        };
        let returned = match self.callees.outlined.get(function.index()).copied().flatten() {
            Some(id) => {
                let code = self.import(id);
                self.call_outlined(code, callee, args)
            }
            None => self.inline(callee, args),
        };
        match (result, returned) {
            (Some(result), Some(value)) => self.set(result, Operand::Value(value)),
            (Some(_), None) => self.fail("a call returns nothing"),
            (None, _) => {}
        }
    }

    fn call_outlined(
        &mut self,
        code: ir::FuncRef,
        callee: &Function,
        args: &[Handle<Value>],
    ) -> Option<ir::Value> {
        let mut words = vec![self.worker.address];
        for &arg in args {
            let value = self.value(arg);
            words.extend(self.words(value));
        }
        let call = self.builder.ins().call(code, &words);
        let results = self.builder.inst_results(call).to_vec();
        match (callee.result, results.as_slice()) {
            (Some(_), &[low, high]) => Some(self.builder.ins().iconcat(low, high)),
            (Some(_), &[value]) => Some(value),
            _ => None,
        }
    }

    fn inline(&mut self, callee: &'m Function, args: &[Handle<Value>]) -> Option<ir::Value> {
        let after = self.builder.create_block();
        let result = callee.result.map(|ty| self.builder.append_block_param(after, value_type(ty)));
        let params = args.iter().map(|&arg| self.operand(arg)).collect();
        let frame = Frame::new(self.module, callee, params, Returns::To(after));
        let caller = std::mem::replace(&mut self.frame, frame);
        let loops = std::mem::take(&mut self.loops);
        self.declare_vars();
        if self.block(&callee.body) {
            self.return_default();
        }
        self.frame = caller;
        self.loops = loops;
        self.start(after);
        result
    }
}

/// Whether evaluating an expression again may give something else, or costs a memory access.
fn reads_memory(expr: &Expr) -> bool {
    matches!(expr, Expr::Load { .. } | Expr::LoadField { .. } | Expr::Builtin(kelpie_kir::Builtin::Status))
}

/// Recognises `loop { values; if condition { break } rest }` and `loop { values; if condition { … } else { break }
/// rest }`. A head that reads memory which others write is left alone: read in two places, one of them outside the
/// loop, the optimiser could take a value that it already has, and a loop that waits for another worker would never
/// see the change.
fn while_loop<'m>(function: &Function, body: &'m Block) -> Option<WhileLoop<'m>> {
    let length = body.iter().position(|stmt| !matches!(stmt, Stmt::Let(_)))?;
    let (head, rest) = body.split_at(length);
    let (Stmt::If { condition, accept, reject }, rest) = rest.split_first()? else { return None };
    let (leaves_where, inner) = match (accept.as_slice(), reject.as_slice()) {
        ([Stmt::Break], inner) => (true, inner),
        (inner, [Stmt::Break]) => (false, inner),
        _ => return None,
    };
    let repeatable = |stmt: &Stmt| match stmt {
        Stmt::Let(value) => function.values.get(*value).is_some_and(|value| {
            !matches!(
                value.expr,
                Expr::Load { reads: kelpie_kir::Reads::Shared, .. } | Expr::LoadVector { .. }
            )
        }),
        _ => false,
    };
    (length <= ROTATED_VALUES && head.iter().all(repeatable)).then_some(WhileLoop {
        head,
        condition: *condition,
        leaves_where,
        body: [inner, rest],
    })
}
