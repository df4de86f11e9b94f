//! Relations on a device: dense arrays, and lists of pages.

use kelpie_compile::algebra::{Tuples, Width, pages};
use kelpie_device::Buffer;

use super::{Algebra, Family, MOST_INPUTS, refused, whole, words};
use crate::error::EngineError;

/// A dense array of tuples in the order of their keys.
#[derive(Debug, Clone)]
pub struct Relation {
    pub(super) buffer: Buffer,
    /// How many.
    pub rows: u32,
    /// Of what.
    pub tuples: Tuples,
}

/// A list of pages.
#[derive(Debug, Clone)]
pub struct Paged {
    pub(super) pool: Buffer,
    pub(super) next: Buffer,
    pub(super) firsts: Buffer,
    /// The counts of the sections, scanned.
    pub(super) places: Buffer,
    pub(super) sections: u32,
    /// The first page of all.
    pub(super) head: u32,
    /// Tuples of a page.
    pub page: u32,
    /// Pages that are in use.
    pub pages: u32,
    /// Tuples of all pages.
    pub rows: u32,
    /// Of what.
    pub tuples: Tuples,
    /// What made it has kernels for it.
    pub(super) family: Family,
}

/// A result.
#[derive(Debug, Clone)]
pub enum Stored {
    /// As an array.
    Dense(Relation),
    /// In pages.
    Paged(Paged),
}

/// A stage of a run: a kernel, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// What it is.
    pub name: &'static str,
    /// Its time on the device in nanoseconds.
    pub time_ns: u64,
}

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The result.
    pub result: Stored,
    /// The stages of the last attempt.
    pub stages: Vec<Stage>,
    /// Sections of the inputs: the left and the right tuples of each, where they were found by search.
    pub sections: Vec<(u32, u32)>,
    /// Input tuples that the partition has left out.
    pub dropped: u64,
    /// Input tuples that blocks have not loaded.
    pub skipped: u64,
    /// How often it was begun anew, as there was no room for the result.
    pub repeats: u32,
}

impl Outcome {
    /// The time of all stages in nanoseconds.
    pub fn time_ns(&self) -> u64 {
        self.stages.iter().map(|stage| stage.time_ns).sum()
    }
}

fn bytes_of(tuples: &[u128], width: Width) -> Vec<u8> {
    let bytes = width.bytes() as usize;
    tuples.iter().flat_map(|tuple| tuple.to_le_bytes().into_iter().take(bytes)).collect()
}

impl Algebra {
    /// Brings tuples to the device. They are in the order of their keys, and have no bits above these.
    ///
    /// # Errors
    /// Where they are not so, are too many, or the device fails.
    pub fn upload(&self, tuples: Tuples, values: &[u128]) -> Result<Relation, EngineError> {
        let bits = tuples.key_bits.saturating_add(tuples.value_bits);
        if tuples.key_bits == 0 || bits > tuples.width.bits() {
            return Err(refused(format!("there are no tuples of {tuples:?}")));
        }
        let rows = u32::try_from(values.len()).ok().filter(|rows| u64::from(*rows) < MOST_INPUTS);
        let rows = rows.ok_or_else(|| refused(format!("a relation of {} tuples", values.len())))?;
        let too_wide = |value: &u128| bits < u128::BITS && value >> bits != 0;
        if let Some(value) = values.iter().find(|value| too_wide(value)) {
            return Err(refused(format!("tuple {value:#x} has more than {bits} bits")));
        }
        let key = |value: u128| value >> tuples.value_bits.min(u128::BITS - 1);
        if !values.is_sorted_by_key(|value| key(*value)) {
            return Err(refused("tuples that are not in the order of their keys"));
        }
        let bytes = bytes_of(values, tuples.width);
        let buffer = self.allocate(bytes.len() as u64)?;
        self.stream.upload(&buffer, 0, &bytes)?;
        Ok(Relation { buffer, rows, tuples })
    }

