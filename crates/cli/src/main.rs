//! The `kelpie` program.
fn main() {}
