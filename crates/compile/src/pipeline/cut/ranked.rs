//! Aggregates over sorted groups: the rows are sorted by keys and order, aggregated group by group as ever, with the number of
//! each group's first row and how many have a rank; behind the groups, values are looked up at their ranks. Texts are strung together
//! by who wants a group's, or before that by all rows at once.
//!
//! Where only first and last rows are asked for, and the order and a row's place are few bits, nothing is sorted: a row's number is
//! its order above its place, and the least or greatest number of a group is the row.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::delivery::Wanted;
use super::groups::groups_of;
use super::{Cut, Open, OpenRows};
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, children, columns_read, is_pair, substitute, with_children};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::aggregate::{
    EndRow, EndRows, RankedColumn, RankedValues, TextCopies, TextLengths, TextRows,
};
use crate::operator::project::Project;
use crate::operator::roles::Source;
use crate::operator::sort::words::{WordKey, Words};
use crate::operator::sort::{NumberedRows, PlacedRows, PlacedWord, SortOperator, SortRows, SortedRows};
use crate::plan::{Aggregate, AggregateFunction, Rank, Ranked, RankedValue, SortKey};
use crate::program::Purpose;
use crate::types::{DataType, Field, Literal};
use crate::variant::all_but;
use crate::variant::axes::{GroupTexts, RankedColumns, RankedRows};

