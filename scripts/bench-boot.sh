# shellcheck shell=bash disable=SC2154 # names are set by what runs it
# Runs in a machine (see bench-boot): makes a root file system as it is told, and reads its
# files in one fixed order. By files in /shared it says how far it is; then it stays, and serves
# the others, until it is switched off. Whatever fails switches it off.
# Given: way, address, server, store; delay_ms of what it sends, 0 for none; part, bytes of each
# file that are read, empty for all.
set -e
if [[ $way != qemu-* ]]; then
    ip addr add "$address/24" dev eth0
    ip link set eth0 up
    if [[ $delay_ms != 0 ]]; then tc qdisc add dev eth0 root netem delay "${delay_ms}ms"; fi
fi
case $way in
field-*)
    cp /shared/vfield /tmp/vfield
    kind=ublk
    [[ $way != *nbd ]] || kind=nbd
    /tmp/vfield join "$server" --listen "$address" --store "$store" --join-boost random --device "$kind" \
        --control /run/vfield.sock --root --quiet &
    # Nobody may be able to answer yet.
    until /tmp/vfield status --control /run/vfield.sock --wait ready --timeout 10s >/dev/null 2>&1; do sleep 0.1; done
    device=$([[ $kind == ublk ]] && echo /dev/ublkb0 || echo /dev/nbd0)
    ;;
nbdkit)
    nbd-client "$server" 4440 /dev/nbd0 -N '' -R >/dev/null
    device=/dev/nbd0
    ;;
file | qemu-*) device=/dev/vda ;;
esac
mkdir /tmp/root
if [[ $way == qemu-* ]]; then
    mount -t ext4 -o ro,noload "$device" /tmp/root
else
    mount -t "$([[ $way == *packed ]] && echo erofs || echo squashfs)" -o ro "$device" /tmp/root
fi
: >/shared/mounted
read=(cat)
# As a start does: a program for each.
[[ -z $part ]] || read=(-n 1 head -c "$part")
(cd /tmp/root && xargs "${read[@]}" <order >/dev/null)
cp "/sys/block/${device#/dev/}/stat" /shared/reads
: >/shared/up
if [[ $way == field-* ]]; then
    /tmp/vfield learned --control /run/vfield.sock >/shared/learned
    # The guard's only child, and older than its own ones.
    node=$(cat /proc/[0-9]*/task/[0-9]*/children | xargs -n 1 | while read -r child; do
        if grep -qz ^VFIELD_GUARD= "/proc/$child/environ" 2>/dev/null; then echo "$child"; fi
    done | sort -n | head -n 1)
    sed -n 's/^Rss\(Anon\|File\|Shmem\):[[:space:]]*\([0-9]*\) kB/\1 \2/p' "/proc/$node/status" >/shared/memory
    # Blocks of 512 bytes of its memory files.
    for file in "/proc/$node/fd/"*; do
        if [[ $(readlink "$file") == /memfd:* ]]; then stat -L -c '%i %b' "$file"; fi
    done | sort -u | awk '{ blocks += $2 } END { print "Memfd", blocks / 2 }' >>/shared/memory
fi
while :; do sleep 60; done
