//! Expressions. Signed arithmetic is computed in the unsigned type, where wrapping is defined.

use kelpie_kir::{
    BinaryOp, Builtin, CompareOp, Expr, Handle, Literal, OverflowOp, Pointee, Reads, Scalar, Space, Type,
    UnaryOp, Value,
};

use super::function::{FunctionPrinter, STATUS};
use super::literals::literal;
use super::types::{self, unsigned, wrapping};

/// A piece of C++.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// The code.
    pub code: String,
    /// Whether it needs parentheses as an operand.
    pub compound: bool,
}

impl Text {
    /// A name, a call, a literal.
    pub fn atom(code: String) -> Text {
        Text { code, compound: false }
    }

    /// Anything with an operator outside.
    pub fn compound(code: String) -> Text {
        Text { code, compound: true }
    }

    /// As an operand.
    pub fn operand(&self) -> String {
        if self.compound { format!("({})", self.code) } else { self.code.clone() }
    }
}

impl FunctionPrinter<'_> {
    /// A value where no parentheses are needed: an argument, a right-hand side.
    pub fn text(&self, value: Handle<Value>) -> &str {
        &self.piece(value).code
    }

    /// A value; of a vector or mask, the element that is printed now.
    fn piece(&self, value: Handle<Value>) -> &Text {
        match self.vectors.get(&value.index()) {
            Some(elements) => &elements[self.lane],
            None => &self.texts[value.index()],
        }
    }

    /// A value as an operand.
    pub fn operand(&self, value: Handle<Value>) -> String {
        self.piece(value).operand()
    }

    /// What a pointer points to: `p[i]`, `p->field` or `*p`.
    pub fn place(&self, pointer: Handle<Value>) -> String {
        if self.inlined[pointer.index()] {
            match self.function.values[pointer].expr {
                Expr::Offset { pointer, index } => {
                    return format!("{}[{}]", self.operand(pointer), self.text(index));
                }
                Expr::Field { pointer, field } => return self.field_place(pointer, field),
                _ => {}
            }
        }
        format!("*{}", self.operand(pointer))
    }

    fn field_place(&self, pointer: Handle<Value>, field: u32) -> String {
        let name = match self.ty(pointer) {
            Type::Ptr(_, Pointee::Struct(handle)) => {
                types::fields(&self.module.structs[handle]).swap_remove(field as usize)
            }
            _ => String::new(),
        };
        match self.function.values[pointer].expr {
            Expr::Offset { .. } if self.inlined[pointer.index()] => format!("{}.{name}", self.place(pointer)),
            _ => format!("{}->{name}", self.operand(pointer)),
        }
    }

    /// `value` in the C++ type `to`.
    fn cast(&self, value: Handle<Value>, to: &str) -> String {
        match self.ty(value) {
            Type::Scalar(scalar) if scalar.name() == to && scalar.bytes() >= 4 => self.operand(value),
            Type::Scalar(_) => format!("{to}({})", self.text(value)),
            _ => format!("({to}){}", self.operand(value)),
        }
    }

    fn scalar(&self, value: Handle<Value>) -> Scalar {
        self.ty(value).scalar().unwrap_or(Scalar::Bool)
    }

    /// An expression of type `ty`.
    pub fn expression(&mut self, expr: &Expr, ty: Type) -> Text {
        match *expr {
            Expr::Literal(value) => literal(value),
            Expr::Param(index) => Text::atom(self.params[index as usize].clone()),
            Expr::Shared(array) => Text::atom(self.shared[array.index()].clone()),
            Expr::Read(var) => Text::atom(self.vars[var.index()].clone()),
            Expr::Builtin(builtin) => builtin_text(builtin),
            Expr::Unary(op, a) => self.unary(op, a),
            Expr::Binary(op, a, b) => self.binary(op, a, b),
            Expr::Overflows(op, a, b) => self.overflows(op, a, b),
            Expr::Compare(op, a, b) => {
                Text::compound(format!("{} {} {}", self.operand(a), compare_symbol(op), self.operand(b)))
            }
            Expr::Select { condition, accept, reject } => Text::compound(format!(
                "{} ? {} : {}",
                self.operand(condition),
                self.operand(accept),
                self.operand(reject)
            )),
            Expr::Convert(a, to) => self.convert(a, to),
            Expr::Bitcast(a, to) => self.bitcast(a, to),
            Expr::Offset { pointer, index } => {
                Text::compound(format!("{} + {}", self.operand(pointer), self.operand(index)))
            }
            Expr::Field { pointer, field } => {
                Text::compound(format!("&{}", self.field_place(pointer, field)))
            }
            Expr::Load { pointer, reads } => self.load(pointer, reads),
            Expr::LoadBytes(pointer) => {
                Text::atom(format!("{}({})", self.helpers.load_bytes(), self.text(pointer)))
            }
            Expr::LoadField { pointer, field } => self.load_field(pointer, field, ty),
            Expr::Ballot(_) | Expr::Any(_) | Expr::All(_) | Expr::Shuffle { .. } => self.lane_operation(expr),
            Expr::Lane { vector, lane } => self.element(vector, lane).clone(),
            Expr::Reduce(op, a) => self.reduce(op, a),
            Expr::MaskBits(mask) => self.mask_bits(mask),
            // Vectors, which are no expressions but one an element.
            Expr::Splat { .. }
            | Expr::Iota(..)
            | Expr::LoadVector { .. }
            | Expr::BitsMask { .. }
            | Expr::FirstLanes { .. }
            | Expr::Result => Text::default(),
        }
    }

    fn unary(&mut self, op: UnaryOp, a: Handle<Value>) -> Text {
        let scalar = self.scalar(a);
        if matches!(op, UnaryOp::Abs | UnaryOp::Neg) && scalar.is_float() {
            let helper = self.helpers.sign(op, scalar);
            return Text::atom(format!("{helper}({})", self.text(a)));
        }
        let (ty, wide) = (scalar.name(), wrapping(scalar));
        let same = unsigned(scalar);
        let single = if scalar == Scalar::F32 { "f" } else { "" };
        let long = if scalar.bits() == 64 { "ll" } else { "" };
        let bits = if scalar.bits() == 64 { "i64" } else { "i32" };
        let text = self.text(a);
        match op {
            UnaryOp::Neg => Text::atom(format!("{ty}(-{})", self.cast(a, wide))),
            UnaryOp::Not if scalar == Scalar::Bool => Text::compound(format!("!{}", self.operand(a))),
            UnaryOp::Not => Text::atom(format!("{ty}(~{})", self.operand(a))),
            UnaryOp::Popcount => Text::atom(format!("u32(::__popc{long}({same}({text})))")),
            UnaryOp::Ffs => Text::atom(format!("u32(::__ffs{long}({bits}({same}({text}))))")),
            UnaryOp::Clz => {
                let spare = 32u32.saturating_sub(scalar.bits());
                let less = if spare > 0 { format!(" - {spare}") } else { String::new() };
                Text::atom(format!("u32(::__clz{long}({bits}({same}({text}))){less})"))
            }
            UnaryOp::Floor => Text::atom(format!("::floor{single}({text})")),
            UnaryOp::Ceil => Text::atom(format!("::ceil{single}({text})")),
            UnaryOp::Trunc => Text::atom(format!("::trunc{single}({text})")),
            UnaryOp::RoundEven => Text::atom(format!("::rint{single}({text})")),
            UnaryOp::Abs => Text::atom(format!("::fabs{single}({text})")),
            UnaryOp::Sqrt => Text::atom(format!("::sqrt{single}({text})")),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Handle<Value>, b: Handle<Value>) -> Text {
        let scalar = self.scalar(a);
        match op {
            BinaryOp::Add => self.wrapped(scalar, a, "+", b),
            BinaryOp::Sub => self.wrapped(scalar, a, "-", b),
            BinaryOp::Mul => self.wrapped(scalar, a, "*", b),
            BinaryOp::Div if scalar.is_float() => self.infix(a, "/", b),
            BinaryOp::Rem if scalar == Scalar::F32 => self.call("::fmodf", a, b),
            BinaryOp::Rem if scalar == Scalar::F64 => self.call("::fmod", a, b),
            BinaryOp::Div | BinaryOp::Rem if self.safe_divisor(b) => {
                self.infix(a, if op == BinaryOp::Div { "/" } else { "%" }, b)
            }
            BinaryOp::Div | BinaryOp::Rem => {
                let helper = self.helpers.division(op, scalar);
                self.call(&helper, a, b)
            }
            BinaryOp::And => self.infix(a, "&", b),
            BinaryOp::Or => self.infix(a, "|", b),
            BinaryOp::Xor => self.infix(a, "^", b),
            BinaryOp::Shl => {
                let count = self.shift_count(scalar, b);
                Text::atom(format!("{}({} << {count})", scalar.name(), self.cast(a, wrapping(scalar))))
            }
            BinaryOp::Shr => {
                let count = self.shift_count(scalar, b);
                Text::atom(format!("{}({} >> {count})", scalar.name(), self.operand(a)))
            }
            BinaryOp::Min | BinaryOp::Max if scalar == Scalar::I128 => {
                let helper = self.helpers.extremum_i128(op);
                self.call(&helper, a, b)
            }
            BinaryOp::Min | BinaryOp::Max => {
                let name = if op == BinaryOp::Min { "::min" } else { "::max" };
                let ty = if scalar.bytes() < 4 { "i32" } else { scalar.name() };
                Text::atom(format!("{name}({}, {})", self.cast(a, ty), self.cast(b, ty)))
            }
            BinaryOp::MulHi => {
                let name = match scalar {
                    Scalar::I32 => "::__mulhi",
                    Scalar::U32 => "::__umulhi",
                    Scalar::I64 => "::__mul64hi",
                    _ => "::__umul64hi",
                };
                self.call(name, a, b)
            }
        }
    }

    fn infix(&self, a: Handle<Value>, symbol: &str, b: Handle<Value>) -> Text {
        Text::compound(format!("{} {symbol} {}", self.operand(a), self.operand(b)))
    }

    fn call(&self, function: &str, a: Handle<Value>, b: Handle<Value>) -> Text {
        Text::atom(format!("{function}({}, {})", self.text(a), self.text(b)))
    }

    fn wrapped(&self, scalar: Scalar, a: Handle<Value>, symbol: &str, b: Handle<Value>) -> Text {
        let (ty, wide) = (scalar.name(), wrapping(scalar));
        if scalar.is_float() || ty == wide {
            return self.infix(a, symbol, b);
        }
        Text::atom(format!("{ty}({} {symbol} {})", self.cast(a, wide), self.cast(b, wide)))
    }

    /// A literal other than 0 and -1 divides without further ado.
    fn safe_divisor(&self, b: Handle<Value>) -> bool {
        matches!(self.function.values[b].expr, Expr::Literal(Literal::Int(_, value)) if value != 0 && value != -1)
    }

    fn shift_count(&self, scalar: Scalar, b: Handle<Value>) -> String {
        let width = scalar.bits();
        match self.function.values[b].expr {
            Expr::Literal(Literal::Int(_, count)) => (count as u32 & (width - 1)).to_string(),
            _ => format!("({} & {}u)", self.cast(b, "u32"), width - 1),
        }
    }

    fn overflows(&mut self, op: OverflowOp, a: Handle<Value>, b: Handle<Value>) -> Text {
        let helper = self.helpers.overflows(op, self.scalar(a));
        self.call(&helper, a, b)
    }

    fn convert(&mut self, a: Handle<Value>, to: Scalar) -> Text {
        let from = self.scalar(a);
        let code = if from.is_float() && to.is_integer() {
            let helper = self.helpers.saturating(from, to);
            format!("{helper}({})", self.text(a))
        } else if from == Scalar::I128 && to.is_float() {
            let helper = self.helpers.float_of_i128(to);
            format!("{helper}({})", self.text(a))
        } else {
            format!("{}({})", to.name(), self.text(a))
        };
        Text::atom(code)
    }

    fn bitcast(&self, a: Handle<Value>, to: Type) -> Text {
        let from = self.ty(a);
        // Of a vector one element is printed at a time, whose type is known by `ty` as a scalar's.
        let (Type::Scalar(source), Type::Scalar(target) | Type::Vector(target, _)) = (from, to) else {
            return Text::compound(format!("({}){}", types::name(self.module, to), self.operand(a)));
        };
        let text = self.text(a);
        Text::atom(match (source, target) {
            (Scalar::F32, Scalar::I32) => format!("::__float_as_int({text})"),
            (Scalar::F32, Scalar::U32) => format!("::__float_as_uint({text})"),
            (Scalar::F64, Scalar::I64) => format!("::__double_as_longlong({text})"),
            (Scalar::F64, Scalar::U64) => format!("u64(::__double_as_longlong({text}))"),
            (Scalar::I32, Scalar::F32) => format!("::__int_as_float({text})"),
            (Scalar::U32, Scalar::F32) => format!("::__uint_as_float({text})"),
            (Scalar::I64, Scalar::F64) => format!("::__longlong_as_double({text})"),
            (Scalar::U64, Scalar::F64) => format!("::__longlong_as_double(i64({text}))"),
            _ => format!("{}({text})", target.name()),
        })
    }

    fn load(&mut self, pointer: Handle<Value>, reads: Reads) -> Text {
        match self.ty(pointer) {
            Type::Ptr(Space::Global, Pointee::Scalar(scalar)) if reads.is_read_only() => {
                self.cached_load(self.text(pointer).to_string(), self.operand(pointer), Type::Scalar(scalar))
            }
            _ => place_text(self.place(pointer)),
        }
    }

    fn load_field(&mut self, pointer: Handle<Value>, field: u32, ty: Type) -> Text {
        let place = self.field_place(pointer, field);
        match self.ty(pointer) {
            Type::Ptr(Space::Global, _) => self.cached_load(format!("&{place}"), format!("&{place}"), ty),
            _ => Text::atom(place),
        }
    }

    /// A load through the read-only cache.
    fn cached_load(&mut self, address: String, operand: String, ty: Type) -> Text {
        Text::atom(match ty {
            Type::Scalar(Scalar::I128) => format!("{}({address})", self.helpers.load_i128()),
            Type::Scalar(Scalar::Bool) => format!("bool(::__ldg((const u8*){operand}))"),
            Type::Scalar(_) => format!("::__ldg({address})"),
            _ => format!("({})::__ldg((const u64*){operand})", types::name(self.module, ty)),
        })
    }
}

fn place_text(place: String) -> Text {
    if place.starts_with('*') { Text::compound(place) } else { Text::atom(place) }
}

fn builtin_text(builtin: Builtin) -> Text {
    match builtin {
        Builtin::ThreadId => Text::atom("threadIdx.x".into()),
        Builtin::BlockId => Text::atom("blockIdx.x".into()),
        Builtin::BlockDim => Text::atom("blockDim.x".into()),
        Builtin::GridDim => Text::atom("gridDim.x".into()),
        Builtin::LaneId => Text::compound("threadIdx.x & 31u".into()),
        Builtin::Lanes => Text::atom("32u".into()),
        Builtin::Status => Text::compound(format!("*(volatile u32*){STATUS}")),
    }
}

fn compare_symbol(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}