impl Cut<'_> {
    pub(super) fn ranked(&mut self, ranked: &Ranked) -> Result<OpenRows, Unsupported> {
        if !ranked.keeps_order() {
            return self.ranked_groups(ranked);
        }
        // Rows whose places are counted before they are written keep their order, whichever threads write them; and whoever sorts
        // them by their places leaves those in it that are equal.
        let counts = self.counts;
        self.counts = Some(self.counts_of_rows());
        let groups = self.ranked_groups(ranked);
        self.counts = counts;
        groups
    }

    fn ranked_groups(&mut self, ranked: &Ranked) -> Result<OpenRows, Unsupported> {
        let rows = self.open(&ranked.input)?;
        self.begin_groups();
        let mut stored = Stored { exprs: ranked.keys.clone() };
        let keys = ranked.keys.iter().enumerate();
        let keys: Vec<Expr> =
            keys.map(|(index, key)| Expr::column(index, key.data_type.clone(), key.nullable)).collect();
        let order: Vec<WordKey> =
            ranked.order.iter().filter_map(|key| stored.word_key(key, keys.len())).collect();
        let aggregates: Vec<Aggregate> = ranked.aggregates.iter().map(|own| stored.aggregate(own)).collect();
        let values: Vec<RankedValue> = ranked.values.iter().map(|own| stored.value(own)).collect();
        let infos = columns_of(&stored.exprs, &rows.columns);
        if let Some((words, word)) = self.ranked_rows(&order, (&stored, &infos), &values, rows.bound())? {
            let group = Group { keys: &keys, aggregates, values };
            return self.end_rows(rows, &stored.exprs, (words, word), group);
        }
        let (bound, size) = (rows.bound(), self.sort_size(&rows));
        let words = Words::plan_groups(keys.len(), &order, &infos)?;
        let from_word = self.ranked_columns(&words, infos.len())? == RankedColumns::Word;
        let form = self.sort_form(&self.groups.to_string())?;
        let states = self.states.of(Purpose::Store);
        let sort = SortOperator::plan_ranked(words, from_word, &infos, size, states)?;
        let sort = Arc::new(sort.with_form(form));

        let source = NumberedRows::new(SortedRows(Arc::clone(&sort)), bound);
        let strung = self.strung(&values, keys.len(), &sort)?;
        let (aggregates, values) = with_ranks(keys.len(), aggregates, (values, &strung), source.number());
        let columns = source.columns();
        let mut open = self.sorted(rows, &stored.exprs, &sort, Open::new(source, bound));
        let strung: Arc<[TextRows]> = strung.into_iter().flatten().collect();
        if !strung.is_empty() {
            let rows = || Open::new(SortedRows(Arc::clone(&sort)), bound);
            let sorted = open.sorted.take();
            self.close(vec![Open { sorted, ..rows() }], Arc::new(TextLengths(Arc::clone(&strung))));
            self.close(vec![rows()], Arc::new(TextCopies(strung)));
        }
        let rows = OpenRows::new(vec![open], columns);
        let mut groups = groups_of(self.aggregate_rows(rows, &keys, &aggregates)?);
        let step = RankedValues::new(sort, keys.len() + ranked.aggregates.len(), values);
        groups = OpenRows::new(groups.branches, step.columns_behind(&groups.columns));
        groups.push(step);
        self.end_operator(groups)
    }

    /// For each value where its texts are, if all rows string them together.
    fn strung(
        &mut self,
        values: &[RankedValue],
        keys: usize,
        sort: &SortOperator,
    ) -> Result<Vec<Option<TextRows>>, Unsupported> {
        let texts = |value: &RankedValue| match &value.rank {
            Rank::Texts { delimiter, distinct } => Some((delimiter.clone(), *distinct)),
            _ => None,
        };
        let found: Vec<_> = values.iter().map(texts).collect();
        let by_rows = found.iter().any(Option::is_some)
            && self.group_texts(keys, found.iter().flatten().any(|(_, distinct)| *distinct))?
                == GroupTexts::Rows;
        let states = self.states.of(Purpose::Store);
        let place = |(value, texts): (&RankedValue, Option<(Expr, bool)>)| match texts {
            Some((delimiter, _)) if by_rows => {
                TextRows::plan(sort, &value.argument, &delimiter, states).map(Some)
            }
            _ => Ok(None),
        };
        values.iter().zip(found).map(place).collect()
    }

    fn group_texts(&self, keys: usize, distinct: bool) -> Result<GroupTexts, Unsupported> {
        let why_not = distinct.then_some("equal texts are found by who goes through a group");
        let rule = match why_not {
            Some(why_not) => (GroupTexts::Groups, why_not),
            None if keys == 0 => (GroupTexts::Rows, "all rows are one group"),
            None if !self.shape.is_serial() => (GroupTexts::Rows, "a large group is no work for one thread"),
            None => (GroupTexts::Groups, "workers share groups out"),
        };
        let site = self.groups.to_string();
        self.chooser.choose(&site, rule, all_but(GroupTexts::Rows, &why_not))
    }

    /// What rows are numbered by, where they are not sorted.
    fn ranked_rows(
        &self,
        order: &[WordKey],
        (stored, infos): (&Stored, &[ColumnInfo]),
        values: &[RankedValue],
        bound: u64,
    ) -> Result<Option<(Words, PlacedWord)>, Unsupported> {
        let are_ends = values.iter().all(|value| End::of(value).is_some());
        let have_same_ranks = values.windows(2).all(|pair| pair[0].counted == pair[1].counted);
        // Rows without a rank have no number: it is not by the order that they are left out.
        let decides = |key: &&WordKey| !stored.tells_presence_alone(key.column);
        let order: Vec<WordKey> = order.iter().filter(decides).cloned().collect();
        let words = Words::plan(&order, infos)?;
        let word = match (are_ends, have_same_ranks) {
            (true, true) => PlacedWord::plan(&words, bound),
            (false, _) => Err("other rows than the first and the last are asked for".into()),
            (_, false) => Err("some values are of rows that have no rank for others".into()),
        };
        let rule = match &word {
            Ok(_) => (RankedRows::Extremes, "a group's first row is found without a sort"),
            Err(why_not) => (RankedRows::Sorted, why_not.as_str()),
        };
        let site = self.groups.to_string();
        let chosen = self.chooser.choose(&site, rule, |value| match (value, &word) {
            (RankedRows::Extremes, Err(why_not)) => Err(why_not.clone()),
            _ => Ok(()),
        })?;
        Ok(word.ok().filter(|_| chosen == RankedRows::Extremes).map(|word| (words, word)))
    }

    /// Groups with the numbers of their first and last rows, and values of these rows.
    fn end_rows(
        &mut self,
        mut rows: OpenRows,
        exprs: &[Expr],
        (words, word): (Words, PlacedWord),
        Group { keys, mut aggregates, values }: Group<'_>,
    ) -> Result<OpenRows, Unsupported> {
        let infos = columns_of(exprs, &rows.columns);
        let (bound, size) = (rows.bound(), self.sort_size(&rows));
        let states = self.states.of(Purpose::Store);
        let sort = Arc::new(SortOperator::plan_ranked(words, false, &infos, size, states)?);
        rows.push(Project(exprs.to_vec()));
        self.close(rows.branches, Arc::new(SortRows(Arc::clone(&sort))));

        let source = PlacedRows::new(Arc::clone(&sort), word);
        let width = keys.len() + aggregates.len();
        let (ends, results) = ends(&values, width);
        let number = match values.iter().find_map(|value| value.counted.clone()) {
            Some(counted) => where_present(counted, source.number()),
            None => source.number(),
        };
        aggregates.extend(ends.iter().map(|(end, _)| {
            let field = Field { name: "end_row".into(), data_type: word.data_type(), nullable: true };
            let function = match end {
                End::First => AggregateFunction::Min,
                End::Last => AggregateFunction::Max,
            };
            Aggregate { function, argument: Some(number.clone()), distinct: false, field }
        }));
        let columns = source.columns();
        let rows = OpenRows::new(vec![Open::new(source, bound)], columns);
        let mut groups = self.aggregate(rows, keys, (&aggregates, Wanted::Rows))?.rows();
        let numbered = ends.into_iter().enumerate();
        let rows = numbered.map(|(place, (_, columns))| EndRow { number: width + place, columns }).collect();
        let step = EndRows { sort, word, width, rows };
        groups = OpenRows::new(groups.branches, step.columns_behind(&groups.columns));
        groups.push(step);
        let own = groups.columns.iter().take(width).enumerate();
        let own = own.map(|(index, info)| Expr::column(index, info.data_type.clone(), info.nullable));
        let exprs: Vec<Expr> = own.chain(results).collect();
        groups.project(exprs);
        self.end_operator(groups)
    }

    /// Where columns of sorted rows are read.
    fn ranked_columns(&self, words: &Words, columns: usize) -> Result<RankedColumns, Unsupported> {
        let why_not = words.lacks_columns(columns);
        let rule = match why_not {
            None => (RankedColumns::Word, "words come in order, other columns are anywhere"),
            Some(why_not) => (RankedColumns::Stored, why_not),
        };
        let site = self.groups.to_string();
        self.chooser.choose(&site, rule, all_but(RankedColumns::Word, &why_not))
    }
}

