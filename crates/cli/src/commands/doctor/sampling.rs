//! Findings about sampling, from events that were opened on trial.

use super::check::{Check, Status};
use dioptra_perfevents::{Capabilities, OpenError, Refusal, limits};

/// The remedy that gives a program the needed capabilities.
const GRANT: &str = "run as root, or sudo setcap cap_perfmon,cap_sys_ptrace,cap_syslog+ep \"$(command -v dioptra)\"";

/// The events that this process may open.
pub struct Sampling(Capabilities);

impl Sampling {
    /// Opens each kind of event on trial.
    pub fn probe() -> Sampling {
        Sampling(Capabilities::probe())
    }

    /// Returns whether the minimum works: sampling the user space of an own process.
    pub fn works(&self) -> bool {
        self.0.sample_user.is_ok()
    }

    /// Returns whether the machine has hardware counters that can sample.
    pub fn has_cycles(&self) -> bool {
        self.0.hardware.is_ok()
    }

    /// Returns whether the kernel can be sampled.
    pub fn sees_kernel(&self) -> bool {
        self.0.sample_kernel.is_ok()
    }

    /// Returns the findings about sampling.
    pub fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.call(), self.paranoid(), self.user_check()];
        if self.works() {
            checks.extend([self.kernel_check(), self.machine_check(), self.hardware()]);
        }
        if self.has_cycles() {
            checks.extend([self.precise_check(), self.branch_check()]);
        }
        checks
    }

    fn call(&self) -> Check {
        let check = |found: &str| Check::ok("perf_event_open", "system call", found);
        match &self.0.sample_user {
            Err(OpenError { refusal: Refusal::Seccomp, .. }) => {
                check("perf_event_open is forbidden by a seccomp filter, as in most containers")
                    .but(Status::Missing, "nothing can be sampled")
                    .remedy("docker run --cap-add PERFMON --security-opt seccomp=PROFILE, with perf_event_open allowed in PROFILE")
            }
            Err(OpenError { refusal: Refusal::NoSyscall, .. }) => {
                check("this kernel or sandbox has no perf_event_open")
                    .but(Status::Missing, "nothing can be sampled")
                    .remedy("use a Linux kernel built with CONFIG_PERF_EVENTS=y")
            }
            _ => check("perf_event_open reaches the kernel"),
        }
    }

    /// Returns whether the call was refused before the kernel checked its own rules and the user's rights.
    fn never_asked(&self) -> bool {
        let refusal = self
            .0
            .sample_user
            .as_ref()
            .err()
            .map(|error| &error.refusal);
        matches!(refusal, Some(Refusal::Seccomp | Refusal::NoSyscall))
    }

    fn paranoid(&self) -> Check {
        let Some(level) = limits::paranoid() else {
            return Check::ok(
                "perf_event_paranoid",
                "paranoid level",
                "kernel.perf_event_paranoid cannot be read: /proc is restricted",
            );
        };
        let check = Check::ok(
            "perf_event_paranoid",
            "paranoid level",
            format!("kernel.perf_event_paranoid is {level}"),
        )
        .value(level);
        if level < 0 || (self.0.sample_kernel.is_ok() && self.0.system_wide.is_ok()) {
            return check;
        }
        if self.never_asked() {
            return Check {
                found: format!("{}; no call gets as far as to be judged by it", check.found),
                ..check
            };
        }
        let check = match (&self.0.sample_user, &self.0.sample_kernel, &self.0.system_wide) {
            (Err(_), _, _) => check.but(Status::Missing, "nothing can be sampled without privileges"),
            (_, Err(_), _) => check.but(
                Status::Limited,
                "own processes' user space can be sampled; the kernel and the whole machine (-a, -C, --cgroup) cannot",
            ),
            _ => check.but(Status::Limited, "the whole machine (-a, -C, --cgroup) cannot be sampled"),
        };
        check.remedy(format!(
            "sudo sysctl kernel.perf_event_paranoid=-1; or {GRANT}"
        ))
    }

    fn user_check(&self) -> Check {
        let check = |found: String| Check::ok("sample_user", "own processes", found);
        match &self.0.sample_user {
            Ok(()) => check("user space can be sampled (cpu-clock)".into()),
            Err(_) if self.never_asked() => check("unknown: no call reaches the kernel".into())
                .but(Status::Missing, "nothing can be sampled"),
            Err(error) => check(error.refusal.to_string())
                .but(Status::Missing, "nothing can be sampled")
                .remedy(GRANT),
        }
    }

    fn kernel_check(&self) -> Check {
        let check = |found: String| Check::ok("sample_kernel", "kernel samples", found);
        match &self.0.sample_kernel {
            Ok(()) => check("the kernel can be sampled".into()),
            Err(_) => check("the kernel cannot be sampled".into())
                .but(
                    Status::Limited,
                    "time in the kernel is not seen; events count user space only",
                )
                .remedy(format!(
                    "sudo sysctl kernel.perf_event_paranoid=1; or {GRANT}"
                )),
        }
    }

    fn machine_check(&self) -> Check {
        let check = |found: String| Check::ok("sample_machine", "whole machine", found);
        match &self.0.system_wide {
            Ok(()) => check("all CPUs can be sampled (-a)".into()),
            Err(_) => check("CPUs cannot be sampled as a whole".into())
                .but(Status::Limited, "-a, -C and --cgroup do not work")
                .remedy(format!(
                    "sudo sysctl kernel.perf_event_paranoid=0; or {GRANT}"
                )),
        }
    }

    fn hardware(&self) -> Check {
        let check = |found: &str| Check::ok("hardware_events", "hardware events", found);
        let remedy = "on a virtual machine enable its PMU (QEMU: -cpu host,pmu=on; clouds: a metal or larger instance)";
        match (&self.0.hardware, &self.0.instructions) {
            (Ok(()), Ok(())) => check("cycles and instructions can be sampled"),
            (Ok(()), Err(_)) => check("cycles can be sampled, instructions cannot")
                .but(Status::Limited, "ratios such as instructions per cycle are not available")
                .remedy(remedy),
            (Err(OpenError { refusal: Refusal::Busy, .. }), _) => {
                check("the PMU is in exclusive use by someone else")
                    .but(Status::Limited, "cycles fall back to cpu-clock")
                    .remedy("end the other profiler, or sudo sysctl kernel.nmi_watchdog=0")
            }
            (Err(_), _) => check("this machine has no hardware counters, or does not show them")
                .but(
                    Status::Limited,
                    "cycles fall back to cpu-clock; instructions, cache misses and branch misses are not available",
                )
                .remedy(remedy),
        }
    }

    fn precise_check(&self) -> Check {
        let check = |found: &str| Check::ok("precise_ip", "precise addresses", found);
        match &self.0.precise {
            Ok(()) => check("samples can name the exact instruction (cycles:pp)"),
            Err(_) => check("samples cannot name the exact instruction").but(
                Status::Limited,
                "samples may show an instruction some places after the one that took the time",
            ),
        }
    }

    fn branch_check(&self) -> Check {
        let check = |found: &str| Check::ok("branch_stack", "branch records", found);
        match &self.0.branches {
            Ok(()) => check("branch stacks can be recorded (-b)"),
            Err(_) => check("the CPU or the virtual machine has no branch records")
                .but(Status::Limited, "-b, -j and --call-graph lbr do not work"),
        }
    }
}
