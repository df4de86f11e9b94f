//! Scopes, types and jumps of a function's statements.

use super::declarations::type_exists;
use super::{ValidationError, function_place, statement_error};
use crate::arena::Handle;
use crate::module::*;
use crate::text::{MAX_NESTING, type_text};
use crate::types::{Pointee, Scalar, Space, Type};
use crate::typing;

type Result<T> = std::result::Result<T, ValidationError>;

/// Checks the body of a device function, whose handle is given, or of a kernel.
pub(super) fn check(module: &Module, function: &Function, handle: Option<Handle<Function>>) -> Result<()> {
    let values = function.values.len();
    let mut body = Body {
        module,
        function,
        handle,
        defined: vec![false; values],
        visible: vec![false; values],
        statement: 0,
        next: 0,
        loops: Vec::new(),
        depth: 0,
    };
    let completes = body.block(&function.body)?;
    let fail = |message| Err(ValidationError { place: function_place(module, function), message });
    if completes && function.result.is_some() {
        return fail("a path ends without a return".to_string());
    }
    match body.defined.iter().position(|defined| !defined) {
        Some(missing) => fail(format!("no statement defines %{missing}")),
        None => Ok(()),
    }
}

struct Body<'a> {
    module: &'a Module,
    function: &'a Function,
    /// The handle of a device function; `None` for a kernel.
    handle: Option<Handle<Function>>,
    /// Values that a statement above defines.
    defined: Vec<bool>,
    /// Those of them whose scope this is.
    visible: Vec<bool>,
    /// Number of the statement that is checked, and of the next one.
    statement: usize,
    next: usize,
    /// The open loops: whether a `break` leaves them.
    loops: Vec<bool>,
    depth: usize,
}

