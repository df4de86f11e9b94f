//! What groups are of and what is computed of them, both ways: keys, aggregates, grouping sets, values at ranks.

use super::super::{Aggregate, GroupingSet, GroupingSets, Plan, Rank, Ranked, RankedValue};
use super::Result;
use super::expr_printer::expr_text;
use super::infer::{Gives, aggregated, ranked};
use super::lexer::Kind;
use super::operators::{field_text, fields, fields_text, order, order_text};
use super::scope::{Scope, name_text};
use super::tokens::Tokens;
use super::values::field_type_text;
use super::words;
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Field};

/// An expression and the name of its column.
pub(super) struct Named {
    pub(super) expr: Expr,
    pub(super) name: String,
}

/// What a column is called where nothing is said: as the input's column that it is, or nothing.
fn usual_name(expr: &Expr, scope: &Scope) -> String {
    match expr.kind {
        ExprKind::Column(index) => scope.field(index).map_or_else(String::new, |field| field.name.clone()),
        _ => String::new(),
    }
}

/// `expr as name`
pub(super) fn named_text(expr: &Expr, name: &str, scope: &Scope) -> String {
    let text = expr_text(expr, scope);
    if usual_name(expr, scope) == name { text } else { format!("{text} as {}", name_text(name)) }
}

/// `expr as name, expr, …`
pub(super) fn named_list<'a>(
    exprs: &'a [Expr],
    names: impl Iterator<Item = &'a str>,
    scope: &Scope,
) -> String {
    let names = names.chain(std::iter::repeat(""));
    let items: Vec<String> = exprs.iter().zip(names).map(|(e, name)| named_text(e, name, scope)).collect();
    items.join(", ")
}

fn keys_text<'a>(keys: &'a [Expr], names: impl Iterator<Item = &'a str>, scope: &Scope) -> Option<String> {
    (!keys.is_empty()).then(|| format!("by {}", named_list(keys, names, scope)))
}

/// `as name: Type`, as far as it does not follow from what gives these.
pub(super) fn said_of(field: &Field, usual: &Gives) -> String {
    let typed = (Gives::of_field(field) != *usual)
        .then(|| format!(": {}", field_type_text(&field.data_type, field.nullable)));
    let named =
        (!field.name.is_empty() || typed.is_some()).then(|| format!(" as {}", name_text(&field.name)));
    named.unwrap_or_default() + &typed.unwrap_or_default()
}

fn aggregate_text(aggregate: &Aggregate, scope: &Scope) -> String {
    let argument = aggregate.argument.as_ref().map_or("*".into(), |argument| expr_text(argument, scope));
    let (function, distinct) = (
        words::aggregate(aggregate.function).unwrap_or_default(),
        if aggregate.distinct { "distinct " } else { "" },
    );
    format!("{function}({distinct}{argument}){}", said_of(&aggregate.field, &aggregated(aggregate)))
}

fn aggregates_text(aggregates: &[Aggregate], scope: &Scope) -> Option<String> {
    let items: Vec<String> = aggregates.iter().map(|aggregate| aggregate_text(aggregate, scope)).collect();
    (!items.is_empty()).then(|| items.join(", "))
}

pub(super) fn clauses(operator: &str, clauses: impl IntoIterator<Item = Option<String>>) -> String {
    let clauses: Vec<String> = clauses.into_iter().flatten().collect();
    format!("{operator} {}", clauses.join("; ")).trim_end().to_string()
}

/// The line of an aggregation.
pub(super) fn aggregation_text(
    keys: &[Expr],
    aggregates: &[Aggregate],
    names: &[String],
    scope: &Scope,
) -> String {
    let more = names.get(keys.len()..).filter(|more| !more.is_empty());
    let more: Option<Vec<String>> = more.map(|more| more.iter().map(|name| name_text(name)).collect());
    let keys = keys_text(keys, names.iter().map(String::as_str), scope);
    let more = more.map(|more| format!("names {}", more.join(", ")));
    clauses("aggregate", [keys, aggregates_text(aggregates, scope), more])
}

/// The columns of grouping sets where nothing else is said of them.
fn usual_fields(sets: &GroupingSets, set: Field, names: impl Iterator<Item = String>) -> Vec<Field> {
    let is_missing = |key: usize| sets.sets.iter().any(|set| set.has.get(key) != Some(&true));
    let key = |(index, (expr, name)): (usize, (&Expr, String))| Field {
        name,
        data_type: expr.data_type.clone(),
        nullable: expr.nullable || is_missing(index),
    };
    let keys = sets.keys.iter().zip(names).enumerate().map(key);
    keys.chain([set]).chain(sets.aggregates.iter().map(|aggregate| aggregate.field.clone())).collect()
}

/// What a set calls one of so many keys: the name of its column, or its number where no other says which it is.
fn key_text(fields: &[Field], (key, keys): (usize, usize)) -> String {
    let name = fields.get(key).map_or("", |field| field.name.as_str());
    let is_only = fields.iter().take(keys).filter(|field| field.name == name).count() == 1;
    if is_only && !name.is_empty() { name_text(name) } else { format!("#{key}") }
}

