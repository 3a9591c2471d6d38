//! Licenses of the crates that this project depends on.

use std::process::Command;

use trommel_tests::settings::is_ci;

/// Licenses under which a dependency may be used: none demands more than a notice.
const ALLOWED: [&str; 8] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Zlib"];

/// Whether `expression`, of SPDX, can be met: one of the terms of each alternative is allowed.
fn is_met(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    expression.split(" AND ").all(|all| all.split(" OR ").any(|one| ALLOWED.contains(&one.trim())))
}

/// In the project's CI only: elsewhere not all dependencies need be on the machine.
#[test]
fn dependencies_have_permissive_licenses() {
    if !is_ci() {
        return;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform"]);
    let output = command.arg(platform).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "{} packages", packages.len());
    let refused = packages.iter().filter(|it| !it["license"].as_str().is_some_and(is_met));
    let refused = refused.map(|it| format!("{}: {}", it["name"], it["license"]));
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "licenses that are not allowed:\n{}", refused.join("\n"));
}

#[test]
fn license_expressions_are_understood() {
    for met in ["MIT", "Unlicense/MIT", "GPL-3.0 OR Zlib", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
        assert!(is_met(met), "{met}");
    }
    for unmet in ["GPL-3.0", "", "MIT AND GPL-3.0", "(MIT OR Zlib) AND SSPL-1.0"] {
        assert!(!is_met(unmet), "{unmet}");
    }
}