impl Body<'_> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(statement_error(self.module, self.function, self.statement, message))
    }

    fn text(&self, ty: Type) -> String {
        type_text(self.module, ty)
    }

    /// Checks a block; true where control can reach its end.
    fn block(&mut self, block: &Block) -> Result<bool> {
        if self.depth >= MAX_NESTING {
            return self.fail(format!("blocks nest deeper than {MAX_NESTING}"));
        }
        self.depth += 1;
        let mut completes = true;
        let mut jumped = false;
        for stmt in block {
            self.statement = self.next;
            self.next += 1;
            if jumped {
                return self.fail("stands after a jump in the same block and is never reached");
            }
            completes &= self.statement(stmt)?;
            jumped = stmt.is_jump();
        }
        for stmt in block {
            if let Some(value) = stmt.defines() {
                self.visible[value.index()] = false;
            }
        }
        self.depth -= 1;
        Ok(completes)
    }

    /// Checks a statement; true where control can reach the one after it.
    fn statement(&mut self, stmt: &Stmt) -> Result<bool> {
        for operand in stmt.operands() {
            self.usable(operand)?;
        }
        if self.handle.is_some() {
            self.allowed_in_function(stmt)?;
        }
        match stmt {
            Stmt::If { condition, accept, reject } => {
                self.expect("the condition", *condition, Type::BOOL)?;
                let accept = self.block(accept)?;
                let reject = self.block(reject)?;
                return Ok(accept || reject);
            }
            Stmt::Loop(body) => {
                self.loops.push(false);
                self.block(body)?;
                return Ok(self.loops.pop().unwrap_or(false));
            }
            Stmt::Break | Stmt::Continue => match self.loops.last_mut() {
                Some(left) => *left |= matches!(stmt, Stmt::Break),
                None => return self.fail("stands in no loop"),
            },
            Stmt::Let(value) => self.evaluate(*value)?,
            effect => self.effect(effect)?,
        }
        Ok(!stmt.is_jump())
    }

    /// A value that exists and whose scope this is.
    fn usable(&self, value: Handle<Value>) -> Result<()> {
        let index = value.index();
        match (self.defined.get(index), self.visible.get(index)) {
            (Some(_), Some(true)) => Ok(()),
            (Some(true), _) => self.fail(format!("the scope of %{index} has ended")),
            (Some(false), _) => self.fail(format!("%{index} is not defined here yet")),
            (None, _) => self.fail(format!("%{index} does not exist")),
        }
    }

    fn define(&mut self, value: Handle<Value>) -> Result<()> {
        let index = value.index();
        match self.defined.get(index) {
            None => self.fail(format!("%{index} does not exist")),
            Some(true) => self.fail(format!("%{index} is defined twice")),
            Some(false) => {
                self.defined[index] = true;
                self.visible[index] = true;
                Ok(())
            }
        }
    }

    fn ty(&self, value: Handle<Value>) -> Type {
        self.function.values[value].ty
    }

    fn expect(&self, what: &str, value: Handle<Value>, needed: Type) -> Result<()> {
        let found = self.ty(value);
        if found == needed {
            return Ok(());
        }
        let (needed, found) = (self.text(needed), self.text(found));
        self.fail(format!("{what} must be {needed}, %{} is {found}", value.index()))
    }

    /// The scalar that a pointer points to.
    fn pointee(&self, pointer: Handle<Value>) -> Result<Scalar> {
        match self.ty(pointer) {
            Type::Ptr(_, Pointee::Scalar(scalar)) => Ok(scalar),
            other => self.fail(format!(
                "needs a pointer to a scalar, %{} is {}",
                pointer.index(),
                self.text(other)
            )),
        }
    }

    /// Checks the write of a vector, and gives its number of elements.
    fn vector(&self, pointer: Handle<Value>, value: Handle<Value>, align: Option<u32>) -> Result<u8> {
        let scalar = self.pointee(pointer)?;
        let Some(lanes) = self.ty(value).lanes() else {
            return self.fail(format!("%{} is no vector", value.index()));
        };
        match typing::accessed(self.ty(pointer), lanes, align.unwrap_or(scalar.bytes())) {
            Ok(needed) => self.expect("the value", value, needed)?,
            Err(error) => return self.fail(error.to_string()),
        }
        Ok(lanes)
    }

    fn allowed_in_function(&self, stmt: &Stmt) -> Result<()> {
        let lane_operation = match stmt {
            Stmt::Let(value) => {
                self.function.values.get(*value).is_some_and(|value| value.expr.is_lane_operation())
            }
            _ => false,
        };
        let kernel_only =
            matches!(stmt, Stmt::Barrier | Stmt::WarpBarrier | Stmt::UniformLoad { .. } | Stmt::Trap { .. });
        if kernel_only || lane_operation { self.fail("is allowed only in a kernel") } else { Ok(()) }
    }

    fn evaluate(&mut self, value: Handle<Value>) -> Result<()> {
        let Some(Value { ty, expr }) = self.function.values.get(value) else { return self.define(value) };
        for operand in expr.operands() {
            self.usable(operand)?;
        }
        if let Expr::Bitcast(_, to) = expr
            && !type_exists(*to, self.module.structs.len())
        {
            return self.fail("casts to a struct that does not exist");
        }
        match typing::type_of(self.module, self.function, expr) {
            Ok(found) if found == *ty => self.define(value),
            Ok(found) => {
                let (found, stated) = (self.text(found), self.text(*ty));
                self.fail(format!("%{} is stated as {stated} but is {found}", value.index()))
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Defines the result of an effect.
    fn result(&mut self, result: Option<Handle<Value>>, ty: Type) -> Result<()> {
        let Some(result) = result else { return Ok(()) };
        self.define(result)?;
        if self.function.values[result].expr != Expr::Result {
            return self.fail(format!("%{} has an expression and cannot be a result", result.index()));
        }
        self.expect("the result", result, ty)
    }

    /// A statement with an effect and without blocks.
    fn effect(&mut self, stmt: &Stmt) -> Result<()> {
        match stmt {
            Stmt::Assign { var, value } => match self.function.vars.get(*var) {
                Some(var) => self.expect("the value", *value, var.ty),
                None => self.fail("the variable does not exist"),
            },
            Stmt::Store { pointer, value, .. } => {
                let scalar = self.pointee(*pointer)?;
                self.expect("the value", *value, scalar.into())
            }
            Stmt::StoreBytes { pointer, value } => {
                self.expect("the pointer", *pointer, Type::global(Scalar::U8))?;
                self.expect("the value", *value, Type::Scalar(Scalar::U64))
            }
            Stmt::StoreVector { pointer, value, align } => {
                self.vector(*pointer, *value, Some(*align))?;
                Ok(())
            }
            Stmt::Compress { pointer, value, mask, result } => {
                let lanes = self.vector(*pointer, *value, None)?;
                self.expect("the mask", *mask, Type::Mask(lanes))?;
                self.result(*result, Type::U32)
            }
            Stmt::Atomic { op, pointer, value, result, .. } => {
                let scalar = self.pointee(*pointer)?;
                if !typing::atomic_accepts(*op, scalar) {
                    return self.fail(format!("is not defined on {}", scalar.name()));
                }
                if let AtomicOp::CompareExchange(expected) = op {
                    self.expect("the expected value", *expected, scalar.into())?;
                }
                self.expect("the value", *value, scalar.into())?;
                self.result(*result, scalar.into())
            }
            Stmt::AtomicLoad { pointer, result, .. } => {
                let scalar = self.pointee(*pointer)?;
                if !typing::atomic_accepts(AtomicOp::Or, scalar) {
                    return self.fail(format!("is not defined on {}", scalar.name()));
                }
                self.result(Some(*result), scalar.into())
            }
            Stmt::Tally { counters } => match self.ty(*counters) == Type::global(Scalar::U64) {
                true => Ok(()),
                false => self.fail("counts in words of `u64` in global memory only"),
            },
            Stmt::UniformLoad { pointer, result } => {
                let scalar = self.pointee(*pointer)?;
                if !matches!(self.ty(*pointer), Type::Ptr(Space::Shared, _)) {
                    return self.fail("reads shared memory only");
                }
                self.result(Some(*result), scalar.into())
            }
            Stmt::Call { function, args, result } => self.call(*function, args, *result),
            Stmt::Return(value) => match (value, self.function.result) {
                (None, None) => Ok(()),
                (Some(value), Some(ty)) => self.expect("the value", *value, ty),
                (Some(_), None) => self.fail("returns a value where there is no result"),
                (None, Some(_)) => self.fail("returns no value"),
            },
            Stmt::Report { code } | Stmt::Trap { code } => {
                self.expect("the code", *code, Type::U32)?;
                match self.function.values[*code].expr {
                    Expr::Literal(Literal::Int(_, 0)) => self.fail("the code must not be 0"),
                    _ => Ok(()),
                }
            }
            Stmt::Pause(nanoseconds) => self.expect("the time", *nanoseconds, Type::U32),
            Stmt::Let(_)
            | Stmt::If { .. }
            | Stmt::Loop(_)
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Barrier
            | Stmt::WarpBarrier
            | Stmt::Fence(_)
            | Stmt::Mark(_) => Ok(()),
        }
    }

    fn call(
        &mut self,
        handle: Handle<Function>,
        args: &[Handle<Value>],
        result: Option<Handle<Value>>,
    ) -> Result<()> {
        let Some(callee) = self.module.functions.get(handle) else {
            return self.fail("the function does not exist");
        };
        if self.handle.is_some_and(|caller| handle >= caller) {
            return self.fail(format!("function {} does not stand before this one", callee.name));
        }
        if args.len() != callee.params.len() {
            let (needed, given) = (callee.params.len(), args.len());
            return self.fail(format!("function {} takes {needed} arguments, not {given}", callee.name));
        }
        for (param, arg) in callee.params.iter().zip(args) {
            self.expect(&format!("parameter {}", param.name), *arg, param.ty)?;
        }
        match (callee.result, result) {
            (Some(ty), result) => self.result(result, ty),
            (None, None) => Ok(()),
            (None, Some(_)) => self.fail(format!("function {} returns no value", callee.name)),
        }
    }
}
