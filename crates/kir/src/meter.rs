//! Counts the bytes that a kernel really accesses in global memory, by the parameter through which it gets there.
//!
//! [`metered`] turns a module into one that computes the same and counts: each thread adds up what it loads and stores in
//! variables of its own, and adds them to a buffer, with atomics, where it leaves the kernel. The kernels get one
//! parameter more, the last: an array of `u64`, zero before the launch, with a pair of words (bytes read, bytes written) for
//! each of the kernel's parameters, and a last pair for addresses that no parameter leads to (text that is kept by
//! address). A device function gets one parameter more for each of its pointers, and one for other addresses: where the
//! caller wants their bytes counted. An atomic counts as one write of its width, and a `compress`
//! as a write of all elements.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::arena::Handle;
use crate::module::*;
use crate::types::{Scalar, Space, Type};
use crate::uses;

/// Words of the counters of a kernel with that many parameters (without the counters' own).
pub const fn counter_words(params: usize) -> usize {
    2 * (params + 1)
}

/// The module with counters.
pub fn metered(module: &Module) -> Module {
    let mut done = Module { structs: module.structs.clone(), ..Module::default() };
    for (_, function) in module.functions.iter() {
        done.functions.push(Meter::run(module, function, false));
    }
    for (_, kernel) in module.kernels.iter() {
        done.kernels.push(Meter::run(module, kernel, true));
    }
    done
}

/// Where an address comes from: a parameter, or elsewhere.
type Origin = Option<u32>;

/// The parameters that are pointers to global memory.
fn pointers(function: &Function) -> Vec<u32> {
    let global = |param: &Param| matches!(param.ty, Type::Ptr(Space::Global, _));
    (0..).zip(&function.params).filter(|(_, param)| global(param)).map(|(index, _)| index).collect()
}

/// What is counted: bytes read or written through an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Counter {
    origin: Origin,
    writes: bool,
}

/// One function on its way.
struct Meter<'a> {
    module: &'a Module,
    /// As it was.
    source: &'a Function,
    is_kernel: bool,
    /// With counters.
    function: Function,
    origins: Vec<Origin>,
    vars: HashMap<Counter, Handle<Variable>>,
    /// The parameter with the counters: of a kernel, all; of a function, those of an origin.
    counters: HashMap<Origin, u32>,
    /// Of each value, by index.
    uses: Vec<u32>,
}

impl<'a> Meter<'a> {
    fn run(module: &'a Module, source: &'a Function, is_kernel: bool) -> Function {
        let mut meter = Meter {
            module,
            source,
            is_kernel,
            function: source.clone(),
            origins: origins(source),
            uses: uses::count(source),
            vars: HashMap::new(),
            counters: HashMap::new(),
        };
        meter.declare();
        let mut body = meter.block(&source.body);
        let falls_through = !body.last().is_some_and(Stmt::is_jump);
        if source.result.is_none() && falls_through {
            meter.flush(&mut body);
        }
        meter.function.body = body;
        meter.function
    }

    /// Parameters and variables of the counters that are used.
    fn declare(&mut self) {
        let mut names: HashSet<String> = self.source.params.iter().map(|param| param.name.clone()).collect();
        names.extend(self.source.vars.iter().map(|(_, var)| var.name.clone()));
        names.extend(self.source.shared.iter().map(|(_, array)| array.name.clone()));
        let mut fresh = |name: String| {
            let mut name = name;
            while !names.insert(name.clone()) {
                name.push('_');
            }
            name
        };
        let origins: Vec<Origin> = pointers(self.source).into_iter().map(Some).chain([None]).collect();
        let named = |origin: &Origin| origin.map_or("other".into(), |param| param.to_string());
        for origin in &origins {
            if self.is_kernel && *origin != origins[0] {
                let first = self.counters[&origins[0]];
                self.counters.insert(*origin, first);
                continue;
            }
            let name = if self.is_kernel { "meter".into() } else { format!("meter_{}", named(origin)) };
            let param = Param { name: fresh(name), ty: Type::global(Scalar::U64) };
            self.counters.insert(*origin, self.function.params.len() as u32);
            self.function.params.push(param);
        }
        let mut used = BTreeMap::new();
        accesses(self.module, self.source, (&self.origins, &self.uses), &self.source.body, &mut used);
        for counter in used.into_keys() {
            let kind = if counter.writes { "written" } else { "read" };
            let name = fresh(format!("{kind}_{}", named(&counter.origin)));
            let var = self.function.vars.push(Variable { name, ty: Type::Scalar(Scalar::U64) });
            self.vars.insert(counter, var);
        }
    }

