//! Records the compiler and the profile of the build, for the records of measurements.

use std::env;
use std::process::Command;

fn main() {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_else(|| "unknown".into());
    let profile = env::var("PROFILE").unwrap_or_else(|_| "unknown".into());
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=TROMMEL_RUSTC={}", version.trim());
    println!("cargo::rustc-env=TROMMEL_PROFILE={profile}, opt-level {level}");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-changed=build.rs");
}
