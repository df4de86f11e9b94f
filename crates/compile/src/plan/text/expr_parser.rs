//! Text to expression.

use super::expr_printer::{Strength, is_of_one_type};
use super::infer::gives;
use super::lexer::Kind;
use super::scope::Scope;
use super::tokens::Tokens;
use super::values::{nan_of, usual_type_of, value_of};
use super::{MAX_DEPTH, MAX_NESTING, Result, words};
use crate::expr::{Bins, Expr, ExprKind, Function};
use crate::types::{DataType, Field, Literal};

/// An expression that is read.
pub(super) struct Operand {
    pub(super) expr: Expr,
    /// Operators on top of each other.
    pub(super) depth: usize,
    /// Of a constant without a type where it stands, so that its type can follow from what it stands beside.
    pub(super) bare: Option<usize>,
    /// Whether it is a comparison, which no other has as its operand.
    pub(super) is_comparison: bool,
}

impl Operand {
    fn atom(expr: Expr) -> Operand {
        Operand { expr, depth: 0, bare: None, is_comparison: false }
    }
}

// ---- types and constants

impl Tokens {
    pub(super) fn data_type(&mut self) -> Result<DataType> {
        if self.accept_word("Decimal128") {
            self.mark("(")?;
            let precision = self.number("a number of digits")?;
            self.mark(",")?;
            let negative = self.accept("-");
            let scale: i8 = self.number("a number of digits behind the point")?;
            self.mark(")")?;
            return Ok(DataType::Decimal128 { precision, scale: if negative { -scale } else { scale } });
        }
        if self.accept_word("Timestamp") {
            self.mark("(")?;
            let unit = self.lookup("the unit of a timestamp", words::time_unit_of)?;
            let timezone = match (self.accept(","), self.peek()) {
                (true, Kind::Text(zone)) => Some(zone.as_str().into()),
                (true, _) => return self.expected("a time zone in single quotes"),
                (false, _) => None,
            };
            self.next += usize::from(timezone.is_some());
            self.mark(")")?;
            return Ok(DataType::Timestamp { unit, timezone });
        }
        if self.accept_word("Duration") {
            self.mark("(")?;
            let unit = self.lookup("the unit of a duration", words::time_unit_of)?;
            self.mark(")")?;
            return Ok(DataType::Duration { unit });
        }
        self.lookup("a type", words::simple_type_of)
    }

    /// A constant of a type.
    pub(super) fn value_of(&mut self, data_type: &DataType) -> Result<Literal> {
        let start = self.position();
        let negative = self.accept("-");
        if self.is_word("NaN") && self.is_mark_at(1, "(") && data_type.is_float() && !negative {
            return self.nan();
        }
        match value_of(self.peek(), negative, data_type) {
            Some(value) => {
                self.next += 1;
                Ok(value)
            }
            None if *self.peek() == Kind::End => self.expected(&format!("a value of type {data_type}")),
            None => self.error_at(start, format!("{} is no value of type {data_type}", self.peek())),
        }
    }

    /// A NaN with its bits.
    fn nan(&mut self) -> Result<Literal> {
        self.next += 2;
        let literal = match self.peek() {
            Kind::Number(bits) => nan_of(bits),
            _ => None,
        };
        match literal {
            Some(literal) => {
                self.next += 1;
                self.mark(")")?;
                Ok(literal)
            }
            None => self.expected("the bits of a NaN in hexadecimal"),
        }
    }

    /// The type of the constant that is next, where that has only its text.
    fn bare_type(&self) -> Option<DataType> {
        usual_type_of(&self.token(usize::from(self.is_mark_at(0, "-"))).kind)
    }

    /// Lets a constant without a type be of this one.
    pub(super) fn fit(&mut self, operand: &mut Operand, data_type: &DataType) -> Result<()> {
        let Some(position) = operand.bare.take() else { return Ok(()) };
        let after = std::mem::replace(&mut self.next, position);
        operand.expr = Expr::literal(self.value_of(data_type)?, data_type.clone());
        self.next = after;
        Ok(())
    }

    /// Lets either of two operands say of which type a constant is that is the other.
    pub(super) fn fit_both(&mut self, a: &mut Operand, b: &mut Operand) -> Result<()> {
        match (a.bare, b.bare) {
            (Some(_), None) => self.fit(a, &b.expr.data_type.clone()),
            (None, Some(_)) => self.fit(b, &a.expr.data_type.clone()),
            _ => Ok(()),
        }
    }
}

// ---- expressions

impl Tokens {
    /// An expression over the columns of `scope`.
    pub(super) fn expr(&mut self, scope: &Scope) -> Result<Expr> {
        Ok(self.operand(scope, Strength::Any)?.expr)
    }

