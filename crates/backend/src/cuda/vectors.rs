//! Vectors and masks: one C++ variable an element, which the compiler keeps in registers. What vectors are for on a GPU is
//! the width of an access: where the address is known to be aligned, up to 16 bytes are loaded and stored at once.

use kelpie_kir::{Expr, Handle, Reads, ReduceOp, Scalar, Space, Type, Value, Variable};

use super::expr::Text;
use super::function::FunctionPrinter;
use super::types::{unsigned, wrapping};

/// Bytes of the widest access.
const WIDEST: u32 = 16;
/// Names of the parts of CUDA's vectors.
const PARTS: [&str; 4] = ["x", "y", "z", "w"];

/// How elements are accessed together.
#[derive(Clone, Copy)]
struct Chunk {
    /// Of an element.
    scalar: Scalar,
    /// Of the access.
    bytes: u32,
}

impl Chunk {
    /// The widest that the alignment allows, or `None` where that is an element.
    fn new(scalar: Scalar, lanes: u32, align: u32) -> Option<Chunk> {
        let bytes = align.min(WIDEST).min(scalar.bytes() * lanes);
        (bytes > scalar.bytes()).then_some(Chunk { scalar, bytes })
    }

    /// Bytes of each part of the access: an element, or four bytes of narrow ones.
    fn part_bytes(self) -> u32 {
        self.scalar.bytes().max(4).min(self.bytes)
    }

    fn parts(self) -> u32 {
        self.bytes / self.part_bytes()
    }

    /// The C++ type of a part.
    fn part(self) -> &'static str {
        match (self.scalar, self.part_bytes()) {
            (Scalar::F32, _) => "f32",
            (Scalar::F64, _) => "f64",
            (_, 8) => "u64",
            (_, 4) => "u32",
            _ => "u16",
        }
    }

    /// The C++ type of the access.
    fn name(self) -> &'static str {
        match (self.part(), self.parts()) {
            ("f32", 2) => "float2",
            ("f32", _) => "float4",
            ("f64", _) => "double2",
            ("u64", _) => "ulonglong2",
            ("u32", 2) => "uint2",
            ("u32", 4) => "uint4",
            (part, _) => part,
        }
    }

    fn elements(self) -> u32 {
        self.bytes / self.scalar.bytes()
    }
}

