//! Module to text. Prints invalid modules too, as well as they can be, because errors quote them.

use super::names;
use crate::arena::Handle;
use crate::module::*;
use crate::types::{Pointee, Struct, Type};

/// The text of a module, one statement a line.
pub fn print(module: &Module) -> String {
    let mut printer = Printer::new(module);
    printer.module();
    printer.text
}

/// The line number (from 1) in [`print`]'s text of a function's statement, and that line. Statements are counted
/// from 0 in the order of the text.
pub(crate) fn print_statement(
    module: &Module,
    function: &Function,
    statement: usize,
) -> Option<(usize, String)> {
    let mut printer = Printer::new(module);
    printer.watched = Some((function, statement));
    printer.module();
    let line = printer.found?;
    Some((line, printer.text.lines().nth(line - 1)?.trim().to_string()))
}

/// The text of the statement that defines a value.
pub(crate) fn statement_text(module: &Module, function: &Function, value: Handle<Value>) -> Option<String> {
    fn defining(block: &Block, value: Handle<Value>) -> Option<&Stmt> {
        block.iter().find_map(|stmt| match stmt {
            Stmt::If { accept, reject, .. } => defining(accept, value).or_else(|| defining(reject, value)),
            Stmt::Loop(body) => defining(body, value),
            stmt => (stmt.defines() == Some(value)).then_some(stmt),
        })
    }
    let stmt = defining(&function.body, value)?;
    Some(Printer::new(module).simple_statement(function, stmt))
}

struct Printer<'a> {
    module: &'a Module,
    text: String,
    indent: usize,
    line: usize,
    /// The function and the number of the statement whose line is asked for.
    watched: Option<(&'a Function, usize)>,
    /// Statements printed of the current function.
    statements: usize,
    found: Option<usize>,
}

