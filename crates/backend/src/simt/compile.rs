//! From structured KIR to flat code.

use kelpie_kir::{
    Arena, AtomicOp, Block, Expr, Function, Handle, Literal, Pointee, Scalar, Space, Stmt, Type, ValidModule,
    Value,
};

use super::program::{Access, Instruction, Op, Origin, Program, Slot, Target};
use super::{Fault, values};

/// Calls are inlined, so a kernel may grow beyond its text; beyond this it is refused.
const MAX_INSTRUCTIONS: usize = 1 << 22;
/// Stands for a target that is not yet known.
const UNKNOWN: Target = Target::MAX;

/// Flattens the kernel named `kernel`.
pub(super) fn compile(module: &ValidModule, kernel: &str) -> Result<Program, Fault> {
    let bad = |message: &str| Fault::BadArguments { kernel: kernel.into(), message: message.into() };
    let found = module.kernels.iter().find(|(_, function)| function.name == kernel);
    let Some((_, function)) = found else { return Err(bad("the module has no such kernel")) };
    let functions = module.functions.iter().map(|(_, function)| format!("function {}", function.name));
    let mut functions: Vec<String> = functions.collect();
    functions.push(format!("kernel {kernel}"));
    let shared = function
        .shared
        .iter()
        .map(|(_, array)| array.element.bytes(&module.structs).saturating_mul(array.count));
    let program = Program {
        kernel: kernel.into(),
        instructions: Vec::new(),
        origins: Vec::new(),
        functions,
        slots: 0,
        params: function.params.iter().map(|param| param.ty).collect(),
        shared: shared.collect(),
    };
    let mut compiler = Compiler { module, program, open: Vec::new(), patches: Vec::new(), too_large: false };
    let index = compiler.program.functions.len() as u32 - 1;
    let mut body = Body::new(&mut compiler.program.slots, function, index, None);
    compiler.block(&mut body, &function.body);
    compiler.emit(&body, Op::Halt, false);
    compiler.resolve_ends();
    if compiler.too_large {
        return Err(bad("its calls are too many to interpret"));
    }
    Ok(compiler.program)
}

/// A construct that is open, and has a frame on the warp's stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    If,
    Loop,
    Call,
}

struct Compiler<'a> {
    module: &'a ValidModule,
    program: Program,
    open: Vec<Open>,
    /// The ends of constructs in blocks that are still open: each goes to the end of its block when no lane is left.
    patches: Vec<Vec<usize>>,
    too_large: bool,
}

/// A function at one of its calls.
struct Body<'a> {
    function: &'a Function,
    index: u32,
    values: Vec<Slot>,
    vars: Vec<Slot>,
    /// Arguments and result of an inlined call.
    call: Option<(Vec<Slot>, Option<Slot>)>,
    statement: u32,
    value: Option<u32>,
}

fn slots_of(ty: Type) -> u32 {
    match ty {
        Type::Scalar(Scalar::I128) => 2,
        _ => u32::from(ty.lanes().unwrap_or(1)),
    }
}

/// The scalar that a slot holds; pointers are as `u64`.
fn scalar_of(ty: Type) -> Scalar {
    ty.element().unwrap_or(Scalar::U64)
}

impl<'a> Body<'a> {
    fn new(
        slots: &mut u32,
        function: &'a Function,
        index: u32,
        call: Option<(Vec<Slot>, Option<Slot>)>,
    ) -> Body<'a> {
        let mut take = |ty: Type| {
            let slot = *slots;
            *slots += slots_of(ty);
            slot
        };
        let values = function.values.iter().map(|(_, value)| take(value.ty)).collect();
        let vars = function.vars.iter().map(|(_, var)| take(var.ty)).collect();
        Body { function, index, values, vars, call, statement: 0, value: None }
    }

    fn slot(&self, value: Handle<Value>) -> Slot {
        self.values[value.index()]
    }

    fn ty(&self, value: Handle<Value>) -> Type {
        self.function.values[value].ty
    }

    /// The memory behind a pointer to a scalar.
    fn access(&self, pointer: Handle<Value>) -> Access {
        match self.ty(pointer) {
            Type::Ptr(space, Pointee::Scalar(scalar)) => Access { scalar, space },
            // The validator rejects these.
            Type::Ptr(space, Pointee::Struct(_)) => Access { scalar: Scalar::U64, space },
            _ => Access { scalar: Scalar::U64, space: Space::Global },
        }
    }
}

