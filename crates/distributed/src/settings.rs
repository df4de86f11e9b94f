//! A coordinator's settings on its workers: those that differ from the defaults go with every stage.

use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;
use http::{HeaderMap, HeaderValue};
use kelpie_session::KelpieOptions;
use std::collections::HashMap;
use url::form_urlencoded;

const HEADER: &str = "x-kelpie-settings";

/// What decides how a stage runs. All else concerns the coordinator alone.
const SENT: [&str; 3] = ["kelpie.", "datafusion.execution.", "datafusion.sql_parser."];

/// What the coordinator does by itself.
const OWN: [&str; 4] =
    ["kelpie.timeout", "kelpie.kept_plans", "kelpie.generic_plans", "datafusion.execution.target_partitions"];

/// Headers with the settings of a session.
pub(crate) fn headers(config: &ConfigOptions) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let text = text(config);
    if !text.is_empty() {
        let value = HeaderValue::from_str(&text)
            .map_err(|error| plan_datafusion_err!("the settings of the session cannot be sent: {error}"))?;
        headers.insert(HEADER, value);
    }
    Ok(headers)
}

fn text(config: &ConfigOptions) -> String {
    let mut defaults = ConfigOptions::new();
    defaults.extensions.insert(KelpieOptions::default());
    let defaults: HashMap<String, Option<String>> =
        defaults.entries().into_iter().map(|entry| (entry.key, entry.value)).collect();
    let is_sent = |key: &str| SENT.iter().any(|prefix| key.starts_with(prefix)) && !OWN.contains(&key);
    let mut written = form_urlencoded::Serializer::new(String::new());
    for entry in config.entries().into_iter().filter(|entry| is_sent(&entry.key)) {
        if let Some(value) = entry.value.as_ref().filter(|_| defaults.get(&entry.key) != Some(&entry.value)) {
            written.append_pair(&entry.key, value);
        }
    }
    written.finish()
}

/// The settings that headers have.
pub(crate) fn of_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = headers.get(HEADER).map_or(&[] as &[u8], HeaderValue::as_bytes);
    form_urlencoded::parse(text).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_sent() {
        let mut config = ConfigOptions::new();
        config.extensions.insert(KelpieOptions::default());
        assert!(headers(&config).unwrap().is_empty());
        for (name, value) in [
            ("kelpie.device", "cpu"),
            ("kelpie.timeout", "3s"),
            ("kelpie.variant.join", "rule"),
            ("datafusion.execution.time_zone", "Ü=&+1"),
            ("datafusion.execution.target_partitions", "7"),
            ("datafusion.optimizer.max_passes", "7"),
        ] {
            // Axes have other names in other versions.
            let _ = config.set(name, value);
        }
        let sent = of_headers(&headers(&config).unwrap());
        let wanted = [("datafusion.execution.time_zone", "Ü=&+1"), ("kelpie.device", "cpu")];
        let mut sent: Vec<(&str, &str)> =
            sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        sent.sort_unstable();
        assert_eq!(sent, wanted);
    }
}
