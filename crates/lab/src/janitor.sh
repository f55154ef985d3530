#!/bin/sh
# Takes a lab down once its standard input ends: the lab was dropped, or its program is gone.
# $1: the tag that starts the names of the lab's namespaces. $2: the lab's directory; every process
# of the lab was started with its working directory inside.
tag=$1 dir=$2
trap '' INT TERM HUP
cat >/dev/null

tries=0
while [ $tries -lt 50 ]; do
    found=
    for proc in /proc/[0-9]*; do
        case $(readlink "$proc/cwd" 2>/dev/null) in
            "$dir"/*) kill -KILL "${proc#/proc/}" 2>/dev/null && found=1 ;;
        esac
    done
    [ -z "$found" ] && break
    tries=$((tries + 1))
    sleep 0.05
done
# Inner mounts (a loop device over a file of a FUSE mount) were mounted later, so they go first.
awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | tac | while read -r mount; do
    umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" 2>/dev/null
done
for netns in /run/netns/"$tag"-*; do
    [ -e "$netns" ] && ip netns del "${netns##*/}"
done
for group in /sys/fs/cgroup/memory/"$tag"-memory /sys/fs/cgroup/cpu/"$tag"-cpu* /sys/fs/cgroup/"$tag"-memory \
    /sys/fs/cgroup/"$tag"-cpu*; do
    [ -d "$group" ] && rmdir "$group"
done
# What the bounds of the kernel's table of neighbours were. Of nobody else's directory: anyone may
# make one.
if [ -O "$dir" ] && [ -O "$dir/arp-table" ]; then
    bound=1
    while read -r entries; do
        case $entries in
            *[!0-9]* | '') ;;
            *) echo "$entries" >"/proc/sys/net/ipv4/neigh/default/gc_thresh$bound" ;;
        esac
        bound=$((bound + 1))
    done <"$dir/arp-table"
fi
rm -rf "$dir"
