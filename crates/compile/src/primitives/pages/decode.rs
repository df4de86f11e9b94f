//! Makes stored values of decompressed pages: definition levels become bits of validity, and values or their places in a dictionary what
//! the column stores, at its width.
//!
//! | kernel | parameters |
//! |---|---|
//! | [`Decode`] | `first: i64`, `count: i64`, `pages: u64[]`, `scratch: u8[]`, `dictionary: stored[]`, `base: value`, `least: value`, `greatest: value`, `valid: u32[]`, `has_valid: u32`, `out: stored[]` (written), `status: u32[]`, `nulls: u32[]` (written) |
//!
//! Pages `first` to `first + count` of those that are described are decoded. The stored value of an integer is what it is more than
//! `base`; one that is not within `least` to `greatest` is [`BEYOND`]. Of floats every NaN becomes the one NaN. Entries of dictionaries are
//! stored values already. `valid` is zero before, and gets the bit of each row that has a value where `has_valid` is 1; `nulls` is told how
//! many rows of a page have none. Such a row gets the value of another row near it, so that it costs no width, or the least.
//!
//! Lanes take rows that follow each other. Levels and places are runs: equal ones behind their number, or packed bits (the hybrid encoding
//! of Parquet); a step of the warp goes no further than its run of levels, and takes places run by run.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, Builtin, CompareOp, Expr, Module, Scalar, Scope, ShuffleMode, TypeError,
    UnaryOp,
};

use super::{
    BEYOND, DAMAGED, DICTIONARY, FIRST_ROW, HAS_LENGTH, HAS_LEVELS, IS_DICTIONARY, KIND, LENGTHS, ROWS,
    TARGET, Words, byte, bytes_type, for_pages,
};
use crate::primitives::{array, for_range, param};
use crate::shape::LaunchShape;

/// A kernel: what values are in pages (`I32`, `I64`, `F32`, `F64`), and as what they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decode {
    /// In pages.
    pub value: Scalar,
    /// In the column.
    pub stored: Scalar,
}

impl Decode {
    /// All kernels.
    pub fn all() -> Vec<Decode> {
        use Scalar::{F32, F64, I32, I64, U8, U16};
        let integers = [(I32, U8), (I32, U16), (I32, I32), (I64, U8), (I64, U16), (I64, I32), (I64, I64)];
        let all = integers.into_iter().chain([(F32, F32), (F64, F64)]);
        all.map(|(value, stored)| Decode { value, stored }).collect()
    }

    /// The kernel's name.
    pub fn name(self) -> String {
        format!("pages_decode_{}_{}", self.value.name(), self.stored.name())
    }

    /// The module with this kernel alone.
    pub fn module(self, shape: &LaunchShape) -> Result<Module, TypeError> {
        let mut b = Builder::new();
        b.begin_kernel(&self.name());
        let (first, count) = (param(&mut b, "first", Scalar::I64), param(&mut b, "count", Scalar::I64));
        let pages = array(&mut b, "pages", Scalar::U64);
        let scratch = param(&mut b, "scratch", bytes_type());
        let dictionary = array(&mut b, "dictionary", self.stored);
        let [base, least, greatest] =
            ["base", "least", "greatest"].map(|name| param(&mut b, name, self.value));
        let (valid, has_valid) =
            (array(&mut b, "valid", Scalar::U32), param(&mut b, "has_valid", Scalar::U32));
        let out = array(&mut b, "out", self.stored);
        let (status, nulls) = (array(&mut b, "status", Scalar::U32), array(&mut b, "nulls", Scalar::U32));
        for_pages(&mut b, shape, count, |b, page| {
            let page = b.add(first, page);
            let (pointer, none) = (b.offset(status, page), b.u32(0));
            // The warp that decompressed it has told before the launch.
            let known = b.load(pointer);
            let known = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: known, lane: none });
            let is_sound = b.eq(known, none);
            b.begin_if(is_sound);
            let column = Column { decode: self, dictionary, base, least, greatest, valid, has_valid, out };
            let decoding = Decoding::new(b, column, &Words { pages, page }, scratch);
            let found = decoding.rows(b);
            let (lane, missing) = (b.builtin(Builtin::LaneId), b.read(decoding.nulls));
            // All lanes have read the status.
            b.warp_barrier();
            let leads = b.eq(lane, none);
            b.begin_if(leads);
            b.store(pointer, found);
            let pointer = b.offset(nulls, page);
            b.store(pointer, missing);
            b.end();
            b.end();
        });
        b.end_kernel();
        b.finish()
    }
}

