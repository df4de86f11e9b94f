//! Kernels, and device functions where they are called.

use std::fmt::Write;
use std::sync::LazyLock;

use kelpie_kir::{Function, Handle, Module, Scalar, Type, ValidModule, Value, text, validate};

use super::printer::{DYNAMIC_SHARED, Frame, Printer, instruction};
use super::registers::{Class, Piece, memory};
use crate::BackendError;
use crate::cuda::{self, Options};

/// What has no instruction, as device functions.
static HELPERS: LazyLock<Result<ValidModule, String>> = LazyLock::new(|| {
    let module = text::parse(include_str!("helpers.kir")).map_err(|error| error.to_string())?;
    validate(module).map_err(|error| error.to_string())
});

/// The parameters that every kernel has after its own.
const STATUS: &str = "kelpie_status";
const BEFORE: &str = "kelpie_before";

/// Prints a kernel.
pub fn print_kernel(module: &Module, kernel: &Function, options: &Options) -> Result<String, BackendError> {
    let mut printer = Printer::new(module, kernel);
    let arrays = printer.shared_arrays();
    printer.parameters();
    printer.gate();
    printer.body()?;
    printer.place(printer.exit);
    instruction!(printer, "ret");
    let mut text = format!(".visible .entry {}(\n", cuda::symbol(&kernel.name));
    for (index, param) in kernel.params.iter().enumerate() {
        let _ = match param.ty.scalar() {
            Some(Scalar::I128) => writeln!(text, "\t.param .align 16 .b8 param_{index}[16],"),
            Some(Scalar::Bool) => writeln!(text, "\t.param .u8 param_{index},"),
            scalar => writeln!(text, "\t.param .{} param_{index},", scalar.map_or("b64", memory)),
        };
    }
    let _ = writeln!(text, "\t.param .b64 {STATUS},\n\t.param .b64 {BEFORE}\n)");
    if let Some(threads) = options.block_threads {
        let _ = writeln!(text, ".maxntid {threads}, 1, 1");
        if let Some(blocks) = options.resident_blocks {
            let _ = writeln!(text, ".minnctapersm {blocks}");
        }
    }
    let _ = write!(text, "{{\n{arrays}{}}}\n", printer.finish());
    Ok(text)
}

impl<'a> Printer<'a> {
    /// The declarations of the kernel's shared arrays, whose addresses are taken: static ones, or one dynamic array cut into
    /// parts where the kernel needs more than may be static.
    fn shared_arrays(&mut self) -> String {
        let (module, function) = (self.frame.module, self.frame.function);
        let layout = function.shared_layout(&module.structs);
        let is_dynamic = cuda::dynamic_shared_bytes(module, function) > 0;
        let mut declarations = String::new();
        for (index, offset) in layout.offsets.iter().enumerate() {
            let address = self.register(Class::Long);
            if is_dynamic {
                let start = self.register(Class::Long);
                instruction!(self, "mov.u64 {start}, {DYNAMIC_SHARED}");
                instruction!(self, "add.s64 {address}, {start}, {offset}");
            } else {
                let array = &function.shared[Handle::from_index(index)];
                let bytes = array.element.bytes(&module.structs).saturating_mul(array.count);
                let _ = writeln!(declarations, "\t.shared .align 16 .b8 shared_{index}[{bytes}];");
                instruction!(self, "mov.u64 {address}, shared_{index}");
            }
            self.shared.push(address);
        }
        declarations
    }

    fn parameters(&mut self) {
        let function = self.frame.function;
        for (index, param) in function.params.iter().enumerate() {
            let piece = self.load_parameter(&format!("param_{index}"), param.ty);
            self.frame.params.push(piece);
        }
        instruction!(self, "ld.param.b64 {}, [{STATUS}]", self.status);
    }

