//! Answers SQL over a dioptra store with Ballista: its scheduler, its executors and a client, on loopback.
//!
//! ```text
//! dioptra-store-ballista cluster STORE SQL… < VIEWS             a scheduler and two executors as processes, and a query
//! dioptra-store-ballista scheduler [PORT]
//! dioptra-store-ballista executor SCHEDULER FOLDER
//! dioptra-store-ballista query SCHEDULER STORE SQL… < VIEWS
//! ```
//!
//! `SCHEDULER` is an address such as `127.0.0.1:50050`; `VIEWS` is what `dioptra query --show-views` prints. The answer is
//! JSON: `{"answers": [ROWS, …], "executors": {NAME: NUMBER OF FILES}}`, where the files are those that the tasks of an
//! executor wrote into its folder; only `cluster` knows them.

mod client;
mod cluster;
mod servers;

use anyhow::{Context, Result, bail};
use std::net::SocketAddr;

/// The stack of a thread, in bytes. Plans are trees that DataFusion walks recursively.
const STACK: usize = 32 << 20;

/// The variable that asks a server to end once its standard input does, so that it never outlives its parent.
const ENDS_WITH_INPUT: &str = "DIOPTRA_BALLISTA_ENDS_WITH_INPUT";

fn main() -> Result<()> {
    if std::env::var_os(ENDS_WITH_INPUT).is_some() {
        std::thread::spawn(|| {
            let read = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(i32::from(read.is_err()));
        });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words {
        ["scheduler"] => runtime.block_on(servers::scheduler(0)),
        ["scheduler", port] => {
            let port = port.parse().context("the port is no number")?;
            runtime.block_on(servers::scheduler(port))
        }
        ["executor", scheduler, folder] => {
            runtime.block_on(servers::executor(address(scheduler)?, folder.to_owned()))
        }
        ["query", scheduler, store, ref queries @ ..] if !queries.is_empty() => {
            let views = std::io::read_to_string(std::io::stdin())?;
            let scheduler = address(scheduler)?;
            let answers = client::answers(scheduler, store, queries, &views);
            println!(
                "{{\"answers\": [{}]}}",
                runtime.block_on(answers)?.join(", ")
            );
            Ok(())
        }
        ["cluster", store, ref queries @ ..] if !queries.is_empty() => {
            let views = std::io::read_to_string(std::io::stdin())?;
            let cluster = cluster::Cluster::start()?;
            let answers = client::answers(cluster.scheduler, store, queries, &views);
            let answers = runtime.block_on(answers)?.join(", ");
            let files = cluster.files()?.into_iter();
            let files: Vec<String> = files
                .map(|(name, count)| format!("\"{name}\": {count}"))
                .collect();
            let files = files.join(", ");
            println!("{{\"answers\": [{answers}], \"executors\": {{{files}}}}}");
            Ok(())
        }
        _ => bail!(
            "wanted is one of: cluster STORE SQL…, scheduler [PORT], executor SCHEDULER FOLDER, query SCHEDULER STORE SQL…"
        ),
    }
}

fn address(word: &str) -> Result<SocketAddr> {
    word.parse()
        .with_context(|| format!("{word:?} is no address such as 127.0.0.1:50050"))
}
