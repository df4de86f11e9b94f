//! DataFusion's physical expressions as Kelpie's.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr,
    LikeExpr, Literal as LiteralExpr, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use kelpie_compile::expr::{ArithmeticOp, BitOp, CompareOp, Expr, ExprKind, Function, Regex};
use kelpie_compile::lower::alike;
use kelpie_compile::types::{DataType, Literal};

use super::derive::Deriver;
use super::function;
use super::parameters::is_place;
use super::translated::{KnownScalar, Reasons};
use crate::recursion_guard::{expr_depth, operands};
use crate::types;

/// Levels of an expression that are translated, where a chain of AND or OR is one: what Kelpie's compiler takes.
const DEPTH_LIMIT: usize = 128;

/// Translates expressions over one schema.
pub(crate) struct ExprTranslator<'a> {
    /// What columns index.
    pub schema: &'a Schema,
    /// Position in Kelpie's input of each column of the schema; the same position where absent.
    pub positions: Option<&'a [usize]>,
    /// Where every reason goes.
    pub reasons: &'a mut Reasons,
    /// The scalar subqueries whose values are known when the expressions are computed.
    pub scalars: &'a [KnownScalar],
    /// Makes columns of expressions that do not compile, where that is possible.
    pub derive: Option<Deriver<'a>>,
    /// The operator that the expressions belong to, for people.
    pub operator: &'a str,
    /// How deep in an expression the translator is.
    pub level: usize,
}

type Child<'a> = &'a Arc<dyn PhysicalExpr>;