    /// An expression without a comparison that stands outside of brackets.
    pub(super) fn side_of_equality(&mut self, scope: &Scope) -> Result<Expr> {
        Ok(self.operand(scope, Strength::Concat)?.expr)
    }

    /// An expression of operators that bind at least as strongly.
    pub(super) fn operand(&mut self, scope: &Scope, least: Strength) -> Result<Operand> {
        if self.nesting >= MAX_NESTING {
            return self.error_at(self.next, format!("nested deeper than {MAX_NESTING}"));
        }
        self.nesting += 1;
        let mut left = self.prefix(scope, least)?;
        while let Some(infix) = self.infix(least) {
            if infix.strength == Strength::Compare && left.is_comparison {
                return self.error_at(self.next, "comparisons of comparisons need brackets");
            }
            left = self.infixed(scope, left, infix)?;
            if left.depth > MAX_DEPTH {
                return self
                    .error_at(self.next, format!("more than {MAX_DEPTH} operators on top of each other"));
            }
        }
        self.nesting -= 1;
        Ok(left)
    }

    fn prefix(&mut self, scope: &Scope, least: Strength) -> Result<Operand> {
        if self.is_word("not") && least <= Strength::Not {
            self.next += 1;
            let a = self.operand(scope, Strength::Not)?;
            return Ok(made(ExprKind::Not(Box::new(a.expr)), &DataType::Boolean, a.depth));
        }
        if self.is_mark_at(0, "-") && self.bare_type().is_none_or(|bare| bare == DataType::Null) {
            self.next += 1;
            let a = self.operand(scope, Strength::Atom)?;
            return Ok(made(ExprKind::Negate(Box::new(a.expr)), &DataType::Null, a.depth));
        }
        self.atom(scope)
    }

    fn atom(&mut self, scope: &Scope) -> Result<Operand> {
        let position = self.position();
        if let Some(data_type) = self.bare_type() {
            let expr = Expr::literal(self.value_of(&data_type)?, data_type);
            return Ok(Operand { bare: Some(position), ..Operand::atom(expr) });
        }
        if self.accept("(") {
            return self.in_brackets(scope);
        }
        if self.accept("#") {
            return self.numbered_column(scope, position);
        }
        match self.peek() {
            Kind::Word(word) if self.is_call() => {
                let word = word.clone();
                match word.as_str() {
                    "cast" | "try_cast" => self.cast(scope, word == "try_cast"),
                    "Decimal128" | "Timestamp" | "Duration" => self.typed_constant(),
                    "scalar" => {
                        self.error_at(position, "the type of `scalar` must follow: `(scalar(0) : Int64?)`")
                    }
                    _ => self.call(scope),
                }
            }
            Kind::Word(word) if word == "case" => self.case(scope),
            Kind::Word(word) if words::simple_type_of(word).is_some() => self.typed_constant(),
            Kind::Word(_) | Kind::Name(_) => self.named_column(scope),
            _ => self.expected("an expression"),
        }
    }

    fn typed_constant(&mut self) -> Result<Operand> {
        let data_type = self.data_type()?;
        Ok(Operand::atom(Expr::literal(self.value_of(&data_type)?, data_type)))
    }

    /// `(expr)` or `(expr : Type)`, the opening bracket of which stands before.
    fn in_brackets(&mut self, scope: &Scope) -> Result<Operand> {
        let mut inner = match self.untyped()? {
            Some(expr) if self.is_mark_at(0, ":") => Operand::atom(expr),
            Some(_) => return self.expected("`:` and a type"),
            None => self.operand(scope, Strength::Any)?,
        };
        if self.accept(":") {
            inner.expr.data_type = self.data_type()?;
            inner.expr.nullable = self.accept("?");
        }
        self.mark(")")?;
        Ok(Operand { bare: None, is_comparison: false, ..inner })
    }

    /// What has no type by itself: a subquery, or a column that the input does not have.
    fn untyped(&mut self) -> Result<Option<Expr>> {
        let start = self.position();
        let kind = if self.is_word("scalar") && self.is_call() {
            self.next += 2;
            let index = self.number("the number of a subquery")?;
            self.mark(")")?;
            ExprKind::Scalar(index)
        } else if self.accept("#") {
            ExprKind::Column(self.number("the number of a column")?)
        } else {
            return Ok(None);
        };
        if matches!(kind, ExprKind::Column(_)) && !self.is_mark_at(0, ":") {
            self.next = start;
            return Ok(None);
        }
        Ok(Some(Expr { kind, data_type: DataType::Null, nullable: true }))
    }

    fn numbered_column(&mut self, scope: &Scope, position: usize) -> Result<Operand> {
        let index = self.number("the number of a column")?;
        match scope.field(index) {
            Some(field) => Ok(Operand::atom(column(index, field))),
            None => self.error_at(position, format!("there is no column #{index}")),
        }
    }

