//! Against a real S3 server: moto, from the `PATH` or from PyPI in an environment below `target`.
//! If neither is available, the tests print so and pass.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use trommel_backup::{Error, Objects, Purpose, Repository, Target, target_at};

use crate::cycles::life_cycle;
use crate::stores::{entries, entries_in, new_store, write};
use crate::targets::{conforms, get};

const BUCKET: &str = "trommel";
/// How often the server is polled for its start, ten times a second.
const ATTEMPTS: usize = 300;

/// A server that is stopped when this is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_done(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The program, installed below `target` if need be, once.
fn moto() -> Result<PathBuf, &'static str> {
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
    let installed = environment.join("bin/moto_server");
    let runs = |program: &PathBuf| is_done(Command::new(program).arg("--help"));
    if let Some(found) = ["moto_server".into(), installed.clone()].into_iter().find(runs) {
        return Ok(found);
    }
    if !is_done(Command::new("python3").args(["-m", "venv"]).arg(&environment)) {
        return Err("there is no moto_server, and no python3 with the module venv to install it");
    }
    let mut pip = Command::new(environment.join("bin/pip"));
    if !is_done(pip.args(["install", "--quiet", "moto[server]"])) || !runs(&installed) {
        return Err("there is no moto_server, and pip cannot install it");
    }
    Ok(installed)
}

impl Server {
    /// A server with an empty bucket; `None`, with the reason printed, if there can be none.
    #[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
    fn start() -> Option<Self> {
        let program = match moto() {
            Ok(found) => found,
            Err(why) => {
                println!("skipped: {why}");
                return None;
            }
        };
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let port = address.port().to_string();
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, address };
        for _ in 0..ATTEMPTS {
            if server.create_bucket() {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the server did not come up");
    }

    fn create_bucket(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let host = self.address;
        let request = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn objects(&self, prefix: &str) -> Objects {
        let store: Arc<dyn ObjectStore> = Arc::new(
            AmazonS3Builder::new()
                .with_endpoint(self.endpoint())
                .with_allow_http(true)
                .with_bucket_name(BUCKET)
                .with_region("us-east-1")
                .with_access_key_id("key")
                .with_secret_access_key("secret")
                .build()
                .unwrap(),
        );
        Objects::new(store, prefix, &format!("s3://{BUCKET}/{prefix}")).unwrap()
    }
}

#[test]
fn a_bucket_conforms() {
    let Some(server) = Server::start() else { return };
    conforms(&server.objects("conformance"));
    life_cycle(Arc::new(server.objects("a/whole/life")));
    of_two_writers_one_gets_the_name(&server);
    two_stores_are_backed_up_at_once(&server);
    damage_is_named(&server);
    by_the_environment(&server);
}

fn of_two_writers_one_gets_the_name(server: &Server) {
    let places = [server.objects("race"), server.objects("race")];
    let won: Vec<bool> = thread::scope(|scope| {
        let put =
            |(n, place)| scope.spawn(move || Target::put_new(place, "backups/1", &[n]).unwrap());
        let all: Vec<_> = (0..).zip(&places).map(put).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(won[0] != won[1], "{won:?}");
    let winner = u8::from(won[1]);
    assert_eq!(get(&places[0], "backups/1").unwrap(), [winner]);
}

fn two_stores_are_backed_up_at_once(server: &Server) {
    Repository::open_or_create(Arc::new(server.objects("shared"))).unwrap();
    let states: Vec<_> = thread::scope(|scope| {
        let back_up = |seed: u64| {
            scope.spawn(move || {
                let repository = Repository::open(Arc::new(server.objects("shared"))).unwrap();
                let (_, db) = new_store();
                let mut states = Vec::new();
                for round in 0..4 {
                    write(&db, seed * 100 + round, 200);
                    let created = repository.create(&db, &()).unwrap();
                    states.push((created.backup.id, entries(&db)));
                }
                states
            })
        };
        let all: Vec<_> = [1, 2].map(back_up).into();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let place = Arc::new(server.objects("shared"));
    let repository = Repository::open(place.clone()).unwrap();
    let (vfs, _) = new_store();
    for (id, state) in &states {
        let dir = format!("restored-{id}");
        repository.restore_on(vfs.clone(), *id, &dir, &()).unwrap();
        assert!(entries_in(&vfs, dir) == *state, "backup {id}");
    }
    assert_eq!(repository.list().unwrap().len(), 8);

    let adding = place.lock(Purpose::Add).unwrap();
    let error = repository.purge(1, &()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(adding);
    assert_eq!(repository.purge(1, &()).unwrap().backups.len(), 6);
    assert!(repository.verify(None, &()).unwrap().damages.is_empty());
    assert!(place.list("leases").unwrap().is_empty());
}

fn damage_is_named(server: &Server) {
    let place = Arc::new(server.objects("damage"));
    let repository = Repository::open_or_create(place.clone()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 200);
    repository.create(&db, &()).unwrap();
    for (name, _) in place.list("blobs").unwrap() {
        let name = format!("blobs/{name}");
        let good = get(&*place, &name).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        for bytes in [&bad[..], &good[1..]] {
            Target::put(&*place, &name, bytes.len() as u64, &mut &bytes[..]).unwrap();
            let file = format!("s3://{BUCKET}/damage/{name}");
            assert_eq!(repository.verify(None, &()).unwrap().damages[0].file, file);
            match repository.restore_on(vfs.clone(), 1, "restored", &()) {
                Err(Error::Damaged(damage)) => assert_eq!(damage.file, file),
                restored => panic!("{restored:?}"),
            }
            assert!(vfs.list("restored".as_ref()).is_err());
        }
        Target::put(&*place, &name, good.len() as u64, &mut &good[..]).unwrap();
    }
    repository.restore_on(vfs, 1, "restored", &()).unwrap();
}

/// The URL of the server that the parent has started.
const URL: &str = "TROMMEL_TEST_S3_URL";

/// The same by URL. A child process, as the environment must be set before the start.
fn by_the_environment(server: &Server) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "s3::a_target_from_the_environment"])
        .env(URL, format!("s3://{BUCKET}/by/url"))
        .env("AWS_ENDPOINT", server.endpoint())
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_target_from_the_environment() {
    let Ok(url) = std::env::var(URL) else {
        println!("skipped: another test starts it, when there is a server");
        return;
    };
    life_cycle(target_at(&url).unwrap());
    let error = Repository::open(target_at("s3://no-such-bucket/x").unwrap()).unwrap_err();
    println!("{error}");
    assert!(error.to_string().contains("no-such-bucket"), "{error}");
}

#[test]
fn a_wrong_url_is_reported() {
    for url in ["s3://", "s3:///x", "s3://bucket/a//b"] {
        let error = target_at(url).unwrap_err();
        assert!(matches!(error, Error::Location { .. }) && error.to_string().contains(url));
    }
}