/// What the pages of a column become.
#[derive(Clone, Copy)]
struct Column {
    decode: Decode,
    dictionary: V,
    base: V,
    least: V,
    greatest: V,
    valid: V,
    has_valid: V,
    out: V,
}

/// Runs of a hybrid encoding in some bytes. All of it is the same in the lanes of the warp.
struct Runs {
    bytes: V,
    /// The next byte, and the one behind the last, `u32`.
    at: Var,
    end: V,
    /// Bits of a number.
    width: V,
    /// Of the run: the numbers that are left, how many were taken, whether they are packed; where its bits begin, or its number.
    left: Var,
    taken: Var,
    is_packed: Var,
    of_run: Var,
    /// Whether nothing was wrong so far.
    goes_on: Var,
}

impl Runs {
    fn new(b: &mut Builder, bytes: V, (at, end): (V, V), width: V, goes_on: Var) -> Runs {
        let (none, no) = (b.u32(0), b.bool(false));
        let [at, left, taken, of_run] = [("at", at), ("left", none), ("taken", none), ("of_run", none)]
            .map(|(name, value)| b.var_of(name, value));
        Runs { bytes, at, end, width, left, taken, is_packed: b.var_of("is_packed", no), of_run, goes_on }
    }

    fn fail(&self, b: &mut Builder) {
        let no = b.bool(false);
        b.assign(self.goes_on, no);
    }

    /// Takes the next byte; 0, and a failure, behind the last.
    fn take(&self, b: &mut Builder) -> V {
        let (none, at) = (b.u32(0), b.read(self.at));
        let taken = b.var_of("byte", none);
        let has = b.lt(at, self.end);
        b.begin_if(has);
        let (value, one) = (byte(b, self.bytes, at), b.u32(1));
        b.assign(taken, value);
        let next = b.add(at, one);
        b.assign(self.at, next);
        b.begin_else();
        self.fail(b);
        b.end();
        b.read(taken)
    }

    /// Begins the next run where none is left of this one.
    fn begin(&self, b: &mut Builder) {
        let (left, none) = (b.read(self.left), b.u32(0));
        let is_over = b.eq(left, none);
        b.begin_if(is_over);
        let header = self.header(b);
        b.assign(self.taken, none);
        let one = b.u32(1);
        let low = b.and(header, one);
        let number = b.binary(BinaryOp::Shr, header, one);
        let is_packed = b.eq(low, one);
        b.assign(self.is_packed, is_packed);
        b.begin_if(is_packed);
        self.begin_packed(b, number);
        b.begin_else();
        self.begin_equal(b, number);
        b.end();
        // A run without numbers would be begun for ever.
        let left = b.read(self.left);
        let is_empty = b.eq(left, none);
        b.begin_if(is_empty);
        self.fail(b);
        b.end();
        b.end();
    }

    /// A number of seven bits a byte, of five bytes at most.
    fn header(&self, b: &mut Builder) -> V {
        let (none, yes) = (b.u32(0), b.bool(true));
        let (header, goes_on) = (b.var_of("header", none), b.var_of("has_more", yes));
        for place in 0..5 {
            let more = b.read(goes_on);
            b.begin_if(more);
            let (own, seven_bits) = (self.take(b), b.u32(0x7f));
            let (bits, distance) = (b.and(own, seven_bits), b.u32(place * 7));
            let bits = b.binary(BinaryOp::Shl, bits, distance);
            let known = b.read(header);
            let known = b.or(known, bits);
            b.assign(header, known);
            let last = b.u32(0x80);
            let has_more = b.ge(own, last);
            b.assign(goes_on, has_more);
            b.end();
        }
        b.read(header)
    }

