//! Functions that go by what their arguments say, and those of `functions.sql`.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, ObjectNamePart, TimezoneInfo, Value,
};

use super::macros::{Spent, known};
use super::truths::{SUMS, is_condition};
use super::{array_subqueries, formats, json, ordered_sets, replacements, substrings};
use crate::syntax::{call, cast, change_exprs, literal, name_of, taken};

/// Functions of any number of arguments that have another name.
const RENAMED: [(&str, &str); 6] = [
    ("grouping_id", "grouping"),
    ("list_value", "make_array"),
    ("array_value", "make_array"),
    ("list_pack", "make_array"),
    ("string_to_list", "string_to_array"),
    ("row", "struct"),
];

/// Functions that are there already, and what those of other arguments are in `functions.sql`.
const OTHER_ARGUMENTS: [(&str, usize, &str); 18] = [
    ("string_agg", 1, "group_concat"),
    ("max", 2, "max n"),
    ("min", 2, "min n"),
    ("age", 1, "age"),
    ("encode", 1, "encode text"),
    ("decode", 1, "decode bytes"),
    // DataFusion's make texts of times.
    ("nvl", 2, "coalesce both"),
    ("ifnull", 2, "coalesce both"),
    // DataFusion's put NULL first, and keep it among what is distinct.
    ("list_sort", 1, "sorted list"),
    ("list_sort", 2, "sorted list"),
    ("array_sort", 1, "sorted list"),
    ("array_sort", 2, "sorted list"),
    ("list_distinct", 1, "distinct list"),
    ("array_distinct", 1, "distinct list"),
    ("list_intersect", 2, "intersected list"),
    ("array_intersect", 2, "intersected list"),
    ("make_date", 1, "date of days"),
    // As of md5, a text of digits. DataFusion's are bytes.
    ("sha256", 1, "sha256 digits"),
];

/// Functions that are written out here.
const OWN: [&str; 16] = [
    "current_database", "struct_pack", "date_diff", "datediff", "date_sub", "datesub", "try", "strftime",
    "time_bucket", "current_setting", "list_aggregate", "list_aggr", "array_aggregate", "array_aggr",
    "aggregate", "string_agg",
];

/// Options of other engines, and what they are here.
const SETTINGS: [(&str, &str); 3] = [
    ("timezone", "datafusion.execution.time_zone"),
    ("threads", "kelpie.threads"),
    ("worker_threads", "kelpie.threads"),
];

/// The option that a name of another engine's is meant for.
pub(super) fn setting(name: &str) -> Option<&'static str> {
    SETTINGS.iter().find(|(other, _)| *other == name).map(|(_, own)| *own)
}

/// Writes functions out in words that DataFusion has. One that the session has stays.
pub(super) struct Functions<'a> {
    pub state: &'a SessionState,
    pub spent: &'a mut Spent,
}