impl<'a> Printer<'a> {
    fn new(module: &'a Module) -> Printer<'a> {
        Printer { module, text: String::new(), indent: 0, line: 0, watched: None, statements: 0, found: None }
    }

    fn line(&mut self, line: &str) {
        for _ in 0..self.indent {
            self.text.push_str("  ");
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.line += 1;
    }

    fn module(&mut self) {
        let module = self.module;
        for (_, structure) in module.structs.iter() {
            let fields: Vec<String> =
                structure.fields.iter().map(|f| format!("{}: {}", f.name, type_text(module, f.ty))).collect();
            self.line(&format!("struct {} {{ {} }}", structure.name, fields.join(", ")));
        }
        for (_, function) in module.functions.iter() {
            self.function("fn", function);
        }
        for (_, kernel) in module.kernels.iter() {
            self.function("kernel", kernel);
        }
    }

    fn function(&mut self, keyword: &str, function: &Function) {
        let module = self.module;
        self.statements = 0;
        let params: Vec<String> =
            function.params.iter().map(|p| format!("{}: {}", p.name, type_text(module, p.ty))).collect();
        let result = function.result.map_or(String::new(), |ty| format!(" -> {}", type_text(module, ty)));
        self.line(&format!("{keyword} {}({}){result} {{", function.name, params.join(", ")));
        self.indent += 1;
        for (_, array) in function.shared.iter() {
            let element = pointee_text(module, array.element);
            self.line(&format!("shared {}: [{element}; {}]", array.name, array.count));
        }
        for (_, var) in function.vars.iter() {
            self.line(&format!("var {}: {}", var.name, type_text(module, var.ty)));
        }
        self.block(function, &function.body);
        self.indent -= 1;
        self.line("}");
    }

    fn block(&mut self, function: &Function, block: &Block) {
        for stmt in block {
            if let Some((watched, statement)) = self.watched
                && std::ptr::eq(watched, function)
                && statement == self.statements
            {
                self.found = Some(self.line + 1);
            }
            self.statements += 1;
            self.statement(function, stmt);
        }
    }

    fn nested(&mut self, function: &Function, block: &Block) {
        self.indent += 1;
        self.block(function, block);
        self.indent -= 1;
    }

    fn statement(&mut self, function: &Function, stmt: &Stmt) {
        match stmt {
            Stmt::If { condition, accept, reject } => {
                self.line(&format!("if {} {{", v(*condition)));
                self.nested(function, accept);
                if !reject.is_empty() {
                    self.line("} else {");
                    self.nested(function, reject);
                }
                self.line("}");
            }
            Stmt::Loop(body) => {
                self.line("loop {");
                self.nested(function, body);
                self.line("}");
            }
            simple => {
                let text = self.simple_statement(function, simple);
                self.line(&text);
            }
        }
    }

    /// A statement without blocks.
    fn simple_statement(&self, function: &Function, stmt: &Stmt) -> String {
        match stmt {
            Stmt::Let(value) => match function.values.get(*value) {
                Some(Value { expr, .. }) => format!("{} = {}", v(*value), self.expr(function, expr)),
                None => format!("{} = ?", v(*value)),
            },
            Stmt::Assign { var, value } => format!("{} = {}", var_name(function, *var), v(*value)),
            Stmt::Store { pointer, value } => format!("store {}, {}", v(*pointer), v(*value)),
            Stmt::StoreBytes { pointer, value } => format!("store_bytes {}, {}", v(*pointer), v(*value)),
            Stmt::StoreVector { pointer, value, align } => {
                format!(
                    "store_vector {}, {}{}",
                    v(*pointer),
                    v(*value),
                    alignment(function, *pointer, *align)
                )
            }
            Stmt::Compress { pointer, value, mask, result } => {
                format!("{}compress {}, {}, {}", target(*result), v(*pointer), v(*value), v(*mask))
            }
            Stmt::Break => "break".to_string(),
            Stmt::Continue => "continue".to_string(),
            Stmt::Atomic { op, pointer, value, scope, result } => {
                let expected = match op {
                    AtomicOp::CompareExchange(expected) => format!("{}, ", v(*expected)),
                    _ => String::new(),
                };
                let (target, op, scope) = (target(*result), names::atomic(*op), names::scope(*scope));
                format!("{target}atomic {op} {scope} {}, {expected}{}", v(*pointer), v(*value))
            }
            Stmt::AtomicLoad { pointer, scope, result } => {
                format!("{} = atomic load {} {}", v(*result), names::scope(*scope), v(*pointer))
            }
            Stmt::Barrier => "barrier".to_string(),
            Stmt::WarpBarrier => "warp_barrier".to_string(),
            Stmt::Fence(Scope::Device) => "fence".to_string(),
            Stmt::Fence(Scope::Block) => "block_fence".to_string(),
            Stmt::Pause(nanoseconds) => format!("pause {}", v(*nanoseconds)),
            Stmt::Mark(number) => format!("mark {number}"),
            Stmt::Tally { counters } => format!("tally {}", v(*counters)),
            Stmt::UniformLoad { pointer, result } => format!("{} = uniform_load {}", v(*result), v(*pointer)),
            Stmt::Call { function: callee, args, result } => {
                let name = self.module.functions.get(*callee).map_or("?", |callee| callee.name.as_str());
                let args: Vec<String> = args.iter().map(|arg| v(*arg)).collect();
                format!("{}call {name}({})", target(*result), args.join(", "))
            }
            Stmt::Return(None) => "return".to_string(),
            Stmt::Return(Some(value)) => format!("return {}", v(*value)),
            Stmt::Report { code } => format!("report {}", v(*code)),
            Stmt::Trap { code } => format!("trap {}", v(*code)),
            Stmt::If { .. } | Stmt::Loop(_) => String::new(),
        }
    }

    fn expr(&self, function: &Function, expr: &Expr) -> String {
        match *expr {
            Expr::Literal(literal) => literal_text(literal),
            Expr::Param(index) => {
                let name = function.params.get(index as usize).map_or("?", |param| param.name.as_str());
                format!("param {name}")
            }
            Expr::Shared(array) => {
                format!("shared {}", function.shared.get(array).map_or("?", |array| array.name.as_str()))
            }
            Expr::Read(var) => format!("read {}", var_name(function, var)),
            Expr::Builtin(builtin) => format!("builtin {}", names::builtin(builtin)),
            Expr::Unary(op, a) => format!("{} {}", names::unary(op), v(a)),
            Expr::Binary(op, a, b) => format!("{} {}, {}", names::binary(op), v(a), v(b)),
            Expr::Overflows(op, a, b) => format!("{} {}, {}", names::overflow(op), v(a), v(b)),
            Expr::Compare(op, a, b) => format!("{} {}, {}", names::compare(op), v(a), v(b)),
            Expr::Select { condition, accept, reject } => {
                format!("select {}, {}, {}", v(condition), v(accept), v(reject))
            }
            Expr::Convert(a, to) => format!("convert {} {}", to.name(), v(a)),
            Expr::Bitcast(a, to) => format!("bitcast {} {}", type_text(self.module, to), v(a)),
            Expr::Offset { pointer, index } => format!("offset {}, {}", v(pointer), v(index)),
            Expr::Field { pointer, field } => {
                format!("field {}, {}", v(pointer), self.field(function, pointer, field))
            }
            Expr::Load { pointer, reads } => format!("load{} {}", suffix(reads), v(pointer)),
            Expr::LoadBytes(pointer) => format!("load_bytes {}", v(pointer)),
            Expr::LoadField { pointer, field } => {
                format!("load_field {}, {}", v(pointer), self.field(function, pointer, field))
            }
            Expr::Ballot(a) => format!("ballot {}", v(a)),
            Expr::Any(a) => format!("any {}", v(a)),
            Expr::All(a) => format!("all {}", v(a)),
            Expr::Shuffle { mode, value, lane } => {
                format!("{} {}, {}", names::shuffle(mode), v(value), v(lane))
            }
            Expr::Splat { value, lanes } => format!("splat {lanes} {}", v(value)),
            Expr::Iota(scalar, lanes) => format!("iota {}x{lanes}", scalar.name()),
            Expr::LoadVector { pointer, lanes, reads, align } => {
                format!(
                    "load_vector{} {lanes} {}{}",
                    suffix(reads),
                    v(pointer),
                    alignment(function, pointer, align)
                )
            }
            Expr::Lane { vector, lane } => format!("lane {}, {lane}", v(vector)),
            Expr::Reduce(op, a) => format!("{} {}", names::reduce(op), v(a)),
            Expr::MaskBits(mask) => format!("mask_bits {}", v(mask)),
            Expr::BitsMask { bits, lanes } => format!("bits_mask {lanes} {}", v(bits)),
            Expr::FirstLanes { count, lanes } => format!("first_lanes {lanes} {}", v(count)),
            Expr::Result => "?".to_string(),
        }
    }

    /// A field's name, or its number where the pointer is not to a struct that has it.
    fn field(&self, function: &Function, pointer: Handle<Value>, field: u32) -> String {
        let structure = function.values.get(pointer).and_then(|value| match value.ty {
            Type::Ptr(_, Pointee::Struct(handle)) => self.module.structs.get(handle),
            _ => None,
        });
        match structure.and_then(|structure| structure.fields.get(field as usize)) {
            Some(field) => field.name.clone(),
            None => field.to_string(),
        }
    }
}

/// ` align 16`, where that is more than what the pointer points to has anyway.
fn alignment(function: &Function, pointer: Handle<Value>, align: u32) -> String {
    match function.values.get(pointer).map(|value| value.ty) {
        Some(Type::Ptr(_, Pointee::Scalar(scalar))) if scalar.bytes() == align => String::new(),
        _ => format!(" align {align}"),
    }
}

fn v(value: Handle<Value>) -> String {
    format!("%{}", value.index())
}

fn target(result: Option<Handle<Value>>) -> String {
    result.map_or(String::new(), |result| format!("%{} = ", result.index()))
}

fn var_name(function: &Function, var: Handle<Variable>) -> &str {
    function.vars.get(var).map_or("?", |var| var.name.as_str())
}

fn struct_name(module: &Module, handle: Handle<Struct>) -> &str {
    module.structs.get(handle).map_or("?", |structure| structure.name.as_str())
}

fn pointee_text(module: &Module, pointee: Pointee) -> &str {
    match pointee {
        Pointee::Scalar(scalar) => scalar.name(),
        Pointee::Struct(handle) => struct_name(module, handle),
    }
}

/// A type as the text form writes it.
pub(crate) fn type_text(module: &Module, ty: Type) -> String {
    match ty {
        Type::Scalar(scalar) => scalar.name().to_string(),
        Type::Ptr(space, pointee) => {
            format!("ptr<{}, {}>", names::space(space), pointee_text(module, pointee))
        }
        vector => names::vector(vector).unwrap_or_default(),
    }
}

/// Floats in the shortest decimal form that reads back exactly; NaNs as their bits, so that the payload stays.
fn literal_text(literal: Literal) -> String {
    match literal {
        Literal::Bool(value) => format!("const bool {value}"),
        Literal::Int(scalar, value) => format!("const {} {value}", scalar.name()),
        Literal::F32(bits) => match f32::from_bits(bits) {
            nan if nan.is_nan() => format!("const f32 {bits:#010x}"),
            value => format!("const f32 {value:?}"),
        },
        Literal::F64(bits) => match f64::from_bits(bits) {
            nan if nan.is_nan() => format!("const f64 {bits:#018x}"),
            value => format!("const f64 {value:?}"),
        },
    }
}

/// How a load ends that is promised something of its memory.
fn suffix(reads: Reads) -> &'static str {
    match reads {
        Reads::Shared => "",
        Reads::ReadOnly => ".ro",
    }
}
