# Runs in a machine (see bench-boot): makes a root file system of what it is told, and reads what is in it, in one fixed order. By files
# in /shared it says how far it is; then it stays, and serves the others, until it is switched off.
# Given: way, address, server, store.
ip addr add "$address/24" dev eth0
ip link set eth0 up
case $way in
field-*)
    cp /shared/vfield /tmp/vfield
    /tmp/vfield join "$server" --listen "$address" --store "$store" --join-boost random --device "${way#field-}" \
        --control /run/vfield.sock --root &
    /tmp/vfield status --control /run/vfield.sock --wait ready --timeout 600s >/dev/null
    device=$(ls -d /dev/ublkb0 /dev/nbd0 2>/dev/null | head -n 1)
    ;;
nbdkit)
    nbd-client "$server" 4440 /dev/nbd0 -N '' -R >/dev/null
    device=/dev/nbd0
    ;;
file) device=/dev/vda ;;
esac
mkdir /tmp/root
mount -t squashfs -o ro "$device" /tmp/root
: >/shared/mounted
(cd /tmp/root && xargs cat <order >/dev/null) && : >/shared/up
if [[ $way == field-* ]]; then
    # The guard's only child.
    node=$(cat /proc/[0-9]*/task/[0-9]*/children | xargs -n 1 | while read -r child; do
        tr '\0' '\n' <"/proc/$child/environ" | grep -q ^VFIELD_GUARD= && echo "$child"
    done)
    sed -n 's/^Rss\(Anon\|File\|Shmem\): *\([0-9]*\) kB/\1 \2/p' /proc/$node/status >/shared/memory
    # Blocks of 512 bytes of its memory files.
    for file in /proc/$node/fd/*; do
        [[ $(readlink "$file") == /memfd:* ]] && stat -L -c '%i %b' "$file"
    done | sort -u | awk '{ blocks += $2 } END { print "Memfd", blocks / 2 }' >>/shared/memory
fi
while :; do sleep 60; done