    /// A block with counting, at the end of each run of statements that are executed together.
    fn block(&mut self, block: &Block) -> Block {
        let mut out = Block::new();
        let mut pending = BTreeMap::new();
        for stmt in block {
            let has_blocks = matches!(stmt, Stmt::If { .. } | Stmt::Loop(_));
            if has_blocks || stmt.is_jump() {
                self.count(&mut pending, &mut out);
            }
            if matches!(stmt, Stmt::Return(_) | Stmt::Trap { .. }) {
                self.flush(&mut out);
            }
            if let Some((counter, bytes)) =
                access(self.module, self.source, (&self.origins, &self.uses), stmt)
            {
                *pending.entry(counter).or_insert(0) += u64::from(bytes);
            }
            let stmt = self.stmt(stmt, &mut out);
            out.push(stmt);
        }
        self.count(&mut pending, &mut out);
        out
    }

    fn stmt(&mut self, stmt: &Stmt, out: &mut Block) -> Stmt {
        match stmt {
            Stmt::If { condition, accept, reject } => {
                Stmt::If { condition: *condition, accept: self.block(accept), reject: self.block(reject) }
            }
            Stmt::Loop(body) => Stmt::Loop(self.block(body)),
            Stmt::Call { function, args, result } => {
                let callee = &self.module.functions[*function];
                let mut all = args.clone();
                for param in pointers(callee) {
                    let origin = args.get(param as usize).and_then(|arg| self.origins[arg.index()]);
                    all.push(self.slot(origin, out));
                }
                all.push(self.slot(None, out));
                Stmt::Call { function: *function, args: all, result: *result }
            }
            other => other.clone(),
        }
    }

    fn value(&mut self, ty: Type, expr: Expr, out: &mut Block) -> Handle<Value> {
        let value = self.function.values.push(Value { ty, expr });
        out.push(Stmt::Let(value));
        value
    }

    fn word(&mut self, word: u64, out: &mut Block) -> Handle<Value> {
        let literal = Literal::Int(Scalar::U64, word.into());
        self.value(Type::Scalar(Scalar::U64), Expr::Literal(literal), out)
    }

    /// The address of an origin's pair of counters.
    fn slot(&mut self, origin: Origin, out: &mut Block) -> Handle<Value> {
        let pointer = Type::global(Scalar::U64);
        let param = self.value(pointer, Expr::Param(self.counters[&origin]), out);
        if !self.is_kernel {
            return param;
        }
        let pair = origin.map_or(self.source.params.len() as u64, u64::from);
        let index = self.word(2 * pair, out);
        self.value(pointer, Expr::Offset { pointer: param, index }, out)
    }

    /// Adds pending bytes to the thread's variables.
    fn count(&mut self, pending: &mut BTreeMap<Counter, u64>, out: &mut Block) {
        for (counter, bytes) in std::mem::take(pending) {
            let var = self.vars[&counter];
            let word = Type::Scalar(Scalar::U64);
            let known = self.value(word, Expr::Read(var), out);
            let bytes = self.word(bytes, out);
            let value = self.value(word, Expr::Binary(BinaryOp::Add, known, bytes), out);
            out.push(Stmt::Assign { var, value });
        }
    }

    /// Adds the thread's variables to the counters.
    fn flush(&mut self, out: &mut Block) {
        let mut vars: Vec<_> = self.vars.iter().map(|(counter, var)| (*counter, *var)).collect();
        vars.sort_unstable_by_key(|(counter, _)| *counter);
        for (counter, var) in vars {
            let word = Type::Scalar(Scalar::U64);
            let value = self.value(word, Expr::Read(var), out);
            let zero = self.word(0, out);
            let condition = self.value(Type::BOOL, Expr::Compare(CompareOp::Ne, value, zero), out);
            let mut accept = Block::new();
            let pair = self.slot(counter.origin, &mut accept);
            let index = self.word(u64::from(counter.writes), &mut accept);
            let expr = Expr::Offset { pointer: pair, index };
            let pointer = self.value(Type::global(Scalar::U64), expr, &mut accept);
            let (op, scope) = (AtomicOp::Add, Scope::Device);
            accept.push(Stmt::Atomic { op, pointer, value, scope, result: None });
            out.push(Stmt::If { condition, accept, reject: Block::new() });
        }
    }
}

