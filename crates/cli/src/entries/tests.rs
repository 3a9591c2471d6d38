use std::path::PathBuf;

use proptest::prelude::*;
use trommel::{Compression, KeyspaceOptions};
use trommel_harness::ScratchDir;

use super::*;
use crate::failure::Failure;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const STREAM_FORMS: [StreamForm; 4] =
    [StreamForm::Jsonl, StreamForm::Text, StreamForm::Csv, StreamForm::Binary];
const TEXT_FORMS: [TextForm; 4] =
    [TextForm::Utf8, TextForm::Escape, TextForm::Hex, TextForm::Base64];
const UTF8: Forms = Forms { key: TextForm::Utf8, value: TextForm::Utf8 };

/// A file with these bytes.
fn file(bytes: &[u8]) -> (ScratchDir, Source) {
    let dir = ScratchDir::new(&std::env::temp_dir()).unwrap();
    let path: PathBuf = dir.path().join("entries");
    std::fs::write(&path, bytes).unwrap();
    (dir, Source::File(path))
}

fn written(form: StreamForm, forms: Forms, entries: &Entries) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = EntryWriter::new(form, forms, false, &mut bytes).unwrap();
    for (key, value) in entries {
        writer.write(key, value).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), entries.len() as u64);
    bytes
}

fn read(bytes: &[u8], form: Option<StreamForm>, forms: Forms) -> Result<Entries, Failure> {
    let (_dir, source) = file(bytes);
    let mut reader = EntryReader::open(&source, form, forms)?;
    let entry = |item| match item {
        Item::Entry(key, value) => (key, value),
        Item::Keyspace(name, _) => panic!("there is no keyspace {name}"),
    };
    std::iter::from_fn(|| reader.next_item().transpose().map(|item| item.map(entry))).collect()
}

/// The exit code and the error, without the path in front.
fn refusal(bytes: &[u8], form: Option<StreamForm>) -> (u8, String) {
    let failure = read(bytes, form, UTF8).unwrap_err();
    let text = failure.to_string();
    let (_, what) = text.split_once("/entries").unwrap();
    (failure.code(), what.trim_start_matches(": ").to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn written_entries_are_read_back(
        entries in proptest::collection::btree_map(
            proptest::collection::vec(any::<u8>(), 0..6),
            proptest::collection::vec(any::<u8>(), 0..6),
            0..6,
        ),
        which in 0..4_usize,
    ) {
        let entries: Entries = entries.into_iter().collect();
        let forms = Forms { key: TEXT_FORMS[which], value: TEXT_FORMS[3 - which] };
        for form in STREAM_FORMS {
            let bytes = written(form, forms, &entries);
            prop_assert!(read(&bytes, Some(form), forms).unwrap() == entries, "{:?}", form);
        }
    }

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for form in STREAM_FORMS.map(Some).into_iter().chain([None]) {
            let _ = read(&bytes, form, UTF8);
        }
    }
}

#[test]
fn forms_are_detected_by_their_first_bytes() {
    let entries = vec![(b"k".to_vec(), b"v".to_vec())];
    let forms = Forms { key: TextForm::Hex, value: TextForm::Base64 };
    // Jsonl records the forms of keys and values.
    let bytes = written(StreamForm::Jsonl, forms, &entries);
    assert_eq!(read(&bytes, None, UTF8).unwrap(), entries);
    for form in [StreamForm::Binary, StreamForm::Text] {
        assert_eq!(read(&written(form, UTF8, &entries), None, UTF8).unwrap(), entries);
    }
    assert_eq!(read(b"", Some(StreamForm::Text), UTF8).unwrap(), []);
    assert_eq!(refusal(b"", None).0, 1);
    let by_hand = b"{\"value\":\"v\",\"key\":\"k\",\"found\":true}";
    assert_eq!(read(by_hand, None, UTF8).unwrap(), entries);
    // Fields of other programs that keyspaces have a use for, but not in entries.
    let foreign = b"{\"key\":\"k\",\"value\":\"v\",\"keyspace\":7,\"options\":[1]}";
    assert_eq!(read(foreign, None, UTF8).unwrap(), entries);
    let other = b"note,value,key\r\nx,v,k\r\n";
    assert_eq!(read(other, Some(StreamForm::Csv), UTF8).unwrap(), entries);
}

