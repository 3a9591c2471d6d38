//! Many filters of one kind, and their keys.

use std::time::{Duration, Instant};

use fastrand::Rng;
use trommel::filter::{Filter, FilterKind};
use trommel::vfs::advise_huge_pages;
use trommel_harness::{Control, Error, Unit, machine, units};

use super::{
    BuiltFilters, FilterBenchPlan, FilterCell, FilterSetup, MAX_BATCH, MAX_KEY_BYTES,
    MIN_KEY_BYTES, Until, nanoseconds,
};

/// Number of the first key that no filter holds.
const ABSENT: u64 = 1 << 63;

/// Makes keys: the filter's number, the key's number, and zeros.
#[derive(Debug, Clone)]
pub(super) struct FleetKeys {
    buffer: Vec<u8>,
}

impl FleetKeys {
    pub(super) fn new(key_bytes: usize) -> Self {
        Self { buffer: vec![0; key_bytes] }
    }

    #[inline]
    pub(super) fn key(&mut self, filter: usize, number: u64) -> &[u8] {
        self.buffer[..4].copy_from_slice(&(filter as u32).to_le_bytes());
        self.buffer[4..MIN_KEY_BYTES].copy_from_slice(&number.to_le_bytes());
        &self.buffer
    }

    /// A key that filter number `filter` does not hold.
    #[inline]
    pub(super) fn absent(&mut self, filter: usize, number: u64) -> &[u8] {
        self.key(filter, ABSENT | number)
    }
}

/// Filters of one kind.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) members: Vec<Member>,
    build_time: Duration,
    build_bytes: u64,
    memory_bytes: u64,
    keys: u64,
}

/// One filter, which holds the keys with numbers below `keys`.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) filter: Filter,
    pub(super) keys: u64,
}

impl Fleet {
    pub(super) fn build(plan: &FilterBenchPlan, control: Control<'_>) -> Result<Self, Error> {
        check(plan)?;
        let mut rng = Rng::with_seed(plan.seed);
        let mut fleet = Self {
            members: Vec::new(),
            build_time: Duration::ZERO,
            build_bytes: 0,
            memory_bytes: 0,
            keys: 0,
        };
        let (Until::Bytes(all) | Until::Keys(all)) = plan.until;
        let unit = if matches!(plan.until, Until::Keys(_)) { Unit::Keys } else { Unit::Bytes };
        control.progress.begin("building", all, unit);
        let mut done = 0;
        while done < all.max(1) {
            if control.stop.is_set() {
                control.progress.end();
                return Err(Error::Interrupted);
            }
            let spread = 1.0 + plan.vary * (2.0 * rng.f64() - 1.0);
            let mut keys = ((plan.keys as f64 * spread).round() as u64).max(1);
            if let Until::Keys(most) = plan.until {
                keys = keys.min(most.max(1) - done);
            }
            let bytes = fleet.add(plan, keys)?;
            let step = if matches!(plan.until, Until::Keys(_)) { keys } else { bytes };
            done += step;
            control.progress.advance(step);
        }
        control.progress.end();
        Ok(fleet)
    }

    /// Builds one more filter, and returns its bytes in memory.
    fn add(&mut self, plan: &FilterBenchPlan, keys: u64) -> Result<u64, Error> {
        let mut maker = FleetKeys::new(plan.key_bytes);
        let number = self.members.len();
        // The theory's tables, computed once per process, are not part of a filter's cost.
        plan.spec.expected_fpr(keys);
        let start = Instant::now();
        let mut builder = plan.spec.builder();
        for key in 0..keys {
            builder.add(maker.key(number, key));
        }
        let peak = builder.peak_bytes();
        let bytes = builder.finish();
        self.build_time += start.elapsed();
        self.build_bytes += peak.saturating_sub(bytes.len() as u64);
        let decoded = match plan.huge_pages {
            true => Filter::decode_into(bytes, advise_huge_pages),
            false => Filter::decode(bytes),
        };
        let filter = decoded.map_err(|error| Error::Store(error.into()))?;
        let filter = match plan.kernel {
            Some(kernel) => filter.with_kernel(kernel),
            None => filter,
        };
        let memory = filter.memory_bytes() as u64;
        self.memory_bytes += memory;
        self.keys += keys;
        self.members.push(Member { filter, keys });
        Ok(memory)
    }

