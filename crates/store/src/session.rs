//! The embedded engine: DataFusion over the tables of a store.

use crate::error::StoreError;
use crate::schema::Table;
use crate::storage::Storage;
use crate::store::Store;
use crate::views;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::context::SQLOptions;
use datafusion::functions_nested::array_has::array_has_udf;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Runtime;

/// A session of queries over a store.
pub struct Session {
    context: SessionContext,
    runtime: Runtime,
    /// The queries that were asked, in order.
    asked: Mutex<Vec<String>>,
}

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
    /// the function `stack_contains(frames, 'name')`.
    ///
    /// # Errors
    /// The store's place is no place of objects.
    pub fn open(store: &Store) -> Result<Session, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let mut config = SessionConfig::new().with_information_schema(true);
        let options = &mut config.options_mut().execution;
        // The folders of partitions lie below a table's folder.
        options.listing_table_ignore_subdirectory = false;
        let context = SessionContext::new_with_config(config);
        let contains = array_has_udf().as_ref().clone();
        context.register_udf(contains.with_aliases(["stack_contains"]));
        let session = Session {
            context,
            runtime,
            asked: Mutex::default(),
        };
        let mut tables = vec![Table::Profiles];
        tables.extend(Table::OF_ROWS);
        for table in tables {
            session.register(store, table)?;
        }
        for statement in views::statements() {
            let create = async { session.context.sql(&statement).await?.collect().await };
            session.runtime.block_on(create)?;
        }
        Ok(session)
    }

    fn register(&self, store: &Store, table: Table) -> Result<(), StoreError> {
        let wrong = |reason: String| StoreError::Place {
            place: store.place().to_owned(),
            reason,
        };
        let url = match &store.storage {
            Storage::Folder(folder) => {
                let folder = std::path::absolute(folder)?.join(table.folder());
                url::Url::from_directory_path(&folder)
                    .map_err(|()| wrong("is no path of a folder".to_owned()))?
            }
            Storage::Remote(remote) => {
                self.context
                    .register_object_store(&remote.url, Arc::clone(&remote.store));
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
        self.context.register_table(name, Arc::new(listing))?;
        Ok(())
    }

    /// Answers a query. Statements that would change anything are refused.
    ///
    /// # Errors
    /// The statement is wrong or is no query, or an object of the store can't be read.
    pub fn sql(&self, sql: &str) -> Result<Answer, StoreError> {
        let only_queries = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(sql.to_owned());
        drop(asked);
        self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, only_queries).await?;
            let fields = frame.schema().fields().iter();
            let fields: Vec<Arc<Field>> = fields.cloned().collect();
            let schema = Arc::new(Schema::new(fields));
            let batches = frame.collect().await?;
            // An engine's columns may be stricter than those that it announced.
            let schema = batches.first().map_or(schema, RecordBatch::schema);
            Ok(Answer { schema, batches })
        })
    }

    /// Returns the queries that were asked so far, in order. Named questions ask some, which other engines answer, too.
    pub fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }
}