impl ExprTranslator<'_> {
    /// The expression, or reasons why not: all of them, so children are translated even where a sibling failed.
    pub fn expr(&mut self, e: Child<'_>) -> Option<Expr> {
        if self.level == 0 {
            let levels = expr_depth(e);
            if levels > DEPTH_LIMIT {
                // The expression itself is too long to be shown.
                let reason = format!(
                    "an expression is nested {levels} deep, and at most {DEPTH_LIMIT} levels are compiled"
                );
                self.reasons.push(format!("{}: {reason}", self.operator));
                return None;
            }
        }
        self.level += 1;
        let first = self.reasons.len();
        let translated = match self.nested(e) {
            Some(compiled) => self.tried(e, compiled),
            None => self.derived(e, first),
        };
        self.level -= 1;
        translated
    }

    fn nested(&mut self, e: Child<'_>) -> Option<Expr> {
        if let Some(binary) = e.downcast_ref::<BinaryExpr>()
            && matches!(binary.op(), Operator::And | Operator::Or)
        {
            return self.chain(e, *binary.op());
        }
        let data_type = self.type_of(e);
        let kind = self.kind(e);
        let nullable = e.nullable(self.schema).unwrap_or(true);
        Some(Expr { kind: kind?, data_type: data_type?, nullable })
    }

    /// Several expressions.
    pub fn exprs<'e>(&mut self, list: impl IntoIterator<Item = Child<'e>>) -> Option<Vec<Expr>> {
        let all: Vec<_> = list.into_iter().map(|e| self.expr(e)).collect();
        all.into_iter().collect()
    }

    /// What a node hands on. What is of a type that does not compile is NULL above it: expressions over it may be derived columns, and nothing
    /// else takes it.
    pub fn outputs<'e>(&mut self, list: impl IntoIterator<Item = Child<'e>>) -> Option<Vec<Expr>> {
        let all: Vec<_> = list
            .into_iter()
            .map(|e| match e.data_type(self.schema) {
                Ok(arrow) if types::column_type(&arrow).is_none() => {
                    Some(Expr::literal(Literal::Null, DataType::Boolean))
                }
                _ => self.expr(e),
            })
            .collect();
        all.into_iter().collect()
    }

    pub(super) fn refuse<T>(&mut self, e: &dyn std::fmt::Display, why: &str) -> Option<T> {
        self.reasons.push(format!("{}: {e}: {why}", self.operator));
        None
    }

    fn type_of(&mut self, e: Child<'_>) -> Option<DataType> {
        let arrow = match e.data_type(self.schema) {
            Ok(arrow) => arrow,
            Err(error) => return self.refuse(e, &error.to_string()),
        };
        match types::data_type(&arrow) {
            Some(data_type) => Some(data_type),
            None => self.refuse(e, &format!("the type {arrow} is not compiled")),
        }
    }

    fn kind(&mut self, e: Child<'_>) -> Option<ExprKind> {
        if let Some(column) = e.downcast_ref::<Column>() {
            self.column(e, column)
        } else if let Some(literal) = e.downcast_ref::<LiteralExpr>() {
            match types::literal(literal.value()) {
                Some(value) => Some(ExprKind::Literal(value)),
                None => self.refuse(e, "such constants are not compiled"),
            }
        } else if let Some(binary) = e.downcast_ref::<BinaryExpr>() {
            self.binary(e, binary)
        } else if let Some(cast) = e.downcast_ref::<CastExpr>() {
            self.cast(e, cast.expr(), cast.cast_options().safe)
        } else if let Some(cast) = e.downcast_ref::<TryCastExpr>() {
            self.cast(e, cast.expr(), true)
        } else if let Some(case) = e.downcast_ref::<CaseExpr>() {
            self.case(e, case)
        } else if let Some(x) = e.downcast_ref::<IsNullExpr>() {
            Some(ExprKind::IsNull(self.boxed(x.arg())?))
        } else if let Some(x) = e.downcast_ref::<IsNotNullExpr>() {
            Some(ExprKind::IsNotNull(self.boxed(x.arg())?))
        } else if let Some(x) = e.downcast_ref::<NotExpr>() {
            Some(ExprKind::Not(self.boxed(x.arg())?))
        } else if let Some(x) = e.downcast_ref::<NegativeExpr>() {
            Some(ExprKind::Negate(self.boxed(x.arg())?))
        } else if let Some(list) = e.downcast_ref::<InListExpr>() {
            self.in_list(e, list)
        } else if let Some(like) = e.downcast_ref::<LikeExpr>() {
            self.like(e, like)
        } else if let Some(call) = e.downcast_ref::<ScalarFunctionExpr>() {
            function::function(self, call)
        } else if let Some(scalar) = e.downcast_ref::<ScalarSubqueryExpr>() {
            match self.scalars.iter().find(|known| known.expr == *scalar) {
                Some(known) => Some(known.kind.clone()),
                None => self.refuse(e, "the scalar subquery belongs to an operator above"),
            }
        } else if e.is::<DynamicFilterPhysicalExpr>() {
            // Learned while another operator runs, and that operator drops the same rows: never needed.
            Some(ExprKind::Literal(Literal::Boolean(true)))
        } else {
            self.refuse(e, "this kind of expression is not compiled")
        }
    }

    /// A chain of ANDs or ORs, which may be long, as a balanced tree: no walk of it is deep.
    fn chain(&mut self, e: Child<'_>, connective: Operator) -> Option<Expr> {
        let mut exprs = self.exprs(operands(e, connective))?;
        while exprs.len() > 1 {
            let mut rest = exprs.into_iter();
            let mut pairs = Vec::new();
            while let Some(left) = rest.next() {
                let Some(right) = rest.next() else {
                    pairs.push(left);
                    break;
                };
                let nullable = left.nullable || right.nullable;
                let (left, right) = (Box::new(left), Box::new(right));
                let kind = match connective {
                    Operator::And => ExprKind::And(left, right),
                    _ => ExprKind::Or(left, right),
                };
                pairs.push(Expr { kind, data_type: DataType::Boolean, nullable });
            }
            exprs = pairs;
        }
        exprs.pop()
    }

    fn boxed(&mut self, e: Child<'_>) -> Option<Box<Expr>> {
        self.expr(e).map(Box::new)
    }

    fn pair(&mut self, left: Child<'_>, right: Child<'_>) -> Option<(Box<Expr>, Box<Expr>)> {
        let (left, right) = (self.boxed(left), self.boxed(right));
        Some((left?, right?))
    }

    fn column(&mut self, e: Child<'_>, column: &Column) -> Option<ExprKind> {
        let index = column.index();
        let field = self.schema.fields().get(index);
        if field.is_some_and(|field| types::column_type(field.data_type()).is_none()) {
            let shown = field.map(|field| field.data_type().to_string()).unwrap_or_default();
            // `type_of` has already said so of types that Kelpie does not know at all.
            return match shown.starts_with("Interval") || shown == "Null" {
                true => self.refuse(e, &format!("columns of type {shown} are not compiled")),
                false => None,
            };
        }
        let position = match self.positions {
            Some(positions) => positions.get(index).copied(),
            None => Some(index),
        };
        match position.filter(|p| *p != usize::MAX && field.is_some()) {
            Some(position) => Some(ExprKind::Column(position)),
            None => self.refuse(e, "the column is out of range"),
        }
    }

    fn binary(&mut self, e: Child<'_>, binary: &BinaryExpr) -> Option<ExprKind> {
        use Operator::*;
        let operator = binary.op();
        let regex = match operator {
            RegexMatch => Some(("", false)),
            RegexIMatch => Some(("i", false)),
            RegexNotMatch => Some(("", true)),
            RegexNotIMatch => Some(("i", true)),
            _ => None,
        };
        if let Some((flags, negated)) = regex {
            let how = function::RegexMatch { flags, negated };
            return function::regex(self, e, (binary.left(), binary.right()), how);
        }
        let pair = self.pair(binary.left(), binary.right());
        let compare = match operator {
            Eq => Some(CompareOp::Eq),
            NotEq => Some(CompareOp::Ne),
            Lt => Some(CompareOp::Lt),
            LtEq => Some(CompareOp::Le),
            Gt => Some(CompareOp::Gt),
            GtEq => Some(CompareOp::Ge),
            _ => None,
        };
        if compare.is_some() || matches!(operator, IsDistinctFrom | IsNotDistinctFrom) {
            let (left, right) = pair?;
            if left.data_type != right.data_type {
                let types = format!("{} and {} are not compared", left.data_type, right.data_type);
                return self.refuse(e, &types);
            }
            return Some(match compare {
                Some(op) => ExprKind::Compare(op, left, right),
                None => ExprKind::Distinct(*operator == IsNotDistinctFrom, left, right),
            });
        }
        let arithmetic = match operator {
            Plus => Some(ArithmeticOp::Add),
            Minus => Some(ArithmeticOp::Subtract),
            Multiply => Some(ArithmeticOp::Multiply),
            Divide => Some(ArithmeticOp::Divide),
            Modulo => Some(ArithmeticOp::Remainder),
            _ => None,
        };
        if let Some(op) = arithmetic {
            let (left, right) = pair?;
            // Ticks are ticks in any zone, where a day or a month is not.
            let is_ticks =
                |x: &Expr| matches!(x.data_type, DataType::Timestamp { .. } | DataType::Duration { .. });
            let of_ticks = is_ticks(&left) && is_ticks(&right);
            if !of_ticks && [&left, &right].into_iter().any(|x| is_zoned(&x.data_type)) {
                return self.refuse(e, "arithmetic in a time zone is not compiled");
            }
            return Some(ExprKind::Arithmetic(op, left, right));
        }
        let bits = match operator {
            BitwiseAnd => Some(BitOp::And),
            BitwiseOr => Some(BitOp::Or),
            BitwiseXor => Some(BitOp::Xor),
            BitwiseShiftLeft => Some(BitOp::ShiftLeft),
            BitwiseShiftRight => Some(BitOp::ShiftRight),
            _ => None,
        };
        if let Some(op) = bits {
            let (left, right) = pair?;
            if !left.data_type.is_integer() || left.data_type != right.data_type {
                let types = format!("bits of {} and {} are not compiled", left.data_type, right.data_type);
                return self.refuse(e, &types);
            }
            return Some(ExprKind::Function(Function::Bits(op), vec![*left, *right]));
        }
        match operator {
            StringConcat => {
                let (left, right) = pair?;
                let text = |e: &Expr| e.data_type == DataType::Utf8;
                match text(&left) && text(&right) {
                    true => Some(ExprKind::Function(Function::ConcatOperator, vec![*left, *right])),
                    false => self.refuse(e, "only text is concatenated"),
                }
            }
            _ => self.refuse(e, &format!("the operator {operator} is not compiled")),
        }
    }

    fn cast(&mut self, e: Child<'_>, input: Child<'_>, safe: bool) -> Option<ExprKind> {
        let target = e.data_type(self.schema).ok().as_ref().and_then(types::data_type)?;
        if let Some(literal) = input.downcast_ref::<LiteralExpr>()
            && literal.value().is_null()
        {
            return Some(ExprKind::Literal(Literal::Null));
        }
        let input = self.expr(input)?;
        if input.data_type == target {
            // Between Arrow's kinds of text, which are one type here.
            return Some(input.kind);
        }
        if is_zoned(&input.data_type) != is_zoned(&target) {
            return self.refuse(e, "casts to or from a time zone are not compiled");
        }
        Some(ExprKind::Cast { input: Box::new(input), safe })
    }

    fn case(&mut self, e: Child<'_>, case: &CaseExpr) -> Option<ExprKind> {
        let base = case.expr().map(|base| self.expr(base));
        let mut branches = Vec::new();
        for (when, then) in case.when_then_expr() {
            let (when, then) = (self.expr(when), self.expr(then));
            let (Some(when), Some(then)) = (when, then) else {
                branches.push(None);
                continue;
            };
            let condition = match &base {
                None => Some(when),
                // `CASE x WHEN y` is `CASE WHEN x = y`: a NULL on either side matches nothing.
                Some(base) => base.clone().and_then(|base| self.matches(e, base, when)),
            };
            branches.push(condition.map(|condition| (condition, then)));
        }
        let otherwise = case.else_expr().map(|e| self.boxed(e));
        let mut branches = branches.into_iter().collect::<Option<Vec<_>>>()?;
        let mut otherwise = match otherwise {
            Some(otherwise) => Some(otherwise?),
            None => None,
        };
        let result = self.type_of(e)?;
        for (_, then) in &mut branches {
            align(self, e, then, &result)?;
        }
        if let Some(otherwise) = otherwise.as_deref_mut() {
            align(self, e, otherwise, &result)?;
        }
        Some(ExprKind::Case { branches, otherwise })
    }

    /// The condition of `CASE base WHEN when`.
    fn matches(&mut self, e: Child<'_>, base: Expr, mut when: Expr) -> Option<Expr> {
        align(self, e, &mut when, &base.data_type)?;
        Some(matches(base, when))
    }

    fn in_list(&mut self, e: Child<'_>, list: &InListExpr) -> Option<ExprKind> {
        let input = self.boxed(list.expr());
        let values = self.exprs(list.list());
        let (input, mut values) = (input?, values?);
        for value in &mut values {
            align(self, e, value, &input.data_type)?;
        }
        Some(ExprKind::InList { input, list: values, negated: list.negated() })
    }

    fn like(&mut self, e: Child<'_>, like: &LikeExpr) -> Option<ExprKind> {
        let (input, pattern) = self.pair(like.expr(), like.pattern())?;
        // A parameter is a literal before the compiler makes code for LIKE; ILIKE becomes a regular expression here and now.
        let is_place = is_place(&pattern) && !like.case_insensitive();
        if !matches!(pattern.kind, ExprKind::Literal(_)) && !is_place {
            return self.refuse(e, "patterns that are not constant are not compiled");
        }
        if let (true, ExprKind::Literal(Literal::Utf8(text))) = (like.case_insensitive(), &pattern.kind)
            && let Ok(regex) = Regex::ilike(text)
        {
            return Some(ExprKind::Regex { input, regex, negated: like.negated() });
        }
        Some(ExprKind::Like {
            input,
            pattern,
            negated: like.negated(),
            case_insensitive: like.case_insensitive(),
        })
    }
}

