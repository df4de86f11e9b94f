//! Text to plan.

use super::super::{Join, Plan, Scan};
use super::lexer::{Kind, Line, lines};
use super::operators::{fields, order};
use super::plan_printer::united;
use super::scope::{BUILD, PROBE, Scope};
use super::tokens::Tokens;
use super::{MAX_NESTING, ParseError, Result, Table, words};
use crate::types::Field;

/// The plan of a text.
pub(super) fn plan(text: &str, tables: &[Table]) -> Result<Plan> {
    let lines = lines(text)?;
    let mut reader = Reader { lines: lines.into_iter().peekable(), tables };
    let Some(first) = reader.lines.next() else {
        return Err(ParseError { line: 1, column: 1, message: "expected an operator, found nothing".into() });
    };
    let plan = reader.operator(first, 0)?;
    match reader.lines.next() {
        Some(line) => {
            Tokens::new(line).expected("the end of the plan (an input stands further in than its operator)")
        }
        None => Ok(plan),
    }
}

struct Reader<'a> {
    /// Those that are not read.
    lines: std::iter::Peekable<std::vec::IntoIter<Line>>,
    tables: &'a [Table],
}

/// The inputs of an operator that has only one.
fn only(tokens: &Tokens, inputs: Vec<Plan>) -> Result<Plan> {
    let count = inputs.len();
    let mut inputs = inputs.into_iter();
    match (inputs.next(), inputs.next()) {
        (Some(input), None) => Ok(input),
        _ => tokens.error_at(
            0,
            format!("this operator has one input, a line below it and further in; there are {count}"),
        ),
    }
}

impl Reader<'_> {
    fn operator(&mut self, line: Line, depth: usize) -> Result<Plan> {
        let indent = line.indent;
        let mut tokens = Tokens::new(line);
        if depth >= MAX_NESTING {
            return tokens.error_at(0, format!("operators nest deeper than {MAX_NESTING}"));
        }
        let inputs = self.inputs(indent, depth)?;
        let plan = self.made(&mut tokens, inputs)?;
        tokens.end()?;
        Ok(plan)
    }

    /// The operators that stand below one and further in.
    fn inputs(&mut self, indent: usize, depth: usize) -> Result<Vec<Plan>> {
        let (mut inputs, mut own) = (Vec::new(), None);
        while let Some(line) = self.lines.next_if(|line| line.indent > indent) {
            let expected = *own.get_or_insert(line.indent);
            if line.indent != expected {
                let message = format!(
                    "inputs of one operator stand equally far in: {expected} spaces, not {}",
                    line.indent
                );
                return Tokens::new(line).error_at(0, message);
            }
            inputs.push(self.operator(line, depth + 1)?);
        }
        Ok(inputs)
    }

    fn made(&self, tokens: &mut Tokens, inputs: Vec<Plan>) -> Result<Plan> {
        let word = match tokens.peek() {
            Kind::Word(word) => word.clone(),
            _ => return tokens.expected("an operator"),
        };
        tokens.advance();
        match word.as_str() {
            "scan" if inputs.is_empty() => self.scan(tokens),
            "scan" => tokens.error_at(0, "a scan has no input"),
            "filter" => {
                let input = Box::new(only(tokens, inputs)?);
                let predicate = tokens.expr(&Scope::of(input.fields()))?;
                Ok(Plan::Filter { input, predicate })
            }
            "project" => project(tokens, only(tokens, inputs)?),
            "aggregate" => tokens.aggregation(only(tokens, inputs)?),
            "grouping_sets" => tokens.grouping_sets(only(tokens, inputs)?),
            "ranked" => tokens.ranked(only(tokens, inputs)?),
            "window" => tokens.window(only(tokens, inputs)?),
            "join" => join(tokens, inputs),
            "union" => union(tokens, inputs),
            "scalars" => scalars(tokens, inputs),
            "sort" => {
                let input = Box::new(only(tokens, inputs)?);
                let is_sorted = !tokens.is_word("fetch") && *tokens.peek() != Kind::End;
                let keys = if is_sorted { order(tokens, &Scope::of(input.fields()))? } else { Vec::new() };
                Ok(Plan::Sort { input, keys, fetch: count(tokens, "fetch")? })
            }
            "limit" => {
                let input = Box::new(only(tokens, inputs)?);
                let skip = count(tokens, "skip")?.unwrap_or(0);
                Ok(Plan::Limit { input, skip, fetch: count(tokens, "fetch")? })
            }
            _ => tokens.error_at(0, format!("there is no operator `{word}`")),
        }
    }

    /// `scan table source 0 (name: Type at place, …)`: what is missing is the table's.
    fn scan(&self, tokens: &mut Tokens) -> Result<Plan> {
        let start = tokens.position();
        let name = tokens.name("the name of a table")?;
        let known = self.tables.iter().position(|table| table.name == name);
        let source = match (tokens.accept_word("source"), known) {
            (true, _) => tokens.number("the number of a source")?,
            (false, Some(known)) => known,
            (false, None) => return tokens.error_at(start, format!("there is no table {name}")),
        };
        let own = known.and_then(|known| self.tables.get(known)).map(|table| table.fields.as_slice());
        let mut scan = Scan { source, table: name, columns: Vec::new(), fields: Vec::new() };
        if !tokens.accept("(") {
            let Some(own) = own else { return tokens.expected("the columns in brackets") };
            (scan.columns, scan.fields) = ((0..own.len()).collect(), own.to_vec());
            return Ok(Plan::Scan(scan));
        }
        tokens.closed_list(|tokens| scanned(tokens, &mut scan, own.unwrap_or_default()))?;
        Ok(Plan::Scan(scan))
    }
}