impl Functions<'_> {
    fn is_there(&self, name: &str) -> bool {
        self.state.scalar_functions().contains_key(name)
            || self.state.aggregate_functions().contains_key(name)
            || self.state.window_functions().contains_key(name)
            || self.state.higher_order_functions().contains_key(name)
    }

    /// Whether a call becomes one of another name.
    pub fn renames(&self, function: &Function) -> bool {
        let Some(name) = name_of(function) else { return false };
        let arguments = values(function).map_or(0, |values| values.len());
        let has_others =
            OTHER_ARGUMENTS.iter().any(|(there, number, _)| *there == name && *number == arguments);
        if has_others || substrings::of_call(&name, function).is_some() {
            return true;
        }
        if SUMS.contains(&name.as_str()) && is_of_truths(function) {
            return true;
        }
        if replacements::may_change(&name, function) || json::written_out(function).is_some() {
            return true;
        }
        let is_own = OWN.contains(&name.as_str()) || RENAMED.iter().any(|(other, _)| *other == name);
        !self.is_there(&name) && (is_own || known(&name, arguments).is_some())
    }

    /// What a call is in other words.
    pub fn written_out(&mut self, function: &mut Function) -> Result<Option<Expr>> {
        let Some(name) = name_of(function) else { return Ok(None) };
        let arguments = arguments(function).len();
        let other = OTHER_ARGUMENTS.iter().find(|(there, number, _)| *there == name && *number == arguments);
        if let Some((_, _, other)) = other.filter(|_| self.is_there(&name)) {
            return self.known(other, &name, function);
        }
        if let Some(part) = substrings::of_call(&name, function) {
            return Ok(Some(part));
        }
        let made = array_subqueries::written_out(function)?.or_else(|| json::written_out(function));
        if made.is_some() {
            return Ok(made);
        }
        let is_quantile = match arguments {
            1 => !function.within_group.is_empty() && name.starts_with("percentile_"),
            2 => ["quantile_cont", "quantile_disc", "quantile", "approx_quantile", "percentile_cont"]
                .contains(&name.as_str()),
            _ => false,
        };
        if is_quantile {
            let several = several_quantiles(function)?;
            if let Some(several) = several {
                return self.each(several).map(Some);
            }
        }
        ordered_sets::rewrite(&name, function)?;
        if name == "strptime" || name == "try_strptime" {
            strptime(function);
        }
        if name == "struct_insert" || name == "struct_update" {
            name_fields(function);
        }
        if name == "date_trunc" || name == "datetrunc" {
            name_unit(function);
        }
        replacements::rewrite(&name, function);
        if name == "regexp_extract"
            && let Some(fields) = self.named_groups(function)?
        {
            return Ok(Some(fields));
        }
        if SUMS.contains(&name.as_str()) && self.is_there(&name) {
            sum_of_truths(function);
        }
        if self.is_there(&name) {
            return Ok(None);
        }
        if let Some((_, other)) = RENAMED.iter().find(|(other, _)| *other == name) {
            function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(*other))]);
            return Ok(None);
        }
        match name.as_str() {
            "struct_pack" => struct_pack(function).map(Some),
            "date_diff" | "datediff" => self.date_between("date_diff", &name, function).map(Some),
            "date_sub" | "datesub" if arguments == 3 => {
                self.date_between("date_sub", &name, function).map(Some)
            }
            "try" => tried(function).map(Some),
            "strftime" => strftime(function).map(Some),
            "time_bucket" => time_bucket(function).map(Some),
            "current_setting" => current_setting(function, self.state).map(Some),
            "current_database" => Ok(Some(literal(&self.state.config_options().catalog.default_catalog))),
            "list_aggregate" | "list_aggr" | "array_aggregate" | "array_aggr" | "aggregate" => {
                self.list_aggregate(&name, function).map(Some)
            }
            _ => self.known(&name, &name, function),
        }
    }

    /// The calls of a list, written out.
    fn each(&mut self, mut list: Expr) -> Result<Expr> {
        let Expr::Array(calls) = &mut list else { return Ok(list) };
        for call in &mut calls.elem {
            if let Expr::Function(function) = call
                && let Some(written) = self.written_out(function)?
            {
                *call = written;
            }
        }
        Ok(list)
    }

    /// A function of `functions.sql`.
    fn known(&mut self, name: &str, shown: &str, function: &Function) -> Result<Option<Expr>> {
        match known(name, arguments(function).len()) {
            Some(known) => known.written_out(shown, function, self.spent).map(Some),
            None => Ok(None),
        }
    }

    /// `regexp_extract(s, p, ['a', 'b'])` is a struct of the first groups, by these names.
    fn named_groups(&mut self, function: &Function) -> Result<Option<Expr>> {
        let given = values(function).unwrap_or_default();
        let [text, _, Expr::Array(names)] = given.as_slice() else { return Ok(None) };
        let mut fields = Vec::new();
        for (place, name) in (1_usize..).zip(&names.elem) {
            let mut one = function.clone();
            if let FunctionArguments::List(list) = &mut one.args
                && let Some(last) = list.args.last_mut()
            {
                *last = unnamed(Expr::value(Value::Number(place.to_string(), false)));
            }
            let Some(group) = self.known("regexp_extract", "regexp_extract", &one)? else { return Ok(None) };
            fields.extend([name.clone(), group]);
        }
        match call("constant_or_null", vec![call("named_struct", fields), (*text).clone()]) {
            Expr::Function(of_text) => self.known("constant_or_null", "regexp_extract", &of_text),
            _ => Ok(None),
        }
    }

    /// `list_aggregate(l, 'sum')` is `list_sum(l)`: the name of the aggregate must stand there.
    fn list_aggregate(&mut self, name: &str, function: &Function) -> Result<Expr> {
        let values = values(function).unwrap_or_default();
        let (Some(list), Some(aggregate)) = (values.first(), values.get(1).and_then(|value| text(value)))
        else {
            return plan_err!("{name} takes a list and the name of an aggregate, such as {name}(l, 'sum')");
        };
        let others = values.iter().skip(2).map(|value| (*value).clone());
        let of_list =
            call(&format!("list_{aggregate}"), [(*list).clone()].into_iter().chain(others).collect());
        match &of_list {
            Expr::Function(of_list) if !self.is_there(&format!("list_{aggregate}")) => {
                match self.known(&format!("list_{aggregate}"), name, of_list)? {
                    Some(written) => Ok(written),
                    None => plan_err!("{name}: lists have no aggregate '{aggregate}'"),
                }
            }
            _ => Ok(of_list),
        }
    }

    /// `date_diff('month', a, b)` and `date_sub('month', a, b)`: the unit must stand there.
    fn date_between(&mut self, what: &str, name: &str, function: &Function) -> Result<Expr> {
        let Some([part, from, to]) = values(function).and_then(|values| <[&Expr; 3]>::try_from(values).ok())
        else {
            return plan_err!("{name} takes a unit and two times, such as {name}('day', a, b)");
        };
        let unit = match text(part) {
            Some(text) => text.to_lowercase(),
            None => match part {
                // A letter alone may well be a column.
                Expr::Identifier(unit) if unit.value.len() > 2 => unit.value.to_lowercase(),
                _ => return plan_err!("{name}: the unit must be written as a text, such as 'day'"),
            },
        };
        let Some(unit) = unit_of(&unit) else { return plan_err!("{name}: the unit '{unit}' is not known") };
        let mut written = function.clone();
        if let FunctionArguments::List(list) = &mut written.args {
            list.args = [from, to].map(|value| unnamed(value.clone())).into();
        }
        match self.known(&format!("{what} {unit}"), name, &written)? {
            Some(written) => Ok(written),
            None => plan_err!("{name}: the unit '{unit}' is not known"),
        }
    }
}

