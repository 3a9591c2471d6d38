//! Many filters of one kind, with the keys that each of them holds.

use std::time::{Duration, Instant};

use fastrand::Rng;
use trommel::filter::{Filter, FilterKind};

use super::{Cell, MIN_KEY_BYTES, Plan, Rate, SCHEMA, Timing, nanoseconds};
use crate::control::Control;
use crate::error::Error;

/// Number of the first key that no filter holds.
const ABSENT: u64 = 1 << 63;

/// Makes keys: the number of a filter, that of the key, and zeros.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    buffer: Vec<u8>,
}

impl Keys {
    pub(super) fn new(bytes: usize) -> Self {
        Self { buffer: vec![0; bytes] }
    }

    #[inline]
    pub(super) fn key(&mut self, filter: usize, number: u64) -> &[u8] {
        self.buffer[..4].copy_from_slice(&(filter as u32).to_le_bytes());
        self.buffer[4..MIN_KEY_BYTES].copy_from_slice(&number.to_le_bytes());
        &self.buffer
    }

    /// A key of filter number `filter` that it does not hold.
    #[inline]
    pub(super) fn absent(&mut self, filter: usize, number: u64) -> &[u8] {
        self.key(filter, ABSENT | number)
    }
}

/// Filters of one kind.
#[derive(Debug)]
pub struct Fleet {
    pub(super) members: Vec<Member>,
    key_bytes: usize,
    build_time: Duration,
    build_bytes: u64,
    pub(super) keys: u64,
}

/// One filter, which holds the keys below `keys`.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) filter: Filter,
    pub(super) keys: u64,
}

impl Fleet {
    pub(super) fn build(plan: &Plan, control: Control<'_>) -> Result<Self, Error> {
        check(plan)?;
        let mut rng = Rng::with_seed(plan.seed);
        let mut fleet = Self {
            members: Vec::new(),
            key_bytes: plan.key_bytes,
            build_time: Duration::ZERO,
            build_bytes: 0,
            keys: 0,
        };
        control.progress.begin("building", plan.memory_bytes);
        let mut memory = 0;
        while memory < plan.memory_bytes.max(1) {
            if control.stop.is_set() {
                control.progress.end();
                return Err(Error::Interrupted);
            }
            let spread = 1.0 + plan.vary * (2.0 * rng.f64() - 1.0);
            let keys = ((plan.keys as f64 * spread).round() as u64).max(1);
            let bytes = fleet.add(plan, keys)?;
            memory += bytes;
            control.progress.advance(bytes);
        }
        control.progress.end();
        Ok(fleet)
    }

    /// Builds one more filter; returns its bytes in memory.
    fn add(&mut self, plan: &Plan, keys: u64) -> Result<u64, Error> {
        let mut maker = Keys::new(self.key_bytes);
        let number = self.members.len();
        let start = Instant::now();
        let mut builder = plan.spec.builder();
        for key in 0..keys {
            builder.add(maker.key(number, key));
        }
        let held = builder.memory_bytes();
        let bytes = builder.finish();
        self.build_time += start.elapsed();
        self.build_bytes += held as u64;
        let filter = Filter::decode(bytes).map_err(|error| Error::Store(error.into()))?;
        let filter = match plan.kernel {
            Some(kernel) => filter.with_kernel(kernel),
            None => filter,
        };
        let memory = filter.memory_bytes() as u64;
        self.keys += keys;
        self.members.push(Member { filter, keys });
        Ok(memory)
    }

    /// Whether every key that was added is found.
    pub(super) fn verify(&self, control: Control<'_>) -> Result<(), Error> {
        control.progress.begin("verifying", self.keys);
        let mut maker = Keys::new(self.key_bytes);
        for (number, member) in self.members.iter().enumerate() {
            if control.stop.is_set() {
                control.progress.end();
                return Err(Error::Interrupted);
            }
            let denied = |key: &u64| !member.filter.may_contain(maker.key(number, *key));
            if let Some(key) = (0..member.keys).find(denied) {
                control.progress.end();
                let text = format!("filter {number} denies key {key}, which was added to it");
                return Err(Error::Store(text.into()));
            }
            control.progress.advance(member.keys);
        }
        control.progress.end();
        Ok(())
    }

    pub(super) fn cell(&self, plan: &Plan, rate: Rate, timings: Vec<Timing>) -> Cell {
        let filters = || self.members.iter().map(|member| &member.filter);
        let bits: f64 = filters().map(|filter| filter.bits_per_key() * filter.keys() as f64).sum();
        Cell {
            schema: SCHEMA,
            spec: plan.spec.to_string(),
            kind: plan.spec.kind().to_string(),
            bits: plan.spec.bits_per_key(),
            average_keys: plan.keys,
            kernel: self.members[0].filter.kernel().to_string(),
            key_bytes: self.key_bytes,
            filters: self.members.len() as u64,
            keys: self.keys,
            memory_bytes: filters().map(|filter| filter.memory_bytes() as u64).sum(),
            stored_bits: bits / self.keys as f64,
            probes: self.members[0].filter.probes(),
            build_ns: nanoseconds(self.build_time, self.keys),
            build_bytes: self.build_bytes as f64 / self.keys as f64,
            rate,
            timings,
        }
    }
}

/// Refuses what cannot be done, and says why.
fn check(plan: &Plan) -> Result<(), Error> {
    let what = if plan.keys == 0 {
        "a filter must have at least one key".into()
    } else if !(0.0..1.0).contains(&plan.vary) {
        format!("the number of keys can vary by a part from 0 to below 1, not by {}", plan.vary)
    } else if plan.key_bytes < MIN_KEY_BYTES {
        format!("a key must have at least {MIN_KEY_BYTES} bytes to be told from all others")
    } else if plan.spec.kind() == FilterKind::None {
        "there is nothing to measure of the filter `none`".into()
    } else if plan.batch == 0 {
        "a batch must hold at least one key".into()
    } else {
        return Ok(());
    };
    Err(Error::Usage(what))
}
