//! The probe side's searches, where the lanes of a warp look at texts of keys together.

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::ExprKind;
use crate::operator::key_texts::{KeySearch, KeyTexts};
use crate::table::together::Found;
use crate::types::DataType;
use crate::variant::axes::KeyTextLanes;

impl JoinOperator {
    /// The columns of the probe side whose texts are looked at as keys, where lanes are to do it together. Texts that are computed are not
    /// shared: they are in a thread's own memory.
    pub(super) fn shared_key_texts(&self) -> Option<Vec<usize>> {
        if self.index.text_lanes() == KeyTextLanes::Lane {
            return None;
        }
        let keys = self.probe_keys.iter().enumerate();
        let texts = keys
            .filter(|(number, key)| key.data_type == DataType::Utf8 && self.index.is_told_by_value(*number));
        texts
            .map(|(_, key)| match key.kind {
                ExprKind::Column(index) => Some(index),
                _ => None,
            })
            .collect()
    }
}

impl KeySearch for JoinOperator {
    fn keys(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        self.keys_of_probe(cx)
    }

    fn find(
        &self,
        cx: &mut Context<'_>,
        (keys, live): (&[Lowered], V),
        (_, mark): (V, u32),
    ) -> Result<Found, Unsupported> {
        let texts = KeyTexts { mark };
        self.index.find_together(cx, (self.matches(), keys), live, &texts)
    }
}
