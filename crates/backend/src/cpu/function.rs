//! The state of the translation of one function, and what encloses its statements.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::{
    self, BlockArg, FuncRef, InstBuilder, StackSlot, StackSlotData, StackSlotKind, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module};
use kelpie_kir::{Expr, Function, Handle, Literal, OverflowOp, Type, ValidModule, Value};

use super::WorkerContext;
use super::helpers::Helper;
use super::types::{launch_constant, value_type};
use super::vector::{Registers, register_types};

/// A KIR value in the code: a register, or an address whose constant part the access folds in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operand {
    Value(ir::Value),
    Address {
        base: ir::Value,
        offset: i32,
    },
    /// A narrow integer that was extended to 64 bits as it was loaded, which costs nothing.
    Extended {
        narrow: ir::Value,
        wide: ir::Value,
    },
}

/// Integer arithmetic whose result and overflow are both asked for; computed by one instruction.
pub(super) type OverflowKey = (OverflowOp, Handle<Value>, Handle<Value>);

/// Where a `return` goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Returns {
    /// Out of the machine function.
    Machine,
    /// To the statement after an inlined call.
    To(ir::Block),
}

/// One KIR function under translation: the outermost, or one that is inlined.
pub(super) struct Frame<'m> {
    pub(super) function: &'m Function,
    pub(super) params: Vec<Operand>,
    pub(super) values: Vec<Option<Operand>>,
    /// The registers of each variable: one, or those of a vector.
    pub(super) vars: Vec<Vec<Variable>>,
    /// Vectors and masks, by the number of the value.
    pub(super) vectors: HashMap<usize, Registers>,
    pub(super) shared_offsets: Vec<u32>,
    pub(super) returns: Returns,
    /// What `Overflows` asks for somewhere in the function.
    pub(super) overflow_keys: HashSet<OverflowKey>,
    /// Result and overflow, in the scopes that are open.
    pub(super) overflow_values: Vec<(OverflowKey, ir::Value, ir::Value)>,
}

/// The innermost loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoopTargets {
    pub(super) next: ir::Block,
    pub(super) exit: ir::Block,
    pub(super) next_used: bool,
    pub(super) exit_used: bool,
}

/// The worker's context, read at the entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worker {
    pub(super) address: ir::Value,
    pub(super) shared: ir::Value,
    pub(super) status: ir::Value,
    pub(super) block_id: ir::Value,
    pub(super) grid_dim: ir::Value,
}

/// What the functions of a module may call.
pub(super) struct Callees<'f> {
    pub(super) jit: &'f mut JITModule,
    /// The module's functions, those that have code of their own.
    pub(super) outlined: &'f [Option<FuncId>],
    /// By [`Helper::ALL`].
    pub(super) helpers: &'f [FuncId],
}

/// Translates one machine function.
pub(super) struct Translator<'m, 'f> {
    pub(super) module: &'m ValidModule,
    pub(super) builder: FunctionBuilder<'f>,
    pub(super) frame: Frame<'m>,
    pub(super) loops: Vec<LoopTargets>,
    pub(super) worker: Worker,
    pub(super) callees: Callees<'f>,
    helper_refs: [Option<FuncRef>; Helper::ALL.len()],
    scratch: Option<StackSlot>,
    error: Option<String>,
}

impl<'m, 'f> Translator<'m, 'f> {
    pub(super) fn new(
        module: &'m ValidModule,
        function: &'m Function,
        (code, builder_context): (&'f mut ir::Function, &'f mut FunctionBuilderContext),
        callees: Callees<'f>,
    ) -> Translator<'m, 'f> {
        let mut builder = FunctionBuilder::new(code, builder_context);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let worker = load_worker(&mut builder, entry);
        Translator {
            module,
            builder,
            frame: Frame::new(module, function, Vec::new(), Returns::Machine),
            loops: Vec::new(),
            worker,
            callees,
            helper_refs: [None; Helper::ALL.len()],
            scratch: None,
            error: None,
        }
    }

    /// Translates the function; says what went wrong if the module was not valid after all.
    pub(super) fn translate(mut self, is_kernel: bool) -> Result<(), String> {
        self.frame.params = if is_kernel { self.kernel_params() } else { self.function_params() };
        self.declare_vars();
        let function = self.frame.function;
        if self.block(&function.body) {
            self.return_default();
        }
        let config = self.callees.jit.target_config();
        self.builder.finalize(config);
        match self.error {
            Some(message) => Err(message),
            None => Ok(()),
        }
    }

