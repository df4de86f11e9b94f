//! Kernel IR of Kelpie: types, expressions, statements, builder, validator and text form.
