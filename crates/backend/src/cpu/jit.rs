//! One compilation: declares what a module needs, translates and defines its functions.

use std::fmt::Write;
use std::sync::OnceLock;

use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};
use kelpie_kir::{Function, Type, ValidModule};

use super::function::{Callees, Translator};
use super::helpers::{self, Helper};
use super::types::value_type;
use crate::BackendError;

/// Functions whose body, with what is inlined into it, has more statements than this are called, not inlined. It
/// bounds the code of a chain of functions that call each other several times.
const INLINE_STATEMENTS: usize = 200;

/// A finished kernel.
pub(super) struct Finished {
    pub(super) name: String,
    pub(super) address: *const u8,
    pub(super) shared_bytes: u32,
}

/// One compilation of a module.
pub(super) struct Session<'m> {
    module: &'m ValidModule,
    jit: JITModule,
    context: Context,
    builder_context: FunctionBuilderContext,
    /// The device functions that are too large to be inlined.
    outlined: Vec<Option<FuncId>>,
    kernels: Vec<FuncId>,
    helpers: Vec<FuncId>,
}

fn compile_error(kernel: &str, message: impl ToString) -> BackendError {
    BackendError::Compile { kernel: kernel.to_string(), message: message.to_string() }
}

/// What is the same for every instruction set.
fn flags() -> Result<settings::Flags, String> {
    let mut flags = settings::builder();
    let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_verifier", verifier),
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    Ok(settings::Flags::new(flags))
}

/// The least of x86-64 that has vectors, for tests: whatever newer hosts add is left out.
#[cfg(all(test, target_arch = "x86_64"))]
pub(super) fn oldest_isa() -> Result<OwnedTargetIsa, String> {
    let mut builder = cranelift_codegen::isa::lookup_by_name("x86_64").map_err(|error| error.to_string())?;
    for flag in ["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"] {
        builder.enable(flag).map_err(|error| error.to_string())?;
    }
    builder.finish(flags()?).map_err(|error| error.to_string())
}

/// This host's instruction set; looked up once.
fn host_isa() -> Result<OwnedTargetIsa, BackendError> {
    static ISA: OnceLock<Result<OwnedTargetIsa, String>> = OnceLock::new();
    let isa =
        ISA.get_or_init(|| cranelift_native::builder()?.finish(flags()?).map_err(|error| error.to_string()));
    isa.clone().map_err(|what| BackendError::Unsupported { backend: "cpu", what })
}

/// Whether Cranelift has instructions here for whatever KIR's vectors can do.
pub(super) fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1")
        && is_x86_feature_detected!("sse4.2")
        && is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Whether any value is a vector or mask.
fn uses_vectors(module: &ValidModule) -> bool {
    let functions = module.functions.iter().chain(module.kernels.iter());
    let mut values = functions.flat_map(|(_, function)| function.values.iter());
    values.any(|(_, value)| value.ty.lanes().is_some())
}

impl<'m> Session<'m> {
    pub(super) fn new(module: &'m ValidModule) -> Result<Session<'m>, BackendError> {
        if !has_vectors() && uses_vectors(module) {
            return Err(BackendError::Unsupported { backend: "cpu", what: "vectors on this host".into() });
        }
        Session::with_isa(module, host_isa()?)
    }

    /// Compiles for an instruction set that this host has.
    pub(super) fn with_isa(
        module: &'m ValidModule,
        isa: OwnedTargetIsa,
    ) -> Result<Session<'m>, BackendError> {
        let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
        builder.symbol_lookup_fn(Box::new(helpers::address));
        let mut jit = JITModule::new(builder);
        let context = jit.make_context();
        let mut helpers = Vec::new();
        for helper in Helper::ALL {
            let mut signature = jit.make_signature();
            helper.fill_signature(&mut signature);
            let id = jit.declare_function(helper.name(), Linkage::Import, &signature);
            helpers.push(id.map_err(|error| compile_error(helper.name(), error))?);
        }
        let mut session = Session {
            module,
            jit,
            context,
            builder_context: FunctionBuilderContext::new(),
            outlined: Vec::new(),
            kernels: Vec::new(),
            helpers,
        };
        session.declare_functions()?;
        Ok(session)
    }

