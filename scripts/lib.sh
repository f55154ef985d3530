# shellcheck shell=bash
# What the scripts have in common; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A fresh rustup is not in the search path of every shell.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
# A compiler that is missing or too old is installed, or the line that installs it is said.
scripts/setup build
# So is the line for crates that are neither here nor to be had: cargo has ten.
cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu 2>/dev/null || {
    echo "crates of Cargo.lock are missing and cannot be fetched; cargo fetch --locked says why" >&2
    exit 1
}

# The version of the workspace, and that a program is of it.
version() { sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml; }
check_version() { [[ $("$1" --version) == "vfield $(version)" ]] || { echo "$1 is not version $(version)" >&2; return 1; }; }

target_dir() { echo "${CARGO_TARGET_DIR:-$PWD/target}"; }

# Where this machine has its Debian packages from.
# shellcheck source=/dev/null
debian_codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }
debian_mirror() {
    # shellcheck disable=SC2016 # these are names of apt's
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(debian_codename)" | sed -n 1p
}
