//! Axes of the keys of groups.

use crate::variant::{Axis, Level, Variant};

axis!(
    /// As what keys are told apart that are one of a few texts of the statement: `pipeline/cut/codes`.
    TextKeys, "text_keys", Plan, "as what keys are told apart that are one of a few texts of the statement",
    {
        /// As the numbers of the texts.
        Codes = "codes",
        /// As texts.
        Texts = "texts",
    }
);

axis!(
    /// Of what keys are computed: `pipeline/cut/values`.
    ComputedKeys, "computed_keys", Plan, "whether keys are computed of rows, or of groups by the columns that they are computed of",
    {
        /// Of rows.
        Rows = "rows",
        /// Of groups by the values of columns.
        Values = "values",
    }
);

axis!(
    /// What becomes of keys that follow from others: `operator/aggregate/dependent`.
    DependentKeys, "dependent_keys", Plan, "whether keys that follow from others tell groups apart, or are stored with their group",
    {
        /// Whoever puts a group in stores them, and nobody hashes or compares them.
        Carried = "carried",
        /// They are keys like any other.
        Compared = "compared",
    }
);

axis!(
    /// What a hash table, of groups or of a join's rows, has of keys that are texts without a dictionary: `table/stored/texts`.
    TextForm, "text_form", Plan, "what a hash table has of keys that are texts without a dictionary",
    {
        /// Where the text is, and its length.
        Reference = "reference",
        /// The same, and the first eight bytes.
        Prefix = "prefix",
        /// The length, and a text of at most twelve bytes itself; of others where it is, and the first four bytes.
        Inline = "inline",
    }
);
