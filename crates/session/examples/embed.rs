//! Kelpie inside a program: a table of the program's own, a file, and rows as they come. Run it by
//! `cargo run -p kelpie-session --example embed`.

use std::error::Error;
use std::sync::Arc;

use datafusion::arrow::array::{Float64Array, RecordBatch, StringArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::{ParamValues, ScalarValue};
use futures::TryStreamExt;
use kelpie_session::{Engine, KelpieSession, SessionOptions};

/// Makes a table, asks it something, and prints the answer.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    // One engine for the process: what one session has read and compiled, others find.
    let engine = Arc::new(Engine::new());
    let options = SessionOptions::default().with_engine(engine).with("kelpie.device", "cpu");
    let session = KelpieSession::new(options)?;

    // A table in memory. Anything that DataFusion takes as a table may be registered.
    let town = StringArray::from(vec!["Oslo", "Bergen", "Oslo", "Tromsø"]);
    let km = Float64Array::from(vec![Some(2.5), Some(11.0), Some(7.2), None]);
    let trips = RecordBatch::try_from_iter([("town", Arc::new(town) as _), ("km", Arc::new(km) as _)])?;
    session.context().register_batch("trips", trips)?;

    // An answer as a whole, and what it took.
    let answer = session.sql("SELECT town, sum(km) AS km FROM trips GROUP BY town ORDER BY town").await?;
    println!("{}", pretty_format_batches(&answer.batches)?);
    println!("compiled as a whole: {}", answer.timing.compiled);

    // A file is a table by its name, and a statement may have parameters. The batches come as they are made.
    let folder = std::env::temp_dir().join(format!("kelpie-embed-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("fares.csv"), "town,fare\nOslo,41\nBergen,160\nOslo,99\n")?;
    session.register_data(&folder).await?;
    let least = ParamValues::from(vec![ScalarValue::from(50_i64)]);
    let query =
        session.start_with("SELECT town, fare FROM fares WHERE fare > $1 ORDER BY fare", Some(least)).await?;
    let mut batches = query.into_stream();
    while let Some(batch) = batches.try_next().await? {
        println!("{}", pretty_format_batches(&[batch])?);
    }
    std::fs::remove_dir_all(&folder)?;

    // What is wrong with a statement is told before anything runs.
    if let Err(error) = session.start("SELECT towns FROM trips").await {
        println!("{}", kelpie_session::message(&error));
    }
    Ok(())
}
