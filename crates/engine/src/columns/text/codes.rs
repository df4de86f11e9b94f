//! Codes of texts, as narrow as a partition's dictionary allows when they are made.

/// An integer that is a code.
pub(super) trait Code: Copy {
    fn of(code: u32) -> Self;
    fn get(self) -> u32;
}

impl Code for u16 {
    fn of(code: u32) -> u16 {
        code as u16
    }

    fn get(self) -> u32 {
        self.into()
    }
}

impl Code for u32 {
    fn of(code: u32) -> u32 {
        code
    }

    fn get(self) -> u32 {
        self
    }
}

/// The codes of a batch's texts in its partition's dictionary.
#[derive(Debug)]
pub(in crate::columns) enum Codes {
    U16(Vec<u16>),
    U32(Vec<u32>),
}

impl Codes {
    pub(in crate::columns) fn len(&self) -> usize {
        match self {
            Codes::U16(codes) => codes.len(),
            Codes::U32(codes) => codes.len(),
        }
    }

    /// Each of them.
    pub(in crate::columns) fn iter(&self) -> impl Iterator<Item = u32> + Clone {
        // Of the two one has nothing.
        let (narrow, wide): (&[u16], &[u32]) = match self {
            Codes::U16(codes) => (codes, &[]),
            Codes::U32(codes) => (&[], codes),
        };
        narrow.iter().map(|code| u32::from(*code)).chain(wide.iter().copied())
    }

    /// What they become, appended.
    pub(super) fn append<C>(&self, all: &mut Vec<C>, of: impl Fn(u32) -> C) {
        match self {
            Codes::U16(codes) => all.extend(codes.iter().map(|code| of(code.get()))),
            Codes::U32(codes) => all.extend(codes.iter().map(|code| of(*code))),
        }
    }
}
