//! Which columns of a table fit beside each other, and how wide they are.

/// Text that has to be cut keeps at least this many places.
const LEAST_TEXT: usize = 12;
/// A name over narrow values keeps at least this many.
const LEAST_NAME: usize = 8;
/// Between two columns: `| ` and a blank.
const BETWEEN: usize = 3;

/// What a column would like to have, in places of the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Its name and its type.
    pub header: usize,
    /// Its widest value.
    pub values: usize,
    /// Whether a value says something else when it is cut, as numbers and dates do.
    pub is_whole: bool,
}

impl Wanted {
    fn natural(self) -> usize {
        self.header.max(self.values).max(1)
    }

    fn least(self) -> usize {
        match self.is_whole {
            true => self.values.max(self.header.min(LEAST_NAME)).max(1),
            false => self.natural().min(LEAST_TEXT),
        }
    }
}

/// What stands beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// A column by its number, and its width.
    Column { index: usize, width: usize },
    /// Columns that are left out.
    Gap,
}

/// The columns that fit into a width, each as wide as it wants if there is room. Where not even the least of all fits, those in the
/// middle are left out: the first are mostly keys, and the last what a query computes.
pub fn fitted(columns: &[Wanted], width: usize) -> Vec<Slot> {
    let all: Vec<usize> = (0..columns.len()).collect();
    if let Some(slots) = placed(columns, &all, width) {
        return slots;
    }
    for shown in (1..columns.len()).rev() {
        let (first, last) = (shown.div_ceil(2), shown / 2);
        let kept: Vec<usize> = (0..first).chain(columns.len() - last..columns.len()).collect();
        if let Some(mut slots) = placed(columns, &kept, width.saturating_sub(1 + BETWEEN)) {
            slots.insert(first, Slot::Gap);
            return slots;
        }
    }
    let room = width.saturating_sub(2 * (1 + BETWEEN)).max(1);
    let only = columns.first().map(|first| Slot::Column { index: 0, width: first.natural().min(room) });
    only.into_iter().chain((columns.len() > 1).then_some(Slot::Gap)).collect()
}

/// Some of the columns in a width; nothing where they do not fit.
fn placed(columns: &[Wanted], chosen: &[usize], width: usize) -> Option<Vec<Slot>> {
    let room = width.checked_sub(1 + BETWEEN * chosen.len())?;
    let chosen: Vec<(usize, Wanted)> =
        chosen.iter().filter_map(|index| Some((*index, *columns.get(*index)?))).collect();
    let width_of = |(_, wanted): &(usize, Wanted), most: usize| {
        most.clamp(wanted.least(), wanted.natural().max(wanted.least()))
    };
    let total = |most: usize| chosen.iter().map(|column| width_of(column, most)).sum::<usize>();
    if total(0) > room {
        return None;
    }
    // The widest that all may be; what is left over goes to the first that are cut.
    let widest = chosen.iter().map(|(_, wanted)| wanted.natural()).max().unwrap_or(1);
    let (mut most, mut too_many) = (0, widest + 1);
    while most + 1 < too_many {
        let middle = (most + too_many) / 2;
        if total(middle) <= room { most = middle } else { too_many = middle }
    }
    let mut left = room - total(most);
    let slots = chosen.iter().map(|column| {
        let mut width = width_of(column, most);
        if left > 0 && width < width_of(column, most + 1) {
            (width, left) = (width + 1, left - 1);
        }
        Slot::Column { index: column.0, width }
    });
    Some(slots.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(values: usize) -> Wanted {
        Wanted { header: 4, values, is_whole: false }
    }

    fn number(header: usize, values: usize) -> Wanted {
        Wanted { header, values, is_whole: true }
    }

    /// The widths of a layout; 0 is a gap.
    fn widths(columns: &[Wanted], width: usize) -> Vec<usize> {
        let slots = fitted(columns, width);
        let used: usize =
            slots.iter().map(|slot| if let Slot::Column { width, .. } = slot { *width } else { 1 } + 3).sum();
        assert!(used < width || slots.len() <= 2, "{slots:?} in {width}");
        slots.iter().map(|slot| if let Slot::Column { width, .. } = slot { *width } else { 0 }).collect()
    }

    #[test]
    fn columns_are_as_wide_as_they_want_where_there_is_room() {
        assert_eq!(widths(&[number(1, 3), text(20), text(2)], 40), [3, 20, 4]);
        assert_eq!(widths(&[], 40), Vec::<usize>::new());
    }

    #[test]
    fn long_texts_are_cut_before_columns_are_left_out() {
        assert_eq!(widths(&[number(1, 3), text(50), text(90), text(5)], 80), [3, 30, 29, 5]);
        assert_eq!(widths(&[number(30, 3), text(300)], 40), [17, 16]);
        assert_eq!(widths(&[number(3, 19), text(300)], 40), [19, 14]);
    }

    #[test]
    fn columns_in_the_middle_are_left_out_where_nothing_else_helps() {
        let many = vec![text(12); 20];
        assert_eq!(widths(&many, 40), [12, 0, 12]);
        assert_eq!(widths(&many, 80), [12, 12, 12, 0, 12, 12]);
        assert_eq!(widths(&many, 100), [12, 12, 12, 0, 12, 12, 12]);
        assert_eq!(widths(&[number(3, 30), number(3, 30)], 40), [30, 0]);
        assert_eq!(widths(&[number(3, 300)], 40), [32]);
        assert_eq!(widths(&[text(300)], 5), [1]);
    }
}
