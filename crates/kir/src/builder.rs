//! Builds modules: one call an instruction, types inferred, errors collected until [`Builder::finish`].

mod constants;
mod vectors;

use crate::arena::{Arena, Handle};
use crate::module::*;
use crate::types::{Field, Pointee, Scalar, Space, Struct, Type};
use crate::typing::{self, TypeError};

/// A value of the function under construction.
pub type V = Handle<Value>;
/// A variable of the function under construction.
pub type Var = Handle<Variable>;

/// What is open: a construct of structured control flow.
#[derive(Debug)]
enum Open {
    Body,
    Accept(V),
    Reject(V, Block),
    Loop,
    Prologue,
}

#[derive(Debug)]
struct Frame {
    function: Function,
    /// What comes before the body.
    prologue: Block,
    open: Vec<(Open, Block)>,
}

impl Frame {
    fn new(function: Function) -> Frame {
        Frame { function, prologue: Block::new(), open: vec![(Open::Body, Block::new())] }
    }
}

/// Builds one module. Functions nest: a device function may be begun while a kernel is under construction, and is
/// finished first.
#[derive(Debug, Default)]
pub struct Builder {
    module: Module,
    frames: Vec<Frame>,
    error: Option<TypeError>,
}

impl Builder {
    /// An empty module.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// The module, or the first error made.
    pub fn finish(mut self) -> Result<Module, TypeError> {
        if !self.frames.is_empty() {
            self.fail("a function is still open");
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.module),
        }
    }

    /// What is built so far.
    pub fn module(&self) -> &Module {
        &self.module
    }

    fn fail(&mut self, message: impl Into<String>) {
        self.error.get_or_insert(TypeError(message.into()));
    }

    // ---- structs and functions

    /// Adds a struct.
    pub fn add_struct(&mut self, name: &str, fields: &[(&str, Type)]) -> Handle<Struct> {
        let fields = fields.iter().map(|&(name, ty)| Field { name: name.into(), ty }).collect();
        self.module.structs.push(Struct { name: name.into(), fields })
    }

    /// Begins a device function; its parameters are given at once.
    pub fn begin_function(&mut self, name: &str, params: &[(&str, Type)], result: Option<Type>) {
        let params = params.iter().map(|&(name, ty)| Param { name: name.into(), ty }).collect();
        let function = Function { name: name.into(), params, result, ..Function::default() };
        self.frames.push(Frame::new(function));
    }

    /// Begins a kernel; parameters are added with [`Builder::add_param`].
    pub fn begin_kernel(&mut self, name: &str) {
        let function = Function { name: name.into(), ..Function::default() };
        self.frames.push(Frame::new(function));
    }

    /// Ends the innermost device function.
    pub fn end_function(&mut self) -> Handle<Function> {
        match self.close_frame() {
            Some(function) => self.module.functions.push(function),
            None => Handle::from_index(u32::MAX as usize),
        }
    }

    /// Ends the kernel.
    pub fn end_kernel(&mut self) -> Handle<Function> {
        match self.close_frame() {
            Some(function) => self.module.kernels.push(function),
            None => Handle::from_index(u32::MAX as usize),
        }
    }

    fn close_frame(&mut self) -> Option<Function> {
        let Some(mut frame) = self.frames.pop() else {
            self.fail("no function is open");
            return None;
        };
        match frame.open.pop() {
            Some((Open::Body, body)) => {
                frame.prologue.extend(body);
                frame.function.body = frame.prologue;
            }
            _ => self.fail(format!("function {} ends inside a block", frame.function.name)),
        }
        Some(frame.function)
    }

    fn function(&mut self) -> &mut Function {
        if self.frames.is_empty() {
            self.fail("no function is open");
            self.begin_kernel("poison");
        }
        let top = self.frames.len() - 1;
        &mut self.frames[top].function
    }

    fn push(&mut self, stmt: Stmt) {
        self.function();
        if let Some((_, block)) = self.frames.last_mut().and_then(|frame| frame.open.last_mut()) {
            block.push(stmt);
        }
    }

    /// Adds a parameter to the innermost function.
    pub fn add_param(&mut self, name: &str, ty: Type) -> u32 {
        let function = self.function();
        let mut name = name.to_string();
        // The numbered name of a variable may be a parameter's.
        while function.vars.iter().any(|(_, variable)| variable.name == name) {
            name.push('_');
        }
        function.params.push(Param { name, ty });
        function.params.len() as u32 - 1
    }

    /// Adds a shared array and gives its address.
    pub fn shared(&mut self, name: &str, element: Pointee, count: u32) -> V {
        let handle = self.function().shared.push(SharedArray { name: name.into(), element, count });
        self.value(Expr::Shared(handle))
    }

    /// Bytes of a block's memory that the arrays of the open function take so far.
    pub fn shared_bytes(&mut self) -> u32 {
        self.function();
        let open = self.frames.last();
        open.map_or(0, |frame| frame.function.shared_layout(&self.module.structs).bytes)
    }

    /// Adds a variable, zero until assigned. Its name is made unique with a number.
    pub fn var(&mut self, name: &str, ty: impl Into<Type>) -> Var {
        let function = self.function();
        let mut name = format!("{name}_{}", function.vars.len());
        while function.params.iter().any(|param| param.name == name) {
            name.push('_');
        }
        let ty = ty.into();
        function.vars.push(Variable { name, ty })
    }

    /// Adds a variable and assigns it here.
    pub fn var_of(&mut self, name: &str, value: V) -> Var {
        let ty = self.ty(value);
        let var = self.var(name, ty);
        self.assign(var, value);
        var
    }

    // ---- values

    /// The type of a value.
    pub fn ty(&mut self, value: V) -> Type {
        self.function().values.get(value).map_or(Type::BOOL, |value| value.ty)
    }

    /// The scalar type of a value, or of a vector's elements; `bool` where it is a pointer (an error then follows where it is used).
    pub fn scalar(&mut self, value: V) -> Scalar {
        self.ty(value).element().unwrap_or(Scalar::Bool)
    }

    /// The values of the innermost function.
    pub fn values(&mut self) -> &Arena<Value> {
        &self.function().values
    }

    /// Evaluates an expression here.
    pub fn value(&mut self, expr: Expr) -> V {
        self.function();
        let checked = match self.frames.last() {
            Some(frame) => typing::type_of(&self.module, &frame.function, &expr),
            None => Ok(Type::BOOL),
        };
        let (ty, expr) = match checked {
            Ok(ty) => (ty, expr),
            Err(TypeError(message)) => {
                self.fail(format!("{message} in {expr:?}"));
                (Type::BOOL, Expr::Literal(Literal::Bool(false)))
            }
        };
        let value = self.function().values.push(Value { ty, expr });
        self.push(Stmt::Let(value));
        value
    }

    fn result(&mut self, ty: Type) -> V {
        self.function().values.push(Value { ty, expr: Expr::Result })
    }

    /// A parameter's value.
    pub fn param(&mut self, index: u32) -> V {
        self.value(Expr::Param(index))
    }

    /// A constant of type `bool`.
    pub fn bool(&mut self, value: bool) -> V {
        self.value(Expr::Literal(Literal::Bool(value)))
    }

    /// An integer constant.
    pub fn int(&mut self, scalar: Scalar, value: impl Into<i128>) -> V {
        self.value(Expr::Literal(Literal::Int(scalar, value.into())))
    }

    /// A constant of type `i64`.
    pub fn i64(&mut self, value: i64) -> V {
        self.int(Scalar::I64, value)
    }

    /// A constant of type `i32`.
    pub fn i32(&mut self, value: i32) -> V {
        self.int(Scalar::I32, value)
    }

    /// A constant of type `u32`.
    pub fn u32(&mut self, value: u32) -> V {
        self.int(Scalar::U32, value)
    }

    /// A constant of type `u64`.
    pub fn u64(&mut self, value: u64) -> V {
        self.int(Scalar::U64, value)
    }

    /// A constant of type `f64`.
    pub fn f64(&mut self, value: f64) -> V {
        self.value(Expr::Literal(Literal::F64(value.to_bits())))
    }

    /// A constant of type `f32`.
    pub fn f32(&mut self, value: f32) -> V {
        self.value(Expr::Literal(Literal::F32(value.to_bits())))
    }

    /// Zero (false) of a scalar type.
    pub fn zero(&mut self, scalar: Scalar) -> V {
        match scalar {
            Scalar::Bool => self.bool(false),
            Scalar::F32 => self.f32(0.0),
            Scalar::F64 => self.f64(0.0),
            integer => self.int(integer, 0),
        }
    }

    /// A position in the grid.
    pub fn builtin(&mut self, builtin: Builtin) -> V {
        self.value(Expr::Builtin(builtin))
    }

    // Operators take a scalar beside vectors as the vector that has it in each element; see `builder/vectors.rs`.

    /// One operand.
    pub fn unary(&mut self, op: UnaryOp, a: V) -> V {
        self.value(Expr::Unary(op, a))
    }

    /// Two operands.
    pub fn binary(&mut self, op: BinaryOp, a: V, b: V) -> V {
        let (a, b) = match op {
            BinaryOp::Shl | BinaryOp::Shr => (a, self.distance(a, b)),
            _ => self.alike(a, b),
        };
        self.value(Expr::Binary(op, a, b))
    }

    /// Wrapping addition.
    pub fn add(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::Add, a, b)
    }

    /// Wrapping subtraction.
    pub fn sub(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// Wrapping multiplication.
    pub fn mul(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// Division; see [`BinaryOp::Div`].
    pub fn div(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::Div, a, b)
    }

    /// Remainder; see [`BinaryOp::Rem`].
    pub fn rem(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::Rem, a, b)
    }

    /// And: logical or bitwise.
    pub fn and(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::And, a, b)
    }

    /// Or: logical or bitwise.
    pub fn or(&mut self, a: V, b: V) -> V {
        self.binary(BinaryOp::Or, a, b)
    }

    /// Not: logical or bitwise.
    pub fn not(&mut self, a: V) -> V {
        self.unary(UnaryOp::Not, a)
    }

    /// Whether integer arithmetic overflows.
    pub fn overflows(&mut self, op: OverflowOp, a: V, b: V) -> V {
        self.value(Expr::Overflows(op, a, b))
    }

    /// A comparison.
    pub fn compare(&mut self, op: CompareOp, a: V, b: V) -> V {
        let (a, b) = self.alike(a, b);
        self.value(Expr::Compare(op, a, b))
    }

    /// =
    pub fn eq(&mut self, a: V, b: V) -> V {
        self.compare(CompareOp::Eq, a, b)
    }

    /// ≠
    pub fn ne(&mut self, a: V, b: V) -> V {
        self.compare(CompareOp::Ne, a, b)
    }

    /// <
    pub fn lt(&mut self, a: V, b: V) -> V {
        self.compare(CompareOp::Lt, a, b)
    }

    /// ≥
    pub fn ge(&mut self, a: V, b: V) -> V {
        self.compare(CompareOp::Ge, a, b)
    }

    /// `condition ? accept : reject`.
    pub fn select(&mut self, condition: V, accept: V, reject: V) -> V {
        let (accept, reject) = self.alike(accept, reject);
        let (condition, accept) = self.alike(condition, accept);
        let (condition, reject) = self.alike(condition, reject);
        self.value(Expr::Select { condition, accept, reject })
    }

    /// By value to another scalar type; nothing is emitted where it is that type already.
    pub fn convert(&mut self, a: V, to: Scalar) -> V {
        if self.ty(a).element() == Some(to) { a } else { self.value(Expr::Convert(a, to)) }
    }

    /// The same bits as another type (of a vector: with elements of another scalar type); nothing is emitted where it is that
    /// type already.
    pub fn bitcast(&mut self, a: V, to: impl Into<Type>) -> V {
        let to = match (self.ty(a), to.into()) {
            (Type::Vector(_, lanes), Type::Scalar(scalar)) => Type::Vector(scalar, lanes),
            (_, to) => to,
        };
        if self.ty(a) == to { a } else { self.value(Expr::Bitcast(a, to)) }
    }

    // ---- memory

    /// `pointer + index` elements.
    pub fn offset(&mut self, pointer: V, index: V) -> V {
        self.value(Expr::Offset { pointer, index })
    }

    /// The address of a struct's field.
    pub fn field(&mut self, pointer: V, field: u32) -> V {
        self.value(Expr::Field { pointer, field })
    }

    /// Loads a scalar that other threads may write.
    pub fn load(&mut self, pointer: V) -> V {
        self.value(Expr::Load { pointer, reads: Reads::Shared })
    }

    /// Loads a scalar that nothing writes during the launch.
    pub fn load_read_only(&mut self, pointer: V) -> V {
        self.value(Expr::Load { pointer, reads: Reads::ReadOnly })
    }

    /// Loads eight bytes at any address (`ptr<global, u8>`), the first one lowest.
    pub fn load_bytes(&mut self, pointer: V) -> V {
        self.value(Expr::LoadBytes(pointer))
    }

    /// Loads element `index` of an array that nothing writes during the launch.
    pub fn element(&mut self, pointer: V, index: V) -> V {
        let pointer = self.offset(pointer, index);
        self.load_read_only(pointer)
    }

    /// The content of a variable.
    pub fn read(&mut self, var: Var) -> V {
        self.value(Expr::Read(var))
    }

    /// Writes a variable.
    pub fn assign(&mut self, var: Var, value: V) {
        self.push(Stmt::Assign { var, value });
    }

    /// Writes a scalar to memory.
    pub fn store(&mut self, pointer: V, value: V) {
        self.push(Stmt::Store { pointer, value });
    }

    /// Writes a `u64` to eight bytes at any address (`ptr<global, u8>`), the lowest one first.
    pub fn store_bytes(&mut self, pointer: V, value: V) {
        self.push(Stmt::StoreBytes { pointer, value });
    }

    /// An atomic; its old value.
    pub fn atomic(&mut self, op: AtomicOp, pointer: V, value: V, scope: Scope) -> V {
        let ty = self.ty(value);
        let result = self.result(ty);
        self.push(Stmt::Atomic { op, pointer, value, scope, result: Some(result) });
        result
    }

    /// An atomic whose old value nobody needs.
    pub fn atomic_discard(&mut self, op: AtomicOp, pointer: V, value: V, scope: Scope) {
        self.push(Stmt::Atomic { op, pointer, value, scope, result: None });
    }

    /// A relaxed atomic read of an integer.
    pub fn atomic_load(&mut self, pointer: V, scope: Scope) -> V {
        let ty = match self.ty(pointer) {
            Type::Ptr(_, Pointee::Scalar(scalar)) => Type::Scalar(scalar),
            other => {
                self.fail(format!("atomic load through {other:?}"));
                Type::BOOL
            }
        };
        let result = self.result(ty);
        self.push(Stmt::AtomicLoad { pointer, scope, result });
        result
    }

    /// The same value in every thread of the block; see [`Stmt::UniformLoad`].
    pub fn uniform_load(&mut self, pointer: V) -> V {
        let ty = match self.ty(pointer) {
            Type::Ptr(Space::Shared, Pointee::Scalar(scalar)) => Type::Scalar(scalar),
            other => {
                self.fail(format!("uniform load through {other:?}"));
                Type::BOOL
            }
        };
        let result = self.result(ty);
        self.push(Stmt::UniformLoad { pointer, result });
        result
    }

    /// Waits for the block.
    pub fn barrier(&mut self) {
        self.push(Stmt::Barrier);
    }

    /// Waits for the warp.
    pub fn warp_barrier(&mut self) {
        self.push(Stmt::WarpBarrier);
    }

    /// Orders this thread's memory accesses.
    pub fn fence(&mut self) {
        self.push(Stmt::Fence(Scope::Device));
    }

    /// Orders this thread's memory accesses, as the threads of a scope see them.
    pub fn fence_in(&mut self, scope: Scope) {
        self.push(Stmt::Fence(scope));
    }

    /// Waits for about so many nanoseconds (`u32`), if the device can.
    pub fn pause(&mut self, nanoseconds: V) {
        self.push(Stmt::Pause(nanoseconds));
    }

    /// Does nothing: who profiles a kernel counts the threads that come by.
    pub fn mark(&mut self, number: u32) {
        self.push(Stmt::Mark(number));
    }

    /// Counts the threads that come by together; see [`Stmt::Tally`].
    pub fn tally(&mut self, counters: V) {
        self.push(Stmt::Tally { counters });
    }

    /// Calls a device function that returns a value.
    pub fn call(&mut self, function: Handle<Function>, args: &[V]) -> V {
        let ty = self.module.functions.get(function).and_then(|function| function.result);
        if ty.is_none() {
            self.fail(format!("function {} returns no value", function.index()));
        }
        let result = self.result(ty.unwrap_or(Type::BOOL));
        self.push(Stmt::Call { function, args: args.to_vec(), result: Some(result) });
        result
    }

    // ---- control flow

    fn open(&mut self, open: Open) {
        self.function();
        if let Some(frame) = self.frames.last_mut() {
            frame.open.push((open, Block::new()));
        }
    }

    fn close(&mut self) -> Option<(Open, Block)> {
        self.function();
        match self.frames.last_mut() {
            Some(frame) if frame.open.len() > 1 => frame.open.pop(),
            _ => {
                self.fail("no block is open");
                None
            }
        }
    }

    /// Opens `if condition {`; [`Builder::end`] closes it.
    pub fn begin_if(&mut self, condition: V) {
        self.open(Open::Accept(condition));
    }

    /// `} else {`
    pub fn begin_else(&mut self) {
        match self.close() {
            Some((Open::Accept(condition), accept)) => self.open(Open::Reject(condition, accept)),
            _ => self.fail("else without if"),
        }
    }

    /// Opens `loop {`; [`Builder::end`] closes it.
    pub fn begin_loop(&mut self) {
        self.open(Open::Loop);
    }

    /// Closes the innermost `if` or `loop`.
    pub fn end(&mut self) {
        match self.close() {
            Some((Open::Accept(condition), accept)) => {
                self.push(Stmt::If { condition, accept, reject: Block::new() });
            }
            Some((Open::Reject(condition, accept), reject)) => {
                self.push(Stmt::If { condition, accept, reject })
            }
            Some((Open::Loop, body)) => self.push(Stmt::Loop(body)),
            _ => self.fail("no block is open"),
        }
    }

    /// What follows, up to [`Builder::end_prologue`], comes before everything that the function begins with, whatever is open now:
    /// for what is found to be needed in the middle of a loop and has to be made ready before it. Of values only such of a
    /// prologue can be used there.
    pub fn begin_prologue(&mut self) {
        self.function();
        if let Some(frame) = self.frames.last_mut() {
            frame.open.push((Open::Prologue, Block::new()));
        }
    }

    /// Goes on where [`Builder::begin_prologue`] left off.
    pub fn end_prologue(&mut self) {
        match self.close() {
            Some((Open::Prologue, block)) => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.prologue.extend(block);
                }
            }
            _ => self.fail("no prologue is open"),
        }
    }

    /// Leaves the innermost loop.
    pub fn break_loop(&mut self) {
        self.push(Stmt::Break);
    }

    /// `if condition { break }`
    pub fn break_if(&mut self, condition: V) {
        self.begin_if(condition);
        self.break_loop();
        self.end();
    }

    /// Next iteration of the innermost loop.
    pub fn continue_loop(&mut self) {
        self.push(Stmt::Continue);
    }

    /// Leaves the function.
    pub fn return_value(&mut self, value: V) {
        self.push(Stmt::Return(Some(value)));
    }

    /// Leaves the kernel.
    pub fn return_void(&mut self) {
        self.push(Stmt::Return(None));
    }

    /// Sets the status word and goes on.
    pub fn report(&mut self, code: u32) {
        let code = self.u32(code);
        self.push(Stmt::Report { code });
    }

    /// Sets the status word and leaves the kernel.
    pub fn trap(&mut self, code: u32) {
        let code = self.u32(code);
        self.push(Stmt::Trap { code });
    }
}
