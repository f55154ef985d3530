# shellcheck shell=bash
# Building for aarch64 on another machine; sourced after lib.sh. The compiler is Debian's, with the
# standard library of the other architecture. That package is downloaded once, through apt, without
# touching the machine's own lists, and lies in target/aarch64.
cross=$(target_dir)/aarch64
cross_apt=(-qq -o "Dir::State::Lists=$cross/apt/lists" -o "Dir::Cache=$cross/apt" -o Dir::State::Status=/dev/null
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)

# cross_lists: brings the lists of the other architecture's packages up to date.
cross_lists() {
    mkdir -p "$cross"/apt/{lists,archives}/partial
    apt-get "${cross_apt[@]}" update
}

# cross_fetch FOLDER PACKAGE...: downloads packages and unpacks them into a folder.
cross_fetch() {
    local folder=$1 package
    shift
    rm -rf "$cross/packages" "$folder.new"
    mkdir -p "$cross/packages" "$folder.new"
    cross_lists
    (cd "$cross/packages" && apt-get "${cross_apt[@]}" download "$@")
    for package in "$cross"/packages/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder.new"; done
    mv "$folder.new" "$folder"
    rm -rf "$cross/packages"
}

# cross_flags: the flags that this compiler needs for the other architecture. There is one library
# for each version of the compiler.
cross_flags() {
    local version library
    version=$(dpkg-query --show --showformat '${Version}' rustc-web)
    library=$cross/library-${version//[^0-9a-z.+~-]/}
    [[ -d $library ]] || cross_fetch "$library" "libstd-rust-web-dev=$version" >&2
    echo "--sysroot $library/usr"
}

# Cargo calls the compiler beside it, whichever is first in the search path.
cross_environment() {
    export CARGO_TARGET_DIR=$cross/target CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export PATH=/usr/bin:$PATH
}
