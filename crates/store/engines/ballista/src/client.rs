//! A client that makes the tables and views of a store, and has a cluster answer queries over them.

use anyhow::{Context, Result, bail};
use arrow::json::WriterBuilder;
use arrow::json::writer::JsonArray;
use ballista::prelude::{SessionConfigExt, SessionContextExt};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::ListingOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_nested::array_has::array_has_udf;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TABLES: [&str; 10] = [
    "profiles",
    "samples",
    "stacks",
    "functions",
    "modules",
    "mappings",
    "windows",
    "window_totals",
    "calls",
    "call_estimates",
];

/// The time for which a client waits for all executors.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has a cluster answer queries over a store. Returns the rows of each as a JSON array.
///
/// # Errors
/// The cluster does not become ready, the store has no such tables, or a query is wrong.
pub async fn answers(
    scheduler: SocketAddr,
    store: &str,
    queries: &[&str],
    views: &str,
) -> Result<Vec<String>> {
    wait_for_executors(scheduler).await?;
    let context = session(scheduler).await?;
    for table in TABLES {
        register(&context, Path::new(store), table).await?;
    }
    for view in views.split(";\n").filter(|view| !view.trim().is_empty()) {
        context.sql(view).await?.collect().await.context("a view")?;
    }
    let mut answers = Vec::new();
    for sql in queries {
        let frame = context.sql(sql).await?;
        let batches = frame.collect().await.with_context(|| (*sql).to_owned())?;
        answers.push(json(&batches)?);
    }
    Ok(answers)
}

async fn session(scheduler: SocketAddr) -> Result<SessionContext> {
    let mut config = SessionConfig::new_with_ballista().with_target_partitions(2);
    let options = &mut config.options_mut().execution;
    // The folders of partitions lie below a table's folder.
    options.listing_table_ignore_subdirectory = false;
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .build();
    let url = format!("df://{scheduler}");
    let context = SessionContext::remote_with_state(&url, state).await?;
    // As in the embedded engine. Plans have the function's own name.
    let contains = array_has_udf().as_ref().clone();
    context.register_udf(contains.with_aliases(["stack_contains"]));
    Ok(context)
}

async fn register(context: &SessionContext, store: &Path, table: &str) -> Result<()> {
    let folder = std::path::absolute(store)?.join(table);
    let mut options =
        ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    if table != "profiles" {
        let partitions = ["date", "service", "host"];
        let partitions = partitions.map(|name| (name.to_owned(), DataType::Utf8));
        options = options.with_table_partition_cols(partitions.to_vec());
    }
    let name = format!("store_{table}");
    let folder = format!("{}/", folder.display());
    context
        .register_listing_table(&name, &folder, options, None, None)
        .await
        .with_context(|| format!("the table {folder}"))
}

/// Waits until the scheduler says that it has its executors.
async fn wait_for_executors(scheduler: SocketAddr) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let said = readiness(scheduler).await;
        match &said {
            Ok(said) if said.starts_with("HTTP/1.1 200") => return Ok(()),
            _ if Instant::now() < end => tokio::time::sleep(Duration::from_millis(100)).await,
            _ => bail!("the scheduler at {scheduler} does not become ready: {said:?}"),
        }
    }
}

async fn readiness(scheduler: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(scheduler).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {scheduler}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

fn json(batches: &[RecordBatch]) -> Result<String> {
    let mut text = Vec::new();
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, JsonArray>(&mut text);
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    let text = String::from_utf8(text)?;
    Ok(if text.is_empty() {
        "[]".to_owned()
    } else {
        text
    })
}
