//! Operations whose second operand is an integer constant, of the type of the first one.

use super::{Builder, V};
use crate::{BinaryOp, CompareOp};

macro_rules! with_constants {
    ($($name:ident: $kind:ident($op:expr), $what:literal;)*) => {$(
        #[doc = concat!("`", $what, "`.")]
        pub fn $name(&mut self, a: V, value: impl Into<i128>) -> V {
            let scalar = self.scalar(a);
            let value = self.int(scalar, value);
            self.$kind($op, a, value)
        }
    )*};
}

impl Builder {
    with_constants! {
        add_int: binary(BinaryOp::Add), "a + value";
        sub_int: binary(BinaryOp::Sub), "a - value";
        mul_int: binary(BinaryOp::Mul), "a * value";
        div_int: binary(BinaryOp::Div), "a / value";
        rem_int: binary(BinaryOp::Rem), "a % value";
        and_int: binary(BinaryOp::And), "a & value";
        or_int: binary(BinaryOp::Or), "a | value";
        xor_int: binary(BinaryOp::Xor), "a ^ value";
        shl_int: binary(BinaryOp::Shl), "a << value";
        shr_int: binary(BinaryOp::Shr), "a >> value";
        min_int: binary(BinaryOp::Min), "min(a, value)";
        max_int: binary(BinaryOp::Max), "max(a, value)";
        eq_int: compare(CompareOp::Eq), "a = value";
        ne_int: compare(CompareOp::Ne), "a <> value";
        lt_int: compare(CompareOp::Lt), "a < value";
        le_int: compare(CompareOp::Le), "a <= value";
        gt_int: compare(CompareOp::Gt), "a > value";
        ge_int: compare(CompareOp::Ge), "a >= value";
    }
}