    /// The launch's arguments. A load that is not used disappears; one that is, is hoisted out of loops.
    fn kernel_params(&mut self) -> Vec<Operand> {
        let offset = std::mem::offset_of!(WorkerContext, slots) as i32;
        let slots = self.builder.ins().load(types::I64, launch_constant(), self.worker.address, offset);
        let params = self.frame.function.params.iter().enumerate();
        let load = |(index, param): (usize, &kelpie_kir::Param)| {
            let (ty, offset) = (value_type(param.ty), 16 * index as i32);
            Operand::Value(self.builder.ins().load(ty, launch_constant(), slots, offset))
        };
        params.map(load).collect()
    }

    fn function_params(&mut self) -> Vec<Operand> {
        let Some(entry) = self.builder.current_block() else { return Vec::new() };
        let mut words = self.builder.block_params(entry).to_vec().into_iter().skip(1);
        let mut params = Vec::new();
        for param in &self.frame.function.params {
            let word = words.next().unwrap_or(self.worker.address);
            let value = match value_type(param.ty) {
                types::I128 => {
                    let high = words.next().unwrap_or(word);
                    self.builder.ins().iconcat(word, high)
                }
                _ => word,
            };
            params.push(Operand::Value(value));
        }
        params
    }

    /// Declares the current frame's variables; they start as zero.
    pub(super) fn declare_vars(&mut self) {
        let function = self.frame.function;
        for (_, var) in function.vars.iter() {
            let registers = match var.ty.lanes() {
                Some(_) => register_types(var.ty),
                None => vec![value_type(var.ty)],
            };
            let mut variables = Vec::with_capacity(registers.len());
            for ty in registers {
                let variable = self.builder.declare_var(ty);
                let zero = self.zero_of(ty);
                self.builder.def_var(variable, zero);
                variables.push(variable);
            }
            self.frame.vars.push(variables);
        }
    }

    /// Leaves the function with zero, where control reaches its end.
    pub(super) fn return_default(&mut self) {
        let result = self.frame.function.result.map(|ty| self.zero(ty));
        self.return_with(result);
    }

    /// Leaves the function.
    pub(super) fn return_with(&mut self, result: Option<ir::Value>) {
        match self.frame.returns {
            Returns::Machine => {
                let words = result.map_or_else(Vec::new, |value| self.words(value));
                self.builder.ins().return_(&words);
            }
            Returns::To(block) => {
                let arguments: Vec<BlockArg> = result.into_iter().map(BlockArg::from).collect();
                self.builder.ins().jump(block, &arguments);
            }
        }
    }

    /// A value as arguments of a call: an `i128` is two words.
    pub(super) fn words(&mut self, value: ir::Value) -> Vec<ir::Value> {
        if self.builder.func.dfg.value_type(value) == types::I128 {
            let (low, high) = self.builder.ins().isplit(value);
            vec![low, high]
        } else {
            vec![value]
        }
    }

    // ---- values

    /// Remembers the first breach of the validator's promises; the translation goes on with zeros.
    pub(super) fn fail(&mut self, message: impl Into<String>) {
        self.error.get_or_insert_with(|| message.into());
    }

    /// The type of a KIR value.
    pub(super) fn ty(&self, value: Handle<Value>) -> Type {
        self.frame.function.values.get(value).map_or(Type::BOOL, |value| value.ty)
    }