/// The accesses of a block and of the blocks in it.
fn accesses(
    module: &Module,
    function: &Function,
    known: (&[Origin], &[u32]),
    block: &Block,
    found: &mut BTreeMap<Counter, u64>,
) {
    for stmt in block {
        if let Some((counter, bytes)) = access(module, function, known, stmt) {
            *found.entry(counter).or_insert(0) += u64::from(bytes);
        }
        match stmt {
            Stmt::If { accept, reject, .. } => {
                accesses(module, function, known, accept, found);
                accesses(module, function, known, reject, found);
            }
            Stmt::Loop(body) => accesses(module, function, known, body, found),
            _ => {}
        }
    }
}

/// What a statement itself accesses in global memory, in bytes.
fn access(
    module: &Module,
    function: &Function,
    (origins, uses): (&[Origin], &[u32]),
    stmt: &Stmt,
) -> Option<(Counter, u32)> {
    let (pointer, bytes, writes) = match stmt {
        // What nobody uses is not loaded.
        Stmt::Let(value) if uses[value.index()] == 0 => return None,
        Stmt::Let(value) => {
            let value = &function.values[*value];
            let pointer = match value.expr {
                Expr::Load { pointer, .. }
                | Expr::LoadField { pointer, .. }
                | Expr::LoadVector { pointer, .. } => pointer,
                Expr::LoadBytes(pointer) => pointer,
                _ => return None,
            };
            (pointer, value.ty.bytes(), false)
        }
        Stmt::AtomicLoad { pointer, .. } => (*pointer, pointee(module, function, *pointer)?, false),
        Stmt::StoreBytes { pointer, value }
        | Stmt::StoreVector { pointer, value, .. }
        | Stmt::Compress { pointer, value, .. } => (*pointer, function.values[*value].ty.bytes(), true),
        Stmt::Store { pointer, .. } | Stmt::Atomic { pointer, .. } => {
            (*pointer, pointee(module, function, *pointer)?, true)
        }
        _ => return None,
    };
    let is_global = matches!(function.values[pointer].ty, Type::Ptr(Space::Global, _));
    is_global.then(|| (Counter { origin: origins[pointer.index()], writes }, bytes))
}

fn pointee(module: &Module, function: &Function, pointer: Handle<Value>) -> Option<u32> {
    match function.values[pointer].ty {
        Type::Ptr(_, pointee) => Some(pointee.bytes(&module.structs)),
        Type::Scalar(_) | Type::Vector(..) | Type::Mask(_) => None,
    }
}

/// Where each value comes from, as an address. A variable comes from where the first value assigned to it comes from.
fn origins(function: &Function) -> Vec<Origin> {
    let mut values: Vec<Origin> = vec![None; function.values.len()];
    let mut vars: Vec<Origin> = vec![None; function.vars.len()];
    let mut assigned = Vec::new();
    assignments(&function.body, &mut assigned);
    let mut changed = true;
    while changed {
        changed = false;
        for (handle, value) in function.values.iter() {
            let known = values[handle.index()];
            let of = |value: Handle<Value>| values[value.index()];
            let origin = match value.expr {
                Expr::Param(param) => {
                    let ty = function.params.get(param as usize).map(|param| param.ty);
                    matches!(ty, Some(Type::Ptr(Space::Global, _))).then_some(param)
                }
                Expr::Offset { pointer, .. } | Expr::Field { pointer, .. } => of(pointer),
                Expr::Bitcast(value, _) => of(value),
                Expr::Select { accept, reject, .. } => of(accept).or(of(reject)),
                // Addresses as words.
                Expr::Binary(BinaryOp::Add, a, b) => of(a).or(of(b)),
                Expr::Read(var) => vars[var.index()],
                _ => None,
            };
            if known.is_none() && origin.is_some() {
                values[handle.index()] = origin;
                changed = true;
            }
        }
        for (var, value) in &assigned {
            let origin = values[value.index()];
            if vars[var.index()].is_none() && origin.is_some() {
                vars[var.index()] = origin;
                changed = true;
            }
        }
    }
    values
}

fn assignments(block: &Block, found: &mut Vec<(Handle<Variable>, Handle<Value>)>) {
    for stmt in block {
        match stmt {
            Stmt::Assign { var, value } => found.push((*var, *value)),
            Stmt::If { accept, reject, .. } => {
                assignments(accept, found);
                assignments(reject, found);
            }
            Stmt::Loop(body) => assignments(body, found),
            _ => {}
        }
    }
}
