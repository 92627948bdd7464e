//! The embedded engine: DataFusion over the tables of a store.

use crate::error::StoreError;
use crate::memory;
use crate::profile_table::ProfileTable;
use crate::schema::Table;
use crate::storage::Storage;
use crate::store::Store;
use crate::views;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::functions_nested::array_has::array_has_udf;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::Runtime;

/// The number of times that a query is answered anew because profiles were merged while it ran.
const ATTEMPTS: u32 = 5;

/// The rows of a batch where memory is short.
const SMALL_BATCH: usize = 1024;

/// The bytes that each sort keeps for the merging of what it wrote to disk, where memory is short.
const SORT_BYTES: usize = 1 << 20;

/// A session of queries over a store.
pub struct Session {
    storage: Arc<Storage>,
    place: String,
    opened: RefCell<Opened>,
    runtime: Runtime,
    /// The bytes that a query may reserve.
    memory: u64,
    /// The queries that were asked, in order.
    asked: RefCell<Vec<String>>,
}

/// The engine, and the rows of profiles that were there before it listed any table.
struct Opened {
    context: SessionContext,
    before: ProfileRows,
}

/// By name: the size, the time of the last write and the tag of each object of a profile's row.
type ProfileRows = BTreeMap<String, (u64, SystemTime, Option<String>)>;

/// The rows that answer a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

impl Session {
    /// Makes a session over a store: the tables of [`crate::schema`] as `store_…`, the views of [`crate::views`], and
    /// the function `stack_contains(frames, 'name')`. Its queries may reserve a third of the available memory.
    ///
    /// # Errors
    /// The store's place is no place of objects.
    pub fn open(store: &Store) -> Result<Session, StoreError> {
        Session::open_with_memory(store, None)
    }

    /// Makes a session as [`Session::open`] does, whose queries may reserve this number of bytes.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_with_memory(store: &Store, memory: Option<u64>) -> Result<Session, StoreError> {
        let memory = memory.unwrap_or_else(memory::default_limit);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let opened = open(&store.storage, store.place(), memory, &runtime)?;
        Ok(Session {
            storage: Arc::clone(&store.storage),
            place: store.place().to_owned(),
            opened: RefCell::new(opened),
            runtime,
            memory,
            asked: RefCell::default(),
        })
    }

    /// Answers a query. Statements that would change anything are refused. Where profiles were merged meanwhile, the
    /// query is answered anew: the engine may have listed the objects of before and read the rows of after.
    ///
    /// # Errors
    /// The statement is wrong or is no query, an object of the store can't be read, the query needs more memory than it
    /// may take, or profiles are merged all the time.
    pub fn sql(&self, sql: &str) -> Result<Answer, StoreError> {
        self.asked.borrow_mut().push(sql.to_owned());
        for _ in 0..ATTEMPTS {
            let answer = self.answer(sql);
            let now = profile_rows(&self.storage)?;
            let mut opened = self.opened.borrow_mut();
            // Profiles that were added count as a whole or not at all, so only changed ones matter.
            let is_same = |(name, row)| now.get(name) == Some(row);
            if opened.before.iter().all(is_same) {
                return answer;
            }
            *opened = open(&self.storage, &self.place, self.memory, &self.runtime)?;
        }
        Err(StoreError::Merged)
    }

    /// Answers a query. One that needs more memory than it may take is asked again with joins that sort both sides:
    /// these take longer, and write to disk what has no place in memory.
    fn answer(&self, sql: &str) -> Result<Answer, StoreError> {
        let context = self.opened.borrow().context.clone();
        let answer = match self.runtime.block_on(collected(&context, sql)) {
            Err(error) if is_out_of_memory(&error) => {
                let mut state = context.state();
                // The engine merges sorted parts side by side, a batch of each.
                let mut config = state
                    .config()
                    .clone()
                    .with_batch_size(SMALL_BATCH)
                    // Each part sorts on its own, and one alone would be joined by hashes again.
                    .with_target_partitions(2)
                    .with_sort_spill_reservation_bytes(SORT_BYTES);
                config.options_mut().optimizer.prefer_hash_join = false;
                *state.config_mut() = config;
                let context = SessionContext::new_with_state(state);
                self.runtime.block_on(collected(&context, sql))
            }
            result => result,
        };
        answer.map_err(|error| match is_out_of_memory(&error) {
            true => StoreError::Memory { limit: self.memory },
            false => error.into(),
        })
    }

    /// Returns the queries that were asked so far, in order. Named questions ask some, which other engines answer, too.
    pub fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }
}

