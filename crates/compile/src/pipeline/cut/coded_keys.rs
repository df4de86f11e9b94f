//! Keys of groups that are one of a few texts of the statement (`CASE WHEN … THEN 'small' ELSE 'large' END`): rows are told apart by
//! the numbers of the texts, which are places in a table, and the text of a number is looked up where groups are delivered. A text
//! that is made for each row would be hashed and compared for each row.

use super::Cut;
use super::delivery::Wanted;
use super::open::OpenRows;
use crate::context::Unsupported;
use crate::expr::{CompareOp, Expr, ExprKind};
use crate::plan::{Aggregate, Plan};
use crate::types::{DataType, Literal};
use crate::variant::Site;
use crate::variant::axes::TextKeys;

/// Texts of a key, at most: their numbers fit seven bits, which is all that is known of them.
const MOST_TEXTS: usize = 127;
/// The type of the numbers.
const CODE: DataType = DataType::Int32;

/// A key whose values are texts of the statement.
struct TextKey {
    /// The number of a row's text, over the aggregation's input; NULL where the text is.
    code: Expr,
    /// The texts by number.
    texts: Vec<Expr>,
    nullable: bool,
}

impl TextKey {
    /// That of a CASE all of whose results are texts or NULL.
    fn of(expr: &Expr) -> Option<TextKey> {
        let ExprKind::Case { branches, otherwise } = &expr.kind else { return None };
        if expr.data_type != DataType::Utf8 {
            return None;
        }
        let mut texts: Vec<Expr> = Vec::new();
        let mut number = |result: &Expr| {
            let ExprKind::Literal(literal) = &result.kind else { return None };
            if let Literal::Null = literal {
                return Some(Expr::literal(Literal::Null, CODE));
            }
            let known = texts.iter().position(|text| text.kind == result.kind);
            let number = known.unwrap_or_else(|| {
                texts.push(result.clone());
                texts.len() - 1
            });
            Some(Expr::literal(Literal::Int(number as i128), CODE))
        };
        let mut numbered = Vec::new();
        for (condition, result) in branches {
            numbered.push((condition.clone(), number(result)?));
        }
        let otherwise = match otherwise {
            Some(result) => Some(Box::new(number(result)?)),
            None => None,
        };
        if texts.is_empty() || texts.len() > MOST_TEXTS {
            return None;
        }
        let kind = ExprKind::Case { branches: numbered, otherwise };
        let code = Expr { kind, data_type: CODE, nullable: expr.nullable };
        Some(TextKey { code, texts, nullable: expr.nullable })
    }

    /// The text of the number in a column.
    fn text(&self, column: usize) -> Expr {
        let code = Expr::column(column, CODE, self.nullable);
        let numbered = self.texts.iter().enumerate().map(|(number, text)| {
            let number = Expr::literal(Literal::Int(number as i128), CODE);
            let kind = ExprKind::Compare(CompareOp::Eq, Box::new(code.clone()), Box::new(number));
            let is_it = Expr { kind, data_type: DataType::Boolean, nullable: self.nullable };
            (is_it, text.clone())
        });
        let mut branches: Vec<(Expr, Expr)> = numbered.collect();
        // Of a key that is never NULL the last text is what is left.
        let last = if self.nullable || branches.len() < 2 { None } else { branches.pop() };
        let otherwise = match (last, self.nullable) {
            (Some((_, text)), _) => Some(Box::new(text)),
            (None, true) => None,
            (None, false) => self.texts.first().cloned().map(Box::new),
        };
        let kind = ExprKind::Case { branches, otherwise };
        Expr { kind, data_type: DataType::Utf8, nullable: self.nullable }
    }
}

/// The aggregation with numbers for its keys of texts, and the projection over it that gives the texts. `None` where there are no such
/// keys.
fn with_codes((input, keys): (&Plan, &[Expr]), aggregates: &[Aggregate], names: &[String]) -> Option<Plan> {
    let own = |key: &Expr| TextKey::of(key).map(|text| (text, false));
    let below = |key: &Expr| match key.kind {
        ExprKind::Column(column) => Some((TextKey::of(input.computed(column)?)?, true)),
        _ => None,
    };
    let texts: Vec<Option<(TextKey, bool)>> =
        keys.iter().map(|key| own(key).or_else(|| below(key))).collect();
    if texts.iter().all(Option::is_none) {
        return None;
    }
    let (mut input, mut own_keys) = (input.clone(), Vec::new());
    for (key, text) in keys.iter().zip(&texts) {
        own_keys.push(match text {
            Some((text, true)) => Expr::column(input.pass_on(&text.code)?, CODE, text.nullable),
            Some((text, false)) => text.code.clone(),
            None => key.clone(),
        });
    }
    let (aggregates, names) = (aggregates.to_vec(), names.to_vec());
    let plan = Plan::Aggregate { input: Box::new(input), keys: own_keys, aggregates, names: names.clone() };
    let delivered = plan.fields().into_iter().enumerate();
    let exprs = delivered.map(|(column, field)| match texts.get(column) {
        Some(Some((text, _))) => text.text(column),
        _ => Expr::column(column, field.data_type, field.nullable),
    });
    let exprs = exprs.collect();
    Some(Plan::Project { input: Box::new(plan), exprs, names })
}

impl Cut<'_> {
    /// A plan in which numbers stand for keys that are texts of the statement, where there are such and that is chosen.
    pub(super) fn coded(
        &self,
        (input, keys): (&Plan, &[Expr]),
        aggregates: &[Aggregate],
        names: &[String],
    ) -> Result<Option<Plan>, Unsupported> {
        let Some(plan) = with_codes((input, keys), aggregates, names) else { return Ok(None) };
        let name = self.groups.to_string();
        let site = Site { chooser: self.chooser, name: &name };
        let rule = (TextKeys::Codes, "the numbers of a few texts are places in a table");
        Ok((site.choose(rule, |_| Ok(()))? == TextKeys::Codes).then_some(plan))
    }

    /// Opens what [`Cut::coded`] gave: an aggregation below a projection.
    pub(super) fn open_coded(&mut self, plan: &Plan) -> Result<OpenRows, Unsupported> {
        let Plan::Project { input, exprs, .. } = plan else {
            return Err(Unsupported::internal("groups by numbers without their texts"));
        };
        let Plan::Aggregate { input, keys, aggregates, .. } = &**input else {
            return Err(Unsupported::internal("numbers of texts that are no keys"));
        };
        let rows = self.open(input)?;
        self.begin_groups();
        let mut rows = self.aggregate(rows, keys, (aggregates, Wanted::Rows))?.rows();
        rows.project(exprs.clone());
        self.end_operator(rows)
    }
}
