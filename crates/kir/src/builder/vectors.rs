//! Vectors and masks. Arithmetic, comparisons, [`Builder::select`], [`Builder::convert`] and [`Builder::bitcast`] are those of
//! scalars, and take a scalar beside vectors as the vector that has it in each element: code that is written for scalars works
//! on vectors as soon as its columns are vectors.

use super::{Builder, V};
use crate::module::*;
use crate::types::{Pointee, Scalar, Type};

impl Builder {
    /// Both operands as vectors or masks, where one of them is.
    pub(super) fn alike(&mut self, a: V, b: V) -> (V, V) {
        match (self.ty(a), self.ty(b)) {
            (Type::Scalar(_), Type::Vector(_, lanes) | Type::Mask(lanes)) => (self.splat(a, lanes), b),
            (Type::Vector(_, lanes) | Type::Mask(lanes), Type::Scalar(_)) => (a, self.splat(b, lanes)),
            _ => (a, b),
        }
    }

    /// The distance of a shift: of a vector's, `u32`.
    pub(super) fn distance(&mut self, shifted: V, distance: V) -> V {
        match (self.ty(shifted), self.ty(distance)) {
            (Type::Vector(..), Type::Scalar(scalar)) if scalar.is_integer() => {
                self.convert(distance, Scalar::U32)
            }
            _ => distance,
        }
    }

    /// The same scalar in each of `lanes` elements.
    pub fn splat(&mut self, value: V, lanes: u8) -> V {
        self.value(Expr::Splat { value, lanes })
    }

    /// A vector of zeros.
    pub fn zero_vector(&mut self, scalar: Scalar, lanes: u8) -> V {
        let zero = self.zero(scalar);
        self.splat(zero, lanes)
    }

    /// The vector 0, 1, 2, ….
    pub fn iota(&mut self, scalar: Scalar, lanes: u8) -> V {
        self.value(Expr::Iota(scalar, lanes))
    }

    /// Size of what a pointer points to, which is how far its alignment is known without more.
    fn pointee_bytes(&mut self, pointer: V) -> u32 {
        match self.ty(pointer) {
            Type::Ptr(_, Pointee::Scalar(scalar)) => scalar.bytes(),
            _ => 1,
        }
    }

    /// Loads `lanes` elements that other threads may write.
    pub fn load_vector(&mut self, pointer: V, lanes: u8) -> V {
        let align = self.pointee_bytes(pointer);
        self.value(Expr::LoadVector { pointer, lanes, reads: Reads::Shared, align })
    }

    /// Loads `lanes` elements that nothing writes during the launch.
    pub fn load_vector_read_only(&mut self, pointer: V, lanes: u8) -> V {
        let align = self.pointee_bytes(pointer);
        self.load_vector_aligned(pointer, lanes, align)
    }

    /// As [`Builder::load_vector_read_only`], from an address that is known to be a multiple of `align` bytes.
    pub fn load_vector_aligned(&mut self, pointer: V, lanes: u8, align: u32) -> V {
        self.load_vector_reading(pointer, lanes, (Reads::ReadOnly, align))
    }

    /// As [`Builder::load_vector_aligned`], with what is promised of the memory.
    pub fn load_vector_reading(&mut self, pointer: V, lanes: u8, (reads, align): (Reads, u32)) -> V {
        let align = align.max(self.pointee_bytes(pointer));
        self.value(Expr::LoadVector { pointer, lanes, reads, align })
    }

    /// Writes a vector to consecutive elements.
    pub fn store_vector(&mut self, pointer: V, value: V) {
        let align = self.pointee_bytes(pointer);
        self.push(Stmt::StoreVector { pointer, value, align });
    }

    /// As [`Builder::store_vector`], to an address that is known to be a multiple of `align` bytes.
    pub fn store_vector_aligned(&mut self, pointer: V, value: V, align: u32) {
        let align = align.max(self.pointee_bytes(pointer));
        self.push(Stmt::StoreVector { pointer, value, align });
    }

    /// Writes the elements of which the mask is true one after the other; their number, `u32`. There must be memory for all
    /// elements.
    pub fn compress(&mut self, pointer: V, value: V, mask: V) -> V {
        let result = self.result(Type::U32);
        self.push(Stmt::Compress { pointer, value, mask, result: Some(result) });
        result
    }

    /// One element of a vector (a scalar) or mask (a `bool`).
    pub fn lane(&mut self, vector: V, lane: u8) -> V {
        self.value(Expr::Lane { vector, lane })
    }

    /// All elements of a vector or mask as one scalar.
    pub fn reduce(&mut self, op: ReduceOp, vector: V) -> V {
        self.value(Expr::Reduce(op, vector))
    }

    /// A mask as `u32`: bit i is element i.
    pub fn mask_bits(&mut self, mask: V) -> V {
        self.value(Expr::MaskBits(mask))
    }

    /// The mask whose element i is bit i of a `u32`.
    pub fn bits_mask(&mut self, bits: V, lanes: u8) -> V {
        self.value(Expr::BitsMask { bits, lanes })
    }

    /// The mask whose elements below `count` (`u32`) are true.
    pub fn first_lanes(&mut self, count: V, lanes: u8) -> V {
        self.value(Expr::FirstLanes { count, lanes })
    }
}
