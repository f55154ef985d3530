# What the scripts have in common; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A fresh rustup is not in the search path of every shell.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
command -v cargo >/dev/null || { echo "cargo is missing; see https://rustup.rs" >&2; exit 1; }

target_dir() { echo "${CARGO_TARGET_DIR:-$PWD/target}"; }

# Where this machine has its Debian packages from.
debian_codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }
debian_mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(debian_codename)" | sed -n 1p
}
