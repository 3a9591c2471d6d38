//! Random histories, and an independent, naive judge of which of their images are legal.
//!
//! For each file, the judge keeps the durability of every single byte and every length it ever had;
//! for each name, every value since it was last durable. It shares no code with the simulation.

use std::collections::BTreeMap;

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d/e", "d/f"];
const HISTORIES: u64 = 400;

#[derive(Default)]
struct Judge {
    /// For each file ever created; its first byte identifies it.
    files: Vec<FileJudge>,
    /// For each name the files it has named, oldest first; the first is durable.
    names: BTreeMap<&'static str, Vec<Option<usize>>>,
    /// Renames that are not durable: the file, its old name, its new one, and the number of values
    /// of the two names at the time.
    renames: Vec<(usize, [(&'static str, usize); 2])>,
}

#[derive(Default)]
struct FileJudge {
    durable: Vec<bool>,
    length: usize,
    /// Lengths after each append.
    lengths: Vec<usize>,
}

impl Judge {
    fn name(&mut self, name: &'static str, file: Option<usize>) -> usize {
        let values = self.names.entry(name).or_insert_with(|| vec![None]);
        values.push(file);
        values.len() - 1
    }

    fn live(&self, name: &str) -> Option<usize> {
        *self.names.get(name)?.last()?
    }

    /// Syncs the directory: each of its names permanently has its live value. Names in the other
    /// directory that a rename ties to it are settled too.
    fn sync_dir(&mut self, dir: &str) {
        let in_dir = |name: &str| name.starts_with("d/") == (dir == "d");
        let mut settled: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (&name, values) in &self.names {
            if in_dir(name) {
                settled.insert(name, values.len() - 1);
            }
        }
        // A settled rename settles both its names up to it, and so on.
        loop {
            let before = settled.clone();
            for (_, places) in &self.renames {
                if places.iter().any(|(name, at)| settled.get(name).is_some_and(|to| to >= at)) {
                    for &(name, at) in places {
                        let to = settled.entry(name).or_insert(at);
                        *to = at.max(*to);
                    }
                }
            }
            if settled == before {
                break;
            }
        }
        for (name, &to) in &settled {
            self.names.get_mut(name).expect("known").drain(..to);
        }
        self.renames.retain_mut(|(_, places)| {
            let done = places.iter().any(|(name, at)| settled.get(name).is_some_and(|to| to >= at));
            places.iter_mut().for_each(|(name, at)| {
                *at -= settled.get(name).copied().unwrap_or(0).min(*at);
            });
            !done
        });
    }

    fn check(&self, image: &SimDisk, context: &str) {
        let mut found = BTreeMap::new();
        for name in NAMES {
            let bytes = read(image, name);
            let values = self.names.get(name).cloned().unwrap_or_else(|| vec![None]);
            let legal: Vec<usize> = (0..values.len())
                .filter(|&at| match (values[at], &bytes) {
                    (None, None) => true,
                    (Some(file), Some(bytes)) => self.files[file].allows(file, bytes),
                    _ => false,
                })
                .collect();
            assert!(!legal.is_empty(), "{context}: {name} is {bytes:?}, and was {values:?}");
            found.insert(name, legal);
        }
        for (file, [(from, from_at), (to, to_at)]) in &self.renames {
            // Neither name: the old one is surely past the rename, the new one surely before it.
            let past = found[from].iter().all(|at| at >= from_at);
            let before = found[to].iter().all(|at| at < to_at);
            assert!(!(past && before), "{context}: file {file} was lost between {from} and {to}");
        }
    }
}

/// Byte `at` of file number `file`: never zero.
fn byte(file: usize, at: usize) -> u8 {
    ((file * 37 + at * 11) % 255) as u8 + 1
}

impl FileJudge {
    /// Whether a crash may have left these bytes.
    fn allows(&self, file: usize, bytes: &[u8]) -> bool {
        let durable_length =
            self.durable.iter().rposition(|&durable| durable).map_or(0, |at| at + 1);
        let length_fits = bytes.len() == durable_length
            || self.lengths.contains(&bytes.len())
            || (bytes.len().is_multiple_of(512) && bytes.len() < self.length)
            || bytes.len() == self.length;
        let bytes_fit = bytes.iter().enumerate().all(|(at, &found)| {
            let durable = self.durable.get(at).copied().unwrap_or(false);
            found == byte(file, at) || (found == 0 && !durable)
        });
        // The kept bytes of a sector are its beginning, as long as it was after some append.
        let sectors_fit = bytes.chunks(512).enumerate().all(|(number, sector)| {
            let kept = sector.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
            sector[..kept].iter().all(|&byte| byte != 0)
                && (kept == 0
                    || kept == sector.len()
                    || self.lengths.contains(&(number * 512 + kept)))
        });
        let length_fits = length_fits && (durable_length..=self.length).contains(&bytes.len());
        length_fits && bytes_fit && sectors_fit
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Performs one random action on the disk, and on the judge.
fn act(
    disk: &SimDisk,
    judge: &mut Judge,
    writers: &mut BTreeMap<usize, Box<dyn WriteFile>>,
    random: &mut Random,
) {
    let (name, other) = (NAMES[random.below(5)], NAMES[random.below(5)]);
    let file = judge.live(name);
    match (random.below(10), file) {
        (0..=1, None) => {
            let file = judge.files.len();
            writers.insert(file, create(disk, name));
            judge.files.push(FileJudge::default());
            judge.name(name, Some(file));
        }
        (0..=4, Some(file)) => {
            let judged = &mut judge.files[file];
            let end = judged.length + 1 + random.below(900);
            let bytes: Vec<u8> = (judged.length..end).map(|at| byte(file, at)).collect();
            writers.get_mut(&file).expect("kept").append(&bytes).expect("room");
            judged.length = end;
            judged.durable.resize(end, false);
            judged.lengths.push(end);
        }
        (5, Some(file)) => {
            writers.get_mut(&file).expect("kept").sync().expect("works");
            judge.files[file].durable.fill(true);
        }
        (6, Some(_)) => {
            disk.remove(path(name)).expect("it is there");
            judge.name(name, None);
        }
        (7, Some(file)) if judge.live(other) != Some(file) => {
            disk.rename(path(name), path(other)).expect("it is there");
            let from = judge.name(name, None);
            let to = judge.name(other, Some(file));
            judge.renames.push((file, [(name, from), (other, to)]));
        }
        (8, _) => {
            let dir = ["", "d"][random.below(2)];
            sync_dir(disk, dir);
            judge.sync_dir(dir);
        }
        _ => {}
    }
}

#[test]
fn every_image_of_random_histories_is_legal() {
    let mut distinct = BTreeSet::new();
    let (mut made, mut lost, mut kept) = (0, 0, 0);
    for history in 0..HISTORIES {
        let disk = SimDisk::new();
        disk.create_dir(path("d")).expect("a new directory");
        sync_dir(&disk, "");
        let (mut judge, mut writers) = (Judge::default(), BTreeMap::new());
        let mut random = Random(history);
        let mut replay = disk.replay();
        for step in 0..40 {
            act(&disk, &mut judge, &mut writers, &mut random);
            let position = replay.position();
            let mut next = disk.replay();
            next.seek(usize::MAX);
            replay = next;
            for policy in Policy::ALL {
                // Tearing the last append at any byte is tested elsewhere.
                if policy.data == Data::Torn {
                    continue;
                }
                let image = replay.image(policy, history);
                let context = format!("history={history} step={step} {policy} from {position}");
                judge.check(&image.disk(), &context);
                distinct.insert(image.hash());
                made += 1;
                lost += u64::from(image.hash() != disk.hash());
                kept += u64::from(image.hash() == disk.hash());
            }
            assert_eq!(replay.image(Policy::EVERYTHING, 0).hash(), disk.hash());
        }
    }
    println!("{made} images, {} distinct; {lost} lost something, {kept} nothing", distinct.len());
    assert!(distinct.len() > 20_000, "{}", distinct.len());
}