    fn declare_functions(&mut self) -> Result<(), BackendError> {
        let mut costs = Vec::new();
        for (_, function) in self.module.functions.iter() {
            let cost = super::stmt::inlined_statements(&function.body, &costs);
            let id = if cost > INLINE_STATEMENTS {
                let signature = self.function_signature(function);
                Some(self.declare(&format!("function_{}", function.name), &signature)?)
            } else {
                None
            };
            costs.push(if id.is_some() { 1 } else { cost });
            self.outlined.push(id);
        }
        for (_, kernel) in self.module.kernels.iter() {
            let signature = self.kernel_signature();
            let id = self.declare(&format!("kernel_{}", kernel.name), &signature)?;
            self.kernels.push(id);
        }
        Ok(())
    }

    fn declare(&mut self, name: &str, signature: &Signature) -> Result<FuncId, BackendError> {
        self.jit.declare_function(name, Linkage::Local, signature).map_err(|error| compile_error(name, error))
    }

    fn kernel_signature(&self) -> Signature {
        let mut signature = self.jit.make_signature();
        signature.params.push(AbiParam::new(types::I64));
        signature
    }

    /// The worker's context, then the parameters; an `i128` is two words.
    fn function_signature(&self, function: &Function) -> Signature {
        let mut signature = self.kernel_signature();
        let words = |ty: Type| match value_type(ty) {
            types::I128 => vec![AbiParam::new(types::I64); 2],
            other => vec![AbiParam::new(other)],
        };
        for param in &function.params {
            signature.params.extend(words(param.ty));
        }
        signature.returns.extend(function.result.into_iter().flat_map(words));
        signature
    }

    /// Every function that gets code of its own.
    fn bodies(&self) -> Vec<(FuncId, &'m Function, bool)> {
        let module: &'m ValidModule = self.module;
        let functions = module.functions.iter().zip(&self.outlined);
        let functions = functions.filter_map(|((_, function), id)| id.map(|id| (id, function, false)));
        let kernels = module.kernels.iter().zip(&self.kernels).map(|((_, kernel), &id)| (id, kernel, true));
        functions.chain(kernels).collect()
    }

    fn translate(&mut self, function: &'m Function, is_kernel: bool) -> Result<(), BackendError> {
        self.jit.clear_context(&mut self.context);
        self.context.func.signature =
            if is_kernel { self.kernel_signature() } else { self.function_signature(function) };
        let callees = Callees { jit: &mut self.jit, outlined: &self.outlined, helpers: &self.helpers };
        let code = (&mut self.context.func, &mut self.builder_context);
        let translator = Translator::new(self.module, function, code, callees);
        let result = translator.translate(is_kernel);
        result.map_err(|message| compile_error(&function.name, message))
    }

    /// Compiles everything: what owns the code, the kernels, and the size of the code in bytes.
    pub(super) fn compile(mut self) -> Result<(JITModule, Vec<Finished>, usize), BackendError> {
        match self.define_all() {
            Ok(code_bytes) => {
                let kernels = self.finished();
                Ok((self.jit, kernels, code_bytes))
            }
            Err(error) => {
                // SAFETY: nothing has been given out that points into it.
                unsafe { self.jit.free_memory() };
                Err(error)
            }
        }
    }

    fn define_all(&mut self) -> Result<usize, BackendError> {
        let mut code_bytes = 0;
        for (id, function, is_kernel) in self.bodies() {
            self.translate(function, is_kernel)?;
            let defined = self.jit.define_function(id, &mut self.context);
            defined.map_err(|error| compile_error(&function.name, error))?;
            code_bytes += self.context.compiled_code().map_or(0, |code| code.code_buffer().len());
        }
        self.jit.finalize_definitions().map_err(|error| compile_error("module", error))?;
        Ok(code_bytes)
    }

    fn finished(&self) -> Vec<Finished> {
        let kernels = self.module.kernels.iter().zip(&self.kernels).map(|((_, kernel), &id)| Finished {
            name: kernel.name.clone(),
            address: self.jit.get_finalized_function(id),
            shared_bytes: kernel.shared_layout(&self.module.structs).bytes,
        });
        kernels.collect()
    }

    /// The Cranelift IR of everything that gets code.
    pub(super) fn print_all(&mut self) -> Result<String, BackendError> {
        let mut text = String::new();
        for (_, function, is_kernel) in self.bodies() {
            self.translate(function, is_kernel)?;
            let kind = if is_kernel { "kernel" } else { "function" };
            let _ = writeln!(text, "; {kind} {}\n{}", function.name, self.context.func.display());
        }
        for (helper, id) in Helper::ALL.iter().zip(&self.helpers) {
            let symbol = format!("u0:{} ", id.as_u32());
            if text.contains(&symbol) {
                let _ = writeln!(text, "; {symbol}= {}", helper.name());
            }
        }
        Ok(text)
    }
}
