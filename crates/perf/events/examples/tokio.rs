//! Reads a session from an async task: one descriptor for all rings, in tokio's event loop.
//!
//! A session stays on the thread that attached it, so the runtime is one of the current thread.

use dioptra_perfevents::{EventSpec, Running, Session, SessionSpec, on_sample};
use std::hint::black_box;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let faults = EventSpec::page_faults().with_period(1).user_only();
    // The worker exists before the session attaches: the session finds it.
    let (go, gone) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        gone.recv().ok();
        black_box(vec![1_u8; 4 << 20]);
    });
    let mut session = Session::new(SessionSpec::new().event(faults))?.attach()?;
    let stop = session.stop_handle();
    // SAFETY: `Wakeups` owns its descriptor and neither closes nor replaces it before it is dropped.
    let wakeups =
        unsafe { AsyncFd::register_with_interest(session.wakeups()?, Interest::READABLE) }
            .map_err(std::io::Error::from)?;
    go.send(())?;
    tokio::task::spawn_blocking(move || {
        worker.join().ok();
        stop.stop();
    });
    let mut samples = 0;
    let mut listener = on_sample(|_, _| samples += 1);
    loop {
        // The kernel may leave wakeups out, so the rings are looked at ten times a second anyway.
        if let Ok(ready) = timeout(Duration::from_millis(100), wakeups.readable()).await {
            ready?.clear_ready();
        }
        if session.drain(&mut listener)?.state != Running::Yes {
            break;
        }
    }
    session.finish(&mut listener)?;
    println!("{samples} page faults, {} lost", session.summary().lost);
    Ok(())
}
