use super::*;
use crate::compaction_options::CompactionOptions;

/// The planner repeats the defaults of its options, for its own tests.
#[test]
fn the_planner_s_defaults_are_those_of_a_store() {
    let (of_store, own) = (Options::default().planner(), CompactionOptions::default());
    assert_eq!(format!("{of_store:?}"), format!("{own:?}"));
}

/// The error names the option that was set, if the default of another one does not fit it.
#[test]
fn bounds_are_reported_as_they_are() {
    let report = |options: Options| options.check().unwrap_err().to_string();
    let level_0 = |change: fn(CompactionSettings) -> CompactionSettings| {
        report(Options::default().compaction(change))
    };
    assert_eq!(
        level_0(|it| it.l0_trigger(20)),
        "l0_slowdown is 12 and l0_trigger is 20: l0_slowdown must be at least l0_trigger, so set both"
    );
    assert_eq!(
        level_0(|it| it.l0_slowdown(30)),
        "l0_stop is 24 and l0_slowdown is 30: l0_stop must be at least l0_slowdown, so set both"
    );
    assert_eq!(level_0(|it| it.level_ratio(1)), "level_ratio is 1: it must be 2 to 100");
    assert_eq!(
        report(Options::default().reads(|r| r.max_open_files(3))),
        "max_open_files is 3: it must be at least 16"
    );
}

/// The names of the fields that a debug print shows with this indentation.
fn fields(text: &str, columns: usize) -> Vec<String> {
    let line = |line: &str| {
        let field = line.strip_prefix(&" ".repeat(columns))?;
        let name = field.split_once(": ")?.0;
        (!name.starts_with([' ', '}', ')'])).then(|| name.to_owned())
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn settings_leave_nothing_out() {
    let options = Options::default();
    let groups = [
        format!("{:#?}", options.opening),
        format!("{:#?}", options.writes),
        format!("{:#?}", options.filtering),
        format!("{:#?}", options.compaction),
        format!("{:#?}", options.reads),
    ];
    let mut all = fields(&format!("{options:#?}"), 4);
    let beside = ["vfs", "environment", "opening", "writes", "filtering", "compaction", "reads"];
    all.retain(|name| !beside.contains(&name.as_str()));
    all.extend(groups.iter().flat_map(|group| fields(group, 4)));
    // Set by `Db::open_follower`, not by users.
    all.retain(|name| name != "follows");
    let settings: Vec<&str> = options.settings().iter().map(|(name, _)| *name).collect();
    assert_eq!(settings, all);
    assert!(options.settings().contains(&("compression", "lz4".into())));
}

/// Every setting that [`Options::settings`] returns can be set from its text.
#[test]
fn every_setting_is_had_back_from_its_text() {
    let mut changed = Options::default();
    for (name, text) in [
        ("read_only", "true"),
        ("degraded", "last-intact"),
        ("durability", "sync"),
        ("filters", "L0=paired:20,L1-=none"),
        ("compression", "none"),
        ("memory_limit", "1048576"),
        ("background_threads", "3"),
        ("memtable", "skiplist"),
        ("stall_timeout", "1.5s"),
        ("filter_shape", "partitioned"),
        ("filter_residency", "pinned-level-0"),
        ("pinned_filter_bytes", "7"),
        ("prefix_extractor", "fixed:8"),
        ("prefix_filters", "ribbon:10"),
        ("background_bytes_per_second", "4096"),
        ("read_mode", "mapped-once"),
        ("cache_bytes", "12"),
    ] {
        changed = changed.set(name, text).unwrap();
        assert!(changed.settings().contains(&(name, text.to_owned())), "{name}");
    }
    for options in [Options::default(), changed] {
        let mut again = Options::default();
        for (name, text) in options.settings() {
            again = again.set(name, &text).unwrap();
        }
        assert_eq!(again.settings(), options.settings());
    }
}

#[test]
fn a_text_that_is_no_value_is_refused() {
    let refused = |name, text| Options::default().set(name, text).unwrap_err().to_string();
    for (name, text) in [
        ("no_such", "1"),
        ("level_ratio", "many"),
        ("stall_timeout", "10"),
        ("stall_timeout", "-1s"),
        ("memtable", "tree"),
        ("durability", "disk"),
        ("compression", "lzma"),
        ("read_mode", "fast"),
        ("user_filters", "\"mine\""),
        ("prefix_extractor", "custom:mine"),
    ] {
        assert!(!refused(name, text).is_empty(), "{name} {text}");
    }
    assert_eq!(refused("no_such", "1"), "there is no option no_such");
}
