//! Functions and kernels: signature, variables, shared arrays.

use std::collections::HashMap;
use std::fmt::Write;

use kelpie_kir::{Function, Handle, Module, Stmt, Type, Value};

use super::expr::Text;
use super::helpers::Helpers;
use super::names::{Names, identifier};
use super::{Options, STATIC_SHARED_LIMIT, symbol, types, uses};

/// The status word's name.
pub const STATUS: &str = "kelpie_status";
/// The name of the status word of the launch before.
const BEFORE: &str = "kelpie_before";

/// Prints one function.
pub struct FunctionPrinter<'a> {
    pub module: &'a Module,
    pub function: &'a Function,
    /// Device functions that take the status word.
    pub status: &'a [bool],
    pub helpers: &'a mut Helpers,
    pub is_kernel: bool,
    pub params: Vec<String>,
    pub vars: Vec<String>,
    pub shared: Vec<String>,
    /// Uses of each value.
    pub uses: Vec<u32>,
    /// How each value is written where it is used; empty before its definition.
    pub texts: Vec<Text>,
    /// The same of each element of vectors and masks, by the number of the value.
    pub vectors: HashMap<usize, Vec<Text>>,
    /// The variables of each element of variables that are vectors.
    pub vector_vars: HashMap<usize, Vec<String>>,
    /// The element of vectors that is printed now.
    pub lane: usize,
    /// Stores of chosen elements printed so far, to tell their counters apart.
    pub compressed: u32,
    /// Values whose expression is written where they are used.
    pub inlined: Vec<bool>,
    pub out: String,
    pub indent: usize,
}

impl<'a> FunctionPrinter<'a> {
    fn new(module: &'a Module, function: &'a Function, status: &'a [bool], helpers: &'a mut Helpers) -> Self {
        let mut names = Names::default();
        let params = function.params.iter().map(|param| names.unique(&param.name)).collect();
        let vars = function.vars.iter().map(|(_, var)| names.unique(&var.name)).collect();
        let shared = function.shared.iter().map(|(_, array)| names.unique(&array.name)).collect();
        let mut vector_vars = HashMap::new();
        for (handle, var) in function.vars.iter() {
            if let Some(lanes) = var.ty.lanes() {
                let elements = (0..lanes).map(|lane| names.unique(&format!("{}_{lane}", var.name))).collect();
                vector_vars.insert(handle.index(), elements);
            }
        }
        let count = function.values.len();
        FunctionPrinter {
            module,
            function,
            status,
            helpers,
            is_kernel: false,
            params,
            vars,
            shared,
            uses: uses::count(function),
            texts: vec![Text::default(); count],
            vectors: HashMap::new(),
            vector_vars,
            lane: 0,
            compressed: 0,
            inlined: vec![false; count],
            out: String::new(),
            indent: 1,
        }
    }

    /// Writes one line.
    pub fn line(&mut self, text: &str) {
        for _ in 0..self.indent {
            self.out.push_str("    ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// The type of a value; of a vector or mask, that of its elements.
    pub fn ty(&self, value: Handle<Value>) -> Type {
        let ty = self.function.values[value].ty;
        match (ty.lanes(), ty.element()) {
            (Some(_), Some(element)) => element.into(),
            _ => ty,
        }
    }

    fn parameters(&self, with_status: bool) -> String {
        let mut list: Vec<String> = self
            .function
            .params
            .iter()
            .zip(&self.params)
            .map(|(param, name)| format!("{} {name}", types::name(self.module, param.ty)))
            .collect();
        if with_status {
            list.push(format!("u32* {STATUS}"));
        }
        list.join(", ")
    }

    fn variables(&mut self) {
        for index in 0..self.vars.len() {
            let ty = self.function.vars[Handle::from_index(index)].ty;
            let zero = match ty {
                Type::Ptr(..) => "nullptr",
                Type::BOOL => "false",
                _ => "0",
            };
            let one = [self.vars[index].clone()];
            let names = self.vector_vars.get(&index).cloned().unwrap_or_else(|| one.to_vec());
            for name in names {
                self.line(&format!("{} {name} = {zero};", types::name(self.module, ty)));
            }
        }
    }

    /// Static arrays, or one dynamic array cut into parts where the kernel needs more than may be static.
    fn shared_arrays(&mut self) {
        let layout = self.function.shared_layout(&self.module.structs);
        let dynamic = layout.bytes > STATIC_SHARED_LIMIT;
        if dynamic {
            self.line("extern __shared__ __align__(16) unsigned char kelpie_shared[];");
        }
        for (index, offset) in layout.offsets.iter().enumerate() {
            let array = &self.function.shared[Handle::from_index(index)];
            let (element, name) = (types::element(self.module, array.element), &self.shared[index]);
            let text = if dynamic {
                format!("{element}* const {name} = ({element}*)(kelpie_shared + {offset});")
            } else {
                format!("__shared__ __align__(16) {element} {name}[{}];", array.count)
            };
            self.line(&text);
        }
    }

    fn print_body(&mut self) {
        self.variables();
        let function = self.function;
        self.block(&function.body);
    }
}

/// Prints a device function.
pub fn print_function(
    module: &Module,
    function: &Function,
    has_status: bool,
    status: &[bool],
    helpers: &mut Helpers,
) -> String {
    let mut printer = FunctionPrinter::new(module, function, status, helpers);
    printer.print_body();
    if function.result.is_some() && !matches!(function.body.last(), Some(Stmt::Return(_))) {
        // Not reached: the validator wants a return on every path. C++ wants to see one.
        printer.line("return 0;");
    }
    let result = function.result.map_or("void".to_string(), |ty| types::name(module, ty));
    let (name, parameters) = (identifier(&function.name), printer.parameters(has_status));
    format!("static __device__ __forceinline__ {result} fn_{name}({parameters}) {{\n{}}}\n", printer.out)
}

/// Prints a kernel.
pub fn print_kernel(
    module: &Module,
    kernel: &Function,
    options: &Options,
    status: &[bool],
    helpers: &mut Helpers,
) -> String {
    let mut printer = FunctionPrinter::new(module, kernel, status, helpers);
    printer.is_kernel = true;
    printer.shared_arrays();
    printer.print_body();
    let mut text = String::from("extern \"C\" __global__ void ");
    let _ = match (options.block_threads, options.resident_blocks) {
        (Some(threads), Some(blocks)) => write!(text, "__launch_bounds__({threads}, {blocks}) "),
        (Some(threads), None) => write!(text, "__launch_bounds__({threads}) "),
        (None, _) => Ok(()),
    };
    let (name, parameters) = (symbol(&kernel.name), printer.parameters(true));
    let _ = write!(text, "{name}({parameters}, const u32* {BEFORE}) {{\n{}{}}}\n", gate(), printer.out);
    text
}

/// A launch does nothing where the one before it has failed, and has failed as well. All threads read the same value, as
/// nobody writes that word any more.
fn gate() -> String {
    format!(
        "    if (const u32 before = *{BEFORE}) {{\n        if (blockIdx.x == 0 && threadIdx.x == 0) *{STATUS} = before;\n        return;\n    }}\n"
    )
}
