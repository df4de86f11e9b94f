//! The benchmark: queries timed hot or cold, beside peers in the same invocation.
