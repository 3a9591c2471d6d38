//! Models of the write path's smallest parts, under loom: see docs/concurrency.md.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use trommel_base::sync::models::{check, thread};
use trommel_memtable::{ArenaPool, Memtable, MemtableKind};

use crate::counters::Shard;
use crate::snapshots::Snapshots;
use crate::sync::{AtomicBool, AtomicU64};
use crate::view::LoggedMemtable;
use crate::write_queue::{CommitGroup, Joined, Notifier, Queue, Wanted, WriterTurn};

/// Two members insert, the last one publishes: a reader that sees the sequence number sees both
/// entries.
#[test]
fn who_sees_a_moment_sees_its_group() {
    let looks = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&looks);
    check("who_sees_a_moment_sees_its_group", move || {
        let memtable = Arc::new(Memtable::new(MemtableKind::Hash, &ArenaPool::new(0)));
        let active = Arc::new(LoggedMemtable::new(memtable, 1));
        let group = CommitGroup::new(active, u64::MAX, 2, 2);
        let snapshots = Arc::new(Snapshots::default());
        let entries = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let member = |own: usize| {
            let group = Arc::clone(&group);
            let (snapshots, entries) = (Arc::clone(&snapshots), Arc::clone(&entries));
            move || {
                entries[own].store(1, Relaxed);
                if group.inserted() {
                    snapshots.publish(group.last_seqno);
                }
            }
        };
        let members = [0, 1].map(|own| thread::spawn(member(own)));
        let looks = Arc::clone(&counted);
        let reader = thread::spawn(move || {
            if snapshots.visible() == 2 {
                let seen = [0, 1].map(|n: usize| entries[n].load(Relaxed));
                assert_eq!(seen, [1, 1], "visible, and not inserted");
                looks.fetch_add(1, Relaxed);
            }
        });
        for member in members {
            member.join().unwrap();
        }
        reader.join().unwrap();
    });
    assert!(looks.load(Relaxed) > 0, "the reader always came too early");
}

/// A compaction whose input holds version 2 drops a version visible only at 1, unless that is
/// registered. Version 2 was published before it could be written to a table.
#[test]
fn no_snapshot_loses_what_it_sees() {
    check("no_snapshot_loses_what_it_sees", || {
        let snapshots = Arc::new(Snapshots::default());
        snapshots.publish(1);
        let in_table = Arc::new(AtomicBool::new(false));
        let writer = thread::spawn({
            let (snapshots, in_table) = (Arc::clone(&snapshots), Arc::clone(&in_table));
            move || {
                snapshots.publish(2);
                in_table.store(true, Release);
            }
        });
        let compaction = thread::spawn({
            let snapshots = Arc::clone(&snapshots);
            move || in_table.load(Acquire) && !snapshots.live().contains(&1)
        });
        let taken = snapshots.take();
        let drops = compaction.join().unwrap();
        writer.join().unwrap();
        assert!(!drops || taken == 2, "what was taken is dropped");
        snapshots.release(taken);
        assert!(snapshots.live().is_empty());
    });
}

/// Two threads wait for a value that a third stores and notifies: neither misses it, under any
/// memory order.
#[test]
fn waiters_are_notified() {
    check("waiters_are_notified", || {
        let shared = Arc::new((Notifier::new(), AtomicU64::new(0)));
        let waiters = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (awaited, value) = &*shared;
                awaited.wait_until(|| value.load(Acquire) == 1);
            })
        });
        let (awaited, value) = &*shared;
        value.store(1, Release);
        awaited.notify();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// Writers that join a queue lead one after the other: none is forgotten, no two lead at once, and
/// each sees the writes of the one before it.
#[test]
fn every_writer_leads_once() {
    check("every_writer_leads_once", || {
        let queue = Arc::new(Queue::default());
        let leads = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let write = |queue: &Queue, (leads, led): &(AtomicBool, AtomicU64)| {
            if let Joined::Queued(member) = queue.join(Wanted::NOTHING) {
                assert!(matches!(member.wait(), WriterTurn::Lead));
            }
            assert!(!leads.swap(true, Relaxed), "two lead at once");
            led.store(led.load(Relaxed) + 1, Relaxed);
            leads.store(false, Relaxed);
            queue.leave(0);
        };
        let threads = [(); 2].map(|()| {
            let (queue, leads) = (Arc::clone(&queue), Arc::clone(&leads));
            thread::spawn(move || write(&queue, &leads))
        });
        write(&queue, &leads);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(leads.1.load(Relaxed), 3, "one did not see what another had written");
    });
}

/// A shard that one thread hands over to another keeps the counts of both.
#[test]
fn a_shard_that_is_handed_on_loses_no_count() {
    check("a_shard_that_is_handed_on_loses_no_count", || {
        let shard = Arc::new(Shard::default());
        let use_it = |shard: &Shard| {
            let is_ours = shard.claim();
            if is_ours {
                shard.gets.add(1);
                shard.gets.add(1);
                shard.release();
            }
            u64::from(is_ours) * 2
        };
        let threads = [(); 2].map(|()| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || use_it(&shard))
        });
        let seen = shard.gets.get();
        let counted =
            use_it(&shard) + threads.map(|thread| thread.join().unwrap()).iter().sum::<u64>();
        assert!(seen <= counted);
        assert_eq!(shard.gets.get(), counted);
    });
}
