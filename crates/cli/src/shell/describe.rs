//! The columns of tables.

use anyhow::{Result, anyhow, bail};
use datafusion::common::TableReference;
use kelpie_session::{KelpieSession, message, nearest};

/// A line for the table and one for each of its columns; of all tables where none is named. A table may be a file.
pub async fn describe(session: &KelpieSession, table: Option<&str>) -> Result<Vec<String>> {
    let tables = session.tables();
    let chosen: Vec<String> = match table {
        None => tables,
        Some(name) => {
            let known: Vec<String> =
                tables.iter().filter(|known| known.eq_ignore_ascii_case(name)).cloned().collect();
            if known.is_empty() && !is_file(session, name).await? {
                let meant = nearest(name, tables.iter())
                    .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                bail!(
                    "there is no table `{name}`{meant}{} .tables lists the tables",
                    if meant.is_empty() { ":" } else { "" }
                );
            }
            if known.is_empty() { vec![name.to_string()] } else { known }
        }
    };
    let mut lines = Vec::new();
    for name in chosen {
        let provider = session.context().table_provider(TableReference::bare(name.as_str())).await;
        let provider = provider.map_err(|error| anyhow!(message(&error)))?;
        lines.push(name);
        for field in provider.schema().fields() {
            let null = if field.is_nullable() { "" } else { " not null" };
            lines.push(format!("  {} {}{null}", field.name(), field.data_type()));
        }
    }
    Ok(lines)
}

/// Whether a name is that of a file that can be a table; what is wrong with such a file is an error.
async fn is_file(session: &KelpieSession, name: &str) -> Result<bool> {
    if !name.contains(['/', '.']) {
        return Ok(false);
    }
    match session.context().table_provider(TableReference::bare(name)).await {
        Ok(_) => Ok(true),
        Err(_) if !std::path::Path::new(name).exists() => Ok(false),
        Err(error) => Err(anyhow!(message(&error))),
    }
}
