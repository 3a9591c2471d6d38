//! `keyspaces`, and `--keyspace` of the commands that read and write.

use crate::support::{Program, with_store};

fn ok(program: &Program, line: &str) -> String {
    let ran = program.run_on(line);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
    ran.out
}

fn with_keyspaces() -> Program {
    let program = with_store(&[("a", "default")]);
    ok(&program, "keyspaces create users");
    ok(&program, "keyspaces create events --prefix-extractor until:/ --compression none");
    ok(&program, "put --keyspace users a Ada");
    ok(&program, "put --keyspace users b Grace --sync");
    ok(&program, "put --keyspace events 11/29 snow");
    program
}

#[test]
fn keyspaces_are_read_and_written_by_name() {
    let program = with_keyspaces();
    assert_eq!(ok(&program, "get a"), "default\n");
    assert_eq!(ok(&program, "get --keyspace users a"), "Ada\n");
    assert_eq!(ok(&program, "mget --keyspace users a b --format=csv").lines().count(), 3);
    assert_eq!(ok(&program, "scan --count"), "1\n");
    assert_eq!(ok(&program, "scan --keyspace users --count"), "2\n");
    assert_eq!(ok(&program, "scan --keyspace events --prefix 11/ --degraded --count"), "1\n");
    ok(&program, "delete --keyspace users a");
    assert_eq!(program.run_on("get --keyspace users a").code, Some(3));
    ok(&program, "delete-range --keyspace users --all");
    assert_eq!(ok(&program, "scan --keyspace users --count"), "0\n");
    assert_eq!(ok(&program, "scan --count"), "1\n");
    ok(&program, "verify");
    let ran = program.run_on_with("shell", b"put --keyspace users c 3\nscan --keyspace users\n");
    assert_eq!(ran.out, "key  value\nc    3\n", "{}", ran.err);
}

#[test]
fn keyspaces_are_listed_created_and_dropped() {
    let program = with_keyspaces();
    assert_eq!(
        ok(&program, "keyspaces list --format=csv"),
        "name,table_bytes,options\nevents,0,prefix_extractor=until:/ compression=none\nusers,0,\n"
    );
    ok(&program, "flush");
    ok(&program, "keyspaces create users --filters ribbon:8");
    ok(&program, "keyspaces create tags --merge-operator set-union");
    let ran = program.run_on("keyspaces create tags --merge-operator max");
    assert!(ran.code == Some(2) && ran.err.contains("trommel.set_union"), "{ran:?}");
    let listed = ok(&program, "keyspaces list --format=csv");
    assert!(listed.contains("filters=ribbon:8") && !listed.contains("users,0,"), "{listed}");
    assert!(listed.contains("merge_operator=trommel.set_union"), "{listed}");
    let ran = program.run_on("keyspaces drop users");
    assert!(ran.code == Some(2) && ran.err.contains("--yes"), "{ran:?}");
    ok(&program, "keyspaces drop users --yes");
    for line in ["keyspaces drop users --yes", "get --keyspace users a", "put --keyspace users a 1"]
    {
        let ran = program.run_on(line);
        assert_eq!(ran.code, Some(3), "{line}: {ran:?}");
        assert!(ran.err.contains("there is no keyspace \"users\""), "{line}: {ran:?}");
    }
    ok(&program, "put a 1 --ttl 1h");
    ok(&program, "keyspaces create tags --merge-operator set-union --ttl 1h");
    assert!(ok(&program, "keyspaces list").contains("ttl=3600s"));
    let info = ok(&program, "manifest info");
    assert!(info.contains("keyspace operators  yes"), "{info}");
}

#[test]
fn a_keyspace_is_dumped_and_loaded() {
    let program = with_keyspaces();
    let file = program.path("users.dump");
    ok(&program, &format!("dump --keyspace users --as binary {}", file.display()));
    ok(&program, "keyspaces create copy");
    let loaded = ok(&program, &format!("load --keyspace copy {}", file.display()));
    assert_eq!(loaded, "entries  2\n");
    assert_eq!(ok(&program, "get --keyspace copy b"), "Grace\n");
    assert_eq!(ok(&program, "dump --keyspace copy --as text"), "a\tAda\nb\tGrace\n");
}