/// What is asked of groups, over what is stored of their rows.
struct Group<'a> {
    keys: &'a [Expr],
    aggregates: Vec<Aggregate>,
    values: Vec<RankedValue>,
}

/// A row at an end of a group's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl End {
    /// The row that a value is of, if it is such a one of every group.
    fn of(value: &RankedValue) -> Option<End> {
        let (end, distance) = match &value.rank {
            Rank::FromFirst(distance) => (End::First, distance),
            Rank::FromLast(distance) => (End::Last, distance),
            Rank::Median | Rank::Percentile(_) | Rank::Discrete(_) | Rank::Texts { .. } => return None,
        };
        matches!(distance.kind, ExprKind::Literal(Literal::Int(0))).then_some(end)
    }
}

/// The rows that values are of, each with the stored columns that these read, and the values over those columns, which follow each
/// other behind the first `width` ones.
fn ends(values: &[RankedValue], width: usize) -> (Vec<(End, Vec<usize>)>, Vec<Expr>) {
    let mut ends: Vec<(End, Vec<usize>)> = Vec::new();
    for end in [End::First, End::Last] {
        let own = values.iter().filter(|value| End::of(value) == Some(end));
        let columns: BTreeSet<usize> = own.clone().flat_map(|value| columns_read(&value.argument)).collect();
        if own.count() > 0 {
            ends.push((end, columns.into_iter().collect()));
        }
    }
    let place = |end: Option<End>, column: usize| {
        let before = ends.iter().take_while(|(other, _)| Some(*other) != end);
        let before: usize = before.map(|(_, columns)| columns.len()).sum();
        let (_, columns) = ends.iter().find(|(other, _)| Some(*other) == end)?;
        Some(width + before + columns.iter().position(|other| *other == column)?)
    };
    let result = |value: &RankedValue| {
        substitute(&value.argument, &|expr| match expr.kind {
            ExprKind::Column(column) => {
                let place = place(End::of(value), column)?;
                Some(Expr::column(place, expr.data_type.clone(), true))
            }
            _ => None,
        })
    };
    let results = values.iter().map(result).collect();
    (ends, results)
}

/// The aggregates, behind them the number of the first row of each group and how many rows have ranks, and where these counts are
/// for each value.
fn with_ranks(
    keys: usize,
    mut aggregates: Vec<Aggregate>,
    (values, strung): (Vec<RankedValue>, &[Option<TextRows>]),
    number: Expr,
) -> (Vec<Aggregate>, Vec<RankedColumn>) {
    let internal = |name: &str, function, argument| {
        let field = Field { name: name.into(), data_type: DataType::Int64, nullable: true };
        Aggregate { function, argument, distinct: false, field }
    };
    aggregates.push(internal("first_row", AggregateFunction::Min, Some(number)));
    let mut count = |counted| {
        let count = internal("ranks", AggregateFunction::Count, counted);
        let known = aggregates.iter().position(|known| *known == count);
        let place = known.unwrap_or_else(|| {
            aggregates.push(count);
            aggregates.len() - 1
        });
        keys + place
    };
    let column = |(RankedValue { rank, argument, counted, .. }, strung): (RankedValue, &Option<TextRows>)| {
        let strung = strung.as_ref().map(|texts| (texts.clone(), count(Some(argument.clone()))));
        RankedColumn { rank, argument, count: count(counted), strung }
    };
    let columns = values.into_iter().zip(strung).map(column).collect();
    (aggregates, columns)
}