/// A column of a scan.
fn scanned(tokens: &mut Tokens, scan: &mut Scan, own: &[Field]) -> Result<()> {
    let start = tokens.position();
    let name = tokens.name("the name of a column")?;
    let known = own.iter().position(|field| field.name == name);
    let field = match (tokens.accept(":"), known.and_then(|known| own.get(known))) {
        (true, _) => Field { name, data_type: tokens.data_type()?, nullable: tokens.accept("?") },
        (false, Some(field)) => field.clone(),
        (false, None) => return tokens.error_at(start, format!("{} has no column {name}", scan.table)),
    };
    let place = match tokens.accept_word("at") {
        true => tokens.number("the column's place in its table")?,
        false => known.unwrap_or(scan.columns.len()),
    };
    scan.columns.push(place);
    scan.fields.push(field);
    Ok(())
}

/// `word 7`, if it is there.
fn count(tokens: &mut Tokens, word: &str) -> Result<Option<usize>> {
    if tokens.accept_word(word) { tokens.number("a number of rows").map(Some) } else { Ok(None) }
}

fn project(tokens: &mut Tokens, input: Plan) -> Result<Plan> {
    let scope = Scope::of(input.fields());
    let (mut exprs, mut names) = (Vec::new(), Vec::new());
    if *tokens.peek() != Kind::End {
        for named in tokens.list(|tokens| tokens.named(&scope))? {
            exprs.push(named.expr);
            names.push(named.name);
        }
    }
    Ok(Plan::Project { input: Box::new(input), exprs, names })
}

fn join(tokens: &mut Tokens, inputs: Vec<Plan>) -> Result<Plan> {
    let mut inputs = inputs.into_iter();
    let (Some(build), Some(probe), None) = (inputs.next(), inputs.next(), inputs.next()) else {
        return tokens
            .error_at(0, "a join has 2 inputs below it and further in: the build side, then the probe side");
    };
    let kind = tokens.lookup("a kind of join", words::join_kind_of)?;
    let sides = || (Scope::of_side(BUILD, build.fields()), Scope::of_side(PROBE, probe.fields()));
    let mut keys = Vec::new();
    if tokens.accept_word("on") {
        let (left, right) = sides();
        keys = tokens.list(|tokens| {
            let key = tokens.side_of_equality(&left)?;
            tokens.mark("=")?;
            Ok((key, tokens.side_of_equality(&right)?))
        })?;
    }
    let residual = match tokens.accept_word("residual") {
        true => {
            let (left, right) = sides();
            Some(tokens.expr(&left.followed_by(right))?)
        }
        false => None,
    };
    let (null_equal, null_aware) = (tokens.accept_word("null_equal"), tokens.accept_word("null_aware"));
    Ok(Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware })))
}

fn union(tokens: &mut Tokens, inputs: Vec<Plan>) -> Result<Plan> {
    if inputs.is_empty() {
        return tokens.error_at(0, "a union has inputs below it and further in");
    }
    let mut own = united(&inputs);
    if tokens.accept("(") {
        own = if tokens.accept(")") { Vec::new() } else { fields(tokens)? };
        if !own.is_empty() {
            tokens.mark(")")?;
        }
    }
    Ok(Plan::Union { inputs, fields: own })
}

fn scalars(tokens: &Tokens, mut subqueries: Vec<Plan>) -> Result<Plan> {
    match subqueries.pop() {
        Some(input) => Ok(Plan::Scalars { input: Box::new(input), subqueries }),
        None => tokens.error_at(0, "subqueries and then the rows that use them stand below and further in"),
    }
}
