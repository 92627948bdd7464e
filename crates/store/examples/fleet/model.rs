//! The model of a fleet: services with their builds and stacks, hosts, and the profiles that these record.
//!
//! - **Services** share hosts by Zipf's law (exponent 1): the largest of 50 runs on 22 % of the hosts.
//! - **Functions**: a program has 3,000, four libraries have 500 to 2,500, the kernel has 4,000. Which function a stack
//!   goes on with follows Zipf's law (exponent 1.05) in a module.
//! - **Stacks**: a service has 20,000 distinct ones, which form a tree: each begins as an earlier one does. Depths are
//!   log-normal (median 18, sigma 0.5, at most 120); a quarter of the stacks ends in the kernel. Samples choose stacks
//!   by Zipf's law (exponent 1).
//! - **Builds**: a program is built anew every few days, and hosts take a build over two days. A build has a build id of
//!   its own, and a fiftieth of its functions has other names.
//! - **Profiles**: sizes are log-normal (sigma 0.8), their sum is exact. Days are spread evenly, and so are the moments of a day.
//! - **A regression**: from the build of the middle day on, the largest service spends a part of its time in a function
//!   that was not there before.

use crate::random::{Random, Zipf};

/// The number of services, at most.
const SERVICES: usize = 50;
/// The days, from [`FIRST_DAY`] on.
pub const DAYS: u64 = 10;
/// 2026-11-01, in days since 1970.
pub const FIRST_DAY: u64 = 20_758;
/// The days for which a build lasts.
const DAYS_OF_BUILD: u64 = 3;
/// The distinct stacks of a service.
const STACKS: usize = 20_000;
/// The share of samples that the regression takes.
const REGRESSION: f64 = 0.04;
/// The function that a build of the largest service brings.
const SLOW: &str = "svc00::Cache::rehash_all";
/// The names of threads.
const THREADS: usize = 12;

/// A function: its module's place among those of a service, and its number in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    pub module: u8,
    pub number: u32,
}

/// The module of the kernel in every service's list.
pub const KERNEL: u8 = 5;

/// A module of a service's processes.
pub struct Module {
    pub path: String,
    functions: u32,
    /// True for a module that each build of the service has anew.
    own: bool,
    popularity: Zipf,
}

/// A service: a program with the libraries that it uses.
pub struct Service {
    pub name: String,
    pub modules: Vec<Module>,
    /// Innermost functions last.
    stacks: Vec<Vec<Function>>,
    number: u64,
    seed: u64,
}

/// A fleet.
pub struct Fleet {
    seed: u64,
    services: Vec<Service>,
    /// By host: the service that it runs.
    hosts: Vec<usize>,
    stack_popularity: Zipf,
    thread_popularity: Zipf,
    /// By profile: the number of samples up to its end.
    samples: Vec<u64>,
}

/// A profile that a host records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub number: u64,
    pub host: usize,
    pub service: usize,
    /// Days since [`FIRST_DAY`].
    pub day: u64,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    pub build: u64,
    pub samples: u64,
}

/// A sample of a profile.
pub struct Sample<'a> {
    /// The functions, innermost last. The regression's function is innermost where `slow` is true.
    pub stack: &'a [Function],
    pub slow: bool,
    pub thread: u32,
    pub cpu: u32,
}

impl Fleet {
    /// Makes a fleet with this many hosts, profiles and samples.
    pub fn new(seed: u64, hosts: usize, profiles: u64, samples: u64) -> Fleet {
        let mut random = Random::of(seed, 1, 0);
        let count = SERVICES.min(hosts);
        let popularity = Zipf::new(count, 1.0);
        // Every service has a host.
        let drawn = (count..hosts).map(|_| popularity.draw(&mut random));
        let hosts = (0..count).chain(drawn).collect();
        let sizes: Vec<f64> = (0..profiles)
            .map(|number| Random::of(seed, 2, number).log_normal(1.0, 0.8))
            .collect();
        let whole: f64 = sizes.iter().sum();
        // Every profile has a sample, and the sizes share the rest.
        let rest = samples.saturating_sub(profiles) as f64;
        let mut sum = 0.0;
        let ends = (1..).zip(&sizes).map(|(number, size)| {
            sum += size;
            number + (sum / whole * rest).round() as u64
        });
        let samples_to: Vec<u64> = ends.collect();
        Fleet {
            seed,
            services: (0..count as u64)
                .map(|number| Service::new(seed, number))
                .collect(),
            hosts,
            stack_popularity: Zipf::new(STACKS, 1.0),
            thread_popularity: Zipf::new(THREADS, 1.0),
            samples: samples_to,
        }
    }

    pub fn service(&self, number: usize) -> &Service {
        &self.services[number]
    }

    /// Returns the name of a host.
    pub fn host(&self, number: usize) -> String {
        format!("host-{number:05}")
    }

    /// Returns a profile. Hosts take turns.
    pub fn profile(&self, number: u64) -> Profile {
        let hosts = self.hosts.len() as u64;
        let host = (number % hosts) as usize;
        let turns = (self.samples.len() as u64).div_ceil(hosts);
        let turn = number / hosts;
        // The turns of a host are spread over the days; where they are few, hosts begin on different days.
        let day = (turn * DAYS / turns + if turns < DAYS { number } else { 0 }) % DAYS;
        let mut random = Random::of(self.seed, 3, number);
        const DAY: u64 = 86_400 * 1_000_000_000;
        // A recording of a minute ends on its day.
        let start_ns = (FIRST_DAY + day) * DAY + random.below(DAY - 120 * 1_000_000_000);
        let before = number.checked_sub(1);
        let before = before.map_or(0, |before| self.samples[before as usize]);
        Profile {
            number,
            host,
            service: self.hosts[host],
            day,
            start_ns,
            // Hosts with even numbers take a build a day later.
            build: (day + host as u64 % 2 + 1) / DAYS_OF_BUILD,
            samples: self.samples[number as usize] - before,
        }
    }

