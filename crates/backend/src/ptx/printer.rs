//! What is written so far: instructions, registers, labels; and the function that is printed now.

use std::fmt::Write;

use kelpie_kir::{Function, Handle, Module, Scalar, Type, Value};

use super::registers::{Class, Operand, Piece, Wide};

/// The array of shared memory whose size a launch gives.
pub const DYNAMIC_SHARED: &str = "kelpie_shared";

/// Writes one instruction.
macro_rules! instruction {
    ($printer:expr, $($arguments:tt)*) => {
        $printer.out.line(format_args!($($arguments)*))
    };
}
pub(super) use instruction;

/// Instructions, a line each.
#[derive(Debug, Default)]
pub struct Code(String);

impl Code {
    /// Writes one instruction.
    pub fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.push('\t');
        let _ = self.0.write_fmt(text);
        self.0.push_str(";\n");
    }
}

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(u32);

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "$L{}", self.0)
    }
}

/// Where `continue` and `break` of a loop go.
#[derive(Debug, Clone, Copy)]
pub struct LoopLabels {
    /// The first instruction of the loop.
    pub head: Label,
    /// The first instruction after it.
    pub end: Label,
}

/// A function that is printed: a kernel, or a device function where it is called.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Where its structs and the functions that it calls are.
    pub module: &'a Module,
    /// The function itself.
    pub function: &'a Function,
    /// What it was called with.
    pub params: Vec<Piece>,
    /// The registers of its variables.
    pub vars: Vec<Vec<Piece>>,
    /// Where each value is; empty before its definition, one piece an element of vectors and masks.
    pub values: Vec<Vec<Piece>>,
    /// How often each value is used.
    pub uses: Vec<u32>,
    /// The loops around the statement that is printed.
    pub loops: Vec<LoopLabels>,
    /// Where a `return` goes.
    pub end: Label,
    /// Where a result is put.
    pub result: Option<Piece>,
}

/// Prints one kernel.
#[derive(Debug)]
pub struct Printer<'a> {
    /// The function that is printed now.
    pub frame: Frame<'a>,
    /// The element of vectors that is printed now.
    pub lane: usize,
    /// The address of the status word.
    pub status: Operand,
    /// Where the kernel ends.
    pub exit: Label,
    /// The addresses of the kernel's shared arrays.
    pub shared: Vec<Operand>,
    /// What is written so far.
    pub out: Code,
    registers: [u32; Class::ALL.len()],
    labels: u32,
}

impl<'a> Printer<'a> {
    /// A printer at the beginning of a kernel.
    pub fn new(module: &'a Module, kernel: &'a Function) -> Printer<'a> {
        let exit = Label(0);
        let frame = Frame::new(module, kernel, exit);
        let (out, registers) = (Code::default(), [0; Class::ALL.len()]);
        let mut printer = Printer {
            frame,
            lane: 0,
            status: Operand::Integer(0),
            exit,
            shared: Vec::new(),
            out,
            registers,
            labels: 1,
        };
        printer.status = printer.register(Class::Long);
        printer
    }

    /// A place for jumps, not yet in the code.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Puts a label here.
    pub fn place(&mut self, label: Label) {
        let _ = writeln!(self.out.0, "{label}:");
    }

    /// Writes a jump.
    pub fn jump(&mut self, label: Label) {
        instruction!(self, "bra {label}");
    }

    /// A new register.
    pub fn register(&mut self, class: Class) -> Operand {
        let count = &mut self.registers[class as usize];
        *count += 1;
        Operand::Register(class, *count)
    }

    /// New registers for a scalar or pointer, or an element of a vector.
    pub fn piece_for(&mut self, ty: Type) -> Piece {
        if ty == Type::Scalar(Scalar::I128) {
            return Piece::Two(self.wide_register());
        }
        Piece::One(self.register(Class::of(ty)))
    }

    /// New registers for 128 bits.
    pub fn wide_register(&mut self) -> Wide {
        Wide { low: self.register(Class::Long), high: self.register(Class::Long) }
    }

    /// Copies a register or immediate.
    pub fn move_to(&mut self, to: Operand, from: Operand) {
        let Operand::Register(class, _) = to else { return };
        match (class, from) {
            (Class::Predicate, Operand::Integer(value)) => {
                instruction!(self, "setp.ne.b32 {to}, {value}, 0");
            }
            _ => instruction!(self, "mov.{} {to}, {from}", class.ty()),
        }
    }

    /// Copies a scalar or pointer.
    pub fn move_piece(&mut self, to: Piece, from: Piece) {
        match (to, from) {
            (Piece::Two(to), Piece::Two(from)) => {
                self.move_to(to.low, from.low);
                self.move_to(to.high, from.high);
            }
            _ => self.move_to(to.low(), from.low()),
        }
    }

    /// An operand in a register: some instructions take no immediates.
    pub fn in_register(&mut self, operand: Operand, class: Class) -> Operand {
        if let Operand::Register(..) = operand {
            return operand;
        }
        let register = self.register(class);
        self.move_to(register, operand);
        register
    }

    /// The type of a value; of a vector or mask, that of its elements.
    pub fn ty(&self, value: Handle<Value>) -> Type {
        let ty = self.frame.function.values[value].ty;
        match (ty.lanes(), ty.element()) {
            (Some(_), Some(element)) => element.into(),
            _ => ty,
        }
    }

    /// The scalar type of a value; `bool` of what has none.
    pub fn scalar(&self, value: Handle<Value>) -> Scalar {
        self.ty(value).scalar().unwrap_or(Scalar::Bool)
    }

    /// Where a value is; of a vector or mask, the element that is printed now.
    pub fn piece(&self, value: Handle<Value>) -> Piece {
        let pieces = &self.frame.values[value.index()];
        let lane = if pieces.len() == 1 { 0 } else { self.lane };
        pieces.get(lane).copied().unwrap_or(Piece::One(Operand::Integer(0)))
    }

    /// A value of at most 64 bits as a register or immediate.
    pub fn operand(&self, value: Handle<Value>) -> Operand {
        self.piece(value).low()
    }

    /// A value of at most 64 bits in a register.
    pub fn operand_register(&mut self, value: Handle<Value>) -> Operand {
        let class = Class::of(self.ty(value));
        self.in_register(self.operand(value), class)
    }

    /// The kernel's body with its registers declared.
    pub fn finish(self) -> String {
        let mut text = String::new();
        for class in Class::ALL {
            let count = self.registers[class as usize];
            if count > 0 {
                let _ = writeln!(text, "\t.reg .{} {}<{}>;", class.ty(), class.prefix(), count + 1);
            }
        }
        text.push_str(&self.out.0);
        text
    }
}

impl<'a> Frame<'a> {
    /// A function before its first statement, without parameters and variables.
    pub fn new(module: &'a Module, function: &'a Function, end: Label) -> Frame<'a> {
        Frame {
            module,
            function,
            params: Vec::new(),
            vars: Vec::new(),
            values: vec![Vec::new(); function.values.len()],
            uses: kelpie_kir::uses::count(function),
            loops: Vec::new(),
            end,
            result: None,
        }
    }
}
