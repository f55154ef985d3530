# A guard's daemon is killed while its device is read, and nobody else has what it held: it finds
# its store again.
verified_image disk.img 24m
sum=$(sha256sum <disk.img)
daemon origin serve disk.img --listen 127.0.0.1:4440
daemon node join 127.0.0.1 --store all --join-boost 9 --ublk --root --listen 127.0.0.2:4440
node() { "$vfield" "$@" --control /run/node.sock; }
device=/dev/ublkb0
must node status --wait filled --timeout 60s
kill_hard origin

took_over() { [[ $(grep -c 'taken over from the daemon before' node.log) -ge $1 ]]; }
# Kills the daemon, which its guard starts again.
kills=0
again() {
    kill_daemon node
    until_true 30 took_over $((++kills))
}
while_read $device 24m "$sum" again
expect "$(grep -c 'corrupt chunks* discarded' node.log)" 0 "spoiled stores"
expect "$(node status --json | sed -n 's/.*"from_\(peers\|origin\)_bytes": \([0-9]*\).*/\2/p' | sort -u)" 0 "bytes from others"

must node leave
wait "${pid[node]}" || fail "the guard ended with status $?"
must_not test -e $device
end
