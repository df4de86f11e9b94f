//! `i128`, which Cranelift knows only in part: no division, no overflow of a product, no selection.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};
use kelpie_kir::{BinaryOp, Handle, OverflowOp, Value};

use super::function::Translator;
use super::helpers::Helper;
use super::types::memory;

impl Translator<'_, '_> {
    /// A constant.
    pub(super) fn int128(&mut self, value: i128) -> ir::Value {
        let low = self.int(types::I64, value as i64);
        let high = self.int(types::I64, (value >> 64) as i64);
        self.builder.ins().iconcat(low, high)
    }

    pub(super) fn binary_i128(&mut self, op: BinaryOp, a: Handle<Value>, b: Handle<Value>) -> ir::Value {
        let literal = self.literal(b);
        let (a, b) = (self.value(a), self.value(b));
        match op {
            BinaryOp::Add => self.builder.ins().iadd(a, b),
            BinaryOp::Sub => self.builder.ins().isub(a, b),
            BinaryOp::Mul => self.builder.ins().imul(a, b),
            BinaryOp::Div | BinaryOp::Rem => self.divide_i128(op, a, b, literal),
            BinaryOp::And => self.builder.ins().band(a, b),
            BinaryOp::Or => self.builder.ins().bor(a, b),
            BinaryOp::Xor => self.builder.ins().bxor(a, b),
            BinaryOp::Shl | BinaryOp::Shr => {
                let (amount, _) = self.builder.ins().isplit(b);
                if op == BinaryOp::Shl {
                    self.builder.ins().ishl(a, amount)
                } else {
                    self.builder.ins().sshr(a, amount)
                }
            }
            BinaryOp::Min | BinaryOp::Max => {
                let code = if op == BinaryOp::Min { IntCC::SignedLessThan } else { IntCC::SignedGreaterThan };
                let first = self.builder.ins().icmp(code, a, b);
                self.select(first, a, b)
            }
            BinaryOp::MulHi => {
                self.fail("MulHi of i128");
                a
            }
        }
    }

    /// Whether the value of two halves is that of its low half alone.
    fn fits_i64(&mut self, low: ir::Value, high: ir::Value) -> ir::Value {
        let shift = self.int(types::I64, 63);
        let sign = self.builder.ins().sshr(low, shift);
        self.builder.ins().icmp(IntCC::Equal, high, sign)
    }

    /// Total division: by an instruction where both operands fit 64 bits, else by a call.
    fn divide_i128(&mut self, op: BinaryOp, a: ir::Value, b: ir::Value, literal: Option<i128>) -> ir::Value {
        let is_div = op == BinaryOp::Div;
        let helper = if is_div { Helper::DivI128 } else { Helper::RemI128 };
        let (a_low, a_high) = self.builder.ins().isplit(a);
        let (b_low, b_high) = self.builder.ins().isplit(b);
        let fits = self.fits_i64(a_low, a_high);
        let (fits, divisor) = match literal.map(i64::try_from) {
            Some(Ok(divisor)) if divisor != 0 && divisor != -1 => (fits, self.int(types::I64, divisor)),
            _ => {
                let divisor_fits = self.fits_i64(b_low, b_high);
                // Neither 0 nor -1: those trap, or overflow 64 bits.
                let one = self.int(types::I64, 1);
                let next = self.builder.ins().iadd(b_low, one);
                let ordinary = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, next, one);
                let fits = self.builder.ins().band(fits, divisor_fits);
                (self.builder.ins().band(fits, ordinary), b_low)
            }
        };
        let (fast, slow, done) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.append_block_param(done, types::I128);
        self.builder.set_cold_block(slow);
        self.builder.ins().brif(fits, fast, &[], slow, &[]);

        self.start(fast);
        let result = if is_div {
            self.builder.ins().sdiv(a_low, divisor)
        } else {
            self.builder.ins().srem(a_low, divisor)
        };
        let result = self.builder.ins().sextend(types::I128, result);
        self.builder.ins().jump(done, &[BlockArg::from(result)]);

        self.start(slow);
        let out = self.scratch();
        self.call_helper(helper, &[a_low, a_high, b_low, b_high, out]);
        let result = self.load_scratch(out);
        self.builder.ins().jump(done, &[BlockArg::from(result)]);

        self.start(done);
        self.builder.block_params(done)[0]
    }

    pub(super) fn overflows_i128(&mut self, op: OverflowOp, a: ir::Value, b: ir::Value) -> ir::Value {
        if op == OverflowOp::Mul {
            return self.mul_overflows_i128(a, b);
        }
        // Overflow flips the sign: of both operands in a sum, of the minuend alone in a difference.
        let result = match op {
            OverflowOp::Add => self.builder.ins().iadd(a, b),
            _ => self.builder.ins().isub(a, b),
        };
        let (_, a) = self.builder.ins().isplit(a);
        let (_, b) = self.builder.ins().isplit(b);
        let (_, result) = self.builder.ins().isplit(result);
        let changed = self.builder.ins().bxor(a, result);
        let other = if op == OverflowOp::Add { result } else { a };
        let unlike = self.builder.ins().bxor(b, other);
        let flipped = self.builder.ins().band(changed, unlike);
        let zero = self.int(types::I64, 0);
        self.builder.ins().icmp(IntCC::SignedLessThan, flipped, zero)
    }

    /// A product of two numbers of 64 bits never overflows; else a call decides.
    fn mul_overflows_i128(&mut self, a: ir::Value, b: ir::Value) -> ir::Value {
        let (a_low, a_high) = self.builder.ins().isplit(a);
        let (b_low, b_high) = self.builder.ins().isplit(b);
        let (a_fits, b_fits) = (self.fits_i64(a_low, a_high), self.fits_i64(b_low, b_high));
        let fits = self.builder.ins().band(a_fits, b_fits);
        let never = self.int(types::I8, 0);
        let (slow, done) = (self.builder.create_block(), self.builder.create_block());
        self.builder.append_block_param(done, types::I8);
        self.builder.set_cold_block(slow);
        self.builder.ins().brif(fits, done, &[BlockArg::from(never)], slow, &[]);

        self.start(slow);
        let overflow = self.call_helper(Helper::MulOverflowsI128, &[a_low, a_high, b_low, b_high]);
        let overflow = overflow.map_or(never, |word| self.builder.ins().ireduce(types::I8, word));
        self.builder.ins().jump(done, &[BlockArg::from(overflow)]);

        self.start(done);
        self.builder.block_params(done)[0]
    }

    /// What a helper wrote to [`Translator::scratch`].
    pub(super) fn load_scratch(&mut self, address: ir::Value) -> ir::Value {
        let low = self.builder.ins().load(types::I64, memory(), address, 0);
        let high = self.builder.ins().load(types::I64, memory(), address, 8);
        self.builder.ins().iconcat(low, high)
    }

    /// Goes on in a block to which every jump is known.
    pub(super) fn start(&mut self, block: ir::Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }
}