impl Compiler<'_> {
    fn emit(&mut self, body: &Body<'_>, op: Op, counts: bool) -> usize {
        let (function, statement, value) = (body.index, body.statement, body.value);
        let is_observable = op.is_observable();
        self.program.instructions.push(Instruction { op, counts, is_observable });
        self.program.origins.push(Origin { function, statement, value });
        self.program.instructions.len() - 1
    }

    fn here(&self) -> Target {
        self.program.instructions.len() as Target
    }

    /// A block, followed by an instruction that ends its construct: the ends inside go there when no lane is left.
    fn block(&mut self, body: &mut Body<'_>, block: &Block) {
        self.patches.push(Vec::new());
        for stmt in block {
            self.too_large |= self.program.instructions.len() > MAX_INSTRUCTIONS;
            if self.too_large {
                break;
            }
            body.value = None;
            self.statement(body, stmt);
        }
        self.resolve_ends();
    }

    fn resolve_ends(&mut self) {
        let here = self.here();
        for index in self.patches.pop().unwrap_or_default() {
            match &mut self.program.instructions[index].op {
                Op::EndIf { end } | Op::EndLoop { end, .. } | Op::EndCall { end } => *end = here,
                _ => {}
            }
        }
    }

    /// The end of a construct.
    fn emit_end(&mut self, body: &Body<'_>, op: Op) {
        let index = self.emit(body, op, false);
        if let Some(patches) = self.patches.last_mut() {
            patches.push(index);
        }
    }

    /// Frames between the top of the stack and the innermost one of a kind.
    fn depth(&self, kind: Open) -> u32 {
        self.open.iter().rev().position(|open| *open == kind).unwrap_or(0) as u32
    }

    fn statement(&mut self, body: &mut Body<'_>, stmt: &Stmt) {
        let statement = body.statement;
        let first = self.program.instructions.len();
        self.flatten(body, stmt);
        if let Some(instruction) = self.program.instructions.get_mut(first) {
            instruction.counts = true;
        }
        // The blocks inside were counted by `flatten`.
        if !matches!(stmt, Stmt::If { .. } | Stmt::Loop(_)) {
            body.statement = statement + 1;
        }
    }

    fn flatten(&mut self, body: &mut Body<'_>, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value) => {
                body.value = Some(value.index() as u32);
                self.expression(body, *value);
            }
            Stmt::Assign { var, value } => {
                let (to, from) = (body.vars[var.index()], body.slot(*value));
                for half in 0..slots_of(body.ty(*value)) {
                    self.emit(body, Op::Assign { to: to + half, a: from + half }, false);
                }
            }
            Stmt::If { condition, accept, reject } => self.branch(body, *condition, accept, reject),
            Stmt::Loop(block) => {
                self.emit(body, Op::Loop, false);
                body.statement += 1;
                self.open.push(Open::Loop);
                let start = self.here();
                self.block(body, block);
                self.open.pop();
                self.emit_end(body, Op::EndLoop { body: start, end: UNKNOWN });
                // An iteration is a step, even of an empty loop: the step limit ends it.
                if let Some(instruction) = self.program.instructions.last_mut() {
                    instruction.counts = true;
                }
            }
            Stmt::Call { function, args, result } => self.call(body, *function, args, *result),
            Stmt::Return(value) => self.leave(body, *value),
            Stmt::Break => {
                self.emit(body, Op::Leave { depth: self.depth(Open::Loop) }, false);
            }
            Stmt::Continue => {
                self.emit(body, Op::Continue { depth: self.depth(Open::Loop) }, false);
            }
            // Nobody reads before all have come, or goes on to overwrite it before all have read.
            Stmt::UniformLoad { .. } => {
                for op in [Op::Barrier, effect(body, stmt), Op::Barrier] {
                    self.emit(body, op, false);
                }
            }
            other => {
                let op = effect(body, other);
                self.emit(body, op, false);
            }
        }
    }

    fn branch(&mut self, body: &mut Body<'_>, condition: Handle<Value>, accept: &Block, reject: &Block) {
        let start = self.emit(body, Op::If { condition: body.slot(condition), otherwise: UNKNOWN }, false);
        body.statement += 1;
        self.open.push(Open::If);
        self.block(body, accept);
        let here = self.here();
        if let Op::If { otherwise, .. } = &mut self.program.instructions[start].op {
            *otherwise = here;
        }
        let middle = self.emit(body, Op::Else { end: UNKNOWN }, false);
        self.block(body, reject);
        self.open.pop();
        self.program.instructions[middle].op = Op::Else { end: self.here() };
        self.emit_end(body, Op::EndIf { end: UNKNOWN });
    }

    fn call(
        &mut self,
        body: &Body<'_>,
        handle: Handle<Function>,
        args: &[Handle<Value>],
        result: Option<Handle<Value>>,
    ) {
        let module = self.module;
        let callee = &module.functions[handle];
        let args = args.iter().map(|arg| body.slot(*arg)).collect();
        let call = Some((args, result.map(|result| body.slot(result))));
        let mut inner = Body::new(&mut self.program.slots, callee, handle.index() as u32, call);
        self.emit(body, Op::Call, false);
        self.open.push(Open::Call);
        for (var, slot) in callee.vars.iter().zip(inner.vars.clone()) {
            for half in 0..slots_of(var.1.ty) {
                self.emit(&inner, Op::Fill { to: slot + half, bits: 0 }, false);
            }
        }
        self.block(&mut inner, &callee.body);
        self.open.pop();
        self.emit_end(body, Op::EndCall { end: UNKNOWN });
    }

    fn leave(&mut self, body: &Body<'_>, value: Option<Handle<Value>>) {
        let Some((_, result)) = &body.call else {
            self.emit(body, Op::Exit, false);
            return;
        };
        if let (Some(to), Some(value)) = (*result, value) {
            let from = body.slot(value);
            for half in 0..slots_of(body.ty(value)) {
                self.emit(body, Op::Assign { to: to + half, a: from + half }, false);
            }
        }
        self.emit(body, Op::Leave { depth: self.depth(Open::Call) }, false);
    }

    fn expression(&mut self, body: &Body<'_>, value: Handle<Value>) {
        let module = self.module;
        let to = body.slot(value);
        let Value { ty, expr } = &body.function.values[value];
        let wide = *ty == Type::Scalar(Scalar::I128);
        let structs = &module.structs;
        let mut emit = |op| {
            self.emit(body, op, false);
        };
        match *expr {
            Expr::Literal(literal) => {
                let bits = literal_bits(literal);
                emit(Op::Fill { to, bits: bits as u64 });
                if wide {
                    emit(Op::Fill { to: to + 1, bits: (bits >> 64) as u64 });
                }
            }
            Expr::Param(index) => match &body.call {
                Some((args, _)) => {
                    for half in 0..slots_of(*ty) {
                        emit(Op::Copy { to: to + half, a: args[index as usize] + half });
                    }
                }
                None => {
                    for half in 0..slots_of(*ty) {
                        emit(Op::Param { to: to + half, index, high: half == 1 });
                    }
                }
            },
            Expr::Read(var) => {
                for half in 0..slots_of(*ty) {
                    emit(Op::Copy { to: to + half, a: body.vars[var.index()] + half });
                }
            }
            Expr::Bitcast(a, _) if wide => {
                for half in 0..2 {
                    emit(Op::Copy { to: to + half, a: body.slot(a) + half });
                }
            }
            Expr::Select { condition, accept, reject } => {
                let conditions = slots_of(body.ty(condition));
                for half in 0..slots_of(*ty) {
                    let condition = body.slot(condition) + half % conditions;
                    let (accept, reject) = (body.slot(accept) + half, body.slot(reject) + half);
                    emit(Op::Select { to: to + half, condition, accept, reject });
                }
            }
            Expr::Iota(..) => {
                for lane in 0..slots_of(*ty) {
                    emit(Op::Fill { to: to + lane, bits: u64::from(lane) });
                }
            }
            Expr::Splat { value, .. } => {
                for lane in 0..slots_of(*ty) {
                    emit(Op::Copy { to: to + lane, a: body.slot(value) });
                }
            }
            expr if ty.lanes().is_some() && is_lane_wise(&expr) => {
                for lane in 0..slots_of(*ty) {
                    emit(operation(structs, body, Register { to: to + lane, ty: *ty, lane }, expr));
                }
            }
            expr => emit(operation(structs, body, Register { to, ty: *ty, lane: 0 }, expr)),
        }
    }
}

