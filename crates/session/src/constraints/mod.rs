//! What tables say of their rows, and who sees to it: PRIMARY KEY, UNIQUE, NOT NULL, CHECK and REFERENCES of tables in memory and of a
//! database. CREATE TABLE has them in its syntax only (`declared`); the table keeps them (`rules`). Rows of INSERT are looked at on their
//! way into the table, behind whatever planned the statement (`checked_table`), and those of UPDATE, MERGE and the like before they take
//! their place (`crate::row_changes`). Conditions go by each row alone (`conditions`), keys are compared by queries (`keys`).
//!
//! DataFusion's optimizer is told nothing of keys.

pub(crate) mod altered;
pub(crate) mod checked_rows;
pub(crate) mod checked_table;
mod conditions;
pub(crate) mod declared;
pub(crate) mod keys;
pub(crate) mod rules;
pub(crate) mod statements;
