//! A salvage open keeps what is before the corruption in a log, and reports what it drops.

use trommel::Compression;

use crate::cuts::batches_before;
use crate::exam::How;
use crate::flips::turns;
use crate::injury::{Injury, kind_of};
use crate::lane::Lane;
use crate::stores::{Ending, build};

fn salvage_everything(ending: Ending) {
    let store = build("blocked:10", Compression::Lz4, ending);
    let mut lane = Lane::new("salvage", &store);
    let logs = store.image.iter().filter(|(file, _)| kind_of(file) == "log");
    for (file, bytes) in logs {
        for at in 0..bytes.len() {
            let turn = at + turns(1).start;
            let how = How { salvage: true, go_on: turn % 4 == 1, ..How::default() };
            let injury = Injury::Flip { at, bit: (turn % 8) as u8 };
            lane.case(file, &injury, how, |found| {
                if let Some(error) = &found.refused {
                    return Err(format!("refused: {error}"));
                }
                let want = batches_before(&store, file, at);
                if found.states != [want] || found.verify.is_some() {
                    return Err(format!("{:?} batches, not {want}", found.states));
                }
                match found.dropped.first() {
                    Some(dropped) if dropped.file.ends_with(file) => Ok("kept what stands before"),
                    _ => Err(format!("dropped {:?}", found.dropped)),
                }
            });
        }
    }
    lane.finish();
}

#[test]
fn a_salvage_of_a_closed_store_keeps_what_stands_before_the_damage() {
    salvage_everything(Ending::Closed);
}

#[test]
fn a_salvage_of_a_killed_store_keeps_what_stands_before_the_damage() {
    salvage_everything(Ending::Killed);
}

#[test]
fn a_salvage_of_a_store_with_two_logs_keeps_what_stands_before_the_damage() {
    salvage_everything(Ending::TwoLogs);
}
