# shellcheck shell=bash
# Machines in namespaces, each with a Debian of its own and its systemd as process 1. Sourced, not
# run. They are on one network, in which the script has the address .254. They share
# the kernel, and cannot write to /proc/sys and /sys, nor load modules.

# The network of all machines.
room=198.18.90

fail() { echo "${0##*/}: $*" >&2; exit 1; }
# until_true WHAT COMMAND...: waits for a state, a minute at most.
until_true() {
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || fail "$what: not within a minute"
        sleep 0.1
    done
}

# in_namespaces SCRIPT WORD...: runs it with mounts, network and processes of its own. The kernel
# ends all with the first process. The groups of processes that its machines made go then.
in_namespaces() {
    local groups status=0
    groups=$(mktemp -d)
    mount -t cgroup2 cgroup2 "$groups"
    mkdir "$groups/vfield-machines-$$"
    GROUPS_OF_MACHINES=$groups/vfield-machines-$$ unshare --mount --net --pid --fork --kill-child --mount-proc "$@" || status=$?
    # Their last processes are being ended.
    for _ in {1..50}; do
        find "$groups/vfield-machines-$$" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.1
    done
    umount "$groups"
    rmdir "$groups"
    return $status
}

# make_room DIRECTORY ARCHIVE: a network, and the Debian in an archive for its machines.
make_room() {
    machines=$1
    mkdir -p "$machines/debian"
    tar -C "$machines/debian" -xf "$2" --exclude=./dev/\*
    # Modules are this machine's.
    ln -s /dev/null "$machines/debian/etc/systemd/system/systemd-modules-load.service"
    ip link set lo up
    ip link add room type bridge
    ip address add $room.254/24 dev room
    ip link set room up
}

# What becomes process 1 of a machine: waits for its network, changes its root, and is systemd then.
# shellcheck disable=SC2016 # it expands there
first_process='set -eu
root=$1 address=$2
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty fuse; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cd "$root"
mkdir -p former
pivot_root . former
umount -l /former
rmdir /former
# As on a machine whose systemd the kernel has started: units see new mounts.
mount --make-rshared /
exec env -i container=namespaces /lib/systemd/systemd'

# boot MACHINE NUMBER: starts it, the first time or again. Its process 1 is in the variable MACHINE,
# its files are in the folder of that name.
boot() {
    local machine=$1 address=$room.$2 root=$machines/$1/root outer
    if [[ ! -d $root ]]; then
        mkdir -p "$machines/$machine"/{changes,work,root}
        mount -t overlay -o "lowerdir=$machines/debian,upperdir=$machines/$machine/changes,workdir=$machines/$machine/work" \
            overlay "$root"
    fi
    mkdir -p "$GROUPS_OF_MACHINES/$machine"
    # The group first: it is the root of what the machine sees. Of a killed machine unshare would
    # complain.
    # shellcheck disable=SC2016
    sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' - "$GROUPS_OF_MACHINES/$machine" \
        unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child \
        sh -c "exec 2>&3 3>&- && hostname $machine && $first_process" - "$root" "$address" 3>&2 2>/dev/null &
    outer=$!
    disown
    until_true "processes of $machine" grep -q . "/proc/$outer/task/$outer/children"
    # No line ends there.
    read -r "${machine?}" <"/proc/$outer/task/$outer/children" || true
    # shellcheck disable=SC2016 # the inner shell expands these
    until_true "a network for $machine" sh -c '[ "$(readlink /proc/$1/ns/net)" != "$(readlink /proc/self/ns/net)" ]' - "${!machine}"
    ip link add "$machine" type veth peer name eth0 netns "${!machine}"
    ip link set "$machine" master room up
    # shellcheck disable=SC2016 # the inner shell expands these
    until_true "the start of $machine" bash -c '[[ $(nsenter --all --target "$1" systemctl is-system-running) == @(running|degraded) ]]' - "${!machine}"
    on "$machine" systemctl is-system-running >/dev/null || fail "units failed: $(on "$machine" systemctl --failed)"
}

# on MACHINE COMMAND...: as root there.
on() { nsenter --all --target "${!1}" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "${@:2}"; }

# power_off MACHINE: as a user who pulls the plug.
power_off() {
    kill -KILL "${!1}"
    until_true "the end of $1" bash -c "! kill -0 ${!1}"
    until_true "the end of its network" bash -c "! ip link show $1"
}
