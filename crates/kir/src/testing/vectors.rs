//! Vectors and masks in random modules.

use super::{Generator, MOST_BLOCK_THREADS};
use crate::builder::{V, Var};
use crate::module::*;
use crate::types::{LANE_COUNTS, Pointee, Scalar, Type};

/// Elements of the memory that each thread has for vectors: as many as the longest vector.
const AREA: u32 = 16;

/// The types of vectors' elements.
const ELEMENTS: [Scalar; 10] = [
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F32,
    Scalar::F64,
];

/// What a function has for vectors.
#[derive(Debug, Clone, Default)]
pub(super) struct VectorParts {
    /// Vectors and masks in scope.
    pub(super) pool: Vec<V>,
    /// Variables that are vectors, with their types.
    vars: Vec<(Var, Type)>,
    /// Address of this thread's area of shared memory, and its scalar type; always initialised.
    area: Option<(V, Scalar)>,
}

impl Generator {
    /// Declares the thread's area for vectors, and initialises it.
    pub(super) fn vector_memory(&mut self, thread_id: V) {
        let scalar = self.random.pick(&ELEMENTS);
        let array = self.builder.shared("vectors", Pointee::Scalar(scalar), MOST_BLOCK_THREADS * AREA);
        let length = self.builder.u32(AREA);
        let first = self.builder.mul(thread_id, length);
        let area = self.builder.offset(array, first);
        let content = self.literal(scalar);
        let content = self.builder.splat(content, AREA as u8);
        self.builder.store_vector_aligned(area, content, 16);
        self.vectors.area = Some((area, scalar));
    }

    pub(super) fn vector_variables(&mut self) {
        for _ in 0..self.random.below(3) {
            let ty = self.vector_type();
            let var = self.builder.var("vector", ty);
            self.vectors.vars.push((var, ty));
        }
    }

    fn vector_type(&mut self) -> Type {
        // Mostly those of what is there, so that operands meet.
        if let Some((_, scalar)) = self.vectors.area
            && self.random.chance(30)
        {
            return Type::Vector(scalar, self.random.pick(&LANE_COUNTS));
        }
        if !self.vectors.vars.is_empty() && self.random.chance(40) {
            return self.random.pick(&self.vectors.vars).1;
        }
        Type::Vector(self.random.pick(&ELEMENTS), self.random.pick(&LANE_COUNTS))
    }

    /// A vector or mask of a type: one in scope, or a new one.
    fn vector(&mut self, ty: Type) -> V {
        let mut found = Vec::new();
        for &value in &self.vectors.pool {
            if self.builder.ty(value) == ty {
                found.push(value);
            }
        }
        if !found.is_empty() && self.random.chance(80) {
            return self.random.pick(&found);
        }
        let (scalar, lanes) = (ty.element().unwrap_or(Scalar::Bool), ty.lanes().unwrap_or(2));
        match self.random.below(4) {
            0 | 1 if scalar == Scalar::Bool => {
                let bits = self.value(Scalar::U32);
                self.builder.bits_mask(bits, lanes)
            }
            0 => {
                let numbers = if scalar.is_float() { Scalar::I32 } else { scalar };
                let numbers = self.builder.iota(numbers, lanes);
                self.builder.convert(numbers, scalar)
            }
            _ => {
                let value = self.value(scalar);
                self.builder.splat(value, lanes)
            }
        }
    }

    /// A statement or two about vectors.
    pub(super) fn vector_statement(&mut self) {
        match self.random.below(100) {
            0..60 => {
                let value = self.vector_expression();
                self.vectors.pool.push(value);
            }
            60..85 => {
                let value = self.scalar_of_vector();
                self.pool.push(value);
                self.mix_value(value);
            }
            85..92 if !self.vectors.vars.is_empty() => {
                let (var, ty) = self.random.pick(&self.vectors.vars);
                let value = self.vector(ty);
                self.builder.assign(var, value);
            }
            _ => self.vector_effect(),
        }
    }

    fn vector_expression(&mut self) -> V {
        let ty = self.vector_type();
        let lanes = ty.lanes().unwrap_or(2);
        match self.random.below(20) {
            0..6 => self.vector_binary(ty),
            6..8 => {
                let a = self.vector(ty);
                let not = self.builder.scalar(a).is_integer() && self.random.chance(50);
                self.builder.unary(if not { UnaryOp::Not } else { UnaryOp::Neg }, a)
            }
            8..10 => {
                let (a, b) = (self.vector(ty), self.vector(ty));
                let ops = [
                    CompareOp::Eq,
                    CompareOp::Ne,
                    CompareOp::Lt,
                    CompareOp::Le,
                    CompareOp::Gt,
                    CompareOp::Ge,
                ];
                let op = self.random.pick(&ops);
                self.builder.compare(op, a, b)
            }
            10 | 11 => {
                let (mask, a, b) = (self.vector(Type::Mask(lanes)), self.vector(ty), self.vector(ty));
                let b = if self.random.chance(30) {
                    self.builder.zero_vector(ty.element().unwrap_or(Scalar::I8), lanes)
                } else {
                    b
                };
                self.builder.select(mask, a, b)
            }
            12 | 13 => {
                let (a, b) = (self.vector(Type::Mask(lanes)), self.vector(Type::Mask(lanes)));
                match self.random.pick(&[Some(BinaryOp::And), Some(BinaryOp::Or), Some(BinaryOp::Xor), None])
                {
                    Some(op) => self.builder.binary(op, a, b),
                    None => self.builder.not(a),
                }
            }
            14 | 15 => {
                let (a, to) = (self.vector(ty), self.random.pick(&ELEMENTS));
                self.builder.value(Expr::Convert(a, to))
            }
            16 => {
                let count = self.small_lane();
                self.builder.first_lanes(count, lanes)
            }
            17 if !self.vectors.vars.is_empty() => {
                let (var, _) = self.random.pick(&self.vectors.vars);
                self.builder.read(var)
            }
            18 => self.vector_bitcast(ty),
            _ => self.load_vector(),
        }
    }

