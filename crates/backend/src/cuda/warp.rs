//! Lane operations, always over the whole warp: the validator has proven that every lane is there.

use kelpie_kir::{Expr, Handle, Scalar, ShuffleMode, Value};

use super::expr::Text;
use super::function::FunctionPrinter;
use super::helpers::Helpers;

/// Every lane of a warp.
pub const FULL_MASK: &str = "0xffffffffu";

impl FunctionPrinter<'_> {
    /// A lane operation.
    pub fn lane_operation(&mut self, expr: &Expr) -> Text {
        match *expr {
            Expr::Ballot(a) => Text::atom(format!("::__ballot_sync({FULL_MASK}, {})", self.text(a))),
            Expr::Any(a) => Text::compound(format!("::__any_sync({FULL_MASK}, {}) != 0", self.text(a))),
            Expr::All(a) => Text::compound(format!("::__all_sync({FULL_MASK}, {}) != 0", self.text(a))),
            Expr::Shuffle { mode, value, lane } => self.shuffle(mode, value, lane),
            _ => Text::default(),
        }
    }

    fn shuffle(&mut self, mode: ShuffleMode, value: Handle<Value>, lane: Handle<Value>) -> Text {
        let scalar = self.ty(value).scalar().unwrap_or(Scalar::U32);
        let helper = shuffle_helper(self.helpers, mode, scalar);
        Text::atom(format!("{helper}({}, {})", self.text(value), self.text(lane)))
    }
}

/// The helper of a shuffle. CUDA takes a distance modulo 32; beyond that, a lane must keep its own value.
fn shuffle_helper(helpers: &mut Helpers, mode: ShuffleMode, scalar: Scalar) -> String {
    let (suffix, function) = match mode {
        ShuffleMode::Index => ("index", "__shfl_sync"),
        ShuffleMode::Up => ("up", "__shfl_up_sync"),
        ShuffleMode::Down => ("down", "__shfl_down_sync"),
        ShuffleMode::Xor => ("xor", "__shfl_xor_sync"),
    };
    let ty = scalar.name();
    let name = format!("kelpie_shuffle_{suffix}_{ty}");
    let call = |operand: &str| format!("::{function}({FULL_MASK}, {operand}, lane & 31u)");
    let read = match scalar {
        Scalar::Bool => format!("{} != 0u", call("u32(value)")),
        Scalar::I8 | Scalar::I16 => format!("{ty}({})", call("i32(value)")),
        Scalar::U8 | Scalar::U16 => format!("{ty}({})", call("u32(value)")),
        Scalar::I128 => {
            let (high, low) = (call("u64(value >> 64)"), call("u64(value)"));
            format!("i128((u128({high}) << 64) | {low})")
        }
        _ => call("value"),
    };
    let result = match mode {
        ShuffleMode::Index => "read",
        _ => "lane < 32u ? read : value",
    };
    helpers.add(
        name,
        format!("{ty} NAME({ty} value, u32 lane)"),
        &format!("const {ty} read = {read};\nreturn {result};"),
    )
}
