//! What every kind of filter promises, asked of each.

use trommel_filter::{Filter, FilterSpec, hash};

const SPECS: [&str; 5] =
    ["standard:10", "blocked:10", "paired:10", "paired:23.4", "paired:fpr=1e-4"];

fn spec(text: &str) -> FilterSpec {
    text.parse().expect("a spec")
}

fn build(spec: FilterSpec, keys: u64) -> Filter {
    let mut builder = spec.builder();
    for key in 0..keys {
        builder.add(&key.to_le_bytes());
    }
    assert_eq!(builder.len(), keys);
    Filter::decode(builder.finish()).expect("a filter")
}

#[test]
fn no_key_is_ever_denied() {
    for text in SPECS {
        let spec = spec(text);
        for keys in (0..300).chain([511, 512, 513, 1000, 4999, 6554, 30_000, 100_000]) {
            let filter = build(spec, keys);
            assert_eq!(filter.keys(), keys);
            for key in 0..keys {
                assert!(filter.may_contain(&key.to_le_bytes()), "{text}, {keys} keys: {key}");
            }
            assert_eq!(filter.expected_fpr(), spec.expected_fpr(keys));
        }
    }
}

#[test]
fn many_questions_get_the_answers_of_one_by_one() {
    for text in SPECS {
        let filter = build(spec(text), 5000);
        let hashes: Vec<u64> = (0..20_003_u64).map(|key| hash(&key.to_le_bytes())).collect();
        let mut answers = vec![false; hashes.len()];
        filter.may_contain_many(&hashes, &mut answers);
        for (&hash, answer) in hashes.iter().zip(answers) {
            assert_eq!(filter.may_contain_hash(hash), answer);
        }
    }
}
