//! Vectors and masks: one register an element. What vectors are for on a GPU is the width of an access: where the address is
//! known to be aligned, up to 16 bytes are loaded and stored at once.

use kelpie_kir::{BinaryOp, Expr, Handle, Reads, ReduceOp, Scalar, Type, Value};

use super::memory::stored;
use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, memory};
use crate::BackendError;

/// Bytes of the widest access.
const WIDEST: u32 = 16;

/// How elements are accessed together: in parts, each of which is an element, or up to four bytes of narrow ones.
#[derive(Debug, Clone, Copy)]
struct Access {
    scalar: Scalar,
    /// Of the whole access.
    bytes: u32,
    /// Of a part.
    part: u32,
}

impl Access {
    fn new(scalar: Scalar, lanes: u32, align: u32) -> Access {
        let bytes = align.clamp(scalar.bytes(), WIDEST).min(scalar.bytes() * lanes);
        Access { scalar, bytes, part: scalar.bytes().max(4).min(bytes) }
    }

    fn elements(self) -> u32 {
        self.bytes / self.scalar.bytes()
    }

    fn elements_of_part(self) -> u32 {
        self.part / self.scalar.bytes()
    }

    /// The vector's suffix and the type of a part.
    fn ty(self, of_element: &'static str) -> String {
        let ty = match self.part {
            _ if self.part == self.scalar.bytes() => of_element,
            2 => "u16",
            _ => "b32",
        };
        match self.bytes / self.part {
            1 => ty.to_string(),
            parts => format!("v{parts}.{ty}"),
        }
    }

    fn part_class(self) -> Class {
        if self.part == self.scalar.bytes() { Class::of(self.scalar.into()) } else { Class::Word }
    }
}

/// Registers as an instruction takes them: several in braces.
fn list(parts: &[Operand]) -> String {
    let texts: Vec<String> = parts.iter().map(Operand::to_string).collect();
    if texts.len() == 1 { texts.concat() } else { format!("{{{}}}", texts.join(", ")) }
}

