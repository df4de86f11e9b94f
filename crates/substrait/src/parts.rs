//! Parts of a plan that must be there, and be what they are taken for.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion_substrait::substrait::proto::SortField;
use datafusion_substrait::substrait::proto::expression::Literal;
use datafusion_substrait::substrait::proto::expression::literal::LiteralType;
use datafusion_substrait::substrait::proto::sort_field::{SortDirection, SortKind};

/// The place of a column of so many.
pub(crate) fn column(place: i32, columns: usize) -> Result<usize> {
    match usize::try_from(place) {
        Ok(place) if place < columns => Ok(place),
        _ => plan_err!("it takes column {place} of a relation with {columns}"),
    }
}

/// An error where something has not all that it needs.
pub(crate) fn needed(what: &str, are_there: &[bool]) -> Result<()> {
    match are_there.iter().all(|is_there| *is_there) {
        true => Ok(()),
        false => plan_err!("a part of {what} is missing"),
    }
}

/// Orders that say by what and in which direction.
pub(crate) fn sorts(sorts: &[SortField]) -> Result<()> {
    for sort in sorts {
        needed("an order", &[sort.expr.is_some(), sort.sort_kind.is_some()])?;
        if let Some(SortKind::Direction(direction)) = sort.sort_kind
            && let Ok(SortDirection::Unspecified | SortDirection::Clustered) =
                SortDirection::try_from(direction)
        {
            return plan_err!("an order has no direction");
        }
        if let Some(SortKind::ComparisonFunctionReference(_)) = sort.sort_kind {
            return plan_err!("an order is one by a function, which is not read");
        }
    }
    Ok(())
}

/// A literal that is whole, and whose elements are of one type.
pub(crate) fn literal(value: &Literal) -> Result<()> {
    match &value.literal_type {
        Some(LiteralType::List(list)) => {
            let kind = |value: &Literal| value.literal_type.as_ref().map(std::mem::discriminant);
            if list.values.windows(2).any(|pair| kind(&pair[0]) != kind(&pair[1])) {
                return plan_err!("a list has values of several types");
            }
            list.values.iter().try_for_each(literal)
        }
        Some(LiteralType::EmptyList(list)) => needed("an empty list", &[list.r#type.is_some()]),
        Some(LiteralType::Struct(row)) => row.fields.iter().try_for_each(literal),
        Some(LiteralType::Map(map)) => map.key_values.iter().try_for_each(|entry| {
            let (Some(key), Some(value)) = (&entry.key, &entry.value) else {
                return plan_err!("a part of a map is missing");
            };
            literal(key)?;
            literal(value)
        }),
        _ => Ok(()),
    }
}
