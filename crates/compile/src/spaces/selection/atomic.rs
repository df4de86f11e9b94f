//! Threads set bits side by side (figures 1b and 1c, listings 3 and 4).

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Pointee, Scope};

use super::rows::Rows;
use super::{Kind, Selection};
use crate::spaces::group::{div_up, repeat};

impl Rows<'_> {
    /// The kernel of both kinds.
    pub fn atomic(&self, b: &mut Builder) {
        let Selection { kind, element_bits, .. } = self.selection;
        let words = self.selection.block_rows() / element_bits;
        let local = (kind == Kind::AtomicLocal)
            .then(|| b.shared("block_bits", Pointee::Scalar(self.scalar()), words));
        let size = b.u32(element_bits);
        let all_words = div_up(b, self.rows, size);
        let parts = self.parts(b);
        self.group.for_parts(b, parts, |b, part| {
            let first_word = b.mul_int(part, words);
            self.group.phase_over(b, words, |b, word| {
                let zero = b.int(self.scalar(), 0);
                match local {
                    Some(local) => {
                        let pointer = b.offset(local, word);
                        b.store(pointer, zero);
                    }
                    None => self.where_exists(b, (first_word, word), all_words, |b, word| {
                        let pointer = b.offset(self.bitmap, word);
                        b.store(pointer, zero);
                    }),
                }
            });
            self.group.barrier(b);
            self.group.phase(b, |b, thread| self.set_bits(b, (part, thread), local));
            let Some(local) = local else { return };
            self.group.barrier(b);
            self.group.phase_over(b, words, |b, word| {
                self.where_exists(b, (first_word, word), all_words, |b, element| {
                    let pointer = b.offset(local, word);
                    let bits = b.load(pointer);
                    self.write(b, element, bits);
                });
            });
            self.group.barrier(b);
        });
    }

    /// Goes on with word `first + word` where the bitmap has it.
    fn where_exists(
        &self,
        b: &mut Builder,
        (first, word): (V, V),
        words: V,
        body: impl FnOnce(&mut Builder, V),
    ) {
        let word = b.add(first, word);
        let exists = b.lt(word, words);
        b.begin_if(exists);
        body(b, word);
        b.end();
    }

    /// A thread sets the bits of its rows of a block's part, in the block's memory or in the bitmap.
    fn set_bits(&self, b: &mut Builder, (part, thread): (V, V), local: Option<V>) {
        let Selection { element_bits, elements, threads, .. } = self.selection;
        let before = b.mul_int(part, self.selection.block_rows());
        repeat(b, (elements, false), |b, number| {
            let distance = b.mul_int(number, threads);
            let own = b.add(distance, thread);
            let row = b.add(before, own);
            let exists = b.lt(row, self.rows);
            b.begin_if(exists);
            let holds = self.holds(b, row);
            b.begin_if(holds);
            let at = b.rem_int(row, element_bits);
            let at = b.convert(at, self.scalar());
            let one = b.int(self.scalar(), 1);
            let bit = b.binary(BinaryOp::Shl, one, at);
            match local {
                Some(local) => {
                    let word = b.div_int(own, element_bits);
                    let pointer = b.offset(local, word);
                    b.atomic_discard(AtomicOp::Or, pointer, bit, Scope::Block);
                }
                None => {
                    let word = b.div_int(row, element_bits);
                    let bit = match self.validity {
                        None => bit,
                        Some(validity) => {
                            let valid = b.element(validity, word);
                            b.and(bit, valid)
                        }
                    };
                    let pointer = b.offset(self.bitmap, word);
                    b.atomic_discard(AtomicOp::Or, pointer, bit, Scope::Device);
                }
            }
            b.end();
            b.end();
        });
    }
}
