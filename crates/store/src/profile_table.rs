//! The table of profiles' rows, which a session reads once.
//!
//! Each row is an object of its own, and a question needs the rows several times: for its event, and to join with.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::datasource::listing::ListingTable;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{ExecutionPlan, collect};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The column that is not kept: the names of all objects, which no view shows, are most of a row.
const OBJECTS: &str = "objects";

/// The rows of all profiles. All columns but `objects` are read by the first scan and kept.
#[derive(Debug)]
pub(crate) struct ProfileTable {
    listing: ListingTable,
    kept: OnceCell<Kept>,
}

#[derive(Debug)]
struct Kept {
    rows: MemTable,
    /// The memory of the rows counts as the session's.
    _memory: MemoryReservation,
}

impl ProfileTable {
    /// Makes the table; nothing is read yet.
    pub(crate) fn new(listing: ListingTable) -> ProfileTable {
        ProfileTable {
            listing,
            kept: OnceCell::new(),
        }
    }

    /// Reads all rows.
    async fn read(&self, state: &dyn Session) -> Result<Kept> {
        let schema = self.listing.schema();
        let fields = schema.fields().iter().enumerate();
        let columns: Vec<usize> = fields
            .filter(|(_, field)| field.name() != OBJECTS)
            .map(|(place, _)| place)
            .collect();
        let plan = self.listing.scan(state, Some(&columns), &[], None).await?;
        let own = plan.schema();
        let context = state.task_ctx();
        let memory = MemoryConsumer::new("rows of profiles").register(context.memory_pool());
        let batches = collect(plan, context).await?;
        // A batch of each small file would cost more than its row.
        let rows = arrow::compute::concat_batches(&own, &batches)?;
        drop(batches);
        memory.try_grow(rows.get_array_memory_size())?;
        let rows: Vec<RecordBatch> = match rows.num_rows() {
            0 => Vec::new(),
            _ => vec![rows],
        };
        Ok(Kept {
            rows: MemTable::try_new(own, vec![rows])?,
            _memory: memory,
        })
    }
}

#[async_trait]
impl TableProvider for ProfileTable {
    fn schema(&self) -> SchemaRef {
        self.listing.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.listing.schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        if wanted
            .iter()
            .any(|place| schema.field(*place).name() == OBJECTS)
        {
            return self.listing.scan(state, projection, filters, limit).await;
        }
        let kept = self.kept.get_or_try_init(|| self.read(state)).await?;
        let own = kept.rows.schema();
        let places: Result<Vec<usize>, _> = wanted
            .iter()
            .map(|place| own.index_of(schema.field(*place).name()))
            .collect();
        kept.rows.scan(state, Some(&places?), filters, limit).await
    }
}