    /// So many groups of eight numbers; bytes that are missing at the end of the last group are numbers that are not there.
    fn begin_packed(&self, b: &mut Builder, groups: V) {
        let at = b.read(self.at);
        let (eight, none) = (b.i64(8), b.i64(0));
        let [groups, width] = [groups, self.width].map(|value| b.convert(value, Scalar::I64));
        let rest = b.sub(self.end, at);
        let rest = b.convert(rest, Scalar::I64);
        let all = b.mul(groups, eight);
        let bytes = b.mul(groups, width);
        let bytes = b.binary(BinaryOp::Min, bytes, rest);
        let bits = b.mul(bytes, eight);
        let has_bits = b.compare(CompareOp::Gt, width, none);
        // Division by no bits gives nothing, which is not looked at.
        let there = b.div(bits, width);
        let there = b.binary(BinaryOp::Min, there, all);
        let count = b.select(has_bits, there, all);
        let most = b.i64(i32::MAX.into());
        let count = b.binary(BinaryOp::Min, count, most);
        let (count, bytes) = (b.convert(count, Scalar::U32), b.convert(bytes, Scalar::U32));
        b.assign(self.left, count);
        b.assign(self.of_run, at);
        let next = b.add(at, bytes);
        b.assign(self.at, next);
    }

    /// So many equal numbers; the number has as many bytes as its bits need.
    fn begin_equal(&self, b: &mut Builder, count: V) {
        let none = b.u32(0);
        b.assign(self.of_run, none);
        for place in 0..4 {
            let bits = b.u32(place * 8);
            let has = b.lt(bits, self.width);
            b.begin_if(has);
            let own = self.take(b);
            let own = b.binary(BinaryOp::Shl, own, bits);
            let known = b.read(self.of_run);
            let known = b.or(known, own);
            b.assign(self.of_run, known);
            b.end();
        }
        b.assign(self.left, count);
    }

    /// The number of the run that comes `ahead` numbers after those that were taken, `u32`. Lanes ask for their own.
    fn number(&self, b: &mut Builder, ahead: V) -> V {
        let of_run = b.read(self.of_run);
        let number = b.var_of("number", of_run);
        let is_packed = b.read(self.is_packed);
        b.begin_if(is_packed);
        let taken = b.read(self.taken);
        let index = b.add(taken, ahead);
        let [index, width] = [index, self.width].map(|value| b.convert(value, Scalar::U64));
        let bit = b.mul(index, width);
        let (three, seven) = (b.u64(3), b.u64(7));
        let byte = b.binary(BinaryOp::Shr, bit, three);
        let shift = b.and(bit, seven);
        let first = b.convert(of_run, Scalar::U64);
        let place = b.add(first, byte);
        let pointer = b.offset(self.bytes, place);
        let bits = b.load_bytes(pointer);
        let bits = b.binary(BinaryOp::Shr, bits, shift);
        let one = b.u64(1);
        let mask = b.binary(BinaryOp::Shl, one, width);
        let mask = b.sub(mask, one);
        let bits = b.and(bits, mask);
        let bits = b.convert(bits, Scalar::U32);
        b.assign(number, bits);
        b.end();
        b.read(number)
    }

    /// Goes on by so many numbers of the run.
    fn advance(&self, b: &mut Builder, count: V) {
        let (left, taken) = (b.read(self.left), b.read(self.taken));
        let (left, taken) = (b.sub(left, count), b.add(taken, count));
        b.assign(self.left, left);
        b.assign(self.taken, taken);
    }
}

/// A page that is being decoded.
struct Decoding {
    column: Column,
    /// Its decompressed bytes.
    bytes: V,
    first_row: V,
    rows: V,
    has_levels: V,
    levels: Runs,
    is_dictionary: V,
    places: Runs,
    /// The first entry of its dictionary, and how many there are.
    first_entry: V,
    entries: V,
    /// Where plain values begin, how many there are, and how many were taken.
    values_at: V,
    plain: V,
    plain_taken: Var,
    goes_on: Var,
    /// What a lane has met: a place that the dictionary has not, a value out of bounds.
    problem: Var,
    /// Rows without a value.
    nulls: Var,
}