    /// Whether every key added is found; false if stopped.
    pub(super) fn verify(
        &self,
        plan: &FilterBenchPlan,
        control: Control<'_>,
    ) -> Result<bool, Error> {
        control.progress.begin("verifying", self.keys, Unit::Keys);
        let mut maker = FleetKeys::new(plan.key_bytes);
        for (number, member) in self.members.iter().enumerate() {
            for key in 0..member.keys {
                if !member.filter.may_contain(maker.key(number, key)) {
                    control.progress.end();
                    let text = format!("filter {number} has a false negative: key {key}");
                    return Err(Error::Store(text.into()));
                }
                if key % (1 << 20) == 0 && control.stop.is_set() {
                    control.progress.end();
                    return Ok(false);
                }
            }
            control.progress.advance(member.keys);
        }
        control.progress.end();
        Ok(true)
    }

    /// The cell with all that is known without queries.
    pub(super) fn cell(&self, plan: &FilterBenchPlan) -> FilterCell {
        let filters = || self.members.iter().map(|member| &member.filter);
        let bits: f64 = filters().map(|filter| filter.bits_per_key() * filter.keys() as f64).sum();
        let first = &self.members[0].filter;
        FilterCell {
            setup: FilterSetup {
                spec: plan.spec.to_string(),
                kind: plan.spec.kind().to_string(),
                bits: plan.spec.bits_per_key(),
                average_keys: plan.keys,
                kernel: plan.spec.kind().has_kernels().then(|| first.kernel().to_string()),
                huge_pages: plan.huge_pages,
                key_bytes: plan.key_bytes as u64,
                batch: plan.queries.batch as u64,
                queries: plan.queries.per_pattern,
                seed: plan.seed,
            },
            built: BuiltFilters {
                filters: self.members.len() as u64,
                keys: self.keys,
                memory_bytes: self.memory_bytes,
                single_bytes: first.memory_bytes() as u64,
                stored_bits: bits / self.keys as f64,
                probes: first.probes(),
                build_ns: nanoseconds(self.build_time, self.keys),
                build_bytes: self.build_bytes as f64 / self.keys as f64,
            },
            ..FilterCell::default()
        }
    }
}

/// Rejects a plan that cannot be run, with the reason.
pub(super) fn check(plan: &FilterBenchPlan) -> Result<(), Error> {
    let what = if plan.keys == 0 {
        "a filter must have at least one key".into()
    } else if !(0.0..1.0).contains(&plan.vary) {
        format!("the number of keys can vary by a fraction from 0 to below 1, not by {}", plan.vary)
    } else if plan.key_bytes < MIN_KEY_BYTES {
        format!("a key must have at least {MIN_KEY_BYTES} bytes to differ from all others")
    } else if plan.key_bytes > MAX_KEY_BYTES {
        format!("a key can have at most {MAX_KEY_BYTES} bytes")
    } else if plan.spec.kind() == FilterKind::None {
        "the filter `none` has nothing to measure".into()
    } else if plan.queries.batch == 0 {
        "a batch must hold at least one key".into()
    } else if plan.queries.batch > MAX_BATCH {
        format!("a batch can hold at most {MAX_BATCH} keys")
    } else if plan.queries.per_pattern == 0 || plan.queries.for_rate == 0 {
        "at least one query must be made".into()
    } else {
        return check_memory(plan, machine::memory_bytes());
    };
    Err(Error::Usage(what))
}

/// Rejects a plan whose filters exceed the machine's memory.
pub(super) fn check_memory(plan: &FilterBenchPlan, machine: Option<u64>) -> Result<(), Error> {
    let Some(machine) = machine else { return Ok(()) };
    let most = (plan.keys as f64 * (1.0 + plan.vary)) as u64;
    let bytes_per_key = plan.spec.bits_per_key() / 8.0;
    // The hashes of the keys, the filter as built, and the filter as loaded.
    let one = (most as f64 * (8.0 + 2.0 * bytes_per_key)) as u64;
    let all = match plan.until {
        Until::Bytes(bytes) => bytes,
        Until::Keys(keys) => (keys as f64 * bytes_per_key) as u64,
    };
    let (needs, what) = if one > machine {
        (one, format!("to build {} of {most} keys", plan.spec))
    } else {
        (all.saturating_add(one), format!("for filters of {} in total", units::bytes(all)))
    };
    if needs <= machine {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{what}, {} of memory would be needed, and this machine has {}: use fewer keys, fewer \
         bits, or less --working-mem-size-mb",
        units::bytes(needs),
        units::bytes(machine)
    )))
}