    fn read(&self, buffer: &Buffer, (rows, width): (usize, Width)) -> Result<Vec<u128>, EngineError> {
        let wide = width.bytes() as usize;
        let mut bytes = vec![0; rows * wide];
        self.stream.download(buffer, 0, &mut bytes)?;
        let tuple = |bytes: &[u8]| {
            let mut all = [0; 16];
            all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            u128::from_le_bytes(all)
        };
        Ok(bytes.chunks_exact(wide).map(tuple).collect())
    }

    /// The tuples of a relation.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn download(&self, relation: &Relation) -> Result<Vec<u128>, EngineError> {
        self.read(&relation.buffer, (relation.rows as usize, relation.tuples.width))
    }

    /// The tuples of a list of pages, page by page along the links.
    ///
    /// # Errors
    /// Where the device fails, or the list is broken.
    pub fn download_pages(&self, paged: &Paged) -> Result<Vec<u128>, EngineError> {
        let (pages, page) = (paged.pages as usize, paged.page as usize);
        let pool = self.read(&paged.pool, (pages * page, paged.tuples.width))?;
        let next = self.read_words(&paged.next, pages)?;
        let places = self.read_words(&paged.places, paged.sections as usize + 1)?;
        let firsts = self.read_words(&paged.firsts, paged.sections as usize)?;
        let broken = || EngineError::Internal("a list of pages is broken".into());
        let (mut all, mut at) = (Vec::new(), paged.head);
        for (first, bounds) in firsts.iter().zip(places.windows(2)) {
            let mut left = (bounds[1] - bounds[0]) as usize;
            if left > 0 && *first != at {
                return Err(broken());
            }
            while left > 0 {
                let from = at as usize * page;
                let tuples = pool.get(from..from + left.min(page)).ok_or_else(broken)?;
                all.extend_from_slice(tuples);
                left -= tuples.len();
                at = *next.get(at as usize).ok_or_else(broken)?;
            }
        }
        if at != pages::NOWHERE { Err(broken()) } else { Ok(all) }
    }

    /// Makes a dense array of pages; the time in nanoseconds.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn to_dense(&self, paged: &Paged) -> Result<(Relation, u64), EngineError> {
        let out = self.allocate(u64::from(paged.rows) * u64::from(paged.tuples.width.bytes()))?;
        let arguments = [
            whole(&paged.pool),
            whole(&paged.next),
            whole(&paged.firsts),
            whole(&paged.places),
            words(paged.sections),
            whole(&out),
        ];
        let kernel = (&paged.family, pages::TO_DENSE);
        let time_ns = self.launch(kernel, paged.sections.into(), &arguments)?;
        Ok((Relation { buffer: out, rows: paged.rows, tuples: paged.tuples }, time_ns))
    }

    /// Makes pages of so many tuples of a dense array, each a section; the time in nanoseconds.
    ///
    /// # Errors
    /// Where pages have no tuples, or the device fails.
    pub fn to_pages(&self, relation: &Relation, page: u32) -> Result<(Paged, u64), EngineError> {
        if page == 0 {
            return Err(refused("pages without tuples"));
        }
        let width = relation.tuples.width;
        let pages = relation.rows.div_ceil(page);
        let pool = self.allocate(u64::from(pages) * u64::from(page) * u64::from(width.bytes()))?;
        let next = self.allocate(u64::from(pages) * 4)?;
        let arguments = [whole(&relation.buffer), words(relation.rows), whole(&pool), whole(&next)];
        let family = Family::FromDense(width, page);
        let time_ns = self.launch((&family, pages::FROM_DENSE), pages.into(), &arguments)?;
        let places: Vec<u32> =
            (0..=pages).map(|number| number.saturating_mul(page).min(relation.rows)).collect();
        let numbers: Vec<u32> = (0..pages).collect();
        let (places, firsts) = (self.write_words(&places)?, self.write_words(&numbers)?);
        let head = if pages == 0 { pages::NOWHERE } else { 0 };
        let (rows, tuples, sections) = (relation.rows, relation.tuples, pages);
        Ok((Paged { pool, next, firsts, places, sections, head, page, pages, rows, tuples, family }, time_ns))
    }
}
