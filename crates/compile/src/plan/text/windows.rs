//! Windows, both ways: `window order by k asc nulls last; row_number() partition 1 order 1 as n, sum(v) partition 1 order 1 rows first
//! to current as s`.

use super::super::{Aggregate, Frame, FrameBound, FrameUnits, Plan, Window, WindowCall, WindowFunction};
use super::Result;
use super::aggregates::{clauses, said_of};
use super::expr_printer::expr_text;
use super::infer::{Gives, aggregated};
use super::lexer::Kind;
use super::operators::{order, order_text};
use super::scope::Scope;
use super::tokens::Tokens;
use super::words;
use crate::types::{DataType, Field};

/// The line of a window.
pub(super) fn window_text(window: &Window, scope: &Scope) -> String {
    let order = (!window.keys.is_empty()).then(|| format!("order by {}", order_text(&window.keys, scope)));
    let functions: Vec<String> =
        window.functions.iter().map(|function| function_text(function, scope)).collect();
    clauses("window", [order, (!functions.is_empty()).then(|| functions.join(", "))])
}

fn function_text(function: &WindowFunction, scope: &Scope) -> String {
    let WindowFunction { call, partition, order, frame, field } = function;
    let call_text = call_text(call, scope);
    let frame = if call.has_frame() { frame_text(frame, scope) } else { String::new() };
    format!("{call_text} partition {partition} order {order}{frame}{}", said_of(field, &given(call)))
}

fn call_text(call: &WindowCall, scope: &Scope) -> String {
    let nulls = |ignores: bool| if ignores { " ignore nulls" } else { "" };
    match call {
        WindowCall::RowNumber => "row_number()".into(),
        WindowCall::Rank => "rank()".into(),
        WindowCall::DenseRank => "dense_rank()".into(),
        WindowCall::PercentRank => "percent_rank()".into(),
        WindowCall::CumeDist => "cume_dist()".into(),
        WindowCall::Ntile(parts) => format!("ntile({parts})"),
        WindowCall::Shifted { argument, offset, default, ignores_nulls } => {
            let default = default.as_ref().map(|default| format!(", {}", expr_text(default, scope)));
            let argument = expr_text(argument, scope);
            let default = default.unwrap_or_default();
            format!("shifted({argument}, {offset}{default}){}", nulls(*ignores_nulls))
        }
        WindowCall::At { argument, place, ignores_nulls } => {
            format!("at({}, {place}){}", expr_text(argument, scope), nulls(*ignores_nulls))
        }
        WindowCall::Aggregate { function, argument } => {
            let argument = argument.as_ref().map_or("*".into(), |argument| expr_text(argument, scope));
            format!("{}({argument})", words::aggregate(*function).unwrap_or_default())
        }
    }
}

fn frame_text(frame: &Frame, scope: &Scope) -> String {
    let units = match frame.units {
        FrameUnits::Rows => "rows",
        FrameUnits::Range => "range",
        FrameUnits::Groups => "groups",
    };
    let bound = |bound: &FrameBound| match bound {
        FrameBound::UnboundedPreceding => "first".into(),
        FrameBound::Preceding(distance) => format!("preceding {}", expr_text(distance, scope)),
        FrameBound::CurrentRow => "current".into(),
        FrameBound::Following(distance) => format!("following {}", expr_text(distance, scope)),
        FrameBound::UnboundedFollowing => "last".into(),
    };
    format!(" {units} {} to {}", bound(&frame.start), bound(&frame.end))
}

/// What a call gives where nothing else is said.
fn given(call: &WindowCall) -> Gives {
    match call {
        WindowCall::RowNumber | WindowCall::Rank | WindowCall::DenseRank | WindowCall::Ntile(_) => {
            Gives { data_type: DataType::UInt64, nullable: false }
        }
        WindowCall::PercentRank | WindowCall::CumeDist => {
            Gives { data_type: DataType::Float64, nullable: false }
        }
        WindowCall::Shifted { argument, .. } | WindowCall::At { argument, .. } => {
            Gives { data_type: argument.data_type.clone(), nullable: true }
        }
        WindowCall::Aggregate { function, argument } => {
            let field = Field { name: String::new(), data_type: DataType::Null, nullable: true };
            let (function, argument) = (*function, argument.clone());
            aggregated(&Aggregate { function, argument, distinct: false, field })
        }
    }
}

