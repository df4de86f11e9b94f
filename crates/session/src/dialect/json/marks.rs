//! Columns whose texts are JSON.

use datafusion::arrow::datatypes::Field;

/// Arrow's name for such texts.
const MARK: (&str, &str) = ("ARROW:extension:name", "arrow.json");

/// A field whose texts are JSON.
pub(super) fn marked(field: Field) -> Field {
    field.with_metadata([(MARK.0.to_string(), MARK.1.to_string())].into())
}

/// Whether a field's texts are JSON.
pub(super) fn is_marked(field: &Field) -> bool {
    field.metadata().get(MARK.0).is_some_and(|name| name == MARK.1)
}
