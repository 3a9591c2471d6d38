//! Followers of stores whose keyspaces change.

use trommel_sim::SimDisk;

use super::*;
use crate::{KeyspaceOptions, Merge};

/// Regression: the operands were merged by the store's operator until the catalog was read again.
#[test]
fn operands_wait_for_the_operator_of_their_keyspace() {
    let disk = Arc::new(SimDisk::default());
    let options = Options::default()
        .vfs(Arc::<SimDisk>::clone(&disk))
        .background_threads(0)
        .writes(|w| w.merge_operator(Merge::counter()));
    let db = Db::open("db", options.clone()).unwrap();
    let highs = db.keyspace("highs", KeyspaceOptions::new()).unwrap();
    let follower = Db::open_follower("db", options).unwrap();
    let followed = follower.db().open_keyspace("highs").unwrap().unwrap();
    for round in 0_u64..3 {
        let name = format!("{round}");
        let keyspace = match round {
            0 => highs.clone(),
            _ => db.keyspace(&name, KeyspaceOptions::new()).unwrap(),
        };
        follower.catch_up().unwrap();
        let followed = match round {
            0 => followed.clone(),
            _ => follower.db().open_keyspace(&name).unwrap().unwrap(),
        };
        let largest = KeyspaceOptions::new().merge_operator(Merge::max());
        db.keyspace(keyspace.name(), largest).unwrap();
        keyspace.merge("k", 3_u64.to_le_bytes()).unwrap();
        keyspace.merge("k", 2_u64.to_le_bytes()).unwrap();
        if round == 2 {
            // The entries come from tables.
            db.flush().unwrap();
        }
        let engine = follower.db().engine();
        lock(&follower.store.state).following.catch_up(engine).unwrap();
        let refused = followed.get("k");
        assert!(matches!(refused, Err(Error::Merge(_))), "{round}: {refused:?}");
        follower.catch_up().unwrap();
        let expected = 3_u64.to_le_bytes();
        assert_eq!(followed.get("k").unwrap().as_deref(), Some(&expected[..]));
        // Nothing of the catalog is new.
        keyspace.merge("k", 1_u64.to_le_bytes()).unwrap();
        lock(&follower.store.state).following.catch_up(engine).unwrap();
        assert_eq!(followed.get("k").unwrap().as_deref(), Some(&expected[..]));
    }
}
