//! Back ends of Kelpie's kernel IR: Cranelift machine code, CUDA C text, and a SIMT interpreter.
