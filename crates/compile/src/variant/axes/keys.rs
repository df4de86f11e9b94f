//! Axes of the keys of groups.

use crate::variant::{Axis, Level, Status, Variant};

axis!(
    /// As what keys are told apart that are one of a few texts of the statement: `pipeline/cut/coded_keys`.
    TextKeys, "text_keys", Plan, Knob, "as what keys are told apart that are one of a few texts of the statement",
    {
        /// As the numbers of the texts.
        Codes = "codes",
        /// As texts.
        Texts = "texts",
    }
);

axis!(
    /// Of what keys are computed: `pipeline/cut/values`.
    ComputedKeys, "computed_keys", Plan, Rule, "whether keys are computed of rows, or of groups by the columns that they are computed of",
    {
        /// Of rows.
        Rows = "rows",
        /// Of groups by the values of columns.
        Values = "values",
    }
);

axis!(
    /// What becomes of keys that follow from others: `operator/aggregate/keys/dependent`.
    DependentKeys, "dependent_keys", Plan, Rule, "whether keys that follow from others tell groups apart, or are stored with their group",
    {
        /// Whoever puts a group in stores them, and nobody hashes or compares them.
        Carried = "carried",
        /// They are keys like any other.
        Compared = "compared",
    }
);

axis!(
    /// What DISTINCT does with rows of which no two are known to agree: `pipeline/cut/values`.
    UniqueRows, "unique_rows", Plan, Rule, "what DISTINCT does with rows that are known to be unique",
    {
        /// They go on as they come.
        Pass = "pass",
        /// They are brought to groups.
        Group = "group",
    }
);

axis!(
    /// Where rows of a join come to groups by columns of its build side: `pipeline/cut/eager_groups`.
    GroupsBelow, "groups_below", Plan, Rule, "whether rows that are grouped by columns of a dimension come to groups by the key of the join first",
    {
        /// Behind the join, each row.
        Rows = "rows",
        /// Before it, by its key; the groups are joined, and brought to those that are wanted.
        Join = "join",
    }
);
