//! Generated queries that Kelpie and plain DataFusion must answer alike.