    fn load_parameter(&mut self, name: &str, ty: Type) -> Piece {
        match ty.scalar() {
            Some(Scalar::I128) => {
                let wide = self.wide_register();
                instruction!(self, "ld.param.v2.b64 {{{}, {}}}, [{name}]", wide.low, wide.high);
                Piece::Two(wide)
            }
            Some(Scalar::Bool) => {
                let word = self.register(Class::Word);
                instruction!(self, "ld.param.u8 {word}, [{name}]");
                Piece::One(self.word_as_truth(word))
            }
            scalar => {
                let register = self.register(Class::of(ty));
                instruction!(self, "ld.param.{} {register}, [{name}]", scalar.map_or("b64", memory));
                Piece::One(register)
            }
        }
    }

    /// A launch does nothing where the one before it has failed, and has failed as well. All threads read the same value, as
    /// nobody writes that word any more.
    fn gate(&mut self) {
        let (before, begin) = (self.register(Class::Long), self.label());
        let [word, block, thread, both] = [(); 4].map(|()| self.register(Class::Word));
        let [fine, other] = [(); 2].map(|()| self.register(Class::Predicate));
        instruction!(self, "ld.param.b64 {before}, [{BEFORE}]");
        instruction!(self, "ld.global.b32 {word}, [{before}]");
        instruction!(self, "setp.eq.u32 {fine}, {word}, 0");
        instruction!(self, "@{fine} bra {begin}");
        instruction!(self, "mov.u32 {block}, %ctaid.x");
        instruction!(self, "mov.u32 {thread}, %tid.x");
        instruction!(self, "or.b32 {both}, {block}, {thread}");
        instruction!(self, "setp.ne.u32 {other}, {both}, 0");
        instruction!(self, "@{other} bra {}", self.exit);
        instruction!(self, "st.global.b32 [{}], {word}", self.status);
        self.jump(self.exit);
        self.place(begin);
    }

    /// The variables and statements of the function that is printed now.
    fn body(&mut self) -> Result<(), BackendError> {
        let function = self.frame.function;
        for (_, var) in function.vars.iter() {
            let pieces = self.variable(var.ty);
            self.clear(&pieces);
            self.frame.vars.push(pieces);
        }
        self.block(&function.body)
    }

    /// Prints a device function's statements here.
    pub fn call(
        &mut self,
        function: Handle<Function>,
        args: &[Handle<Value>],
        result: Option<Handle<Value>>,
    ) -> Result<(), BackendError> {
        let params = args.iter().map(|arg| self.piece(*arg)).collect();
        let module = self.frame.module;
        let given = self.inlined(module, &module.functions[function], params)?;
        if let (Some(result), Some(piece)) = (result, given) {
            self.frame.values[result.index()] = vec![piece];
        }
        Ok(())
    }

    /// Calls one of the functions of `helpers.kir`.
    pub fn helper(&mut self, name: &str, params: &[Piece]) -> Result<Piece, BackendError> {
        let error = |message: String| BackendError::Compile { kernel: name.to_string(), message };
        let module = HELPERS.as_ref().map_err(|message| error(message.clone()))?;
        let found = module.functions.iter().find(|(_, function)| function.name == name);
        let (_, function) = found.ok_or_else(|| error("there is no such helper".into()))?;
        let result = self.inlined(module, function, params.to_vec())?;
        result.ok_or_else(|| error("the helper gives nothing".into()))
    }

    fn inlined(
        &mut self,
        module: &'a Module,
        function: &'a Function,
        params: Vec<Piece>,
    ) -> Result<Option<Piece>, BackendError> {
        let end = self.label();
        let result = function.result.map(|ty| self.piece_for(ty));
        let frame = Frame { params, result, ..Frame::new(module, function, end) };
        let (caller, lane) = (std::mem::replace(&mut self.frame, frame), std::mem::take(&mut self.lane));
        let printed = self.body();
        self.place(end);
        self.frame = caller;
        self.lane = lane;
        printed.map(|()| result)
    }
}
