//! Backups of stores whose entries expire.

use std::sync::Arc;
use std::time::Duration;

use trommel::vfs::DiskVfs;
use trommel::{Db, Options};
use trommel_backup::{Repository, target_at};
use trommel_sim::WallClock;

use crate::stores::entries;

#[test]
fn a_restored_store_expires_as_the_original_would() {
    let home = tempfile::tempdir().unwrap();
    let clock = WallClock::default();
    let options = |ttl: Option<Duration>| {
        Options::default().vfs(clock.over(Arc::new(DiskVfs))).writes(|w| w.ttl(ttl))
    };
    let ttl = Duration::from_secs(100);
    let db = Db::open(home.path().join("db"), options(Some(ttl))).unwrap();
    db.put("gone", "1").unwrap();
    clock.advance(Duration::from_secs(60));
    db.put("kept", "2").unwrap();
    clock.advance(Duration::from_secs(42));
    let kept = vec![(b"kept".to_vec(), b"2".to_vec())];
    assert_eq!(entries(&db), kept);
    let target = target_at(home.path().join("backups").to_str().unwrap()).unwrap();
    let repository = Repository::open_or_create(target).unwrap();
    repository.create(&db, &()).unwrap();
    repository.restore(1, home.path().join("restored"), &()).unwrap();

    // Expired entries stay expired, without a `ttl` too; the others keep their age.
    let restored = home.path().join("restored");
    assert_eq!(entries(&Db::open_read_only(&restored, options(None)).unwrap()), kept);
    let db = Db::open(&restored, options(Some(ttl))).unwrap();
    assert_eq!(entries(&db), kept);
    clock.advance(Duration::from_secs(60));
    assert_eq!(entries(&db), []);
}