    fn vector_binary(&mut self, ty: Type) -> V {
        use BinaryOp::*;
        let scalar = ty.element().unwrap_or(Scalar::I8);
        let ops: &[BinaryOp] = if scalar.is_float() {
            &[Add, Sub, Mul, Div]
        } else {
            &[Add, Sub, Mul, And, Or, Xor, Min, Max, Shl, Shr]
        };
        let op = self.random.pick(ops);
        let a = self.vector(ty);
        let b = if matches!(op, Shl | Shr) { self.small_lane() } else { self.vector(ty) };
        self.builder.binary(op, a, b)
    }

    /// Never of a float's bits: which NaN it is, is the device's.
    fn vector_bitcast(&mut self, ty: Type) -> V {
        let scalar = ty.element().unwrap_or(Scalar::I8);
        let a = self.vector(ty);
        let targets: Vec<Scalar> = ELEMENTS.into_iter().filter(|to| to.bits() == scalar.bits()).collect();
        if scalar.is_float() {
            return a;
        }
        let to = self.random.pick(&targets);
        self.builder.bitcast(a, ty.with_element(to))
    }

    /// A place in the thread's area with room for a vector, and how it is aligned.
    fn place_in_area(&mut self, lanes: u8) -> Option<(V, u32)> {
        let (area, scalar) = self.vectors.area?;
        let index = self.random.below(AREA as usize + 1 - usize::from(lanes)) as u32;
        let offset = self.builder.u32(index);
        let pointer = self.builder.offset(area, offset);
        let aligned = 1u32 << (index * scalar.bytes()).trailing_zeros().min(4);
        Some((pointer, if self.random.chance(50) { aligned } else { scalar.bytes() }))
    }

    /// From the thread's area, or within an element of the input.
    fn load_vector(&mut self) -> V {
        let lanes = self.random.pick(&LANE_COUNTS);
        if self.random.chance(60)
            && let Some((pointer, align)) = self.place_in_area(lanes)
        {
            return self.builder.value(Expr::LoadVector { pointer, lanes, reads: Reads::Shared, align });
        }
        let Some(element) = self.input_element() else {
            let ty = self.vector_type();
            return self.vector(ty);
        };
        let scalar = self.random.pick(&ELEMENTS[..7]);
        let scalar = if scalar == Scalar::I64 { Scalar::F32 } else { scalar };
        let lanes = lanes.min((8 / scalar.bytes()) as u8);
        let pointer = self.builder.bitcast(element, Type::global(scalar));
        let align = self.random.pick(&[scalar.bytes(), 8]);
        let reads = self.random.pick(&[Reads::Shared, Reads::ReadOnly]);
        self.builder.value(Expr::LoadVector { pointer, lanes, reads, align })
    }

    /// A scalar made of a vector or mask.
    fn scalar_of_vector(&mut self) -> V {
        let ty = self.vector_type();
        let lanes = ty.lanes().unwrap_or(2);
        let value = self.vector(ty);
        match self.random.below(8) {
            0..3 => {
                let ops = [ReduceOp::Add, ReduceOp::Min, ReduceOp::Max];
                let most = if self.builder.scalar(value).is_float() { 1 } else { 3 };
                let op = self.random.pick(&ops[..most]);
                self.builder.reduce(op, value)
            }
            3 => self.builder.lane(value, self.random.below(usize::from(lanes)) as u8),
            choice => {
                let mask = self.vector(Type::Mask(lanes));
                match choice {
                    4 => self.builder.lane(mask, self.random.below(usize::from(lanes)) as u8),
                    5 => self.builder.mask_bits(mask),
                    _ => {
                        let op = self.random.pick(&[ReduceOp::Any, ReduceOp::All, ReduceOp::Count]);
                        self.builder.reduce(op, mask)
                    }
                }
            }
        }
    }

    /// Writes the thread's area.
    fn vector_effect(&mut self) {
        let lanes = self.random.pick(&LANE_COUNTS);
        let (Some((_, scalar)), Some((pointer, align))) = (self.vectors.area, self.place_in_area(lanes))
        else {
            return;
        };
        let value = self.vector(Type::Vector(scalar, lanes));
        if self.random.chance(50) {
            return self.builder.store_vector_aligned(pointer, value, align);
        }
        let mask = self.vector(Type::Mask(lanes));
        let count = self.builder.compress(pointer, value, mask);
        // What follows the elements is undefined.
        let written = self.builder.load_vector(pointer, lanes);
        let valid = self.builder.first_lanes(count, lanes);
        let zero = self.builder.zero_vector(scalar, lanes);
        let known = self.builder.select(valid, written, zero);
        self.builder.store_vector(pointer, known);
        self.pool.push(count);
    }
}
