//! Sequences: `CREATE SEQUENCE s`, then `nextval('s')`, which is another number for each row. Those of a database outlast the process: each
//! call for the rows of a batch is kept before its numbers are used. ROLLBACK brings no number back.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, ObjectNamePart, ObjectType, SequenceOptions, Statement as Sql, UnaryOperator, Value,
};
use kelpie_datafusion::name_and_signature;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::syntax::normal;

/// What stands before the name of a sequence that takes the place of another one.
pub(crate) const REPLACED: &str = "kelpie: or replace";

/// Numbers that are given out one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sequence {
    increment: i64,
    least: i64,
    most: i64,
    cycles: bool,
    /// The next one; nothing once all were given out.
    next: Option<i64>,
    last: Option<i64>,
}

impl Sequence {
    fn of(name: &str, options: &[SequenceOptions]) -> Result<Sequence> {
        let (mut increment, mut least, mut most, mut start, mut cycles) = (1, None, None, None, false);
        for option in options {
            match option {
                SequenceOptions::IncrementBy(number, _) => increment = number_of(number)?,
                SequenceOptions::MinValue(number) => least = number.as_ref().map(number_of).transpose()?,
                SequenceOptions::MaxValue(number) => most = number.as_ref().map(number_of).transpose()?,
                SequenceOptions::StartWith(number, _) => start = Some(number_of(number)?),
                // The parser says of NO CYCLE that it is true.
                SequenceOptions::Cycle(is_not) => cycles = !is_not,
                // How many are kept ready changes no number.
                SequenceOptions::Cache(_) => {}
            }
        }
        let rises = increment > 0;
        let least = least.unwrap_or(if rises { 1 } else { i64::MIN });
        let most = most.unwrap_or(if rises { i64::MAX } else { -1 });
        let start = start.unwrap_or(if rises { least } else { most });
        if increment == 0 {
            return plan_err!("INCREMENT of the sequence {name} is zero");
        }
        if least > most || !(least..=most).contains(&start) {
            return plan_err!(
                "the sequence {name} would begin at {start}, which is not between MINVALUE {least} and MAXVALUE {most}"
            );
        }
        Ok(Sequence { increment, least, most, cycles, next: Some(start), last: None })
    }

    /// The next numbers: all of them or, where there are not as many, none.
    pub fn take(&mut self, name: &str, count: usize) -> Result<Vec<i64>> {
        let mut taken = Vec::with_capacity(count);
        let (mut next, mut last) = (self.next, self.last);
        for _ in 0..count {
            let Some(number) = next else {
                let (what, bound) =
                    if self.increment > 0 { ("most", self.most) } else { ("least", self.least) };
                return exec_err!("nextval: the sequence {name} has given out its {what}, {bound}");
            };
            taken.push(number);
            last = Some(number);
            let begins = if self.increment > 0 { self.least } else { self.most };
            let following = number.checked_add(self.increment);
            let within = following.filter(|number| (self.least..=self.most).contains(number));
            next = within.or_else(|| self.cycles.then_some(begins));
        }
        (self.next, self.last) = (next, last);
        Ok(taken)
    }
}

fn number_of(number: &Expr) -> Result<i64> {
    let digits = match number {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}"),
        Expr::Value(value) if matches!(value.value, Value::Number(..)) => value.to_string(),
        other => return plan_err!("{other} is no whole number of a sequence"),
    };
    match digits.parse() {
        Ok(number) => Ok(number),
        Err(_) => plan_err!("{digits} is no whole number of a sequence"),
    }
}

/// What keeps sequences longer than a session.
pub(crate) trait KeepsSequences: std::fmt::Debug + Send + Sync {
    /// Looks at them, or changes them.
    fn with_sequences(&self, change: &mut dyn FnMut(&mut BTreeMap<String, Sequence>)) -> Result<()>;
}

/// The sequences of a session.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    own: Mutex<BTreeMap<String, Sequence>>,
    kept: OnceLock<Arc<dyn KeepsSequences>>,
}

impl Sequences {
    /// Adds them to a session, with the functions that read them.
    pub fn add(state: &mut SessionState) -> Result<()> {
        let sequences = Arc::new(Sequences::default());
        state.config_mut().set_extension(Arc::clone(&sequences));
        for name in [NEXT, CURRENT] {
            if !state.scalar_functions().contains_key(name) {
                let signature = Signature::string(1, Volatility::Volatile);
                let function = Numbers { name, sequences: Arc::clone(&sequences), signature };
                state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
            }
        }
        Ok(())
    }

    /// From now on they are those that something else keeps.
    pub fn keep_in(&self, kept: Arc<dyn KeepsSequences>) {
        // Set once: a session is in one database.
        let _ = self.kept.set(kept);
    }

    fn with<T>(&self, mut change: impl FnMut(&mut BTreeMap<String, Sequence>) -> T) -> Result<T> {
        let mut answer = None;
        match self.kept.get() {
            Some(kept) => kept.with_sequences(&mut |all| answer = Some(change(all)))?,
            None => answer = Some(change(&mut self.own.lock())),
        }
        match answer {
            Some(answer) => Ok(answer),
            None => exec_err!("the sequences of the database are not there any more"),
        }
    }