/// Returns whether a query ended because it needs more memory than it may take.
fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Returns the rows that answer a query. Their memory counts as the query's.
async fn collected(context: &SessionContext, sql: &str) -> Result<Answer, DataFusionError> {
    let only_queries = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let frame = context.sql_with_options(sql, only_queries).await?;
    let fields = frame.schema().fields().iter();
    let fields: Vec<Arc<Field>> = fields.cloned().collect();
    let schema = Arc::new(Schema::new(fields));
    let pool = Arc::clone(&context.runtime_env().memory_pool);
    let memory = MemoryConsumer::new("the answer").register(&pool);
    let mut rows = frame.execute_stream().await?;
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        memory.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    // An engine's columns may be stricter than those that it announced.
    let schema = batches.first().map_or(schema, RecordBatch::schema);
    Ok(Answer { schema, batches })
}

/// Returns the objects of profiles' rows.
fn profile_rows(storage: &Storage) -> Result<ProfileRows, StoreError> {
    let rows = storage.list(Table::Profiles.folder())?.into_iter();
    Ok(rows
        .map(|row| (row.name, (row.bytes, row.written, row.tag)))
        .collect())
}

/// Refuses a store with an object without any bytes. The engine would take it for a table without rows.
fn refuse_empty(storage: &Storage) -> Result<(), StoreError> {
    let tables = std::iter::once(Table::Profiles).chain(Table::OF_ROWS);
    for table in tables {
        let objects = storage.list(table.folder())?;
        if let Some(empty) = objects.into_iter().find(|object| object.bytes == 0) {
            return Err(StoreError::Object {
                object: empty.name,
                reason: "is empty".to_owned(),
            });
        }
    }
    Ok(())
}

/// Makes an engine with the tables, views and functions of a store.
fn open(
    storage: &Storage,
    place: &str,
    memory: u64,
    runtime: &Runtime,
) -> Result<Opened, StoreError> {
    let before = profile_rows(storage)?;
    refuse_empty(storage)?;
    let mut config = SessionConfig::new().with_information_schema(true);
    let options = &mut config.options_mut().execution;
    // The folders of partitions lie below a table's folder.
    options.listing_table_ignore_subdirectory = false;
    let pool = FairSpillPool::new(usize::try_from(memory).unwrap_or(usize::MAX));
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .build_arc()?;
    let context = SessionContext::new_with_config_rt(config, environment);
    let contains = array_has_udf().as_ref().clone();
    context.register_udf(contains.with_aliases(["stack_contains"]));
    let mut tables = vec![Table::Profiles];
    tables.extend(Table::OF_ROWS);
    for table in tables {
        register(&context, storage, place, table)?;
    }
    for statement in views::statements() {
        let create = async { context.sql(&statement).await?.collect().await };
        runtime.block_on(create)?;
    }
    Ok(Opened { context, before })
}

fn register(
    context: &SessionContext,
    storage: &Storage,
    place: &str,
    table: Table,
) -> Result<(), StoreError> {
    let wrong = |reason: String| StoreError::Place {
        place: place.to_owned(),
        reason,
    };
    let url = match storage {
        Storage::Folder(folder) => {
            let folder = std::path::absolute(folder)?.join(table.folder());
            url::Url::from_directory_path(&folder)
                .map_err(|()| wrong("is no path of a folder".to_owned()))?
        }
        Storage::Remote(remote) => {
            context.register_object_store(&remote.url, Arc::clone(&remote.store));
            format!("{}/{}/", remote.url, table.folder())
                .parse()
                .map_err(|error: url::ParseError| wrong(error.to_string()))?
        }
    };
    let mut options =
        ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    if table != Table::Profiles {
        let partitions = ["date", "service", "host"];
        let partitions = partitions.map(|name| (name.to_owned(), DataType::Utf8));
        options = options.with_table_partition_cols(partitions.to_vec());
    }
    let config = ListingTableConfig::new(ListingTableUrl::parse(url.as_str())?)
        .with_listing_options(options)
        .with_schema(table.schema());
    let name = format!("store_{}", table.folder());
    let listing = ListingTable::try_new(config)?;
    let provider: Arc<dyn TableProvider> = match table {
        Table::Profiles => Arc::new(ProfileTable::new(listing)),
        _ => Arc::new(listing),
    };
    context.register_table(name, provider)?;
    Ok(())
}
