//! openraft's own suite.

use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use trommel_raft::{KeyValue, KeyValueConfig, LogStore, StateMachine};
use trommel_sim::MemoryVfs;

use crate::node::open;

/// Builds an empty node for each check.
struct EmptyNodes;

type Machine = StateMachine<KeyValueConfig, KeyValue>;

impl StoreBuilder<KeyValueConfig, LogStore<KeyValueConfig>, Machine> for EmptyNodes {
    async fn build(&self) -> Result<((), LogStore<KeyValueConfig>, Machine), StorageError<u64>> {
        let node = open(MemoryVfs::new()).unwrap();
        Ok(((), node.log, node.machine))
    }
}

#[test]
fn the_suite_of_openraft_passes() {
    Suite::test_all(EmptyNodes).unwrap();
}