    /// The constant that a KIR value is, if it is an integer literal.
    pub(super) fn literal(&self, value: Handle<Value>) -> Option<i128> {
        match self.frame.function.values.get(value)?.expr {
            Expr::Literal(Literal::Int(_, value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, value: Handle<Value>, operand: Operand) {
        match self.frame.values.get_mut(value.index()) {
            Some(slot) => *slot = Some(operand),
            None => self.fail(format!("value %{} does not exist", value.index())),
        }
    }

    pub(super) fn operand(&mut self, value: Handle<Value>) -> Operand {
        match self.frame.values.get(value.index()).copied().flatten() {
            Some(operand) => operand,
            None => {
                self.fail(format!("value %{} is not in scope", value.index()));
                let ty = self.ty(value);
                Operand::Value(self.zero(ty))
            }
        }
    }

    /// A KIR value in a register.
    pub(super) fn value(&mut self, value: Handle<Value>) -> ir::Value {
        match self.operand(value) {
            Operand::Value(value) | Operand::Extended { narrow: value, .. } => value,
            Operand::Address { base, offset } => self.materialise(base, offset),
        }
    }

    pub(super) fn materialise(&mut self, base: ir::Value, offset: i32) -> ir::Value {
        if offset == 0 {
            return base;
        }
        let offset = self.int(types::I64, i64::from(offset));
        self.builder.ins().iadd(base, offset)
    }

    /// An integer constant of up to 64 bits, truncated to its type.
    pub(super) fn int(&mut self, ty: ir::Type, value: i64) -> ir::Value {
        let unused = 64 - ty.bits();
        let bits = ((value as u64) << unused) >> unused;
        self.builder.ins().iconst(ty, bits as i64)
    }

    /// Zero (false, null) of a type.
    pub(super) fn zero(&mut self, ty: Type) -> ir::Value {
        self.zero_of(value_type(ty))
    }

    fn zero_of(&mut self, ty: ir::Type) -> ir::Value {
        match ty {
            vector if vector.is_vector() => {
                let zero = self.builder.func.dfg.constants.insert(ir::ConstantData::from(&[0; 16][..]));
                self.builder.ins().vconst(vector, zero)
            }
            types::F32 => self.builder.ins().f32const(0.0),
            types::F64 => self.builder.ins().f64const(0.0),
            types::I128 => self.int128(0),
            other => self.int(other, 0),
        }
    }

    // ---- calls

    /// Calls a helper; its result, if it has one.
    pub(super) fn call_helper(&mut self, helper: Helper, arguments: &[ir::Value]) -> Option<ir::Value> {
        let index = helper as usize;
        let function = match self.helper_refs[index] {
            Some(function) => function,
            None => self.callees.jit.declare_func_in_func(self.callees.helpers[index], self.builder.func),
        };
        self.helper_refs[index] = Some(function);
        let call = self.builder.ins().call(function, arguments);
        self.builder.inst_results(call).first().copied()
    }

    /// A function of this module as something that the current machine function can call.
    pub(super) fn import(&mut self, id: FuncId) -> FuncRef {
        self.callees.jit.declare_func_in_func(id, self.builder.func)
    }

    /// The address of 16 bytes on the stack, where helpers put an `i128`.
    pub(super) fn scratch(&mut self) -> ir::Value {
        let slot = match self.scratch {
            Some(slot) => slot,
            None => {
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 16, 4);
                self.builder.create_sized_stack_slot(data)
            }
        };
        self.scratch = Some(slot);
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }
}

impl<'m> Frame<'m> {
    pub(super) fn new(
        module: &ValidModule,
        function: &'m Function,
        params: Vec<Operand>,
        returns: Returns,
    ) -> Frame<'m> {
        let overflow_key = |value: &Value| match value.expr {
            Expr::Overflows(op, a, b) => Some((op, a, b)),
            _ => None,
        };
        Frame {
            function,
            params,
            values: vec![None; function.values.len()],
            vars: Vec::with_capacity(function.vars.len()),
            vectors: HashMap::new(),
            shared_offsets: function.shared_layout(&module.structs).offsets,
            returns,
            overflow_keys: function.values.iter().filter_map(|(_, value)| overflow_key(value)).collect(),
            overflow_values: Vec::new(),
        }
    }
}

fn load_worker(builder: &mut FunctionBuilder<'_>, entry: ir::Block) -> Worker {
    let address = builder.block_params(entry)[0];
    let mut load = |ty, offset: usize| builder.ins().load(ty, launch_constant(), address, offset as i32);
    Worker {
        address,
        shared: load(types::I64, std::mem::offset_of!(WorkerContext, shared)),
        status: load(types::I64, std::mem::offset_of!(WorkerContext, status)),
        block_id: load(types::I32, std::mem::offset_of!(WorkerContext, block_id)),
        grid_dim: load(types::I32, std::mem::offset_of!(WorkerContext, grid_dim)),
    }
}