    /// Passes on the samples of a profile.
    pub fn samples(&self, profile: &Profile, mut visit: impl FnMut(Sample<'_>)) {
        let service = &self.services[profile.service];
        let mut random = Random::of(self.seed, 4, profile.number);
        let can_be_slow = profile.service == 0 && profile.build > DAYS / DAYS_OF_BUILD / 2;
        for _ in 0..profile.samples {
            let stack = &*service.stacks[self.stack_popularity.draw(&mut random)];
            let slow = can_be_slow && random.unit() < REGRESSION;
            visit(Sample {
                // Its callers are `_start` and `main`.
                stack: if slow { &stack[..2] } else { stack },
                slow,
                thread: self.thread_popularity.draw(&mut random) as u32,
                cpu: random.below(16) as u32,
            });
        }
    }
}

impl Service {
    fn new(seed: u64, number: u64) -> Service {
        let name = format!("svc{number:02}");
        let module = |path: &str, functions: u32, own: bool| Module {
            path: path.to_owned(),
            functions,
            own,
            popularity: Zipf::new(functions as usize, 1.05),
        };
        let modules = vec![
            module(&format!("/srv/{name}/bin/{name}"), 3000, true),
            module("/usr/lib/x86_64-linux-gnu/libc.so.6", 1500, false),
            module("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 2500, false),
            module("/usr/lib/x86_64-linux-gnu/libssl.so.3", 500, false),
            module("/usr/lib/x86_64-linux-gnu/libprotobuf.so.32", 2000, false),
            module("[kernel.kallsyms]", 4000, false),
        ];
        let mut service = Service {
            name,
            modules,
            stacks: Vec::with_capacity(STACKS),
            number,
            seed,
        };
        let mut random = Random::of(seed, 5, number);
        for _ in 0..STACKS {
            let stack = service.new_stack(&mut random);
            service.stacks.push(stack);
        }
        service
    }

    fn new_stack(&self, random: &mut Random) -> Vec<Function> {
        let depth = random.log_normal(18.0, 0.5).clamp(3.0, 120.0) as usize;
        let mut stack: Vec<Function> = match self.stacks.len() {
            // `_start` and `main`.
            0 => (0..2)
                .map(|number| Function { module: 0, number })
                .collect(),
            known => {
                let parent = &self.stacks[random.below(known as u64) as usize];
                let in_user = parent.iter().take_while(|one| one.module != KERNEL);
                let longest = in_user.count().min(depth).max(2);
                let shared = 2 + random.below(longest as u64 - 1) as usize;
                parent[..shared].to_vec()
            }
        };
        let in_kernel = match random.below(4) {
            0 => 3 + random.below(5) as usize,
            _ => 0,
        };
        while stack.len() + in_kernel < depth {
            let last = stack.last().map_or(0, |last| last.module);
            let module = match random.below(4) {
                0 => random.below(u64::from(KERNEL)) as u8,
                _ => last,
            };
            stack.push(self.draw(module, random));
        }
        for _ in 0..in_kernel {
            stack.push(self.draw(KERNEL, random));
        }
        stack
    }

    fn draw(&self, module: u8, random: &mut Random) -> Function {
        let popularity = &self.modules[usize::from(module)].popularity;
        Function {
            module,
            number: popularity.draw(random) as u32,
        }
    }

    /// Returns the names of the service's threads.
    pub fn thread(&self, number: u32) -> String {
        match number {
            0 => self.name.clone(),
            number => format!("{}-worker{number}", self.name),
        }
    }

    /// Returns the build id of a module in a build of the service.
    pub fn build_id(&self, module: u8, build: u64) -> Vec<u8> {
        let own = self.modules[usize::from(module)].own;
        let number = match own {
            true => 1000 * (self.number + 1) + build,
            false => u64::from(module),
        };
        let mut random = Random::of(self.seed, 6, number);
        let words = [random.next(), random.next(), random.next()];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes[..20].to_vec()
    }

    /// Returns the number of functions of a module, without the regression's function.
    pub fn functions(&self, module: u8) -> u32 {
        self.modules[usize::from(module)].functions
    }

    /// Returns the name of a function in a build of the service. The number after the module's last one is that of the
    /// regression's function.
    pub fn function_name(&self, function: Function, build: u64) -> String {
        let module = &self.modules[usize::from(function.module)];
        let number = function.number;
        if number == module.functions {
            return SLOW.to_owned();
        }
        if function.module == 0 && number < 2 {
            return ["_start", "main"][number as usize].to_owned();
        }
        let name = &self.name;
        match function.module {
            0 => {
                // Some functions are written anew with each build.
                let again = match number % 50 {
                    7 => format!("_v{build}"),
                    _ => String::new(),
                };
                let class = number % 97;
                match number % 3 {
                    0 => format!("{name}::Handler{class}::process_{number}{again}"),
                    1 => format!(
                        "std::vector<{name}::Item{class}, std::allocator<{name}::Item{class}> >::insert_{number}{again}"
                    ),
                    _ => format!("{name}::parse_field_{number}{again}(char const*, unsigned long)"),
                }
            }
            1 => format!("__libc_fn_{number}"),
            2 => format!("std::__cxx11::basic_string<char>::_M_fn_{number}"),
            3 => format!("SSL_fn_{number}"),
            4 => format!("google::protobuf::internal::fn_{number}"),
            _ => format!("do_kernel_fn_{number}"),
        }
    }
}
