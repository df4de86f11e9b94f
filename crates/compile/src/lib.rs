//! Relational plans of Kelpie compiled into pipelines of kernel IR.