/// What is stored of a row: the keys first. What only gives a value another form in the same order is left to whoever reads it.
struct Stored {
    exprs: Vec<Expr>,
}

impl Stored {
    /// Whether a column is one value or NULL, as what says which rows have a rank is.
    fn tells_presence_alone(&self, column: usize) -> bool {
        match self.exprs.get(column).map(|expr| &expr.kind) {
            Some(ExprKind::Case { branches, otherwise: None }) => {
                matches!(branches.as_slice(), [(_, value)] if matches!(value.kind, ExprKind::Literal(_)))
            }
            _ => false,
        }
    }

    fn column(&mut self, expr: &Expr) -> usize {
        let known = self.exprs.iter().position(|known| known == expr);
        known.unwrap_or_else(|| {
            self.exprs.push(expr.clone());
            self.exprs.len() - 1
        })
    }

    /// An expression over what is stored.
    fn over(&mut self, expr: &Expr) -> Expr {
        let expr = cast_last(expr);
        match below_cast(&expr) {
            _ if is_pair(&expr) => {
                let pair = children(&expr).into_iter().map(|value| self.over(value));
                with_children(&expr, pair.collect())
            }
            Some(input) => with_children(&expr, vec![self.over(input)]),
            None => Expr::column(self.column(&expr), expr.data_type.clone(), expr.nullable),
        }
    }

    /// What is stored of an expression: it has the same order, and is NULL where the expression is.
    fn below(&mut self, expr: &Expr) -> Expr {
        let mut expr = cast_last(expr);
        while let Some(input) = below_cast(&expr) {
            expr = cast_last(input);
        }
        Expr::column(self.column(&expr), expr.data_type.clone(), expr.nullable)
    }

    /// A key of the order; `None` where it is the same in all rows of a group. The two zeros are one key of groups.
    fn word_key(&mut self, key: &SortKey, keys: usize) -> Option<WordKey> {
        let ExprKind::Column(column) = self.below(&key.expr).kind else { return None };
        let is_constant = column < keys && !self.exprs.get(column)?.data_type.is_float();
        let &SortKey { descending, nulls_first, .. } = key;
        (!is_constant).then_some(WordKey { column, descending, nulls_first, is_group: false })
    }

    fn aggregate(&mut self, own: &Aggregate) -> Aggregate {
        Aggregate { argument: own.argument.as_ref().map(|argument| self.over(argument)), ..own.clone() }
    }

    fn value(&mut self, own: &RankedValue) -> RankedValue {
        let counted = own.counted.as_ref().map(|counted| self.below(counted));
        RankedValue { argument: self.over(&own.argument), counted, ..own.clone() }
    }
}

/// A value where another is not NULL.
fn where_present(present: Expr, value: Expr) -> Expr {
    let is_present =
        Expr { kind: ExprKind::IsNotNull(Box::new(present)), data_type: DataType::Boolean, nullable: false };
    let data_type = value.data_type.clone();
    Expr {
        kind: ExprKind::Case { branches: vec![(is_present, value)], otherwise: None },
        data_type,
        nullable: true,
    }
}

/// What a cast is of that never fails and keeps the order of all values: what is equal behind it may be in any order.
fn below_cast(expr: &Expr) -> Option<&Expr> {
    let ExprKind::Cast { input, .. } = &expr.kind else { return None };
    let (from, to) = (&input.data_type, &expr.data_type);
    let keeps_order = match from {
        DataType::Decimal128 { .. } => to.is_float(),
        _ if from.is_integer() && to.is_integer() => {
            from.full_range().zip(to.full_range()).is_some_and(|(from, to)| from.within(to))
        }
        _ => from.is_integer() && to.is_float(),
    };
    keeps_order.then_some(&**input)
}

/// `CASE WHEN p THEN CAST(x AS t) END`, which is how rows are left out, as the cast of a CASE.
fn cast_last(expr: &Expr) -> Expr {
    let ExprKind::Case { branches, otherwise: None } = &expr.kind else { return expr.clone() };
    let [(condition, result)] = branches.as_slice() else { return expr.clone() };
    let Some(input) = below_cast(result) else { return expr.clone() };
    let branches = vec![(condition.clone(), input.clone())];
    let kind = ExprKind::Case { branches, otherwise: None };
    let case = Expr { kind, data_type: input.data_type.clone(), nullable: true };
    Expr { nullable: true, ..with_children(result, vec![case]) }
}