/// The line of an aggregation by several sets of keys.
pub(super) fn sets_text(sets: &GroupingSets, scope: &Scope) -> String {
    let names = || sets.fields.iter().map(|field| field.name.as_str());
    let set = |set: &GroupingSet| {
        let has = set.has.iter().enumerate().filter(|(_, has)| **has);
        let keys: Vec<String> = has.map(|(key, _)| key_text(&sets.fields, (key, sets.keys.len()))).collect();
        format!("({}) = {}", keys.join(", "), set.identifier)
    };
    let all: Vec<String> = sets.sets.iter().map(set).collect();
    let unknown = Field { name: String::new(), data_type: DataType::Int64, nullable: false };
    let identifier = sets.fields.get(sets.keys.len()).unwrap_or(&unknown);
    let usual = usual_fields(sets, identifier.clone(), names().map(str::to_string));
    let keys = keys_text(&sets.keys, names(), scope);
    let all = format!("sets {} as {}", all.join(", "), field_text(identifier));
    let columns = (sets.fields != usual).then(|| format!("columns {}", fields_text(&sets.fields)));
    clauses("grouping_sets", [keys, Some(all), aggregates_text(&sets.aggregates, scope), columns])
}

fn value_text(value: &RankedValue, scope: &Scope) -> String {
    let argument = expr_text(&value.argument, scope);
    let constant = |constant: &Expr| expr_text(constant, scope);
    let call = match &value.rank {
        Rank::FromFirst(rank) => format!("from_first({argument}, {})", constant(rank)),
        Rank::FromLast(rank) => format!("from_last({argument}, {})", constant(rank)),
        Rank::Median => format!("median({argument})"),
        Rank::Percentile(share) => format!("percentile({argument}, {})", constant(share)),
        Rank::Discrete(share) => format!("percentile_disc({argument}, {})", constant(share)),
        Rank::Texts { delimiter, distinct } => {
            let distinct = if *distinct { "distinct " } else { "" };
            format!("string_agg({distinct}{argument}, {})", constant(delimiter))
        }
    };
    let counted = value.counted.as_ref().map(|counted| format!(" counted {}", expr_text(counted, scope)));
    call + &counted.unwrap_or_default() + &said_of(&value.field, &ranked(value))
}

/// The line of an aggregation over sorted rows.
pub(super) fn ranked_text(plan: &Ranked, scope: &Scope) -> String {
    let names = plan.names.iter().map(String::as_str);
    let order = (!plan.order.is_empty()).then(|| format!("order by {}", order_text(&plan.order, scope)));
    let values = plan.values.iter().map(|value| value_text(value, scope));
    let made: Vec<String> =
        plan.aggregates.iter().map(|aggregate| aggregate_text(aggregate, scope)).chain(values).collect();
    let made = (!made.is_empty()).then(|| made.join(", "));
    clauses("ranked", [keys_text(&plan.keys, names, scope), order, made])
}

// ---- text to aggregations

impl Tokens {
    pub(super) fn named(&mut self, scope: &Scope) -> Result<Named> {
        let expr = self.expr(scope)?;
        let name = match self.accept_word("as") {
            true => self.name("the name of a column")?,
            false => usual_name(&expr, scope),
        };
        Ok(Named { expr, name })
    }

    fn keys(&mut self, scope: &Scope) -> Result<Vec<Named>> {
        if !self.accept_word("by") {
            return Ok(Vec::new());
        }
        self.list(|tokens| tokens.named(scope))
    }

    /// `as name: Type` behind what gives something.
    pub(super) fn said(&mut self, usual: Gives) -> Result<Field> {
        let name = if self.accept_word("as") { self.name("the name of a column")? } else { String::new() };
        let Gives { data_type, nullable } = match self.accept(":") {
            true => Gives { data_type: self.data_type()?, nullable: self.accept("?") },
            false => usual,
        };
        Ok(Field { name, data_type, nullable })
    }

    fn aggregate(&mut self, scope: &Scope) -> Result<Aggregate> {
        let function = self.lookup("an aggregate function", words::aggregate_of)?;
        self.mark("(")?;
        let distinct = self.accept_word("distinct");
        let argument = if self.accept("*") { None } else { Some(self.expr(scope)?) };
        self.mark(")")?;
        let field = Field { name: String::new(), data_type: DataType::Null, nullable: true };
        let aggregate = Aggregate { function, argument, distinct, field };
        let field = self.said(aggregated(&aggregate))?;
        Ok(Aggregate { field, ..aggregate })
    }

    /// Steps over a `;` between clauses; whether another one follows.
    fn next_clause(&mut self, is_first: bool) -> Result<bool> {
        if *self.peek() == Kind::End {
            return Ok(false);
        }
        if !is_first {
            self.mark(";")?;
        }
        Ok(true)
    }