    /// Makes or drops a sequence, where a statement says so; whether it does.
    pub fn follow(&self, statement: &Statement) -> Result<bool> {
        let Statement::Statement(statement) = statement else { return Ok(false) };
        match statement.as_ref() {
            Sql::CreateSequence { if_not_exists, name, sequence_options, owned_by, .. } => {
                if let Some(owner) = owned_by {
                    return plan_err!("OWNED BY {owner} of a sequence is not supported");
                }
                let (name, replaces) = named(name)?;
                let new = Sequence::of(&name, sequence_options)?;
                let is_there = self.with(|all| {
                    let is_there = all.contains_key(&name);
                    if !is_there || replaces {
                        all.insert(name.clone(), new.clone());
                    }
                    is_there
                })?;
                match is_there && !replaces && !if_not_exists {
                    true => plan_err!("there is a sequence {name} already"),
                    false => Ok(true),
                }
            }
            Sql::Drop { object_type: ObjectType::Sequence, if_exists, names, .. } => {
                for name in names {
                    let (name, _) = named(name)?;
                    let dropped = self.with(|all| all.remove(&name).is_some())?;
                    if !dropped && !if_exists {
                        return none(&name);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn take(&self, function: &str, name: &str, count: usize) -> Result<Vec<i64>> {
        let name = name.trim_matches('"');
        let found = self.with(|all| {
            let lower = name.to_lowercase();
            let key = if all.contains_key(name) { name } else { lower.as_str() };
            let sequence = all.get_mut(key)?;
            if function == NEXT {
                return Some(sequence.take(name, count));
            }
            Some(match sequence.last {
                Some(last) => Ok(vec![last; count]),
                None => exec_err!("currval: nextval('{name}') was not called yet"),
            })
        })?;
        found.unwrap_or_else(|| none(name))
    }
}

fn none<T>(name: &str) -> Result<T> {
    plan_err!("there is no sequence {name}")
}

/// The name of a sequence, and whether it takes the place of another one.
fn named(name: &ObjectName) -> Result<(String, bool)> {
    match (name.0.last().and_then(ObjectNamePart::as_ident), name.0.first()) {
        (Some(last), Some(ObjectNamePart::Identifier(first))) => Ok((normal(last), first.value == REPLACED)),
        _ => plan_err!("{name} is no name of a sequence"),
    }
}

const NEXT: &str = "nextval";
const CURRENT: &str = "currval";

/// The functions `nextval` and `currval`.
#[derive(Debug)]
struct Numbers {
    name: &'static str,
    sequences: Arc<Sequences>,
    signature: Signature,
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Numbers) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.sequences, &other.sequences)
    }
}

impl Eq for Numbers {}

impl Hash for Numbers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Numbers {
    name_and_signature!();

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let numbers = match args.args.as_slice() {
            [ColumnarValue::Scalar(name)] => match name.try_as_str() {
                Some(Some(name)) => Int64Array::from(self.sequences.take(self.name, name, args.number_rows)?),
                Some(None) => Int64Array::new_null(args.number_rows),
                None => return plan_err!("{} takes the name of a sequence", self.name),
            },
            [ColumnarValue::Array(names)] => {
                let names = cast(names, &DataType::Utf8)?;
                let number = |name: Option<&str>| {
                    let taken = name.map(|name| self.sequences.take(self.name, name, 1)).transpose()?;
                    Ok(taken.and_then(|numbers| numbers.first().copied()))
                };
                names.as_string::<i32>().iter().map(number).collect::<Result<_>>()?
            }
            _ => return plan_err!("{} takes the name of a sequence", self.name),
        };
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(options: &[SequenceOptions]) -> Sequence {
        Sequence::of("s", options).unwrap()
    }

    fn number(number: i64) -> Expr {
        Expr::value(Value::Number(number.to_string(), false))
    }

    #[test]
    fn numbers_end_or_begin_again() {
        let mut plain = sequence(&[]);
        assert_eq!(plain.take("s", 3).unwrap(), [1, 2, 3]);
        assert_eq!(plain.take("s", 1).unwrap(), [4]);
        let most = SequenceOptions::MaxValue(Some(number(2)));
        let mut ends = sequence(std::slice::from_ref(&most));
        assert!(ends.take("s", 3).is_err());
        // What was refused has taken nothing.
        assert_eq!(ends.take("s", 2).unwrap(), [1, 2]);
        assert!(ends.take("s", 1).is_err());
        let mut again = sequence(&[most, SequenceOptions::Cycle(false)]);
        assert_eq!(again.take("s", 5).unwrap(), [1, 2, 1, 2, 1]);
        let mut falls = sequence(&[
            SequenceOptions::IncrementBy(number(-2), true),
            SequenceOptions::StartWith(number(-1), true),
        ]);
        assert_eq!(falls.take("s", 2).unwrap(), [-1, -3]);
        let extreme = [SequenceOptions::StartWith(number(i64::MAX), true)];
        let mut extreme = sequence(&extreme);
        assert_eq!(extreme.take("s", 1).unwrap(), [i64::MAX]);
        assert!(extreme.take("s", 1).is_err());
        assert!(Sequence::of("s", &[SequenceOptions::IncrementBy(number(0), true)]).is_err());
    }
}
