//! The server from its start to its end.

use crate::api::FunctionAnswer;
use crate::cache::Cache;
use crate::flames::{FlatTree, TreeKey};
use crate::functions::AnnotationKey;
use crate::jobs::Jobs;
use crate::loaded::Finding;
use crate::metrics::MetricNames;
use crate::profiles::Profiles;
use crate::routes;
use crate::security::{Guard, Token};
use crate::selected::{SelectedProfile, SelectionKey};
use crate::tables::{KeyedTable, SummedView, TableKey, ViewKey};
use crate::traces::{
    CallsKey, RowMarks, RowMarksKey, SlowestCalls, SlowestKey, Tile, TileKey, TraceTable,
    TraceTableKey, TraceTree, TraceTreeKey, TraceView, TraceViewKey,
};
use crate::windowed::{Windowed, WindowedKey};
use axum::Router;
use dioptra_metrics::PmuData;
use dioptra_report::SourceFiles;
use dioptra_symbols::SymbolOptions;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tower_http::catch_panic::CatchPanicLayer;

/// The bytes that selections may take beside the profile, and so for the others.
const SELECTIONS: usize = 256 << 20;
const TABLES: usize = 256 << 20;
const VIEWS: usize = 32 << 20;
const TREES: usize = 128 << 20;
const FUNCTIONS: usize = 64 << 20;
const WINDOWED: usize = 256 << 20;
/// The same for answers about traces.
const TILES: usize = 64 << 20;
const ROW_MARKS: usize = 16 << 20;
const SLOWEST: usize = 8 << 20;

/// Options of a server: the profiles it shows, and the address it listens on.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The profiles, and the directories of traces; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// The address to listen on.
    pub listen: IpAddr,
    /// The port; `None` for one that is free.
    pub port: Option<u16>,
    /// Where names and code are looked for.
    pub symbols: SymbolOptions,
    /// Where source files are looked for.
    pub sources: SourceFiles,
    /// The metrics that tables show unless the reader chooses others: names as in
    /// [`MetricSets::choose`](dioptra_metrics::MetricSets::choose).
    pub metrics: Vec<String>,
    /// The metrics that CPUs' makers publish.
    pub published_metrics: Option<Arc<PmuData>>,
}

