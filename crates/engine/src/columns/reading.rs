//! Brings columns from their source to where they can be laid out: some by the host, which decodes them, and some as pages that the device
//! decodes (`encoded`), side by side.

use std::thread;
use std::time::Instant;

use kelpie_compile::layout::ColumnLayout;
use kelpie_device::CancelToken;

use super::cache::{ColumnCache, ColumnRead};
use super::encoded;
use super::glance::{self, Seen};
use super::read::{self, Wanted};
use super::store::{self, Decoded, Planned};
use crate::error::EngineError;
use crate::progress;
use crate::split::{Phase, Split};
use crate::trace::{self, Track};

/// Reads columns, and decides their layouts.
pub(super) fn plans(
    from: ColumnRead<'_>,
    cache: &ColumnCache,
    wanted: &mut Vec<(usize, Wanted)>,
    limit_bytes: u64,
    (tell, cancel): (&Seen<'_>, &CancelToken),
    split: &mut Split,
) -> Result<Vec<(usize, Planned)>, EngineError> {
    let are_encoded = encoded::chosen(from, wanted);
    let host = HostRead { from, limit_bytes, cancel };
    if !are_encoded.contains(&true) {
        return host.plans(wanted, tell, split);
    }
    // In the order in which they are wanted: what is known of those that the device decodes, and whose turn it is.
    let expected: Vec<Option<ColumnLayout>> = wanted
        .iter()
        .zip(&are_encoded)
        .map(|((_, wanted), is_encoded)| wanted.expected_layout().filter(|_| *is_encoded))
        .collect();
    let tell_all = |of_host: Vec<ColumnLayout>| {
        let mut of_host = of_host.into_iter();
        let layouts = expected.iter().map(|expected| expected.clone().or_else(|| of_host.next()));
        if let Some(layouts) = layouts.collect() {
            tell(layouts);
        }
    };
    let mut flags = are_encoded.iter();
    let (mut by_device, mut by_host): (Vec<_>, Vec<_>) =
        wanted.drain(..).partition(|_| flags.next().is_some_and(|is_encoded| *is_encoded));
    let (started, before_ns) = (Instant::now(), split.total());
    let has_only_encoded = by_host.is_empty();
    let (decoded, plans) = thread::scope(|scope| {
        let decoding = scope.spawn(|| encoded::decode(from, cache, &by_device, cancel));
        let plans = match has_only_encoded {
            true => {
                let rows = from.source.exact_rows();
                progress::will_read(rows.unwrap_or_default());
                if glance::rows_before(rows).is_some() {
                    tell_all(Vec::new());
                }
                Ok(Vec::new())
            }
            false => host.plans(&mut by_host, &tell_all, split),
        };
        let decoded = decoding.join();
        (decoded.unwrap_or_else(|_| Err(EngineError::Internal("decoding columns panicked".into()))), plans)
    });
    let (decoded, mut plans): (Vec<Option<Decoded>>, _) = (decoded?, plans?);
    let mut failed = Vec::new();
    for ((column, mut own), decoded) in by_device.drain(..).zip(decoded) {
        match (decoded, own.place.take()) {
            (Some(decoded), Some(place)) => {
                plans.push((column, store::plan_decoded(&place, decoded)));
                by_host.push((column, own));
            }
            (_, place) => {
                own.place = place;
                failed.push((column, own));
            }
        }
    }
    if has_only_encoded {
        progress::has_read(from.source.exact_rows().unwrap_or_default());
    }
    let by_host_ns = split.total().saturating_sub(before_ns);
    split.add(Phase::Pages, (started.elapsed().as_nanos() as u64).saturating_sub(by_host_ns).max(1));
    trace::record(Track::Reading, (started, Instant::now()), || {
        format!("decode pages of {} on the device", from.source.name())
    });
    // What is not as it was promised to be, the host reads.
    if !failed.is_empty() {
        plans.extend(host.plans(&mut failed, &|_| (), split)?);
    }
    wanted.extend(by_host.into_iter().chain(failed));
    Ok(plans)
}

/// How the host reads columns.
#[derive(Clone, Copy)]
struct HostRead<'a> {
    from: ColumnRead<'a>,
    /// More is an error.
    limit_bytes: u64,
    cancel: &'a CancelToken,
}

impl HostRead<'_> {
    /// Reads columns in one pass, and decides their layouts.
    fn plans(
        self,
        wanted: &mut [(usize, Wanted)],
        tell: &Seen<'_>,
        split: &mut Split,
    ) -> Result<Vec<(usize, Planned)>, EngineError> {
        let HostRead { from, limit_bytes, cancel } = self;
        let device = from.device.as_ref();
        let parts = read::read((device, from.source), wanted, limit_bytes, (tell, cancel), split)?;
        let encoding = Instant::now();
        let plans = wanted.iter_mut().zip(parts).map(|((column, wanted), parts)| {
            let plan = store::plan(wanted, parts, device);
            // A place where it does not stay makes room.
            wanted.place = None;
            Ok((*column, plan?))
        });
        let plans = plans.collect::<Result<Vec<_>, EngineError>>()?;
        split.add(Phase::Encode, encoding.elapsed().as_nanos() as u64);
        trace::record(Track::Reading, (encoding, Instant::now()), || {
            format!("lay out {}", from.source.name())
        });
        Ok(plans)
    }
}