impl Tokens {
    /// As [`window_text`] prints it.
    pub(super) fn window(&mut self, input: Plan) -> Result<Plan> {
        let scope = Scope::of(input.fields());
        let mut keys = Vec::new();
        if self.accept_word("order") {
            self.word("by")?;
            keys = order(self, &scope)?;
            if *self.peek() != Kind::End {
                self.mark(";")?;
            }
        }
        let functions = match *self.peek() == Kind::End {
            true => Vec::new(),
            false => self.list(|tokens| tokens.window_function(&scope))?,
        };
        Ok(Plan::Window(Box::new(Window { input, keys, functions })))
    }

    fn window_function(&mut self, scope: &Scope) -> Result<WindowFunction> {
        let call = self.window_call(scope)?;
        self.word("partition")?;
        let partition = self.number("a number of keys")?;
        self.word("order")?;
        let order = self.number("a number of keys")?;
        let frame = if call.has_frame() { self.frame(scope)? } else { Frame::PARTITION };
        let field = self.said(given(&call))?;
        Ok(WindowFunction { call, partition, order, frame, field })
    }

    fn window_call(&mut self, scope: &Scope) -> Result<WindowCall> {
        let position = self.position();
        let Kind::Word(word) = self.advance() else {
            return self.error_at(position, "expected a window function");
        };
        self.mark("(")?;
        let call = match word.as_str() {
            "row_number" => WindowCall::RowNumber,
            "rank" => WindowCall::Rank,
            "dense_rank" => WindowCall::DenseRank,
            "percent_rank" => WindowCall::PercentRank,
            "cume_dist" => WindowCall::CumeDist,
            "ntile" => WindowCall::Ntile(self.number("a number of parts")?),
            "shifted" | "at" => {
                let argument = self.expr(scope)?;
                self.mark(",")?;
                let negative = self.accept("-");
                let distance: i64 = self.number("a number of rows")?;
                let distance = if negative { -distance } else { distance };
                let default = match self.accept(",") {
                    true => Some(self.expr(scope)?),
                    false => None,
                };
                self.mark(")")?;
                let ignores_nulls = self.accept_word("ignore");
                if ignores_nulls {
                    self.word("nulls")?;
                }
                return Ok(match word.as_str() {
                    "at" => WindowCall::At { argument, place: distance, ignores_nulls },
                    _ => WindowCall::Shifted { argument, offset: distance, default, ignores_nulls },
                });
            }
            other => {
                let Some(function) = words::aggregate_of(other) else {
                    return self.error_at(position, format!("there is no window function `{other}`"));
                };
                let argument = if self.accept("*") { None } else { Some(self.expr(scope)?) };
                WindowCall::Aggregate { function, argument }
            }
        };
        self.mark(")")?;
        Ok(call)
    }

    fn frame(&mut self, scope: &Scope) -> Result<Frame> {
        let unit = |word: &str| match word {
            "rows" => Some(FrameUnits::Rows),
            "range" => Some(FrameUnits::Range),
            "groups" => Some(FrameUnits::Groups),
            _ => None,
        };
        let units = self.lookup("the units of a frame", unit)?;
        let start = self.frame_bound(scope)?;
        self.word("to")?;
        Ok(Frame { units, start, end: self.frame_bound(scope)? })
    }

    fn frame_bound(&mut self, scope: &Scope) -> Result<FrameBound> {
        for (word, bound) in [
            ("first", FrameBound::UnboundedPreceding),
            ("current", FrameBound::CurrentRow),
            ("last", FrameBound::UnboundedFollowing),
        ] {
            if self.accept_word(word) {
                return Ok(bound);
            }
        }
        if self.accept_word("preceding") {
            return Ok(FrameBound::Preceding(self.expr(scope)?));
        }
        self.word("following")?;
        Ok(FrameBound::Following(self.expr(scope)?))
    }
}