/// Bits of a literal, extended by its sign.
fn literal_bits(literal: Literal) -> i128 {
    match literal {
        Literal::Bool(value) => i128::from(value),
        Literal::Int(_, value) => value,
        Literal::F32(bits) => i128::from(bits),
        Literal::F64(bits) => i128::from(bits),
    }
}

/// Whether each element of the result is made of the operands' elements at its place.
fn is_lane_wise(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Unary(..) | Expr::Binary(..) | Expr::Compare(..) | Expr::Convert(..) | Expr::Bitcast(..)
    )
}

/// Where a value goes: its type, its slot, and which element of a vector that is.
#[derive(Clone, Copy)]
struct Register {
    to: Slot,
    ty: Type,
    lane: u32,
}

/// The one instruction of an expression that has just one; of a vector, the one of an element.
fn operation(
    structs: &Arena<kelpie_kir::Struct>,
    body: &Body<'_>,
    Register { to, ty, lane }: Register,
    expr: Expr,
) -> Op {
    let slot = |value| body.slot(value) + if body.ty(value).lanes().is_some() { lane } else { 0 };
    let lanes_at = |value| body.ty(value).lanes().unwrap_or(1);
    let scalar_at = |value| scalar_of(body.ty(value));
    let pointee = |pointer| match body.ty(pointer) {
        Type::Ptr(space, pointee) => (space, pointee),
        other => (Space::Global, Pointee::Scalar(scalar_of(other))),
    };
    let field_offset = |pointer, field: u32| match pointee(pointer).1 {
        Pointee::Struct(handle) => structs[handle].offset(field as usize),
        Pointee::Scalar(_) => 0,
    };
    match expr {
        Expr::Shared(array) => Op::Shared { to, index: array.index() as u32 },
        Expr::Builtin(builtin) => Op::Builtin { to, builtin },
        Expr::Unary(op, a) => match scalar_at(a) {
            Scalar::I128 => Op::WideUnary { op, to, a: slot(a) },
            scalar => Op::Map { map: values::unary(op, scalar), to, a: slot(a) },
        },
        Expr::Binary(op, a, b) => match scalar_at(a) {
            Scalar::I128 => Op::WideBinary { op, to, a: slot(a), b: slot(b) },
            scalar => Op::Map2 { map: values::binary(op, scalar), to, a: slot(a), b: slot(b) },
        },
        Expr::Overflows(op, a, b) => match scalar_at(a) {
            Scalar::I128 => Op::WideOverflows { op, to, a: slot(a), b: slot(b) },
            scalar => Op::Map2 { map: values::overflows(op, scalar), to, a: slot(a), b: slot(b) },
        },
        Expr::Compare(op, a, b) => match scalar_at(a) {
            Scalar::I128 => Op::WideCompare { op, to, a: slot(a), b: slot(b) },
            scalar => Op::Map2 { map: values::compare(op, scalar), to, a: slot(a), b: slot(b) },
        },
        Expr::Convert(a, scalar) => match (scalar_at(a), scalar) {
            (Scalar::I128, scalar) => Op::Narrow { scalar, to, a: slot(a) },
            (from, Scalar::I128) => Op::Widen { from, to, a: slot(a) },
            (from, scalar) => Op::Map { map: values::convert(from, scalar), to, a: slot(a) },
        },
        Expr::Bitcast(a, _) => Op::Map { map: values::truncate(scalar_of(ty)), to, a: slot(a) },
        Expr::Offset { pointer, index } => {
            let bytes = pointee(pointer).1.bytes(structs);
            Op::Offset { to, pointer: slot(pointer), index: slot(index), bytes }
        }
        Expr::Field { pointer, field } => {
            Op::Field { to, pointer: slot(pointer), bytes: field_offset(pointer, field) }
        }
        Expr::Load { pointer, reads } => Op::Load {
            access: body.access(pointer),
            read_only: reads.is_read_only(),
            to,
            pointer: slot(pointer),
        },
        Expr::LoadBytes(pointer) => Op::LoadBytes { to, pointer: slot(pointer) },
        Expr::LoadField { pointer, field } => Op::LoadField {
            access: Access { scalar: scalar_of(ty), space: pointee(pointer).0 },
            to,
            pointer: slot(pointer),
            bytes: field_offset(pointer, field),
        },
        Expr::Ballot(a) => Op::Ballot { to, a: slot(a) },
        Expr::Any(a) => Op::Any { to, a: slot(a) },
        Expr::All(a) => Op::All { to, a: slot(a) },
        Expr::Shuffle { mode, value, lane } => {
            Op::Shuffle { mode, to, a: slot(value), lane: slot(lane), wide: slots_of(ty) == 2 }
        }
        Expr::LoadVector { pointer, lanes, reads, align } => Op::LoadVector {
            access: body.access(pointer),
            read_only: reads.is_read_only(),
            to,
            pointer: slot(pointer),
            lanes,
            align,
        },
        Expr::Lane { vector, lane } => Op::Copy { to, a: body.slot(vector) + u32::from(lane) },
        Expr::Reduce(op, a) => {
            Op::Reduce { op, scalar: scalar_at(a), to, a: body.slot(a), lanes: lanes_at(a) }
        }
        Expr::MaskBits(mask) => Op::MaskBits { to, a: body.slot(mask), lanes: lanes_at(mask) },
        Expr::BitsMask { bits, lanes } => Op::BitsMask { to, a: slot(bits), lanes },
        Expr::FirstLanes { count, lanes } => Op::FirstLanes { to, a: slot(count), lanes },
        // Handled before, or defined by an effect.
        Expr::Literal(_)
        | Expr::Param(_)
        | Expr::Read(_)
        | Expr::Select { .. }
        | Expr::Iota(..)
        | Expr::Splat { .. }
        | Expr::Result => Op::Copy { to, a: to },
    }
}

