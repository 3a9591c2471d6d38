//! The filter settings of other stores, under the names that they have there.
//!
//! A name stands for rules, so other rules may follow it: `pebble.Progressive,last=none`. Levels
//! are counted here as everywhere in a policy, from the top. Pebble's settings are by physical
//! level, and its last level is 6: `last` stands for that, and a tree with fewer levels uses the
//! filters of the upper ones.

/// Names, and the rules that they stand for.
const PRESETS: [(&str, &str); 5] = [
    // `DBTableFilterPolicyUniform` of Pebble's `options.go`.
    ("pebble.Uniform", "blocked:10"),
    // `DBTableFilterPolicyProgressive`, without its limit of 1 MiB a filter.
    ("pebble.Progressive", "L0-3=blocked:16,L4=blocked:14,L5-=blocked:10,last=blocked:8"),
    // `DBTableFilterPolicyBinaryFuseProgressive`: fingerprints of 16, 12, 10, 8 and 4 bits, each in
    // 9/8 slots.
    (
        "pebble.BinaryFuseProgressive",
        "L0-2=fuse:18,L3=fuse:13.5,L4=fuse:11.25,L5-=fuse:9,last=fuse:4.5",
    ),
    // `ColumnFamilyOptions::OptimizeForPointLookup` of RocksDB's `options.cc`.
    ("rocksdb.OptimizeForPointLookup", "blocked:10"),
    // The option of this name, which adds to the filters before it.
    ("rocksdb.optimize_filters_for_hits", "last=none"),
];

/// The rules that an entry of a policy stands for, if it is a preset.
///
/// # Errors
/// Completes "the filter policy is not usable: ...".
pub(super) fn rules_of(entry: &str) -> Result<Option<&'static str>, String> {
    let (levels, word) = match entry.split_once('=') {
        Some((levels, word)) => (Some(levels), word.trim()),
        None => (None, entry),
    };
    let (name, bits) = word.split_once(':').map_or((word, None), |(name, bits)| (name, Some(bits)));
    let Some((known, rules)) = PRESETS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
    else {
        let names = PRESETS.map(|(known, _)| known).join(", ");
        let is_pebble = name.starts_with("pebble.");
        return if is_pebble { Err(format!("`{name}` is none of {names}")) } else { Ok(None) };
    };
    match (levels, bits) {
        _ if *known != name => Err(format!("did you mean `{known}`?")),
        (Some(levels), _) => Err(format!(
            "`{known}` has levels of its own: write it without `{levels}=`, and other rules after it"
        )),
        (None, Some(_)) => Err(format!("`{known}` sets its own bits: write it alone")),
        (None, None) => Ok(Some(rules)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterPolicy;

    #[test]
    fn a_preset_is_its_rules() {
        for (name, rules) in PRESETS {
            let (named, spelled): (FilterPolicy, FilterPolicy) =
                (name.parse().unwrap(), rules.parse().unwrap());
            assert_eq!(named, spelled, "{name}");
            assert_eq!(named.to_string(), spelled.to_string(), "a policy states its rules");
        }
    }

    #[test]
    fn levels_have_the_bits_that_pebble_gives_them() {
        let bits = |name: &str, kind: &str| {
            let policy: FilterPolicy = name.parse().unwrap();
            let spec = |level| policy.for_level(level, level == 6).to_string();
            let bits = |level| spec(level).strip_prefix(kind).unwrap().parse().unwrap();
            std::array::from_fn::<f64, 7, _>(bits)
        };
        let progressive = bits("pebble.Progressive", "blocked:");
        assert_eq!(progressive, [16.0, 16.0, 16.0, 16.0, 14.0, 10.0, 8.0]);
        let fingerprints = [16.0, 16.0, 16.0, 12.0, 10.0, 8.0, 4.0];
        let fuse = bits("pebble.BinaryFuseProgressive", "fuse:");
        assert_eq!(fuse.map(|bits| bits / 1.125), fingerprints);
        let policy: FilterPolicy = "pebble.BinaryFuseProgressive".parse().unwrap();
        for (level, bits) in fingerprints.into_iter().enumerate() {
            let rate = policy.for_level(level, level == 6).expected_fpr(10_000_000);
            assert_eq!(rate, (-bits).exp2(), "level {level}");
        }
    }

    #[test]
    fn other_rules_may_follow_a_preset() {
        let policy: FilterPolicy = "pebble.Progressive,L0=paired:20,last=none".parse().unwrap();
        let spec = |level, last| policy.for_level(level, last).to_string();
        assert_eq!([spec(0, false), spec(1, false)], ["paired:20", "blocked:16"]);
        assert_eq!(spec(4, true), "none");
        let hits: FilterPolicy =
            "rocksdb.BloomFilter:9.9,rocksdb.optimize_filters_for_hits".parse().unwrap();
        assert_eq!(hits, "blocked:9.9,last=none".parse().unwrap());
    }

    #[test]
    fn a_preset_has_levels_of_its_own_and_no_bits() {
        for (text, says) in [
            ("L0=pebble.Progressive", "has levels of its own"),
            ("pebble.Progressive:10", "sets its own bits"),
            ("pebble.progressive", "did you mean `pebble.Progressive`?"),
            ("pebble.Adaptive", "is none of pebble.Uniform, "),
        ] {
            let error = text.parse::<FilterPolicy>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
