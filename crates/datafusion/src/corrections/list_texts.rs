//! Casts of texts to lists: `'[1, 2]'::INTEGER[]` has the elements that the text shows. Arrow makes a list of one element of all of it.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TryCast, Volatility,
};

use super::texts::whole_numbers;
use crate::call_rows::CallRows;

/// A node whose casts of texts to lists read the texts.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let concerns = |expr: &Expr| expr.exists(|expr| Ok(is_list_of_text(expr, &schema)));
    super::map_expressions(plan, concerns, |expr| {
        expr.transform_up(|expr| match is_list_of_text(&expr, &schema) {
            true => Ok(Transformed::yes(mended(expr)?)),
            false => Ok(Transformed::no(expr)),
        })
    })
}

fn is_list_of_text(expr: &Expr, schema: &DFSchema) -> bool {
    let (Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })) = expr
    else {
        return false;
    };
    // What has no type here is within a lambda.
    let is_text = || inner.get_type(schema).is_ok_and(|from| from.is_string());
    matches!(field.data_type(), DataType::List(element) if is_readable(element.data_type())) && is_text()
}

/// Whether values of a type are read of texts here.
fn is_readable(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(element) => is_readable(element.data_type()),
        data_type => !data_type.is_nested() && can_cast_types(&DataType::Utf8, data_type),
    }
}

fn mended(expr: Expr) -> Result<Expr> {
    let (inner, field, tries) = match expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
        expr => return Ok(expr),
    };
    static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 2]> =
        LazyLock::new(|| ListOfText::both().map(|function| Arc::new(ScalarUDF::new_from_impl(function))));
    let [strict, tried] = &*FUNCTIONS;
    let function = Arc::clone(if tries { tried } else { strict });
    let of_type = Expr::Literal(ScalarValue::try_new_null(field.data_type())?, None);
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*inner, of_type])))
}

/// The list that a text shows, of the type of the second argument, which is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListOfText {
    /// Whether what is no such list is NULL.
    tries: bool,
    signature: Signature,
}

impl ListOfText {
    /// That of a cast, and that of TRY_CAST.
    pub(crate) fn both() -> [ListOfText; 2] {
        [false, true].map(|tries| ListOfText { tries, signature: Signature::any(2, Volatility::Immutable) })
    }

    fn lists(&self, texts: &StringArray, element: &FieldRef) -> Result<ListArray> {
        let mut elements: Vec<Option<String>> = Vec::new();
        let mut lengths = Vec::with_capacity(texts.len());
        let mut valid = Vec::with_capacity(texts.len());
        for text in texts {
            let parts = text.map(parts);
            if let (Some(None), Some(text), false) = (&parts, text, self.tries) {
                return exec_err!("'{text}' is no list: lists are written as [1, 2, 3]");
            }
            let parts = parts.flatten();
            valid.push(parts.is_some());
            let parts = parts.unwrap_or_default();
            lengths.push(parts.len());
            elements.extend(parts);
        }
        let elements = self.values(&StringArray::from(elements), element.data_type())?;
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        Ok(ListArray::try_new(Arc::clone(element), OffsetBuffer::from_lengths(lengths), elements, nulls)?)
    }

    fn values(&self, texts: &StringArray, data_type: &DataType) -> Result<ArrayRef> {
        let options = CastOptions { safe: self.tries, ..CastOptions::default() };
        match data_type {
            DataType::List(element) => Ok(Arc::new(self.lists(texts, element)?)),
            data_type if data_type.is_integer() && *data_type != DataType::UInt64 => {
                let texts: ArrayRef = Arc::new(texts.clone());
                Ok(cast_with_options(&whole_numbers(&texts, self.tries)?, data_type, &options)?)
            }
            data_type => Ok(cast_with_options(texts, data_type, &options)?),
        }
    }
}

impl ScalarUDFImpl for ListOfText {
    fn name(&self) -> &str {
        if self.tries { "kelpie_list_of_text_or_null" } else { "kelpie_list_of_text" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [_, list @ DataType::List(_)] => Ok(list.clone()),
            _ => plan_err!("{} takes a text and a list", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (Some(texts), DataType::List(element)) = (arguments.args.first(), arguments.return_type()) else {
            return exec_err!("{} takes a text and a list", self.name());
        };
        let rows = CallRows::of(&arguments);
        let texts = cast(&texts.to_array(rows.count)?, &DataType::Utf8)?;
        rows.answer(Arc::new(self.lists(texts.as_string::<i32>(), element)?))
    }
}

/// The elements of a list that a text shows, with or without quotes; nothing of what is none. What has brackets of its own stays as it is
/// written.
fn parts(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut parts = Vec::new();
    let mut part = Part::default();
    let mut open: Vec<char> = Vec::new();
    let mut quote = None;
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', Some(_)) => {
                if !open.is_empty() {
                    part.push(letter);
                }
                part.push(letters.next()?);
            }
            (letter, Some(mark)) => {
                if letter == mark {
                    quote = None;
                }
                if letter != mark || !open.is_empty() {
                    part.push(letter);
                }
            }
            ('\'' | '"', None) => {
                quote = Some(letter);
                match open.is_empty() {
                    true => part.see_quote(),
                    false => part.push(letter),
                }
            }
            (',', None) if open.is_empty() => parts.push(std::mem::take(&mut part).value()),
            (letter, None) => {
                match letter {
                    '[' => open.push(']'),
                    '{' => open.push('}'),
                    '(' => open.push(')'),
                    ']' | '}' | ')' if open.pop() != Some(letter) => return None,
                    _ => {}
                }
                part.push_outside(letter, !open.is_empty());
            }
        }
    }
    parts.push(part.value());
    (open.is_empty() && quote.is_none()).then_some(parts)
}

/// An element as far as it has been read.
#[derive(Debug, Default)]
struct Part {
    text: String,
    /// Where blanks at its end begin to be no part of it.
    end: usize,
    is_quoted: bool,
}

impl Part {
    /// A letter that counts, whatever it is.
    fn push(&mut self, letter: char) {
        self.text.push(letter);
        self.end = self.text.len();
    }

    fn see_quote(&mut self) {
        self.is_quoted = true;
        self.end = self.text.len();
    }

    /// A letter outside of quotes: blanks around an element are none of it.
    fn push_outside(&mut self, letter: char, is_within: bool) {
        match letter.is_whitespace() && !is_within {
            true if self.text.is_empty() => {}
            true => self.text.push(letter),
            false => self.push(letter),
        }
    }

    fn value(mut self) -> Option<String> {
        self.text.truncate(self.end);
        let is_null = !self.is_quoted && self.text.eq_ignore_ascii_case("null");
        (!is_null).then_some(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn elements_are_read_as_they_are_written() {
        for (text, wanted) in [
            ("[1, 2]", "1|2"),
            (" [a b , 'c, d',\"e\\\"f\"] ", "a b|c, d|e\"f"),
            ("[[1, 2], {'a': ']'}]", "[1, 2]|{'a': ']'}"),
            ("[a,]", "a|"),
        ] {
            let read = parts(text).unwrap_or_default();
            let read: Vec<String> = read.into_iter().map(Option::unwrap_or_default).collect();
            assert_eq!(read.join("|"), wanted, "{text}");
        }
        assert_eq!(parts("[null, \"null\"]"), Some(vec![None, Some("null".to_string())]));
        assert_eq!(parts(" [ ] "), Some(vec![]));
        for none in ["1, 2", "[1", "[[1]", "[1)]", "['a]"] {
            assert_eq!(parts(none), None, "{none}");
        }
    }
}