    pub(super) fn aggregation(&mut self, input: Plan) -> Result<Plan> {
        let scope = Scope::of(input.fields());
        let named = self.keys(&scope)?;
        let (mut aggregates, mut is_first) = (Vec::new(), named.is_empty());
        let mut more = Vec::new();
        while self.next_clause(is_first)? {
            is_first = false;
            match self.is_call() {
                true => aggregates = self.list(|tokens| tokens.aggregate(&scope))?,
                false => {
                    self.word("names")?;
                    more = self.list(|tokens| tokens.name("a name"))?;
                }
            }
        }
        let mut names: Vec<String> = named.iter().map(|key| key.name.clone()).collect();
        names.extend(more);
        let keys = named.into_iter().map(|key| key.expr).collect();
        Ok(Plan::Aggregate { input: Box::new(input), keys, aggregates, names })
    }

    /// `(key, key) = identifier`
    fn set(&mut self, keys: &[Named]) -> Result<GroupingSet> {
        self.mark("(")?;
        let key = |tokens: &mut Tokens| {
            let start = tokens.position();
            let place = match tokens.accept("#") {
                true => tokens.number("the number of a key")?,
                false => {
                    let name = tokens.name("a key")?;
                    keys.iter().position(|key| key.name == name).unwrap_or(keys.len())
                }
            };
            if place < keys.len() { Ok(place) } else { tokens.error_at(start, "there is no such key") }
        };
        let places = self.closed_list(key)?;
        self.mark("=")?;
        let negative = self.accept("-");
        let identifier: i128 = self.number("the number of the set")?;
        let has = (0..keys.len()).map(|key| places.contains(&key)).collect();
        Ok(GroupingSet { has, identifier: if negative { -identifier } else { identifier } })
    }

    pub(super) fn grouping_sets(&mut self, input: Plan) -> Result<Plan> {
        let scope = Scope::of(input.fields());
        let named = self.keys(&scope)?;
        if !named.is_empty() {
            self.mark(";")?;
        }
        self.word("sets")?;
        let all = self.list(|tokens| tokens.set(&named))?;
        self.word("as")?;
        let identifier = self.field()?;
        let (mut aggregates, mut columns) = (Vec::new(), None);
        while self.next_clause(false)? {
            match self.is_call() {
                true => aggregates = self.list(|tokens| tokens.aggregate(&scope))?,
                false => {
                    self.word("columns")?;
                    columns = Some(fields(self)?);
                }
            }
        }
        let names: Vec<String> = named.iter().map(|key| key.name.clone()).collect();
        let keys = named.into_iter().map(|key| key.expr).collect();
        let mut sets = GroupingSets { input, keys, sets: all, aggregates, fields: Vec::new() };
        sets.fields = columns.unwrap_or_else(|| usual_fields(&sets, identifier, names.into_iter()));
        Ok(Plan::GroupingSets(Box::new(sets)))
    }

    fn ranked_value(&mut self, scope: &Scope) -> Result<RankedValue> {
        let position = self.position();
        let Kind::Word(word) = self.advance() else {
            return self.error_at(position, "expected an aggregate function or a value at a rank");
        };
        self.mark("(")?;
        let distinct = word == "string_agg" && self.accept_word("distinct");
        let argument = self.expr(scope)?;
        let mut constant = || {
            self.mark(",")?;
            self.expr(scope)
        };
        let rank = match word.as_str() {
            "from_first" => Rank::FromFirst(constant()?),
            "from_last" => Rank::FromLast(constant()?),
            "median" => Rank::Median,
            "percentile" => Rank::Percentile(constant()?),
            "percentile_disc" => Rank::Discrete(constant()?),
            "string_agg" => Rank::Texts { delimiter: constant()?, distinct },
            _ => return self.error_at(position, format!("there is no aggregate function `{word}`")),
        };
        self.mark(")")?;
        let counted = if self.accept_word("counted") { Some(self.expr(scope)?) } else { None };
        let field = Field { name: String::new(), data_type: DataType::Null, nullable: true };
        let value = RankedValue { rank, argument, counted, field };
        let field = self.said(ranked(&value))?;
        Ok(RankedValue { field, ..value })
    }

    pub(super) fn ranked(&mut self, input: Plan) -> Result<Plan> {
        let scope = Scope::of(input.fields());
        let named = self.keys(&scope)?;
        let (mut sorted, mut is_first) = (Vec::new(), named.is_empty());
        let (mut aggregates, mut values) = (Vec::new(), Vec::new());
        while self.next_clause(is_first)? {
            is_first = false;
            if self.accept_word("order") {
                self.word("by")?;
                sorted = order(self, &scope)?;
                continue;
            }
            self.list(|tokens| {
                let is_aggregate =
                    matches!(tokens.peek(), Kind::Word(word) if words::aggregate_of(word).is_some());
                match is_aggregate && values.is_empty() {
                    true => aggregates.push(tokens.aggregate(&scope)?),
                    false => values.push(tokens.ranked_value(&scope)?),
                }
                Ok(())
            })?;
        }
        let names = named.iter().map(|key| key.name.clone()).collect();
        let keys = named.into_iter().map(|key| key.expr).collect();
        Ok(Plan::Ranked(Box::new(Ranked { input, keys, order: sorted, aggregates, values, names })))
    }
}