impl Decoding {
    fn new(b: &mut Builder, column: Column, words: &Words, scratch: V) -> Decoding {
        let (target, first_row) = (words.word(b, TARGET), words.word(b, FIRST_ROW));
        let ((rows, level_bytes), (_, length)) = (words.halves(b, ROWS), words.halves(b, LENGTHS));
        let ((first_entry, entries), kind) = (words.halves(b, DICTIONARY), words.word(b, KIND));
        let bytes = b.offset(scratch, target);
        let [is_dictionary, has_levels, has_length] = [IS_DICTIONARY, HAS_LEVELS, HAS_LENGTH].map(|flag| {
            let (flag, none) = (b.u64(flag), b.u64(0));
            let bit = b.and(kind, flag);
            b.ne(bit, none)
        });
        let (yes, none) = (b.bool(true), b.u32(0));
        let goes_on = b.var_of("goes_on", yes);
        let (start, level_bytes) = Self::level_bytes(b, (bytes, length), (has_length, level_bytes), goes_on);
        let values_at = b.add(start, level_bytes);
        let one = b.u32(1);
        let levels = Runs::new(b, bytes, (start, values_at), one, goes_on);
        // Places stand behind a byte that tells how many bits one has; where there is none, no row has a value.
        let bits = b.var_of("bits", none);
        let has_values = b.lt(values_at, length);
        let has_bits = b.and(has_values, is_dictionary);
        b.begin_if(has_bits);
        let told = byte(b, bytes, values_at);
        b.assign(bits, told);
        b.end();
        let width = b.read(bits);
        let most = b.u32(32);
        let is_wide = b.compare(CompareOp::Gt, width, most);
        b.begin_if(is_wide);
        let no = b.bool(false);
        b.assign(goes_on, no);
        b.end();
        let places_at = b.add(values_at, one);
        let places_at = b.binary(BinaryOp::Min, places_at, length);
        let places = Runs::new(b, bytes, (places_at, length), width, goes_on);
        let size = b.u32(column.decode.value.bytes());
        let plain = b.sub(length, values_at);
        let plain = b.div(plain, size);
        let [plain_taken, problem, nulls] =
            ["plain_taken", "problem", "nulls"].map(|name| b.var_of(name, none));
        Decoding {
            column,
            bytes,
            first_row,
            rows,
            has_levels,
            levels,
            is_dictionary,
            places,
            first_entry,
            entries,
            values_at,
            plain,
            plain_taken,
            goes_on,
            problem,
            nulls,
        }
    }

    /// Where levels begin, and how many bytes they have, which are in the page.
    fn level_bytes(
        b: &mut Builder,
        (bytes, length): (V, V),
        (has_length, told): (V, V),
        goes_on: Var,
    ) -> (V, V) {
        let none = b.u32(0);
        let (start, count) = (b.var_of("levels_at", none), b.var_of("level_bytes", told));
        b.begin_if(has_length);
        let four = b.u32(4);
        b.assign(start, four);
        b.assign(count, none);
        let has = b.ge(length, four);
        b.begin_if(has);
        let mut number = none;
        for place in 0..4 {
            let at = b.u32(place);
            let (own, distance) = (byte(b, bytes, at), b.u32(place * 8));
            let own = b.binary(BinaryOp::Shl, own, distance);
            number = b.or(number, own);
        }
        b.assign(count, number);
        b.begin_else();
        b.assign(start, none);
        b.end();
        b.end();
        let (start_at, told) = (b.read(start), b.read(count));
        let rest = b.sub(length, start_at);
        let fits = b.ge(rest, told);
        let unfit = b.not(fits);
        b.begin_if(unfit);
        let no = b.bool(false);
        b.assign(goes_on, no);
        b.assign(count, none);
        b.end();
        let count = b.read(count);
        (start_at, count)
    }

    /// Decodes all rows; the page's status.
    fn rows(&self, b: &mut Builder) -> V {
        let (none, lanes) = (b.u32(0), b.builtin(Builtin::Lanes));
        let row = b.var_of("row", none);
        b.begin_loop();
        let goes_on = b.read(self.goes_on);
        let failed = b.not(goes_on);
        b.break_if(failed);
        let next = b.read(row);
        let done = b.ge(next, self.rows);
        b.break_if(done);
        let left = b.sub(self.rows, next);
        let count = b.binary(BinaryOp::Min, left, lanes);
        let (count, is_valid) = self.step_of_levels(b, count);
        let goes_on = b.read(self.goes_on);
        let failed = b.not(goes_on);
        b.break_if(failed);
        self.step(b, (next, count), is_valid);
        let next = b.add(next, count);
        b.assign(row, next);
        b.end();
        let (goes_on, problem) = (b.read(self.goes_on), b.read(self.problem));
        let damaged = b.u32(DAMAGED);
        let (is_damaged, is_beyond) = (b.eq(problem, damaged), b.u32(BEYOND));
        let is_beyond = b.eq(problem, is_beyond);
        let any_damaged = b.value(Expr::Any(is_damaged));
        let any_beyond = b.value(Expr::Any(is_beyond));
        let beyond = b.u32(BEYOND);
        let found = b.select(any_beyond, beyond, none);
        let found = b.select(any_damaged, damaged, found);
        b.select(goes_on, found, damaged)
    }

