# What the scripts have in common; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A fresh rustup is not in the search path of every shell.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
command -v cargo >/dev/null || { echo "cargo is missing; see https://rustup.rs" >&2; exit 1; }

target_dir() { echo "${CARGO_TARGET_DIR:-$PWD/target}"; }
