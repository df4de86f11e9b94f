//! Workloads of Kelpie: TPC-H and SSB data, queries, peers and reports.
