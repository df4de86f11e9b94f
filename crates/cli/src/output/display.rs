//! How values are shown: the options `datafusion.format.*`.

use anyhow::Result;
use datafusion::arrow::util::display::FormatOptions as Shown;
use datafusion::config::FormatOptions;

/// How a session shows values to people.
pub(super) fn for_people(options: &FormatOptions) -> Result<Shown<'_>> {
    Ok(Shown::try_from(options)?)
}

/// How it writes them for programs: NULL, dates and times as it says, all else as it is read back.
pub(super) fn for_programs(options: &FormatOptions) -> Shown<'_> {
    let usual = FormatOptions::default();
    // What nobody chose needs no format, which takes longer.
    let chosen = |format: &'_ Option<String>, usual: &Option<String>| format != usual;
    let mut shown = Shown::default().with_null(&options.null);
    if chosen(&options.date_format, &usual.date_format) {
        shown = shown.with_date_format(options.date_format.as_deref());
    }
    if chosen(&options.datetime_format, &usual.datetime_format) {
        shown = shown.with_datetime_format(options.datetime_format.as_deref());
    }
    if chosen(&options.timestamp_format, &usual.timestamp_format) {
        shown = shown.with_timestamp_format(options.timestamp_format.as_deref());
    }
    if chosen(&options.timestamp_tz_format, &usual.timestamp_tz_format) {
        shown = shown.with_timestamp_tz_format(options.timestamp_tz_format.as_deref());
    }
    if chosen(&options.time_format, &usual.time_format) {
        shown = shown.with_time_format(options.time_format.as_deref());
    }
    shown
}
