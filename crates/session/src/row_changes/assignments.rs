//! What SET says: columns, and their values.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Assignment, AssignmentTarget, Expr, Ident, ObjectName};

use super::target::Target;
use crate::syntax::normal;

/// Columns of a table, by their places, and the value of each.
pub(super) struct Assignments {
    pub places: Vec<usize>,
    pub values: Vec<Expr>,
}

impl Assignments {
    pub fn of(assignments: &[Assignment], target: &Target) -> Result<Assignments> {
        let mut all = Assignments { places: vec![], values: vec![] };
        for Assignment { target: assigned, value } in assignments {
            match assigned {
                AssignmentTarget::ColumnName(name) => all.add(name, value, target)?,
                AssignmentTarget::Tuple(names) => {
                    let values = match value {
                        Expr::Tuple(values) => values.as_slice(),
                        Expr::Nested(value) if names.len() == 1 => std::slice::from_ref(value.as_ref()),
                        _ => return plan_err!("SET ({}) takes a value for each column: (…)", listed(names)),
                    };
                    if values.len() != names.len() {
                        return plan_err!(
                            "SET has {} columns and {} values: ({})",
                            names.len(),
                            values.len(),
                            listed(names)
                        );
                    }
                    for (name, value) in names.iter().zip(values) {
                        all.add(name, value, target)?;
                    }
                }
            }
        }
        Ok(all)
    }

    fn add(&mut self, name: &ObjectName, value: &Expr, target: &Target) -> Result<()> {
        let place = target.place(name)?;
        if self.places.contains(&place) {
            return plan_err!("two values are assigned to the column {name}");
        }
        self.places.push(place);
        self.values.push(if is_default(value) { target.default_of(place)? } else { value.clone() });
        Ok(())
    }

    /// The columns, in their order here.
    pub fn fields(&self, target: &Target) -> Vec<FieldRef> {
        let schema = target.schema();
        self.places.iter().map(|place| FieldRef::clone(&schema.fields()[*place])).collect()
    }
}

fn listed(names: &[ObjectName]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Whether a value is the word DEFAULT.
pub(super) fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(name @ Ident { quote_style: None, .. }) if normal(name) == "default")
}
