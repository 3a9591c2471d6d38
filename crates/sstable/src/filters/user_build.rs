//! Builds a user-defined filter, and checks it before it is stored.
//!
//! The finished bytes are opened at once and queried for a sample of the keys. Bytes that cannot be
//! opened, or that deny a key, are not stored, and the table gets no filter.

use std::sync::Arc;

use super::directory::{FilterPart, FilterRole, FilterShape};
use super::part_builder::BuiltPart;
use crate::user_filter::{
    Contained, MOST_MEMORY_BYTES, OpenUserFilter, UserFilterBuilder, UserFilterReader,
};
use crate::verdict::FilterLabel;

/// A user's builder, and a sample of the keys added to it.
#[derive(Debug)]
pub(crate) struct UserBuild {
    reader: Arc<dyn UserFilterReader>,
    builder: Result<Contained<dyn UserFilterBuilder>, String>,
    keys: u64,
    sample: Sample,
}

impl UserBuild {
    pub(crate) fn new(
        reader: Arc<dyn UserFilterReader>,
        builder: Box<dyn UserFilterBuilder>,
    ) -> Self {
        let builder = Ok(Contained::new(builder, Arc::clone(&reader)));
        Self { reader, builder, keys: 0, sample: Sample::default() }
    }

    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], hash: u64) {
        let Ok(builder) = &mut self.builder else { return };
        match builder.run_mut(|builder| builder.add(key, hash)) {
            Ok(()) => {
                self.keys += 1;
                self.sample.add(key, hash);
            }
            Err(why) => self.builder = Err(why),
        }
    }

    pub(crate) fn memory_bytes(&mut self) -> u64 {
        let Ok(builder) = &self.builder else { return 0 };
        match builder.run(UserFilterBuilder::memory_bytes) {
            Ok(bytes) => bytes.min(MOST_MEMORY_BYTES) as u64,
            Err(why) => {
                self.builder = Err(why);
                0
            }
        }
    }

    /// The part to store; notifies the reader if it cannot be built.
    pub(crate) fn finish(self) -> Result<BuiltPart, String> {
        let Self { reader, builder, keys, sample } = self;
        let built = builder
            .and_then(|builder| builder.finish(UserFilterBuilder::finish))
            .and_then(|payload| {
                let opened = OpenUserFilter::open(Arc::clone(&reader), &payload)?;
                sample.check(&opened)?;
                Ok((payload, opened.expected_fpr()))
            })
            .inspect_err(|why| reader.failed(why));
        let (payload, expected_fpr) = built?;
        let part = FilterPart {
            role: FilterRole::Keys,
            shape: FilterShape::Whole,
            expected_fpr,
            keys,
            bytes: 0,
            top_bytes: 0,
            spec: FilterLabel::User.name().to_owned(),
            policy: reader.name().to_owned(),
            extractor: String::new(),
        };
        Ok(BuiltPart { part, partitions: vec![payload], top: None, fallbacks: 0 })
    }
}

/// A sample of a table's keys, evenly spread, of at most [`Sample::MOST`].
#[derive(Debug)]
struct Sample {
    keys: Vec<(Box<[u8]>, u64)>,
    /// One key in this many is sampled.
    stride: u64,
    seen: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self { keys: Vec::new(), stride: 1, seen: 0 }
    }
}

impl Sample {
    const MOST: usize = 128;

    fn add(&mut self, key: &[u8], hash: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.keys.len() == Self::MOST {
                let mut place = 0;
                self.keys.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            // The sample had an even length, so this key is also a multiple of the doubled stride.
            self.keys.push((key.into(), hash));
        }
        self.seen += 1;
    }

    fn check(&self, filter: &OpenUserFilter) -> Result<(), String> {
        for (key, hash) in &self.keys {
            if !filter.may_contain(key, *hash)? {
                return Err("its filter denies a key that it was built of".into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_all_keys() {
        for keys in [0, 1, 127, 128, 129, 1000, 100_000u64] {
            let mut sample = Sample::default();
            for key in 0..keys {
                sample.add(&key.to_le_bytes(), key);
            }
            let taken: Vec<u64> = sample.keys.iter().map(|(_, hash)| *hash).collect();
            let evenly: Vec<u64> = (0..keys).step_by(sample.stride as usize).collect();
            assert_eq!(taken, evenly, "of {keys} keys");
            assert!(taken.len() <= Sample::MOST && taken.len() as u64 * 2 >= keys.min(128));
        }
    }
}