impl FunctionPrinter<'_> {
    /// An element of a vector or mask.
    pub fn element(&self, vector: Handle<Value>, lane: u8) -> &Text {
        &self.vectors[&vector.index()][usize::from(lane)]
    }

    fn lanes(&self, vector: Handle<Value>) -> u8 {
        self.function.values[vector].ty.lanes().unwrap_or(1)
    }

    /// Evaluates a vector or mask here.
    pub fn vector_definition(&mut self, value: Handle<Value>, expr: &Expr) {
        let lanes = usize::from(self.lanes(value));
        let element = self.ty(value);
        let codes: Vec<Text> = match *expr {
            Expr::Read(var) => {
                let names = self.vector_vars.get(&var.index()).cloned().unwrap_or_default();
                names.into_iter().map(Text::atom).collect()
            }
            Expr::Splat { value: scalar, .. } => return self.splat(value, scalar, lanes),
            Expr::Iota(scalar, _) => {
                let number = |lane| Text::atom(format!("{}({lane})", scalar.name()));
                self.vectors.insert(value.index(), (0..lanes).map(number).collect());
                return;
            }
            Expr::LoadVector { pointer, reads, align, .. } => self.load_vector(value, pointer, reads, align),
            Expr::BitsMask { bits, .. } => {
                let bits = self.operand(bits);
                (0..lanes).map(|lane| Text::compound(format!("({bits} >> {lane} & 1u) != 0"))).collect()
            }
            Expr::FirstLanes { count, .. } => {
                let count = self.operand(count);
                (0..lanes).map(|lane| Text::compound(format!("{lane}u < {count}"))).collect()
            }
            _ => {
                let mut codes = Vec::with_capacity(lanes);
                for lane in 0..lanes {
                    self.lane = lane;
                    codes.push(self.expression(expr, element));
                }
                self.lane = 0;
                codes
            }
        };
        let ty = super::types::constant(self.module, element);
        let mut names = Vec::with_capacity(lanes);
        for (lane, code) in codes.into_iter().enumerate() {
            let name = format!("v{}_{lane}", value.index());
            self.line(&format!("{ty} {name} = {};", code.code));
            names.push(Text::atom(name));
        }
        self.vectors.insert(value.index(), names);
    }

    fn splat(&mut self, value: Handle<Value>, scalar: Handle<Value>, lanes: usize) {
        let mut text = self.texts[scalar.index()].clone();
        if text.compound {
            let name = format!("v{}_0", value.index());
            let ty = super::types::constant(self.module, self.ty(value));
            self.line(&format!("{ty} {name} = {};", text.code));
            text = Text::atom(name);
        }
        self.vectors.insert(value.index(), vec![text; lanes]);
    }

    /// The elements at a pointer, some of them loaded together.
    fn load_vector(
        &mut self,
        value: Handle<Value>,
        pointer: Handle<Value>,
        reads: Reads,
        align: u32,
    ) -> Vec<Text> {
        let (lanes, scalar) = (u32::from(self.lanes(value)), self.ty(value).scalar().unwrap_or(Scalar::U8));
        let is_global = matches!(self.ty(pointer), Type::Ptr(Space::Global, _));
        let instruction = match reads {
            _ if !is_global => None,
            Reads::Shared => None,
            Reads::ReadOnly => Some("::__ldg"),
        };
        let address = self.operand(pointer);
        let Some(chunk) = Chunk::new(scalar, lanes, align) else {
            let element = |lane| match instruction {
                Some(load) => format!("{load}({address} + {lane})"),
                None => format!("{address}[{lane}]"),
            };
            return (0..lanes).map(|lane| Text::atom(element(lane))).collect();
        };
        let ty = chunk.name();
        let mut elements = Vec::new();
        for index in 0..lanes / chunk.elements() {
            let name = format!("v{}_part{index}", value.index());
            let load = match instruction {
                Some(load) => format!("{load}((const {ty}*){address} + {index})"),
                None => format!("((const {ty}*){address})[{index}]"),
            };
            self.line(&format!("const {ty} {name} = {load};"));
            elements.extend((0..chunk.elements()).map(|element| element_of(chunk, &name, element)));
        }
        elements
    }

    /// Writes a variable that is a vector.
    pub fn assign_vector(&mut self, var: Handle<Variable>, value: Handle<Value>) {
        for (lane, name) in (0..).zip(self.vector_vars[&var.index()].clone()) {
            let line = format!("{name} = {};", self.element(value, lane).code);
            self.line(&line);
        }
    }

    /// Writes a vector, some of its elements together.
    pub fn store_vector(&mut self, pointer: Handle<Value>, value: Handle<Value>, align: u32) {
        let (lanes, scalar) = (self.lanes(value), self.ty(value).scalar().unwrap_or(Scalar::U8));
        let address = self.operand(pointer);
        let elements: Vec<String> = (0..lanes).map(|lane| self.element(value, lane).code.clone()).collect();
        let Some(chunk) = Chunk::new(scalar, u32::from(lanes), align) else {
            for (lane, element) in elements.iter().enumerate() {
                self.line(&format!("{address}[{lane}] = {element};"));
            }
            return;
        };
        let ty = chunk.name();
        for (index, elements) in elements.chunks(chunk.elements() as usize).enumerate() {
            let of_part = elements.len() / chunk.parts() as usize;
            let parts: Vec<String> = elements.chunks(of_part).map(|part| part_of(chunk, part)).collect();
            let stored = match parts.as_slice() {
                [one] => one.clone(),
                parts => format!("::make_{ty}({})", parts.join(", ")),
            };
            self.line(&format!("(({ty}*){address})[{index}] = {stored};"));
        }
    }

    /// Writes the elements whose mask is true one after the other.
    pub fn compress(
        &mut self,
        pointer: Handle<Value>,
        value: Handle<Value>,
        mask: Handle<Value>,
        result: Option<Handle<Value>>,
    ) {
        let address = self.operand(pointer);
        let count = format!("kelpie_count_{}", self.compressed);
        self.compressed += 1;
        self.line(&format!("u32 {count} = 0u;"));
        for lane in 0..self.lanes(value) {
            let (chosen, element) = (&self.element(mask, lane).code, &self.element(value, lane).code);
            let line = format!("if ({chosen}) {address}[{count}++] = {element};");
            self.line(&line);
        }
        if let Some(result) = result {
            self.define(result, &count);
        }
    }

    /// All elements as one scalar.
    pub fn reduce(&mut self, op: ReduceOp, a: Handle<Value>) -> Text {
        let scalar = self.ty(a).scalar().unwrap_or(Scalar::Bool);
        let mut elements = self.vectors[&a.index()].clone();
        let join = |elements: &[Text], between: &str| {
            let operands: Vec<String> = elements.iter().map(Text::operand).collect();
            Text::compound(operands.join(between))
        };
        match op {
            ReduceOp::Any => return join(&elements, " || "),
            ReduceOp::All => return join(&elements, " && "),
            ReduceOp::Count => {
                let counts = elements.iter().map(|element| Text::atom(format!("u32({})", element.code)));
                return join(&counts.collect::<Vec<_>>(), " + ");
            }
            ReduceOp::Add | ReduceOp::Min | ReduceOp::Max => {}
        }
        while elements.len() > 1 {
            let upper = elements.split_off(elements.len() / 2);
            for (low, high) in elements.iter_mut().zip(upper) {
                *low = combined(op, scalar, low, &high);
            }
        }
        elements.into_iter().next().unwrap_or_default()
    }

    /// A mask as the bits of a number.
    pub fn mask_bits(&self, mask: Handle<Value>) -> Text {
        let elements = self.vectors[&mask.index()].iter().enumerate();
        let bits: Vec<String> = elements
            .map(|(lane, element)| match lane {
                0 => format!("u32({})", element.code),
                lane => format!("u32({}) << {lane}", element.code),
            })
            .collect();
        Text::compound(bits.join(" | "))
    }
}