impl Printer<'_> {
    /// An element of a vector or mask.
    pub fn element(&self, vector: Handle<Value>, lane: u8) -> Piece {
        self.frame.values[vector.index()][usize::from(lane)]
    }

    fn lanes(&self, vector: Handle<Value>) -> u8 {
        self.frame.function.values[vector].ty.lanes().unwrap_or(1)
    }

    /// Evaluates a vector or mask here.
    pub fn vector(&mut self, value: Handle<Value>, expr: &Expr) -> Result<Vec<Piece>, BackendError> {
        let lanes = usize::from(self.lanes(value));
        Ok(match *expr {
            Expr::Splat { value: scalar, .. } => vec![self.piece(scalar); lanes],
            Expr::Iota(..) => (0..lanes).map(|lane| Piece::One(Operand::Integer(lane as i64))).collect(),
            Expr::LoadVector { pointer, reads, align, .. } => self.load_vector(value, pointer, reads, align),
            Expr::BitsMask { bits, .. } => {
                let bits = self.operand(bits);
                let bit = |printer: &mut Self, lane| {
                    let word =
                        printer.combine(BinaryOp::And, Scalar::U32, bits, Operand::Integer(1i64 << lane));
                    Piece::One(printer.word_as_truth(word))
                };
                (0..lanes).map(|lane| bit(self, lane)).collect()
            }
            Expr::FirstLanes { count, .. } => {
                let count = self.operand(count);
                let below = |printer: &mut Self, lane| {
                    let truth = printer.register(Class::Predicate);
                    instruction!(printer, "setp.gt.u32 {truth}, {count}, {lane}");
                    Piece::One(truth)
                };
                (0..lanes).map(|lane| below(self, lane)).collect()
            }
            _ => {
                let element = self.ty(value);
                let mut pieces = Vec::with_capacity(lanes);
                for lane in 0..lanes {
                    self.lane = lane;
                    let piece = self.expression(expr, element);
                    self.lane = 0;
                    pieces.push(piece?);
                }
                pieces
            }
        })
    }

    fn load_vector(
        &mut self,
        value: Handle<Value>,
        pointer: Handle<Value>,
        reads: Reads,
        align: u32,
    ) -> Vec<Piece> {
        let (lanes, scalar) = (u32::from(self.lanes(value)), self.scalar(value));
        let way = match self.space(pointer) {
            "global" if reads.is_read_only() => "global.nc",
            space => space,
        };
        let address = self.operand_register(pointer);
        let access = Access::new(scalar, lanes, align);
        let ty = access.ty(memory(scalar));
        let mut elements = Vec::new();
        for first in (0..lanes).step_by(access.elements() as usize) {
            let parts: Vec<Operand> =
                (0..access.bytes / access.part).map(|_| self.register(access.part_class())).collect();
            instruction!(self, "ld.{way}.{ty} {}, [{address}+{}]", list(&parts), first * scalar.bytes());
            for part in parts {
                elements
                    .extend((0..access.elements_of_part()).map(|index| self.unpacked(access, part, index)));
            }
        }
        elements
    }

    /// An element of a part of what was loaded at once.
    fn unpacked(&mut self, access: Access, part: Operand, index: u32) -> Piece {
        if access.elements_of_part() == 1 {
            return Piece::One(part);
        }
        let moved = match index {
            0 => part,
            _ => {
                let distance = Operand::Integer(i64::from(8 * index * access.scalar.bytes()));
                self.shift(BinaryOp::Shr, Scalar::U32, part, distance)
            }
        };
        Piece::One(self.narrow(access.scalar, moved))
    }

    /// Writes a vector, some of its elements together.
    pub fn store_vector(&mut self, pointer: Handle<Value>, value: Handle<Value>, align: u32) {
        let (lanes, scalar) = (u32::from(self.lanes(value)), self.scalar(value));
        let (space, address) = (self.space(pointer), self.operand_register(pointer));
        let access = Access::new(scalar, lanes, align);
        let ty = access.ty(stored(scalar));
        let elements: Vec<Operand> = (0..lanes as u8).map(|lane| self.element(value, lane).low()).collect();
        let mut byte = 0;
        for elements in elements.chunks(access.elements() as usize) {
            let of_part = access.elements_of_part() as usize;
            let parts: Vec<Operand> =
                elements.chunks(of_part).map(|elements| self.packed(scalar, elements)).collect();
            instruction!(self, "st.{space}.{ty} [{address}+{byte}], {}", list(&parts));
            byte += access.bytes;
        }
    }

    /// A part of what is stored at once.
    fn packed(&mut self, scalar: Scalar, elements: &[Operand]) -> Operand {
        let class = Class::of(scalar.into());
        if let [element] = elements {
            return self.in_register(*element, class);
        }
        let unsigned = if scalar.bytes() == 1 { Scalar::U8 } else { Scalar::U16 };
        let mut packed: Option<Operand> = None;
        for (index, element) in elements.iter().enumerate() {
            let bits = self.narrow(unsigned, *element);
            let distance = Operand::Integer(i64::from(8 * index as u32 * scalar.bytes()));
            let moved = self.shift(BinaryOp::Shl, Scalar::U32, bits, distance);
            packed = Some(match packed {
                None => moved,
                Some(before) => self.combine(BinaryOp::Or, Scalar::U32, before, moved),
            });
        }
        packed.unwrap_or(Operand::Integer(0))
    }

    /// Writes the elements whose mask is true one after the other.
    pub fn compress(
        &mut self,
        pointer: Handle<Value>,
        value: Handle<Value>,
        mask: Handle<Value>,
        result: Option<Handle<Value>>,
    ) {
        let (space, scalar) = (self.space(pointer), self.scalar(value));
        let (address, count) = (self.register(Class::Long), self.register(Class::Word));
        let start = self.operand(pointer);
        self.move_to(address, start);
        self.move_to(count, Operand::Integer(0));
        for lane in 0..self.lanes(value) {
            let chosen = self.element(mask, lane).low();
            let element = self.in_register(self.element(value, lane).low(), Class::of(scalar.into()));
            instruction!(self, "@{chosen} st.{space}.{} [{address}], {element}", stored(scalar));
            instruction!(self, "@{chosen} add.s64 {address}, {address}, {}", scalar.bytes());
            instruction!(self, "@{chosen} add.u32 {count}, {count}, 1");
        }
        if let Some(result) = result {
            self.frame.values[result.index()] = vec![Piece::One(count)];
        }
    }

    /// All elements as one scalar.
    pub fn reduce(&mut self, op: ReduceOp, a: Handle<Value>) -> Piece {
        let scalar = self.scalar(a);
        let mut elements: Vec<Operand> =
            self.frame.values[a.index()].iter().map(|piece| piece.low()).collect();
        let (op, scalar) = match op {
            ReduceOp::Any => (BinaryOp::Or, scalar),
            ReduceOp::All => (BinaryOp::And, scalar),
            ReduceOp::Count => {
                elements = elements.into_iter().map(|truth| self.truth_as_word(truth)).collect();
                (BinaryOp::Add, Scalar::U32)
            }
            ReduceOp::Add => (BinaryOp::Add, scalar),
            ReduceOp::Min => (BinaryOp::Min, scalar),
            ReduceOp::Max => (BinaryOp::Max, scalar),
        };
        while elements.len() > 1 {
            let upper = elements.split_off(elements.len() / 2);
            let pairs: Vec<_> = elements.iter().copied().zip(upper).collect();
            elements = pairs.into_iter().map(|(low, high)| self.combine(op, scalar, low, high)).collect();
        }
        Piece::One(elements.first().copied().unwrap_or(Operand::Integer(0)))
    }

    /// A mask as the bits of a number.
    pub fn mask_bits(&mut self, mask: Handle<Value>) -> Operand {
        let truths: Vec<Operand> = self.frame.values[mask.index()].iter().map(|piece| piece.low()).collect();
        let mut bits = Operand::Integer(0);
        for (lane, truth) in truths.into_iter().enumerate() {
            let word = self.register(Class::Word);
            instruction!(self, "selp.b32 {word}, {}, 0, {truth}", 1u32 << lane);
            bits = self.combine(BinaryOp::Or, Scalar::U32, bits, word);
        }
        bits
    }

    /// The registers of a variable, one an element.
    pub fn variable(&mut self, ty: Type) -> Vec<Piece> {
        let element: Type = match (ty.lanes(), ty.element()) {
            (Some(_), Some(element)) => element.into(),
            _ => ty,
        };
        (0..ty.lanes().unwrap_or(1)).map(|_| self.piece_for(element)).collect()
    }
}
