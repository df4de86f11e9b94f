//! Axes of rows that are brought into parts before they come to their groups or a join.

use crate::variant::{Axis, Level, Status, Variant};

numbers!(
    /// Into how many parts rows are brought before they are added to groups: `pipeline/cut/groups`.
    GroupParts, "group_parts", Plan, Knob, "parts of a table of groups that rows are brought into before, one part after the other",
    [
        1 = "1", 4 = "4", 16 = "16", 64 = "64", 256 = "256", 512 = "512", 1024 = "1024", 2048 = "2048",
        4096 = "4096", 8192 = "8192"
    ]
);

axis!(
    /// Where rows in parts are added up: `operator/aggregate/parts/part_groups`.
    PartMemory, "part_memory", Plan, Rule, "whose memory rows that came in parts are added up in",
    {
        /// A block's, for the groups of one part at a time, which lie there as they do in the table of all groups.
        Block = "block",
        /// A block's, for the groups of one part at a time, in a hash table of its own.
        Keys = "keys",
        /// The table of all groups, where a worker adds up all rows of a part: nobody else adds to these groups.
        Alone = "alone",
        /// The device's table of all groups.
        Global = "global",
    }
);

axis!(
    /// Who delivers groups that nothing is added up of: `operator/partition/distinct`.
    PartDelivery, "part_delivery", Plan, Rule, "who delivers the groups of rows that came in parts, where nothing is added up of them",
    {
        /// The table of all groups, when all rows have come.
        Table = "table",
        /// A worker, those of a part when it has seen the part's rows.
        Worker = "worker",
    }
);