/// The instruction of a statement without blocks.
fn effect(body: &Body<'_>, stmt: &Stmt) -> Op {
    let slot = |value: Handle<Value>| body.slot(value);
    match stmt {
        Stmt::Store { pointer, value, .. } => {
            Op::Store { access: body.access(*pointer), pointer: slot(*pointer), value: slot(*value) }
        }
        Stmt::StoreBytes { pointer, value } => {
            Op::StoreBytes { pointer: slot(*pointer), value: slot(*value) }
        }
        Stmt::StoreVector { pointer, value, align } => Op::StoreVector {
            access: body.access(*pointer),
            pointer: slot(*pointer),
            value: slot(*value),
            lanes: body.ty(*value).lanes().unwrap_or(1),
            align: *align,
        },
        Stmt::Compress { pointer, value, mask, result } => Op::Compress {
            access: body.access(*pointer),
            to: result.map(slot),
            pointer: slot(*pointer),
            value: slot(*value),
            mask: slot(*mask),
            lanes: body.ty(*value).lanes().unwrap_or(1),
        },
        Stmt::Atomic { op, pointer, value, scope, result } => Op::Atomic {
            op: *op,
            access: body.access(*pointer),
            scope: *scope,
            to: result.map(slot),
            pointer: slot(*pointer),
            value: slot(*value),
            expected: match op {
                AtomicOp::CompareExchange(expected) => slot(*expected),
                _ => slot(*value),
            },
        },
        Stmt::AtomicLoad { pointer, scope, result } => Op::AtomicLoad {
            access: body.access(*pointer),
            scope: *scope,
            to: slot(*result),
            pointer: slot(*pointer),
        },
        Stmt::UniformLoad { pointer, result } => {
            Op::UniformLoad { access: body.access(*pointer), to: slot(*result), pointer: slot(*pointer) }
        }
        Stmt::Barrier => Op::Barrier,
        Stmt::WarpBarrier => Op::WarpBarrier,
        Stmt::Mark(number) => Op::Mark(*number),
        Stmt::Tally { counters } => Op::Tally { counters: slot(*counters) },
        Stmt::Report { code } => Op::Report { code: slot(*code), leave: false },
        Stmt::Trap { code } => Op::Report { code: slot(*code), leave: true },
        Stmt::Fence(scope) => Op::Fence(*scope),
        Stmt::Pause(_)
        | Stmt::Let(_)
        | Stmt::Assign { .. }
        | Stmt::If { .. }
        | Stmt::Loop(_)
        | Stmt::Break
        | Stmt::Continue
        | Stmt::Call { .. }
        | Stmt::Return(_) => Op::Pause,
    }
}