impl Default for WebOptions {
    /// No profile, on loopback.
    fn default() -> Self {
        WebOptions {
            files: Vec::new(),
            listen: Ipv4Addr::LOCALHOST.into(),
            port: None,
            symbols: SymbolOptions::default(),
            sources: SourceFiles::default(),
            metrics: Vec::new(),
            published_metrics: None,
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The system gives no threads, signals or random numbers.
    #[error("cannot start the server")]
    Start(#[from] io::Error),
    /// The server ended by itself.
    #[error("the server failed")]
    Serve(#[source] io::Error),
    /// A profile of a static report could not be read.
    #[error("cannot read {path}: {why}")]
    Load {
        /// The profile.
        path: String,
        /// The reason.
        why: String,
    },
    /// A static report could not be made.
    #[error("cannot make the report: {0}")]
    Report(String),
}

/// State that all requests share.
pub(crate) struct Shared {
    pub guard: Guard,
    pub profiles: Profiles,
    pub jobs: Jobs,
    pub selections: Cache<SelectionKey, SelectedProfile>,
    pub tables: Cache<TableKey, KeyedTable>,
    pub views: Cache<ViewKey, SummedView>,
    pub trees: Cache<TreeKey, FlatTree>,
    pub functions: Cache<AnnotationKey, FunctionAnswer>,
    pub windowed: Cache<WindowedKey, Windowed>,
    pub trace_tables: Cache<TraceTableKey, TraceTable>,
    pub trace_views: Cache<TraceViewKey, TraceView>,
    pub trace_trees: Cache<TraceTreeKey, TraceTree>,
    pub tiles: Cache<TileKey, Tile>,
    pub row_marks: Cache<RowMarksKey, RowMarks>,
    pub slowest: Cache<SlowestKey, SlowestCalls>,
}

impl Shared {
    /// Nothing is loaded yet.
    pub(crate) fn new(guard: Guard, files: &[PathBuf], finding: Finding) -> Shared {
        Shared {
            guard,
            profiles: Profiles::new(files, finding),
            jobs: Jobs::new(),
            selections: Cache::new(SELECTIONS),
            tables: Cache::new(TABLES),
            views: Cache::new(VIEWS),
            trees: Cache::new(TREES),
            functions: Cache::new(FUNCTIONS),
            windowed: Cache::new(WINDOWED),
            trace_tables: Cache::new(TABLES),
            trace_views: Cache::new(VIEWS),
            trace_trees: Cache::new(TREES),
            tiles: Cache::new(TILES),
            row_marks: Cache::new(ROW_MARKS),
            slowest: Cache::new(SLOWEST),
        }
    }

    /// Drops all answers from older generations of a profile.
    fn forget(&self, profile: usize) {
        let generation = self.profiles.generation(profile);
        let is_now = |of: usize, known: u64| of != profile || generation == Some(known);
        let is_new = |key: &SelectionKey| is_now(key.profile, key.generation);
        self.selections.retain(is_new);
        self.tables.retain(|key| key.passes(is_new));
        self.views.retain(|key| key.table.passes(is_new));
        self.trees.retain(|key| is_new(&key.selection));
        self.functions.retain(|key| key.passes(is_new));
        self.windowed.retain(|key| is_new(&key.selection));
        let is_new = |key: &CallsKey| is_now(key.profile, key.generation);
        self.trace_tables.retain(|key| is_new(&key.calls));
        self.trace_views.retain(|key| is_new(&key.table.calls));
        self.trace_trees.retain(|key| is_new(&key.calls));
        self.tiles.retain(|key| is_new(&key.calls));
        self.row_marks.retain(|key| is_new(&key.calls));
        self.slowest.retain(|key| is_new(&key.calls));
    }
}

/// A server that listens and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    runtime: Runtime,
    signals: Vec<Signal>,
    stop: Arc<Notify>,
    shared: Arc<Shared>,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Makes [`Server::run`] return.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

impl Server {
    /// Listens. Nothing is loaded yet.
    ///
    /// # Errors
    /// [`WebError`] if the address is taken or not this machine's.
    pub fn bind(options: &WebOptions) -> Result<Server, WebError> {
        let wanted = SocketAddr::new(options.listen, options.port.unwrap_or(0));
        let failure = |source| WebError::Listen {
            address: wanted,
            source,
        };
        let listener = TcpListener::bind(wanted).map_err(failure)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("dioptra-web")
            .enable_all()
            .build()?;
        let finding = Finding {
            symbols: options.symbols.clone(),
            sources: options.sources.clone(),
            metrics: MetricNames {
                names: options.metrics.clone(),
                published: options.published_metrics.clone(),
            },
        };
        let guard = Guard {
            token: Token::random()?,
            port: address.port(),
            is_public: !options.listen.is_loopback(),
        };
        let shared = Shared::new(guard, &options.files, finding);
        Ok(Server {
            listener,
            address,
            runtime,
            signals: Vec::new(),
            stop: Arc::default(),
            shared: Arc::new(shared),
        })
    }

    /// The address of the page, with the token.
    pub fn url(&self) -> String {
        let address = match self.address.ip().is_unspecified() {
            // Every address of the machine leads here; this one works on the machine itself.
            true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.address.port()),
            false => self.address,
        };
        format!("http://{address}/?token={}", self.shared.guard.token.text())
    }

    /// From now on SIGINT and SIGTERM end the server instead of the process.
    ///
    /// # Errors
    /// [`WebError::Start`] if the system refuses.
    pub fn obey_signals(&mut self) -> Result<(), WebError> {
        let _inside = self.runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            self.signals.push(signal(kind)?);
        }
        Ok(())
    }

    /// Returns a handle that ends this server from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Loads the profiles and answers requests until it is stopped.
    ///
    /// # Errors
    /// [`WebError::Serve`] if connections cannot be accepted any more.
    pub fn run(self) -> Result<(), WebError> {
        let Server {
            listener,
            runtime,
            mut signals,
            stop,
            shared,
            ..
        } = self;
        let loading = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("dioptra-load".to_owned())
            .spawn(move || {
                let forget = |profile| loading.forget(profile);
                loading.profiles.keep_loaded(forget);
            })?;
        let app = Router::new()
            .fallback(routes::answer)
            .layer(CatchPanicLayer::new())
            .with_state(Arc::clone(&shared));
        let result = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let signalled = async {
                match &mut signals[..] {
                    [interrupt, terminate] => {
                        tokio::select! {
                            _ = interrupt.recv() => {}
                            _ = terminate.recv() => {}
                        }
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = axum::serve(listener, app).into_future() => ended,
                () = signalled => Ok(()),
                () = stop.notified() => Ok(()),
            }
        });
        shared.profiles.end();
        // Answers that are being computed belong to nobody any more.
        runtime.shutdown_background();
        result.map_err(WebError::Serve)
    }
}
