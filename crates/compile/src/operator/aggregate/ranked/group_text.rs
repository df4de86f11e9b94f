//! The texts of a group's rows, one after the other with a delimiter between: what `string_agg` is (`datafusion-functions-aggregate`,
//! `StringAgg`).
//!
//! The rows of a group follow each other in the order of a sort, so that one thread goes through them twice: it adds up the bytes,
//! takes as many from the heap for text, and copies the texts there. So no more memory is taken than the text has, whatever a group's
//! size, and a text that nobody asks for (as `HAVING` drops its group) is not made.

use std::rc::Rc;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builder, Scalar};

use crate::context::{Context, Lowered, Moved, Repr, Text, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::lower::{copy_text, lower, make_text, text_equal, text_of};
use crate::operator::sort::SortOperator;
use crate::table::joined::{Joined, Made};

#[derive(Debug, Clone)]
pub(crate) struct GroupText {
    sort: Arc<SortOperator>,
    /// The stored column of the texts.
    column: usize,
    delimiter: Expr,
    /// Of equal texts that follow each other only the first.
    distinct: bool,
    /// The number of the group's first row in the order, `i64`.
    first: V,
    /// How many rows it has, `i64`.
    rows: V,
}

/// Emits what is done to a text of a group, given whether a delimiter is to stand before it (`bool`).
type Visit<'v> = dyn FnMut(&mut Context<'_>, &Text, V) + 'v;

impl GroupText {
    /// Of a group's rows: the number of the first of them, and how many there are.
    pub fn new(
        sort: &Arc<SortOperator>,
        argument: &Expr,
        (delimiter, distinct): (&Expr, bool),
        (first, rows): (V, V),
    ) -> Result<GroupText, Unsupported> {
        let ExprKind::Column(column) = argument.kind else {
            return Err(Unsupported::internal("texts of a group that are not stored"));
        };
        Ok(GroupText { sort: Arc::clone(sort), column, delimiter: delimiter.clone(), distinct, first, rows })
    }

    /// The value in a row of the group, by its rank (`i64`).
    fn value(&self, cx: &mut Context<'_>, rank: V) -> Result<Lowered, Unsupported> {
        let number = cx.builder.add(self.first, rank);
        stored_value(cx, &self.sort, self.column, number, None)
    }

    /// Emits a loop over the texts that are not NULL, in their order; whether there is one (`bool`).
    fn each(
        &self,
        cx: &mut Context<'_>,
        delimiter: &Text,
        visit: &mut Visit<'_>,
    ) -> Result<Var, Unsupported> {
        let b = &mut *cx.builder;
        let (none, no) = (b.i64(0), b.bool(false));
        let (rank, follows) = (b.var_of("rank", none), b.var_of("follows", no));
        // Any text will do before the first one.
        let before = self.distinct.then(|| TextVar::new(b, delimiter));
        cx.begin_loop();
        let current = cx.builder.read(rank);
        let done = cx.builder.ge(current, self.rows);
        cx.builder.break_if(done);
        let value = self.value(cx, current)?;
        let (text, separates) = (text_of(&value)?, cx.builder.read(follows));
        let mut counts = match value.valid {
            Some(valid) => valid,
            None => cx.builder.bool(true),
        };
        if let Some(before) = &before {
            let other = before.text(cx.builder, delimiter);
            let is_equal = text_equal(cx, &text, &other);
            let b = &mut *cx.builder;
            let is_known = b.and(separates, is_equal);
            let is_new = b.not(is_known);
            counts = b.and(counts, is_new);
        }
        cx.begin_if(counts);
        visit(cx, &text, separates);
        let b = &mut *cx.builder;
        let yes = b.bool(true);
        b.assign(follows, yes);
        if let Some(before) = &before {
            before.assign(b, &text);
        }
        cx.end();
        let b = &mut *cx.builder;
        let next = b.add_int(current, 1);
        b.assign(rank, next);
        cx.end();
        Ok(follows)
    }
}

impl Made for GroupText {
    fn make(&self, cx: &mut Context<'_>) -> Result<Lowered, Unsupported> {
        let delimiter = lower(cx, &self.delimiter)?;
        let delimiter = text_of(&delimiter)?;
        let nothing = cx.builder.u64(0);
        let total = cx.builder.var_of("text_bytes", nothing);
        let length = |b: &mut Builder, separates: V| {
            let none = b.u32(0);
            b.select(separates, delimiter.length, none)
        };
        let any = self.each(cx, &delimiter, &mut |cx, text, separates| {
            let b = &mut *cx.builder;
            let between = length(b, separates);
            for bytes in [between, text.length] {
                let (before, bytes) = (b.read(total), b.convert(bytes, Scalar::U64));
                let after = b.add(before, bytes);
                b.assign(total, after);
            }
        })?;
        let total = cx.builder.read(total);
        let mut outcome = Ok(());
        let text = make_text(cx, total, |cx, target| {
            let nothing = cx.builder.u64(0);
            let place = cx.builder.var_of("text_place", nothing);
            let copied = self.each(cx, &delimiter, &mut |cx, text, separates| {
                let between = length(cx.builder, separates);
                for (text, length) in [(&delimiter, between), (text, text.length)] {
                    let current = cx.builder.read(place);
                    let to = cx.builder.offset(target, current);
                    copy_text(cx, to, text, length);
                    let b = &mut *cx.builder;
                    let bytes = b.convert(length, Scalar::U64);
                    let after = b.add(current, bytes);
                    b.assign(place, after);
                }
            });
            outcome = copied.map(|_| ());
        });
        outcome?;
        let valid = cx.builder.read(any);
        Ok(Lowered { repr: Repr::Text(text), valid: Some(valid), range: None })
    }

    fn registers(&self) -> Vec<V> {
        vec![self.first, self.rows]
    }

    fn moved(&self, moved: &Moved) -> Rc<dyn Made> {
        let (first, rows) = (moved.of(self.first), moved.of(self.rows));
        Rc::new(GroupText { first, rows, ..self.clone() })
    }
}

/// The text before the current one.
struct TextVar {
    data: Var,
    length: Var,
}

impl TextVar {
    fn new(b: &mut Builder, text: &Text) -> TextVar {
        TextVar { data: b.var_of("before", text.data), length: b.var_of("before_length", text.length) }
    }

    /// Of a column whose texts have no case mapping.
    fn text(&self, b: &mut Builder, like: &Text) -> Text {
        Text { data: b.read(self.data), length: b.read(self.length), ..like.clone() }
    }

    fn assign(&self, b: &mut Builder, text: &Text) {
        b.assign(self.data, text.data);
        b.assign(self.length, text.length);
    }
}

/// The value of a stored column of a sort in the row with a number (`i64`), if that is `present` (`bool`).
pub(super) fn stored_value(
    cx: &mut Context<'_>,
    sort: &SortOperator,
    column: usize,
    number: V,
    present: Option<V>,
) -> Result<Lowered, Unsupported> {
    match sort.columns_at(cx, [column].into_iter(), number, present).pop() {
        Some(Joined::Stored { column, place, present }) => Ok(column.load(cx, place, present)),
        Some(Joined::Value(value)) => Ok(value),
        _ => Err(Unsupported::internal("a text of a row that is not stored")),
    }
}