/// Makes an operand one of a type that all operands must have. DataFusion's planner aligns them before it simplifies, and
/// what is simplified may be of another type then (the scale that `round` gives): what DataFusion makes of that, only its
/// own operators tell.
pub(super) fn align(
    translator: &mut ExprTranslator<'_>,
    shown: &dyn std::fmt::Display,
    operand: &mut Expr,
    data_type: &DataType,
) -> Option<()> {
    if alike(&operand.data_type, data_type) && operand.data_type != DataType::Null {
        return Some(());
    }
    if operand.kind == ExprKind::Literal(Literal::Null) {
        operand.data_type = data_type.clone();
        return Some(());
    }
    let types = format!("an operand is {} beside {data_type}", operand.data_type);
    translator.refuse(shown, &types)
}

/// The condition of `CASE base WHEN when`. Floats are compared by Arrow's kernel there, to which -0.0 is not 0.0, as
/// NULLIF does and `=` does not.
fn matches(base: Expr, when: Expr) -> Expr {
    let boolean = |kind, nullable| Expr { kind, data_type: DataType::Boolean, nullable };
    if !base.data_type.is_float() {
        let nullable = base.nullable || when.nullable;
        return boolean(ExprKind::Compare(CompareOp::Eq, Box::new(base), Box::new(when)), nullable);
    }
    let present = boolean(ExprKind::IsNotNull(Box::new(base.clone())), false);
    let data_type = base.data_type.clone();
    let kind = ExprKind::Function(Function::NullIf, vec![base, when]);
    let different = Expr { kind, data_type, nullable: true };
    let equal = boolean(ExprKind::IsNull(Box::new(different)), false);
    boolean(ExprKind::And(Box::new(present), Box::new(equal)), false)
}

/// Whether values of the type are shown in a time zone other than UTC's own.
pub(super) fn is_zoned(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp { timezone: Some(_), .. })
}