fn unit_of(unit: &str) -> Option<&'static str> {
    const UNITS: [(&str, &[&str]); 13] = [
        ("millennium", &["millennia", "millenniums", "mil"]),
        ("century", &["centuries", "cent", "c"]),
        ("decade", &["decades", "dec", "decs"]),
        ("year", &["years", "yr", "yrs", "y"]),
        ("quarter", &["quarters"]),
        ("month", &["months", "mon", "mons"]),
        ("week", &["weeks", "w"]),
        ("day", &["days", "d", "dayofmonth"]),
        ("hour", &["hours", "hr", "hrs", "h"]),
        ("minute", &["minutes", "min", "mins", "m"]),
        ("second", &["seconds", "sec", "secs", "s"]),
        ("millisecond", &["milliseconds", "ms", "msec", "msecs"]),
        ("microsecond", &["microseconds", "us", "usec", "usecs"]),
    ];
    UNITS.iter().find(|(name, others)| *name == unit || others.contains(&unit)).map(|(name, _)| *name)
}

fn arguments(function: &Function) -> &[FunctionArg] {
    match &function.args {
        FunctionArguments::List(list) => &list.args,
        _ => &[],
    }
}

/// The arguments of a call; nothing where one has a name.
fn values(function: &Function) -> Option<Vec<&Expr>> {
    let value = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref value)) => Some(value),
        _ => None,
    };
    arguments(function).iter().map(value).collect()
}

fn unnamed(value: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(value))
}

/// A text between quotes.
pub(super) fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => text(inner),
        _ => None,
    }
}

/// `struct_pack(a := 1)` is `named_struct('a', 1)`. A column without a name of its own gives that.
fn struct_pack(function: &Function) -> Result<Expr> {
    let mut fields = Vec::new();
    for arg in arguments(function) {
        let (name, value) = match arg {
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => (name.value.clone(), value),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value @ Expr::Identifier(name))) => {
                (name.value.clone(), value)
            }
            other => return plan_err!("struct_pack: {other} has no name: write name := value"),
        };
        fields.extend([literal(name), value.clone()]);
    }
    Ok(call("named_struct", fields))
}