#[test]
fn wrong_lines_are_named() {
    for (text, form, what) in [
        ("a\t1\nb\n", None, "line 2: there is no tab between key and value"),
        ("a\\q\t1\n", None, "line 1: the key is not utf8: at byte 1: after \\ there must be"),
        ("{\"key\":1}", None, "line 1: it is not an object with a key and a value: invalid type"),
        ("{\"key\":\"a\"}\n", None, "line 1: there is no \"value\""),
        ("{}\n", None, "line 1: there is no \"key\""),
        ("{\"key\":\"a\",\"value\":\"\"}\n\n", None, "line 2: it is not an object"),
        (
            "{\"keyspace\":\"users\",\"key\":\"k\",\"value\":\"v\"}\n",
            None,
            "line 1: an entry is of the keyspace that was begun last, not of one that it names: begin \
             that by a line of its own, {\"keyspace\":\"users\"}, before its entries",
        ),
        ("{\"keyspace\":\"a\",\"value\":\"v\"}\n", None, "line 1: there is no \"key\""),
        ("{\"keyspace\":7}\n", None, "line 1: it does not begin a keyspace: invalid type"),
        ("a,b\n1,2\n", Some(StreamForm::Csv), "line 1: the header must have the columns"),
        ("key,value\na,1\nb\n", Some(StreamForm::Csv), "CSV error: record 2 (line: 3"),
    ] {
        let (code, said) = refusal(text.as_bytes(), form);
        assert_eq!(code, 1, "{text}");
        assert!(said.starts_with(what), "{text}: {said}");
    }
    let long = format!("{}\t1\n", "k".repeat(65_536));
    let (_, said) = refusal(long.as_bytes(), None);
    assert_eq!(said, "line 1: a key of 65536 bytes is too long: at most 65535 bytes");
}

#[test]
fn a_dump_in_lines_knows_that_it_is_whole() {
    let entries: Entries = vec![(b"a".to_vec(), vec![1]), (b"b".to_vec(), vec![2])];
    let text = String::from_utf8(written(StreamForm::Jsonl, UTF8, &entries)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (kept, what) in [
        (vec![0, 1, 2], "it is truncated"),
        (vec![0], "it is truncated"),
        (vec![0, 1, 3], "its last line counts 2 entries, and it has 1"),
        (vec![0, 1, 2, 3, 1], "there is more after the line with the number of entries"),
    ] {
        let kept: Vec<&str> = kept.into_iter().map(|line| lines[line]).collect();
        let (code, said) = refusal((kept.join("\n") + "\n").as_bytes(), None);
        assert_eq!(code, 4, "{kept:?}");
        assert!(said.contains(what), "{kept:?}: {said}");
    }
    let bare = text.replace(",\"xxh3\":", ",\"note\":");
    assert!(refusal(bare.as_bytes(), None).1.contains("no checksum"), "{bare}");
    let newer = text.replace("dump.v1", "dump.v3");
    assert_eq!(refusal(newer.as_bytes(), None).0, 6);
}

/// Without a checksum, a flipped bit in a value used to be loaded silently.
#[test]
fn no_flip_in_a_dump_in_lines_goes_unseen() {
    let entries: Entries = vec![(b"a".to_vec(), b"one".to_vec()), (b"b".to_vec(), vec![0, 255])];
    let whole = written(StreamForm::Jsonl, UTF8, &entries);
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(read) = read(&flipped, None, UTF8) {
            // Only the line feed at the very end may change.
            assert!(bit / 8 >= whole.len() - 1 && read == entries, "bit {bit}");
        }
    }
    let value = whole.windows(3).position(|bytes| bytes == b"one").unwrap();
    let mut flipped = whole;
    flipped[value] ^= 2;
    let (code, said) = refusal(&flipped, None);
    assert_eq!(code, 4);
    assert!(said.contains("checksum"), "{said}");
}

#[test]
fn keyspaces_are_read_back_with_their_options() {
    let options = KeyspaceOptions::new().compression(Compression::None);
    for form in [StreamForm::Jsonl, StreamForm::Binary] {
        let mut bytes = Vec::new();
        let mut writer = EntryWriter::new(form, UTF8, true, &mut bytes).unwrap();
        writer.write(b"k", b"1").unwrap();
        writer.begin_keyspace("a", &options).unwrap();
        writer.begin_keyspace("b", &KeyspaceOptions::new()).unwrap();
        writer.write(b"a", b"2").unwrap();
        assert_eq!(writer.finish().unwrap(), 2);
        let (_dir, source) = file(&bytes);
        let mut reader = EntryReader::open(&source, None, UTF8).unwrap();
        let mut next = || match reader.next_item().unwrap() {
            Some(Item::Entry(key, value)) => format!("{} {}", key.escape_ascii(), value[0]),
            Some(Item::Keyspace(name, options)) => format!("{name} {:?}", options.settings()),
            None => "end".to_owned(),
        };
        assert_eq!(next(), "k 49");
        assert_eq!(next(), "a [(\"compression\", \"none\")]");
        assert_eq!([next(), next(), next()], ["b []", "a 50", "end"]);
    }
    let later = "{\"keyspace\":\"a\",\"options\":{\"colour\":\"green\"}}\n";
    let (code, said) = refusal(later.as_bytes(), None);
    assert!(code == 6 && said.contains("colour = green"), "{code} {said}");
    let budget = "{\"keyspace\":\"a\",\"options\":{\"filters\":\"budget=10/key\"}}\n";
    let (code, said) = refusal(budget.as_bytes(), None);
    assert!(code == 6 && said.contains("no filter budget of its own"), "{code} {said}");
}