/// An element of something that was loaded at once.
fn element_of(chunk: Chunk, name: &str, element: u32) -> Text {
    let (width, ty) = (chunk.scalar.bytes(), chunk.scalar.name());
    let byte = element * width;
    let part = match chunk.parts() {
        1 => name.to_string(),
        _ => format!("{name}.{}", PARTS[(byte / chunk.part_bytes()) as usize]),
    };
    if chunk.scalar.is_float() || ty == chunk.part() {
        return Text::atom(part);
    }
    match byte % chunk.part_bytes() {
        0 => Text::atom(format!("{ty}({part})")),
        bytes => Text::atom(format!("{ty}({part} >> {})", 8 * bytes)),
    }
}

/// A part of what is stored at once, made of its elements.
fn part_of(chunk: Chunk, elements: &[String]) -> String {
    if let [element] = elements {
        let ty = chunk.part();
        return if chunk.scalar.is_float() { element.clone() } else { format!("{ty}({element})") };
    }
    let bits = unsigned(chunk.scalar);
    let pieces = elements.iter().enumerate().map(|(index, element)| match index {
        0 => format!("u32({bits}({element}))"),
        index => format!("u32({bits}({element})) << {}", 8 * index as u32 * chunk.scalar.bytes()),
    });
    pieces.collect::<Vec<_>>().join(" | ")
}

/// Two elements as one.
fn combined(op: ReduceOp, scalar: Scalar, a: &Text, b: &Text) -> Text {
    let (ty, wide) = (scalar.name(), wrapping(scalar));
    match op {
        ReduceOp::Min | ReduceOp::Max => {
            let name = if op == ReduceOp::Min { "::min" } else { "::max" };
            let ty = if scalar.bytes() < 4 { "i32" } else { ty };
            Text::atom(format!("{name}({ty}({}), {ty}({}))", a.code, b.code))
        }
        _ if scalar.is_float() || ty == wide => Text::compound(format!("{} + {}", a.operand(), b.operand())),
        _ => Text::atom(format!("{ty}({wide}({}) + {wide}({}))", a.code, b.code)),
    }
}
