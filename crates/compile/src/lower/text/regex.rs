//! Regular expressions: one step of a table a byte, which stops where the rest of the text can change nothing.

use kelpie_kir::{Function, Handle, Scalar, Type};

use super::{byte, case_name, count_up, function};
use crate::context::{Case, Constant, Context, Lowered, Status, Unsupported};
use crate::expr::Expr;
use crate::expr::dfa::{FIRST, MATCH, Regex, UNKNOWN};
use crate::lower::value::{boolean, report, text};

/// Lowers `[NOT] regexp_like(input, regex)`.
pub(in crate::lower) fn lower(
    cx: &mut Context<'_>,
    input: &Expr,
    regex: &Regex,
    negated: bool,
) -> Result<Lowered, Unsupported> {
    let value = cx.lower(input)?;
    let text = text(&value)?;
    let classes = cx.shared_bytes(&regex.classes);
    let table = cx.shared_bytes(&regex.table);
    let table = cx.builder.bitcast(table, Type::global(Scalar::U16));
    let start = cx.constant(Constant::Int(Scalar::U32, regex.start.into()));
    let end_class = cx.constant(Constant::Int(Scalar::U32, regex.end_class.into()));
    let run = run_function(cx, text.case);
    let state = cx.builder.call(run, &[text.data, text.length, classes, table, start, end_class]);
    if regex.can_fail {
        let unknown = cx.builder.u32(UNKNOWN.into());
        let unknown = cx.builder.eq(state, unknown);
        report(cx, unknown, value.valid, Status::Fallback);
    }
    let found = cx.builder.u32(MATCH.into());
    let found = if negated { cx.builder.ne(state, found) } else { cx.builder.eq(state, found) };
    Ok(boolean(found, value.valid))
}

/// The special state that a text ends in.
fn run_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let params = [
        ("text", Type::global(Scalar::U8)),
        ("length", Type::U32),
        ("classes", Type::global(Scalar::U8)),
        ("table", Type::global(Scalar::U16)),
        ("start", Type::U32),
        ("end_class", Type::U32),
    ];
    function(cx, &format!("text_regex{}", case_name(case)), &params, Scalar::U32, |b| {
        let [data, length, classes, table, start, end_class] = [0, 1, 2, 3, 4, 5].map(|index| b.param(index));
        let first = b.u32(FIRST.into());
        let state = b.var_of("state", start);
        count_up(b, length, |b, index| {
            let current = b.read(state);
            let special = b.lt(current, first);
            b.begin_if(special);
            b.return_value(current);
            b.end();
            let byte = byte(b, data, index, case);
            let class = b.offset(classes, byte);
            let class = b.load_read_only(class);
            let class = b.convert(class, Scalar::U32);
            let next = b.add(current, class);
            let next = b.offset(table, next);
            let next = b.load_read_only(next);
            let next = b.convert(next, Scalar::U32);
            b.assign(state, next);
        });
        let current = b.read(state);
        let special = b.lt(current, first);
        b.begin_if(special);
        b.return_value(current);
        b.end();
        let end = b.add(current, end_class);
        let end = b.offset(table, end);
        let end = b.load_read_only(end);
        let end = b.convert(end, Scalar::U32);
        b.return_value(end);
    })
}