    fn named_column(&mut self, scope: &Scope) -> Result<Operand> {
        let position = self.position();
        let side = match self.peek() {
            Kind::Word(word) if self.is_mark_at(1, ".") => Some(word.clone()),
            _ => None,
        };
        self.next += 2 * usize::from(side.is_some());
        let name = self.name("an expression")?;
        let found = scope.find(side.as_deref(), &name);
        match (found.as_slice(), found.first().and_then(|index| scope.field(*index))) {
            ([index], Some(field)) => Ok(Operand::atom(column(*index, field))),
            ([], _) => self.error_at(position, format!("there is no column {name}")),
            _ => self.error_at(
                position,
                format!("there are several columns {name}: say which by `#` and its number"),
            ),
        }
    }

    fn cast(&mut self, scope: &Scope, safe: bool) -> Result<Operand> {
        self.next += 2;
        let input = self.operand(scope, Strength::Any)?;
        self.word("as")?;
        let target = self.data_type()?;
        self.mark(")")?;
        Ok(made(ExprKind::Cast { input: Box::new(input.expr), safe }, &target, input.depth))
    }

    fn call(&mut self, scope: &Scope) -> Result<Operand> {
        let function = if self.accept_word("part") {
            self.mark("(")?;
            Function::Part(self.number("how often rows are halved")?)
        } else if self.accept_word("date_part") {
            self.mark("(")?;
            Function::DatePart(self.lookup("a part of a date", words::date_part_of)?)
        } else if self.accept_word("date_trunc") {
            self.mark("(")?;
            Function::DateTrunc(self.lookup("what a date is cut to", words::granularity_of)?)
        } else if self.accept_word("date_bin") {
            self.mark("(")?;
            let width = self.number("ticks of a bin")?;
            self.mark(",")?;
            Function::DateBin(Bins { width, first: self.number("the first tick of a bin")? })
        } else {
            let function = self.lookup("a function", words::function_of)?;
            self.mark("(")?;
            function
        };
        let has_constant = matches!(
            function,
            Function::Part(_) | Function::DatePart(_) | Function::DateTrunc(_) | Function::DateBin(_)
        );
        if has_constant && !self.is_mark_at(0, ")") {
            self.mark(",")?;
        }
        let mut operands = self.closed_list(|tokens| tokens.operand(scope, Strength::Any))?;
        if let Some((first, others)) = operands.split_first_mut()
            && is_of_one_type(function)
            && first.bare.is_none()
        {
            others.iter_mut().try_for_each(|other| self.fit(other, &first.expr.data_type))?;
        }
        let depth = deepest(&operands);
        let arguments = operands.into_iter().map(|operand| operand.expr).collect();
        Ok(made(ExprKind::Function(function, arguments), &DataType::Null, depth))
    }

    fn case(&mut self, scope: &Scope) -> Result<Operand> {
        self.next += 1;
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        while self.accept_word("when") {
            conditions.push(self.operand(scope, Strength::Any)?);
            self.word("then")?;
            results.push(self.operand(scope, Strength::Any)?);
        }
        if self.accept_word("else") {
            results.push(self.operand(scope, Strength::Any)?);
        }
        self.word("end")?;
        if let Some((first, others)) = results.split_first_mut()
            && first.bare.is_none()
        {
            others.iter_mut().try_for_each(|other| self.fit(other, &first.expr.data_type))?;
        }
        let depth = deepest(&conditions).max(deepest(&results));
        let mut results = results.into_iter().map(|operand| operand.expr);
        let branches = conditions.into_iter().zip(results.by_ref()).map(|(when, then)| (when.expr, then));
        let branches = branches.collect();
        let otherwise = results.next().map(Box::new);
        Ok(made(ExprKind::Case { branches, otherwise }, &DataType::Null, depth))
    }
}

fn column(index: usize, field: &Field) -> Expr {
    Expr::column(index, field.data_type.clone(), field.nullable)
}

pub(super) fn deepest(operands: &[Operand]) -> usize {
    operands.iter().map(|operand| operand.depth).max().unwrap_or(0)
}

/// An operator of the type that its operands have it of, or where it is a cast of the type `target`.
pub(super) fn made(kind: ExprKind, target: &DataType, depth: usize) -> Operand {
    let given = gives(&kind, target);
    let (data_type, nullable) =
        given.map_or((DataType::Null, true), |given| (given.data_type, given.nullable));
    Operand::atom(Expr { kind, data_type, nullable }).on_top_of(depth)
}

impl Operand {
    fn on_top_of(self, depth: usize) -> Operand {
        Operand { depth: depth + 1, ..self }
    }
}
