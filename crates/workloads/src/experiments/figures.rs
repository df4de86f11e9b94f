//! Figures of papers.

/// An enumeration of figures: of each its name, as users write it, what it shows, and where the paper has it.
macro_rules! figures {
    ($(#[$doc:meta])* { $($figure:ident: $name:literal, $title:literal, $paper:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Figure { $(#[doc = $title] $figure),+ }

        impl Figure {
            /// Every figure.
            pub const ALL: [Figure; [$($name),+].len()] = [$(Figure::$figure),+];

            /// Its name, as users write it.
            pub fn name(self) -> &'static str {
                match self { $(Figure::$figure => $name),+ }
            }

            /// What it shows.
            pub fn title(self) -> &'static str {
                match self { $(Figure::$figure => $title),+ }
            }

            /// Where the paper has it.
            pub fn paper(self) -> &'static str {
                match self { $(Figure::$figure => $paper),+ }
            }
        }
    };
}

pub(super) use figures;