/// `struct_insert(s, a := 1)` is `struct_insert(s, 'a', 1)`.
fn name_fields(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    list.args = std::mem::take(&mut list.args)
        .into_iter()
        .flat_map(|arg| match arg {
            FunctionArg::Named { name, arg, .. } => {
                vec![unnamed(literal(name.value)), FunctionArg::Unnamed(arg)]
            }
            arg => vec![arg],
        })
        .collect();
}

/// `date_trunc('months', t)` is `date_trunc('month', t)`.
fn name_unit(function: &mut Function) {
    if let FunctionArguments::List(list) = &mut function.args
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(part))) = list.args.first_mut()
        && let Some(unit) = text(part).and_then(|part| unit_of(&part.to_lowercase()))
    {
        *part = literal(unit);
    }
}

/// Whether the only argument of a call is a condition.
fn is_of_truths(function: &Function) -> bool {
    matches!(values(function).as_deref(), Some([only]) if is_condition(only))
}

/// `sum(x > 1)` is how many there are.
fn sum_of_truths(function: &mut Function) {
    if !is_of_truths(function) {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(condition))] = list.args.as_mut_slice()
    {
        *condition = cast(taken(condition), DataType::BigInt(None));
    }
}

/// `try(x::integer)`: the casts of it give NULL where they fail.
fn tried(function: &Function) -> Result<Expr> {
    let Some([only]) = values(function).and_then(|values| <[&Expr; 1]>::try_from(values).ok()) else {
        return plan_err!("try takes one expression");
    };
    let mut only = only.clone();
    change_exprs(&mut only, &mut |expr| {
        if let Expr::Cast { kind, .. } = expr {
            *kind = CastKind::TryCast;
        }
    });
    match &only {
        Expr::Cast { .. } => Ok(only),
        _ => plan_err!("try takes a cast, such as try(x::integer): what else fails is an error"),
    }
}

/// Who runs a statement, and where: names that the standard has as words without parentheses.
pub(super) fn word(expr: &Expr, state: &SessionState) -> Option<Expr> {
    // The parser makes calls without arguments of some of them.
    let name = match expr {
        Expr::Identifier(name) => name,
        Expr::Function(function) => match function.name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] if arguments(function).is_empty() => name,
            _ => return None,
        },
        _ => return None,
    };
    if name.quote_style.is_some() {
        return None;
    }
    let catalog = &state.config_options().catalog;
    Some(literal(match name.value.to_ascii_lowercase().as_str() {
        "current_user" | "session_user" | "current_role" => "kelpie",
        "current_schema" => &catalog.default_schema,
        "current_catalog" => &catalog.default_catalog,
        _ => return None,
    }))
}

/// The list of quantiles that several fractions ask for.
fn several_quantiles(function: &Function) -> Result<Option<Expr>> {
    let values = values(function).unwrap_or_default();
    let ([Expr::Array(fractions)] | [_, Expr::Array(fractions)]) = values.as_slice() else {
        return Ok(None);
    };
    let one = |fraction: &Expr| {
        let mut one = function.clone();
        if let FunctionArguments::List(list) = &mut one.args
            && let Some(last) = list.args.last_mut()
        {
            *last = unnamed(fraction.clone());
        }
        match one.name.to_string().eq_ignore_ascii_case("approx_quantile") {
            true => {
                one.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new("approx_percentile_cont"))]);
                Expr::Function(one)
            }
            false => Expr::Function(one),
        }
    };
    let mut all = fractions.clone();
    all.elem = fractions.elem.iter().map(one).collect();
    Ok(Some(Expr::Array(all)))
}

/// `strftime(time, format)`, in either order.
fn strftime(function: &Function) -> Result<Expr> {
    let Some([first, second]) = values(function).and_then(|values| <[&Expr; 2]>::try_from(values).ok())
    else {
        return plan_err!("strftime takes a time and a format, such as strftime(t, '%Y-%m-%d')");
    };
    let (time, format) = match (text(first), text(second)) {
        (_, Some(format)) => (first, format),
        (Some(format), None) => (second, format),
        (None, None) => {
            return plan_err!("strftime: the format must be written as a text, such as '%Y-%m-%d'");
        }
    };
    Ok(call("to_char", vec![time.clone(), literal(formats::to_write(format)?)]))
}