    /// How many of the next rows, at most `count`, are in one run of levels, and whether a lane's row has a value.
    fn step_of_levels(&self, b: &mut Builder, count: V) -> (V, V) {
        let (lane, yes) = (b.builtin(Builtin::LaneId), b.bool(true));
        let (rows, is_there) = (b.var_of("rows", count), b.var_of("is_there", yes));
        b.begin_if(self.has_levels);
        self.levels.begin(b);
        let left = b.read(self.levels.left);
        let count = b.binary(BinaryOp::Min, count, left);
        b.assign(rows, count);
        let asks = b.lt(lane, count);
        b.begin_if(asks);
        let (level, one) = (self.levels.number(b, lane), b.u32(1));
        let is_one = b.eq(level, one);
        b.assign(is_there, is_one);
        b.end();
        self.levels.advance(b, count);
        b.end();
        let (rows, is_there) = (b.read(rows), b.read(is_there));
        let is_row = b.lt(lane, rows);
        (rows, b.and(is_row, is_there))
    }

    /// Decodes `count` rows from one of the page's on, a lane each.
    fn step(&self, b: &mut Builder, (row, count): (V, V), is_valid: V) {
        let (lane, none, one) = (b.builtin(Builtin::LaneId), b.u32(0), b.u32(1));
        let valid = b.value(Expr::Ballot(is_valid));
        let below = b.binary(BinaryOp::Shl, one, lane);
        let below = b.sub(below, one);
        let before = b.and(valid, below);
        let [values, rank] = [valid, before].map(|bits| b.unary(UnaryOp::Popcount, bits));
        let missing = b.sub(count, values);
        let nulls = b.read(self.nulls);
        let nulls = b.add(nulls, missing);
        b.assign(self.nulls, nulls);
        // Where a row has no value, it gets the next one, or the last of them.
        let last = b.sub(values, one);
        let rank = b.binary(BinaryOp::Min, rank, last);
        let least = self.least(b);
        let stored = b.var_of("stored", least);
        let is_row = b.lt(lane, count);
        b.begin_if(self.is_dictionary);
        self.places(b, (values, rank, is_row), stored);
        b.begin_else();
        self.plain(b, (values, rank, is_row), stored);
        b.end();
        b.begin_if(is_row);
        let [row_of_page, of_lane] = [row, lane].map(|value| b.convert(value, Scalar::U64));
        let at = b.add(self.first_row, row_of_page);
        let place = b.add(at, of_lane);
        let (pointer, value) = (b.offset(self.column.out, place), b.read(stored));
        b.store(pointer, value);
        b.end();
        let has_valid = b.ne(self.column.has_valid, none);
        b.begin_if(has_valid);
        let row = b.convert(row, Scalar::U64);
        let at = b.add(self.first_row, row);
        self.mark_valid(b, at, valid);
        b.end();
    }

    /// Sets the bits of rows that have a value, from one on.
    fn mark_valid(&self, b: &mut Builder, row: V, valid: V) {
        let (lane, lanes, two) = (b.builtin(Builtin::LaneId), b.builtin(Builtin::Lanes), b.u32(2));
        let (five, within) = (b.u64(5), b.u64(31));
        let word = b.binary(BinaryOp::Shr, row, five);
        let shift = b.and(row, within);
        let wide = b.convert(valid, Scalar::U64);
        let wide = b.binary(BinaryOp::Shl, wide, shift);
        let half = b.u64(32);
        let upper = b.binary(BinaryOp::Shr, wide, half);
        let [lower, upper] = [wide, upper].map(|bits| b.convert(bits, Scalar::U32));
        // One lane writes both words where a warp has no second one.
        for_range(b, lane, two, lanes, |b, half| {
            let none = b.u32(0);
            let is_lower = b.eq(half, none);
            let bits = b.select(is_lower, lower, upper);
            let some = b.ne(bits, none);
            b.begin_if(some);
            let half = b.convert(half, Scalar::U64);
            let place = b.add(word, half);
            let pointer = b.offset(self.column.valid, place);
            b.atomic_discard(AtomicOp::Or, pointer, bits, Scope::Device);
            b.end();
        });
    }

