//! A row in registers while the block finds places for its rows.

use kelpie_kir::builder::Var;

use crate::context::{Case, Context, DictionaryCode, Lowered, Repr, Text, Unsupported};
use crate::lower::plain_text;

/// A value of a row.
#[derive(Debug, Clone)]
pub(super) struct HeldValue {
    repr: HeldRepr,
    valid: Option<Var>,
}

#[derive(Debug, Clone)]
enum HeldRepr {
    Scalar(Var),
    /// Address and length.
    Text(Var, Var),
    /// The code of a dictionary's entry, which is otherwise this.
    Code(Var, DictionaryCode),
}

impl HeldValue {
    /// Keeps a value. `is_code`: of a text its code alone is wanted.
    pub(super) fn keep(
        cx: &mut Context<'_>,
        value: &Lowered,
        is_code: bool,
    ) -> Result<HeldValue, Unsupported> {
        let repr = match &value.repr {
            Repr::Scalar(scalar) => HeldRepr::Scalar(cx.builder.var_of("held", *scalar)),
            Repr::Text(Text { code: Some(code), .. }) if is_code => {
                HeldRepr::Code(cx.builder.var_of("held_code", code.value), *code)
            }
            Repr::Text(_) if is_code => {
                return Err(Unsupported::internal("a dictionary column lost its codes"));
            }
            Repr::Text(text) => {
                let text = plain_text(cx, text.clone(), value.valid);
                let data = cx.builder.var_of("held_text", text.data);
                HeldRepr::Text(data, cx.builder.var_of("held_length", text.length))
            }
        };
        let valid = value.valid.map(|valid| cx.builder.var_of("held_valid", valid));
        Ok(HeldValue { repr, valid })
    }

    /// The value that was kept.
    pub(super) fn value(&self, cx: &mut Context<'_>) -> Lowered {
        let repr = match &self.repr {
            HeldRepr::Scalar(scalar) => Repr::Scalar(cx.builder.read(*scalar)),
            HeldRepr::Text(data, length) => {
                let (data, length) = (cx.builder.read(*data), cx.builder.read(*length));
                Repr::Text(Text { data, length, case: Case::Keep, code: None })
            }
            HeldRepr::Code(code, entry) => {
                let value = cx.builder.read(*code);
                Repr::Text(cx.dictionary_entry(DictionaryCode { value, ..*entry }))
            }
        };
        let valid = self.valid.map(|valid| cx.builder.read(valid));
        Lowered { repr, valid, range: None }
    }
}
