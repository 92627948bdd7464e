//! The guest: boots, runs scripts one after the other, hands their results out, powers off.
//!
//! Nothing is loaded but the kernel's own drivers: the console is the serial port, results leave through a virtio port
//! as one tar archive for each step, which QEMU writes to a file.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::initramfs;

/// The files that the guest boots from, and the folder of its results.
pub struct Machine<'a> {
    /// The kernel's image.
    pub kernel: &'a Path,
    /// A static busybox for the guest.
    pub busybox: &'a Path,
    /// Files for the guest: its path there, and the file here.
    pub files: Vec<(String, PathBuf)>,
    /// A folder here for results and the console's log.
    pub results: PathBuf,
    /// After how much time it is ended.
    pub limit: Duration,
}

/// A script that the guest runs in a folder of its own.
pub struct Script {
    /// The folder's name.
    pub name: String,
    /// Lines of shell.
    pub lines: String,
}

/// In the guest: what each script may use. `run FILE COMMAND…` keeps the command's output in FILE.out, FILE.err and its
/// exit status in FILE.status.
const PRELUDE: &str = "\
run() {
    name=$1; shift
    timeout 120 \"$@\" >$name.out 2>$name.err; echo $? >$name.status
}
# Nothing is throttled unless a step asks for it: that would depend on the emulated kernel's speed.
# The rate can only be set while the share of time is between 0 and 100; a share of 0 stops the kernel from lowering it.
max_rate() {
    echo 50 >/proc/sys/kernel/perf_cpu_time_max_percent
    echo $1 >/proc/sys/kernel/perf_event_max_sample_rate
    echo $2 >/proc/sys/kernel/perf_cpu_time_max_percent
}
max_rate 100000000 0
";

const BEGIN: &str = "@begin ";
const END: &str = "@all steps done";

impl Machine<'_> {
    /// Boots, runs the scripts, unpacks their results to `results/NAME/`. Steps that the guest did not come to have
    /// no folder there.
    ///
    /// # Errors
    /// If the guest cannot be started, or does not come to its end; the results up to there are unpacked.
    pub fn run(&self, scripts: &[Script]) -> Result<()> {
        if self.results.exists() {
            fs::remove_dir_all(&self.results)
                .with_context(|| self.results.display().to_string())?;
        }
        fs::create_dir_all(&self.results).with_context(|| self.results.display().to_string())?;
        let image = self.results.join("initramfs.cpio");
        fs::write(&image, self.initramfs(scripts)?).with_context(|| image.display().to_string())?;
        let archive = self.results.join("results.tar");
        let mut qemu = self.command(&image, &archive);
        let mut child = qemu.spawn().context("starting qemu-system-aarch64")?;
        let outcome = self.watch(&mut child);
        // A guest that still runs has hung.
        let _ = child.kill();
        let _ = child.wait();
        if archive.exists() {
            // Archives one after the other: zeros between them are no end.
            let status = Command::new("tar")
                .args(["-x", "-i", "-f"])
                .arg(&archive)
                .arg("-C")
                .arg(&self.results)
                .stdin(Stdio::null())
                .status()
                .context("running tar")?;
            ensure!(
                status.success() || outcome.is_err(),
                "the guest's results are damaged"
            );
            let _ = fs::remove_file(&archive);
        }
        let _ = fs::remove_file(&image);
        outcome
    }

    fn command(&self, image: &Path, archive: &Path) -> Command {
        let mut qemu = Command::new("qemu-system-aarch64");
        qemu.args([
            "-machine",
            "virt,gic-version=3",
            "-cpu",
            "max",
            "-smp",
            "1",
            "-m",
            "1024",
        ])
        .args([
            "-nographic",
            "-nodefaults",
            "-no-reboot",
            "-serial",
            "stdio",
        ])
        // One cycle of 1 ns for each instruction; a CPU that sleeps skips to its next timer.
        .args(["-icount", "shift=0,sleep=off"])
        .args(["-device", "virtio-serial-pci", "-chardev"])
        .arg(format!("file,id=results,path={}", archive.display()))
        .args(["-device", "virtserialport,chardev=results,name=results"])
        .arg("-kernel")
        .arg(self.kernel)
        .arg("-initrd")
        .arg(image)
        .args(["-append", "console=ttyAMA0 quiet panic=-1 nokaslr"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
        qemu
    }

    /// Follows the console until the guest powers off.
    fn watch(&self, child: &mut Child) -> Result<()> {
        let start = Instant::now();
        let console = child.stdout.take().context("the guest has no console")?;
        let mut log = fs::File::create(self.results.join("console.log"))?;
        let finished = Arc::new(AtomicBool::new(false));
        let last = Arc::new(Mutex::new(String::from("booting")));
        let (finished_too, last_too) = (finished.clone(), last.clone());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_string();
                let _ = writeln!(log, "{line}");
                if let Some(step) = line.strip_prefix(BEGIN) {
                    println!("{:6.1} s  {step}", start.elapsed().as_secs_f64());
                    step.clone_into(
                        &mut last_too
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner),
                    );
                }
                if line.starts_with(END) {
                    finished_too.store(true, Ordering::Release);
                }
            }
        });
        let ended = loop {
            if let Some(status) = child.try_wait().context("waiting for qemu")? {
                break Some(status);
            }
            if start.elapsed() > self.limit {
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let at = || {
            last.lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone()
        };
        let log = self.results.join("console.log");
        let Some(status) = ended else {
            bail!(
                "the guest was ended after {} s, at: {}; see {}",
                self.limit.as_secs(),
                at(),
                log.display()
            );
        };
        // The console's end comes with QEMU's.
        let _ = reader.join();
        if !status.success() {
            bail!("qemu-system-aarch64 failed ({status}), at: {}", at());
        }
        if !finished.load(Ordering::Acquire) {
            bail!(
                "the guest stopped early, at: {}; see {}",
                at(),
                log.display()
            );
        }
        Ok(())
    }

    fn initramfs(&self, scripts: &[Script]) -> Result<Vec<u8>> {
        let mut archive = initramfs::Archive::default();
        for folder in [
            "bin", "lib", "programs", "proc", "sys", "dev", "tmp", "out", "steps",
        ] {
            archive.folder(folder);
        }
        archive.file("bin/busybox", &read(self.busybox)?);
        for (name, file) in &self.files {
            archive.file(name, &read(file)?);
        }
        archive.file("steps/prelude", PRELUDE.as_bytes());
        let mut init = String::from(
            "#!/bin/busybox sh\n\
             export PATH=/bin HOME=/\n\
             /bin/busybox --install -s /bin\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             mount -t tracefs tracefs /sys/kernel/tracing\n\
             echo 0 >/proc/sys/kernel/kptr_restrict; echo -1 >/proc/sys/kernel/perf_event_paranoid\n",
        );
        for (index, script) in scripts.iter().enumerate() {
            let Script { name, lines } = script;
            archive.file(
                &format!("steps/{index}"),
                format!(". /steps/prelude\n{lines}\n").as_bytes(),
            );
            init += &format!(
                "echo '{BEGIN}{name}'; mkdir /out/{name}; cd /out/{name}\n\
                 sh /steps/{index} >console 2>&1\n\
                 cut -d' ' -f1 /proc/uptime >uptime; tar -cf /dev/vport0p1 -C /out {name}; cd /; rm -r /out/{name}\n"
            );
        }
        init += &format!("echo '{END}'; poweroff -f\n");
        archive.file("init", init.as_bytes());
        Ok(archive.finish())
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| file.display().to_string())
}