    /// Notes what is wrong with a lane's value.
    fn note(&self, b: &mut Builder, is_wrong: V, problem: u32) {
        b.begin_if(is_wrong);
        let problem = b.u32(problem);
        b.assign(self.problem, problem);
        b.end();
    }

    /// The next values of a dictionary's places, each for the lanes whose row it is.
    fn places(&self, b: &mut Builder, (values, rank, is_row): (V, V, V), stored: Var) {
        let none = b.u32(0);
        let done = b.var_of("done", none);
        b.begin_loop();
        let before = b.read(done);
        let all = b.ge(before, values);
        b.break_if(all);
        self.places.begin(b);
        let goes_on = b.read(self.goes_on);
        let failed = b.not(goes_on);
        b.break_if(failed);
        let (left, rest) = (b.read(self.places.left), b.sub(values, before));
        let count = b.binary(BinaryOp::Min, left, rest);
        let after = b.add(before, count);
        let (is_from, is_to) = (b.ge(rank, before), b.lt(rank, after));
        let is_own = b.and(is_from, is_to);
        let is_own = b.and(is_own, is_row);
        b.begin_if(is_own);
        let ahead = b.sub(rank, before);
        let place = self.places.number(b, ahead);
        let is_entry = b.lt(place, self.entries);
        b.begin_if(is_entry);
        let entry = b.add(self.first_entry, place);
        let value = b.element(self.column.dictionary, entry);
        b.assign(stored, value);
        b.end();
        let is_none = b.not(is_entry);
        self.note(b, is_none, DAMAGED);
        b.end();
        self.places.advance(b, count);
        b.assign(done, after);
        b.end();
    }

    /// The next values as they are.
    fn plain(&self, b: &mut Builder, (values, rank, is_row): (V, V, V), stored: Var) {
        let (taken, none) = (b.read(self.plain_taken), b.u32(0));
        let left = b.sub(self.plain, taken);
        let has = b.ge(left, values);
        b.begin_if(has);
        let some = b.ne(values, none);
        let is_own = b.and(some, is_row);
        b.begin_if(is_own);
        let size = b.u32(self.column.decode.value.bytes());
        let index = b.add(taken, rank);
        let at = b.mul(index, size);
        let at = b.add(at, self.values_at);
        let pointer = b.offset(self.bytes, at);
        let bits = b.load_bytes(pointer);
        let value = self.stored(b, bits);
        b.assign(stored, value);
        b.end();
        let taken = b.add(taken, values);
        b.assign(self.plain_taken, taken);
        b.begin_else();
        let no = b.bool(false);
        b.assign(self.goes_on, no);
        b.end();
    }

    /// What a row gets of which nothing is near that has a value.
    fn least(&self, b: &mut Builder) -> V {
        let Column { decode: Decode { value, stored }, base, least, .. } = self.column;
        if !value.is_integer() {
            return b.zero(stored);
        }
        let above = b.sub(least, base);
        b.convert(above, stored)
    }

    /// What the column stores for the bits of a value.
    fn stored(&self, b: &mut Builder, bits: V) -> V {
        let Column { decode: Decode { value, stored }, base, least, greatest, .. } = self.column;
        let bits = if value.bytes() == 4 { b.convert(bits, Scalar::U32) } else { bits };
        let own = b.bitcast(bits, value);
        if !value.is_integer() {
            let (is_nan, one_nan) = match value {
                Scalar::F32 => (b.ne(own, own), b.f32(f32::NAN)),
                _ => (b.ne(own, own), b.f64(f64::NAN)),
            };
            return b.select(is_nan, one_nan, own);
        }
        let (is_less, is_more) = (b.lt(own, least), b.compare(CompareOp::Gt, own, greatest));
        let is_beyond = b.or(is_less, is_more);
        self.note(b, is_beyond, BEYOND);
        let above = b.sub(own, base);
        b.convert(above, stored)
    }
}
