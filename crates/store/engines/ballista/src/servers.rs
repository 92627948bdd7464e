//! Ballista's scheduler and executor, as its own programs start them.

use anyhow::{Context, Result};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion::functions_nested::all_default_nested_functions;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

const HOST: &str = "127.0.0.1";

/// The number of executors that a scheduler waits for before it says that it is ready.
pub const EXECUTORS: usize = 2;

/// Runs a scheduler, and prints its address once it listens. Port 0 takes a free one.
///
/// # Errors
/// The port is in use, or the scheduler ends.
pub async fn scheduler(port: u16) -> Result<()> {
    let listener = TcpListener::bind((HOST, port))
        .await
        .with_context(|| format!("listening on port {port}"))?;
    let address = listener.local_addr()?;
    let config = SchedulerConfig {
        bind_host: HOST.to_owned(),
        bind_port: address.port(),
        external_host: HOST.to_owned(),
        scheduling_policy: TaskSchedulingPolicy::PushStaged,
        // The tasks of a stage go to all executors, one after the other.
        task_distribution: TaskDistributionPolicy::RoundRobin,
        min_ready_executors: EXECUTORS,
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let scheduler =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await?;
    println!("{address}");
    std::io::stdout().flush()?;
    Ok(start_grpc_service_with_listener(listener, scheduler).await?)
}

/// Runs an executor of one core. What its tasks write goes to a folder and stays there.
///
/// # Errors
/// The scheduler is not there, or the executor ends.
pub async fn executor(scheduler: SocketAddr, folder: String) -> Result<()> {
    // Ballista 55 gives its clients and schedulers DataFusion's functions of lists, but not its executors.
    let mut functions = BallistaFunctionRegistry::default();
    for function in all_default_nested_functions() {
        let name = function.name().to_owned();
        functions.scalar_functions.insert(name, function);
    }
    let [port, grpc_port] = free_ports().await?;
    let config = ExecutorProcessConfig {
        bind_host: HOST.to_owned(),
        external_host: Some(HOST.to_owned()),
        port,
        grpc_port,
        scheduler_host: scheduler.ip().to_string(),
        scheduler_port: scheduler.port(),
        scheduler_connect_timeout_seconds: 60,
        vcores: 1,
        memory_pool_size: Some(512 << 20),
        task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
        work_dir: Some(folder),
        override_function_registry: Some(Arc::new(functions)),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(config)).await?)
}

/// Returns ports that nobody uses. An executor states its ports before it listens on them, so it cannot take port 0.
async fn free_ports() -> Result<[u16; 2]> {
    let one = TcpListener::bind((HOST, 0)).await?;
    let two = TcpListener::bind((HOST, 0)).await?;
    Ok([one.local_addr()?.port(), two.local_addr()?.port()])
}
