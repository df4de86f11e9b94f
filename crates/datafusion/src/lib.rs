//! Kelpie inside DataFusion: optimizer rule, KelpieExec and session.
