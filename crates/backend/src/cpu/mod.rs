//! The CPU back end: KIR to machine code of this host, through Cranelift.
