//! Enumerations whose values have names.

/// Such an enumeration, with all of its values and the name of each, as it is shown or written.
#[macro_export]
macro_rules! named {
    ($(#[$doc:meta])* $visibility:vis enum $type:ident { $($(#[$of:meta])* $value:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $visibility enum $type { $($(#[$of])* $value),+ }

        impl $type {
            /// All of them, in their order.
            $visibility const ALL: [$type; [$($name),+].len()] = [$($type::$value),+];

            /// What it is called.
            $visibility fn name(self) -> &'static str {
                match self { $($type::$value => $name),+ }
            }
        }
    };
}
