//! Statements.

use kelpie_kir::{Block, Builtin, Expr, Handle, Scope, Stmt, Value};

use super::expr::Text;
use super::function::{FunctionPrinter, STATUS};
use super::names::identifier;
use super::{needs_status, types, uses};

/// A value used once is written in place up to this many characters.
const INLINE_LIMIT: usize = 72;

impl FunctionPrinter<'_> {
    /// Prints the statements of a block.
    pub fn block(&mut self, block: &Block) {
        for stmt in block {
            self.stmt(stmt);
        }
    }

    fn nested(&mut self, block: &Block) {
        self.indent += 1;
        self.block(block);
        self.indent -= 1;
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value) => self.definition(*value),
            Stmt::Assign { var, value } if self.vector_vars.contains_key(&var.index()) => {
                self.assign_vector(*var, *value);
            }
            Stmt::StoreVector { pointer, value, align } => self.store_vector(*pointer, *value, *align),
            Stmt::Compress { pointer, value, mask, result } => {
                self.compress(*pointer, *value, *mask, *result);
            }
            Stmt::Assign { var, value } => {
                let line = format!("{} = {};", self.vars[var.index()], self.text(*value));
                self.line(&line);
            }
            Stmt::Store { pointer, value } => {
                let line = format!("{} = {};", self.place(*pointer), self.text(*value));
                self.line(&line);
            }
            Stmt::StoreBytes { pointer, value } => {
                let store = self.helpers.store_bytes();
                let line = format!("{store}({}, {});", self.text(*pointer), self.text(*value));
                self.line(&line);
            }
            Stmt::If { condition, accept, reject } => self.if_stmt(*condition, accept, reject),
            Stmt::Loop(body) => {
                self.line("while (true) {");
                self.nested(body);
                self.line("}");
            }
            Stmt::Break => self.line("break;"),
            Stmt::Continue => self.line("continue;"),
            Stmt::Atomic { op, pointer, value, scope, result } => {
                self.atomic(*op, *pointer, *value, *scope, *result);
            }
            Stmt::AtomicLoad { pointer, result, .. } => self.atomic_load(*pointer, *result),
            Stmt::Barrier => self.line("__syncthreads();"),
            Stmt::WarpBarrier => self.line("__syncwarp();"),
            Stmt::Fence(Scope::Device) => self.line("__threadfence();"),
            Stmt::Fence(Scope::Block) => self.line("__threadfence_block();"),
            Stmt::Pause(nanoseconds) => {
                let line = format!("__nanosleep({});", self.text(*nanoseconds));
                self.line(&line);
            }
            Stmt::Mark(_) => {}
            Stmt::Tally { counters } => {
                let line = format!("{}({});", self.helpers.tally(), self.text(*counters));
                self.line(&line);
            }
            Stmt::UniformLoad { pointer, result } => {
                self.line("__syncthreads();");
                let code = self.place(*pointer);
                self.define(*result, &code);
                self.line("__syncthreads();");
            }
            Stmt::Call { function, args, result } => {
                let mut list: Vec<String> = args.iter().map(|arg| self.text(*arg).to_string()).collect();
                if needs_status(self.status, *function) {
                    list.push(STATUS.to_string());
                }
                let name = identifier(&self.module.functions[*function].name);
                self.effect(*result, &format!("fn_{name}({})", list.join(", ")));
            }
            Stmt::Return(None) => self.line("return;"),
            Stmt::Return(Some(value)) => {
                let line = format!("return {};", self.text(*value));
                self.line(&line);
            }
            Stmt::Report { code } => self.report(*code),
            Stmt::Trap { code } => {
                self.report(*code);
                self.line("return;");
            }
        }
    }

    fn if_stmt(&mut self, condition: Handle<Value>, accept: &Block, reject: &Block) {
        let line = format!("if ({}) {{", self.text(condition));
        self.line(&line);
        self.nested(accept);
        if !reject.is_empty() {
            self.line("} else {");
            self.nested(reject);
        }
        self.line("}");
    }

    /// The status word lies in the host's memory. The scope is the device's, as over PCIe the host takes no part in an atomic of
    /// system scope (compute-sanitizer calls one an error): where a cancellation and a report meet, either may win, and the
    /// launch has failed in any case.
    fn report(&mut self, code: Handle<Value>) {
        let line = format!("::atomicCAS({STATUS}, 0u, {});", self.text(code));
        self.line(&line);
    }

    /// Evaluates a value here, or remembers its text where that is as good.
    fn definition(&mut self, value: Handle<Value>) {
        let expr = self.function.values[value].expr;
        let uses = self.uses[value.index()];
        if uses == 0 && uses::may_drop(&expr) {
            return;
        }
        if self.function.values[value].ty.lanes().is_some() {
            return self.vector_definition(value, &expr);
        }
        let text = self.expression(&expr, self.ty(value));
        let trivial = match expr {
            Expr::Literal(_) | Expr::Param(_) | Expr::Shared(_) => true,
            Expr::Builtin(builtin) => builtin != Builtin::Status,
            _ => false,
        };
        let once = uses == 1 && uses::is_pure(&expr) && text.code.len() <= INLINE_LIMIT;
        if trivial || once {
            self.inlined[value.index()] = true;
            self.texts[value.index()] = text;
        } else {
            self.define(value, &text.code);
        }
    }

    /// Declares `value` as what `code` gives.
    pub fn define(&mut self, value: Handle<Value>, code: &str) {
        let name = format!("v{}", value.index());
        let line = format!("{} {name} = {code};", types::constant(self.module, self.ty(value)));
        self.line(&line);
        self.texts[value.index()] = Text::atom(name);
    }

    /// Runs `code` for its effect, and declares its result where someone uses it.
    pub fn effect(&mut self, result: Option<Handle<Value>>, code: &str) {
        match result {
            Some(result) if self.uses[result.index()] > 0 => self.define(result, code),
            _ => self.line(&format!("{code};")),
        }
    }
}