/// A list of formats that is written out is as many formats.
fn strptime(function: &mut Function) {
    if let FunctionArguments::List(list) = &mut function.args
        && let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(formats)))] = list.args.as_slice()
    {
        let formats: Vec<FunctionArg> = formats.elem.iter().cloned().map(unnamed).collect();
        list.args.truncate(1);
        list.args.extend(formats);
    }
}

/// `time_bucket(width, time)`: buckets of months begin in January 2000, and others on Monday, the third of that. A third argument is
/// another beginning, or an interval by which all of them begin later.
fn time_bucket(function: &Function) -> Result<Expr> {
    let values = values(function).unwrap_or_default();
    let (width, time, third) = match values.as_slice() {
        [width, time] => (*width, *time, None),
        [width, time, third] => (*width, *time, Some(*third)),
        _ => {
            return plan_err!(
                "time_bucket takes an interval and a time, such as time_bucket(INTERVAL '1 hour', t)"
            );
        }
    };
    let Some(written) = interval_of(width) else {
        return plan_err!(
            "time_bucket: the width must be written as an interval, such as INTERVAL '15 minutes'"
        );
    };
    let width = if text(width).is_some() { interval(&written) } else { width.clone() };
    let origin =
        || timestamp(if has_months(&written) { "2000-01-01 00:00:00" } else { "2000-01-03 00:00:00" });
    Ok(match third {
        None => call("date_bin", vec![width, time.clone(), origin()]),
        Some(offset) if interval_of(offset).is_some() && text(offset).is_none() => {
            let shifted =
                |left: Expr, op| Expr::BinaryOp { left: Box::new(left), op, right: Box::new(offset.clone()) };
            let time = Expr::Nested(Box::new(time.clone()));
            let bucket = call("date_bin", vec![width, shifted(time, BinaryOperator::Minus), origin()]);
            Expr::Nested(Box::new(shifted(bucket, BinaryOperator::Plus)))
        }
        Some(begin) => call("date_bin", vec![width, time.clone(), as_timestamp(begin.clone())]),
    })
}

/// What an interval says, where it is written out.
fn interval_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Interval(interval) => {
            let value = match interval.value.as_ref() {
                Expr::Value(value) => {
                    value.value.clone().into_string().or_else(|| Some(value.to_string()))?
                }
                other => other.to_string(),
            };
            let unit = interval.leading_field.as_ref().map(ToString::to_string).unwrap_or_default();
            Some(format!("{value} {unit}"))
        }
        Expr::Cast { expr, data_type: DataType::Interval { .. }, .. } => text(expr).map(ToString::to_string),
        Expr::Nested(inner) => interval_of(inner),
        other => text(other).map(ToString::to_string),
    }
}

/// Whether an interval is one of months and what they make up.
fn has_months(interval: &str) -> bool {
    let interval = interval.to_lowercase();
    let words = interval.split(|letter: char| !letter.is_alphabetic());
    let is_month = |word: &str| {
        matches!(word, "y" | "yr" | "yrs" | "mil" | "cent")
            || ["mon", "year", "quarter", "decade", "centur", "millenn"]
                .iter()
                .any(|unit| word.starts_with(unit))
    };
    words.filter(|word| !word.is_empty()).any(is_month)
}

fn interval(text: &str) -> Expr {
    cast(literal(text), DataType::Interval { fields: None, precision: None })
}

fn timestamp(text: &str) -> Expr {
    as_timestamp(literal(text))
}

fn as_timestamp(expr: Expr) -> Expr {
    cast(expr, DataType::Timestamp(None, TimezoneInfo::None))
}

/// The value of an option as it is now.
fn current_setting(function: &Function, state: &SessionState) -> Result<Expr> {
    let name = match values(function).as_deref() {
        Some([only]) => text(only).map(str::to_lowercase),
        _ => None,
    };
    let Some(name) = name else {
        return plan_err!(
            "current_setting takes the name of an option, such as current_setting('kelpie.device')"
        );
    };
    let meant = setting(&name).unwrap_or(&name);
    match state.config_options().entries().into_iter().find(|entry| entry.key == meant) {
        Some(entry) => Ok(entry.value.map_or_else(|| Expr::value(Value::Null), literal)),
        None => plan_err!("current_setting: there is no option {name}"),
    }
}
