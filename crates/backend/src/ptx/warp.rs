//! Lane operations, always over the whole warp: the validator has proven that every lane is there.

use kelpie_kir::{Expr, Handle, ShuffleMode, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, Wide};

/// Every lane of a warp.
const FULL_MASK: &str = "0xffffffff";

impl Printer<'_> {
    /// A lane operation.
    pub fn lane_operation(&mut self, expr: &Expr) -> Piece {
        match *expr {
            Expr::Ballot(a) => {
                let (a, result) = (self.operand(a), self.register(Class::Word));
                instruction!(self, "vote.sync.ballot.b32 {result}, {a}, {FULL_MASK}");
                Piece::One(result)
            }
            Expr::Any(a) => self.vote("any", a),
            Expr::All(a) => self.vote("all", a),
            Expr::Shuffle { mode, value, lane } => self.shuffle(mode, value, lane),
            _ => Piece::One(Operand::Integer(0)),
        }
    }

    fn vote(&mut self, name: &str, a: Handle<Value>) -> Piece {
        let (a, result) = (self.operand(a), self.register(Class::Predicate));
        instruction!(self, "vote.sync.{name}.pred {result}, {a}, {FULL_MASK}");
        Piece::One(result)
    }

    /// The instruction takes a distance modulo 32; beyond that, a lane keeps its own value.
    fn shuffle(&mut self, mode: ShuffleMode, value: Handle<Value>, lane: Handle<Value>) -> Piece {
        let ty = self.ty(value);
        let (own, lane) = (self.piece(value), self.operand(lane));
        let within = match lane {
            Operand::Integer(lane) => Operand::Integer(lane & 31),
            _ => {
                let within = self.register(Class::Word);
                instruction!(self, "and.b32 {within}, {lane}, 31");
                within
            }
        };
        let class = Class::of(ty);
        let read = match own {
            Piece::Two(wide) => {
                let low = self.shuffle_long(mode, wide.low, within);
                let high = self.shuffle_long(mode, wide.high, within);
                Piece::Two(Wide { low, high })
            }
            Piece::One(own) => Piece::One(match class {
                Class::Predicate => {
                    let word = self.truth_as_word(own);
                    let word = self.shuffle_word(mode, word, within);
                    self.word_as_truth(word)
                }
                Class::Word => self.shuffle_word(mode, own, within),
                Class::Long => self.shuffle_long(mode, own, within),
                Class::Single => {
                    let word = self.moved("b32", own, class, Class::Word);
                    let word = self.shuffle_word(mode, word, within);
                    self.moved("b32", word, Class::Word, class)
                }
                Class::Double => {
                    let long = self.moved("b64", own, class, Class::Long);
                    let long = self.shuffle_long(mode, long, within);
                    self.moved("b64", long, Class::Long, class)
                }
            }),
        };
        match (mode, lane) {
            (ShuffleMode::Index, _) | (_, Operand::Integer(0..=31)) => read,
            _ => {
                let known = self.register(Class::Predicate);
                instruction!(self, "setp.lt.u32 {known}, {lane}, 32");
                self.select(known, read, own, ty)
            }
        }
    }

    /// The bits of a register in one of another class.
    fn moved(&mut self, ty: &str, from: Operand, class: Class, to: Class) -> Operand {
        let (from, result) = (self.in_register(from, class), self.register(to));
        instruction!(self, "mov.{ty} {result}, {from}");
        result
    }

    fn shuffle_word(&mut self, mode: ShuffleMode, word: Operand, lane: Operand) -> Operand {
        let (word, result) = (self.in_register(word, Class::Word), self.register(Class::Word));
        // The last operand is the lane beyond which nothing is read.
        let (name, bound) = match mode {
            ShuffleMode::Index => ("idx", 31),
            ShuffleMode::Up => ("up", 0),
            ShuffleMode::Down => ("down", 31),
            ShuffleMode::Xor => ("bfly", 31),
        };
        instruction!(self, "shfl.sync.{name}.b32 {result}, {word}, {lane}, {bound}, {FULL_MASK}");
        result
    }

    fn shuffle_long(&mut self, mode: ShuffleMode, long: Operand, lane: Operand) -> Operand {
        let long = self.in_register(long, Class::Long);
        let (low, high) = (self.register(Class::Word), self.register(Class::Word));
        instruction!(self, "mov.b64 {{{low}, {high}}}, {long}");
        let (low, high) = (self.shuffle_word(mode, low, lane), self.shuffle_word(mode, high, lane));
        let result = self.register(Class::Long);
        instruction!(self, "mov.b64 {result}, {{{low}, {high}}}");
        result
    }

    /// The lowest of the lanes that are here adds for all of them.
    pub fn tally(&mut self, counters: Handle<Value>) {
        let counters = self.operand_register(counters);
        let [together, reversed, first, thread, lane, count] = [(); 6].map(|()| self.register(Class::Word));
        let (leads, word, one) =
            (self.register(Class::Predicate), self.register(Class::Long), self.register(Class::Long));
        instruction!(self, "activemask.b32 {together}");
        instruction!(self, "brev.b32 {reversed}, {together}");
        instruction!(self, "clz.b32 {first}, {reversed}");
        instruction!(self, "mov.u32 {thread}, %tid.x");
        instruction!(self, "and.b32 {lane}, {thread}, 31");
        instruction!(self, "setp.eq.u32 {leads}, {lane}, {first}");
        instruction!(self, "popc.b32 {count}, {together}");
        instruction!(self, "mad.wide.u32 {word}, {count}, 8, {counters}");
        instruction!(self, "mov.b64 {one}, 1");
        instruction!(self, "@{leads} red.relaxed.gpu.global.add.u64 [{word}+-8], {one}");
    }
}
