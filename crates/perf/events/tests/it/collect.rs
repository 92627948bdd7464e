//! A listener that keeps all records, ways to wait for it, and work to be measured.

use dioptra_perfevents::record::{
    Comm, Lost, Mmap, RawRecord, RecordError, Sample, SampleId, Switch, Task, Throttle,
};
use dioptra_perfevents::{AttachedEvent, AttachedSession, RecordListener};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The wait for something that must happen: far longer than it takes on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The wait of one look at the rings.
pub const STEP: Duration = Duration::from_millis(20);

/// The records of a session, by kind.
#[derive(Debug, Default)]
pub struct Collected {
    pub started: u32,
    pub stopped: u32,
    pub rounds: u64,
    pub raw: u64,
    pub samples: u64,
    pub of_thread: HashMap<u32, u64>,
    pub of_event: HashMap<String, u64>,
    pub of_cpu: HashMap<u32, u64>,
    pub unknown_events: u64,
    pub comms: Vec<(u32, String, bool)>,
    pub maps: Vec<String>,
    pub forks: Vec<Task>,
    pub exits: Vec<u32>,
    pub switches: u64,
    pub lost: u64,
    pub throttled: u64,
    pub malformed: Vec<String>,
    pub times: Vec<u64>,
    pub chains: u64,
    /// (thread, values in the sample)
    pub reads: Vec<(u32, Vec<u64>)>,
    pub addresses: Vec<u64>,
    pub build_ids: u64,
}

impl RecordListener for Collected {
    fn reader_start(&mut self) {
        self.started += 1;
    }
    fn reader_stop(&mut self) {
        self.stopped += 1;
    }
    fn raw(&mut self, _: u32, bytes: &[u8], record: &RawRecord<'_>) {
        assert_eq!(bytes.len(), record.body.len() + 8);
        self.raw += 1;
    }
    fn round(&mut self) {
        self.rounds += 1;
    }
    fn sample(&mut self, event: Option<&AttachedEvent>, sample: &Sample<'_>) {
        self.samples += 1;
        match event {
            Some(event) => *self.of_event.entry(event.name.clone()).or_default() += 1,
            None => self.unknown_events += 1,
        }
        let tid = sample.tid.unwrap_or(0);
        *self.of_thread.entry(tid).or_default() += 1;
        *self
            .of_cpu
            .entry(sample.cpu.unwrap_or(u32::MAX))
            .or_default() += 1;
        self.times.extend(sample.time);
        self.addresses.extend(sample.addr);
        self.chains += u64::from(sample.callchain.is_some_and(|chain| !chain.is_empty()));
        if let Some(read) = sample.read {
            self.reads
                .push((tid, read.iter().map(|value| value.value).collect()));
        }
    }
    fn mmap(&mut self, mapping: &Mmap<'_>, _: &SampleId) {
        if matches!(mapping.file, dioptra_perfevents::record::MappedFile::BuildId(id) if !id.is_empty())
        {
            self.build_ids += 1;
        }
        self.maps
            .push(String::from_utf8_lossy(mapping.name).into_owned());
    }
    fn comm(&mut self, comm: &Comm<'_>, _: &SampleId) {
        let name = String::from_utf8_lossy(comm.name).into_owned();
        self.comms.push((comm.tid, name, comm.exec));
    }
    fn fork(&mut self, task: &Task, _: &SampleId) {
        self.forks.push(*task);
    }
    fn exit(&mut self, task: &Task, _: &SampleId) {
        self.exits.push(task.tid);
    }
    fn lost(&mut self, lost: &Lost, _: &SampleId) {
        self.lost += lost.count;
    }
    fn throttle(&mut self, _: &Throttle, throttled: bool, _: &SampleId) {
        self.throttled += u64::from(throttled);
    }
    fn switch(&mut self, _: &Switch, _: &SampleId) {
        self.switches += 1;
    }
    fn malformed(&mut self, _: &RawRecord<'_>, error: &RecordError) {
        self.malformed.push(error.to_string());
    }
}

/// Reads a session until `seen` satisfies `enough`.
pub fn read_until(
    session: &mut AttachedSession,
    seen: &mut Collected,
    what: &str,
    mut enough: impl FnMut(&Collected) -> bool,
) {
    let start = Instant::now();
    while !enough(seen) {
        session.read_once(STEP, seen).expect("read");
        assert!(
            start.elapsed() < PATIENCE,
            "waited in vain for {what}: {seen:?}"
        );
    }
}

/// Returns the calling thread's id.
pub fn own_tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Touches `pages` fresh pages, each of which faults once.
pub fn fault(pages: usize) {
    let length = pages * 4096;
    // SAFETY: a fresh private mapping, written inside its bounds and unmapped.
    unsafe {
        let base = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(base, libc::MAP_FAILED);
        // Large pages would fault once for many.
        libc::madvise(base, length, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            base.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        libc::munmap(base, length);
    }
}

/// Burns CPU time.
pub fn spin(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum: u64, step| {
        std::hint::black_box(sum.wrapping_mul(31).wrapping_add(step))
    })
}

/// A thread that calls `step` over and over until it is dropped.
pub struct Worker {
    pub tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn new(mut step: impl FnMut() + Send + 'static) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(own_tid()).expect("a listener");
            while !stopped.load(Ordering::Relaxed) {
                step();
            }
        });
        Worker {
            tid: told.recv().expect("the thread's id"),
            stop,
            thread: Some(thread),
        }
    }

    /// Starts a thread that burns CPU time, resting now and then so that others get on.
    pub fn spinning() -> Worker {
        Worker::new(|| {
            spin(200_000);
            std::thread::sleep(Duration::from_micros(500));
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A shell that waits for a line before it becomes `program` by exec.
pub struct Held {
    child: Child,
}

impl Held {
    pub fn new(program: &str) -> Held {
        let script = format!("read line; exec {program}");
        let child = Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        Held { child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn go(&mut self) {
        // Closing its input ends `read` as well as a line would.
        drop(self.child.stdin.take());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true in the child without privileges that [`as_nobody`] started.
pub fn is_nobody() -> bool {
    std::env::var_os("PERFEVENTS_TEST_AS_NOBODY").is_some()
}

/// Runs the test `name` of this program again in a process of its own without privileges, and fails as it fails.
/// Returns true in the caller, where nothing is left to do; false in the child, where the test goes on. A user who has
/// no privileges to drop stays the same user there.
pub fn as_nobody(name: &str) -> bool {
    if is_nobody() {
        return false;
    }
    // The user nobody may be unable to reach the test program where it lies: it runs from an open descriptor.
    let program = std::fs::File::open("/proc/self/exe").expect("this program");
    let path = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&program)
    );
    // SAFETY: a descriptor of ours is made to survive exec.
    unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&program), libc::F_SETFD, 0) };
    let mut command = Command::new(path);
    command
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env("PERFEVENTS_TEST_AS_NOBODY", "1")
        .current_dir("/")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if dioptra_testprograms::is_root() {
        command.uid(65534).gid(65534);
    }
    let mut child = command.spawn().expect("the test program again");
    let mut errors = child.stderr.take().expect("its errors");
    let collect = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("its output")
        .read_to_string(&mut text)
        .expect("text");
    let status = child.wait().expect("its end");
    let errors = collect.join().expect("its errors");
    print!("{text}");
    assert!(
        status.success(),
        "without privileges: {status}\n{text}\n{errors}"
    );
    assert!(
        text.contains("1 passed"),
        "the test {name} was not found: {text}"
    );
    true
}

/// Ends a test that this machine cannot run, saying why.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        dioptra_testprograms::skip(format!($($why)*));
        return;
    }};
}
