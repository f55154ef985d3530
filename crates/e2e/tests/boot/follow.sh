# The devices of a follower, made by $driver. Each version has its own. It stays what it is while
# the tag moves, and for as long as anybody has it open.
minisign -GWf -p operator.pub -s operator.key >/dev/null || fail "making keys"
verified_image v1.img 24m
cp v1.img v2.img
dd if=/dev/urandom of=v2.img bs=1M seek=8 count=4 conv=notrunc status=none
head -c 24m /dev/urandom >v3.img
head -c 4m /dev/urandom >late.img
sums=()
for image in v1 v2 v3 late; do sums+=("$(sha256sum <$image.img)"); done
daemon origin serve ./v1.img ./v2.img ./v3.img ./late.img --listen 127.0.0.1:4440
operator() { "$vfield" -q "$@" --secret-key operator.key --control /run/origin.sock; }
must operator tag set prod v1.img
daemon node join 127.0.0.1 --follow prod --trust operator.pub --store all --join-boost 9 --guard \
    --listen 127.0.0.2:4440 --device "$driver"
node() { "$vfield" "$@" --control /run/node.sock; }
is_at() { node status | grep -q "follows prod: serial $1, .*; ready"; }
until_true 120 is_at 1
device=$(node status --device prod)
must test -b "$device"

# Forward and back under readers.
serial=1
move() {
    local image=v2.img
    ((++serial % 2)) && image=v1.img
    must operator tag set prod $image
    until_true 120 is_at $serial
}
while_read "$device" 24m "${sums[0]}" move
next=$(node status --device prod)
[[ $next != "$device" ]] || fail "two versions have one device"
expect "$(sha256sum <"$next")" "${sums[1]}" "the next version"

# The daemon is killed under readers; its guard starts it again.
took_over() { [[ $(grep -c 'took over the device' node.log) -ge $1 ]]; }
crashes=0
crash() {
    kill_daemon node
    until_true 120 took_over $((2 * ++crashes))
    until_true 120 is_at $serial
}
while_read "$device" 24m "${sums[0]}" crash
expect "$(node status --device prod)" "$next" "the device of the version after kills"
expect "$(sha256sum <"$next")" "${sums[1]}" "its bytes after kills"

# The first version is kept by no tag any more, but open.
exec 7<"$device"
must operator tag set prod v3.img
until_true 120 is_at $((++serial))
last=$(node status --device prod)
expect "$(sha256sum <"$last")" "${sums[2]}" "the last version"
is_open() { node gc --dry-run | grep -q ' open$'; }
until_true 60 is_open
expect "$(node gc)" "no rubbish" "an open device"
expect "$(sha256sum <&7)" "${sums[0]}" "what the open device has"
exec 7<&-
is_rubbish() { node gc --dry-run | grep -q 'goes in'; }
until_true 60 is_rubbish
drop
# All three look whether anybody has it open, while one of them takes it away.
collecting=()
for i in 1 2 3; do
    node gc >"gc.$i" &
    collecting+=($!)
done
wait "${collecting[@]}"
grep -qx 'dropped prod-.* freed' gc.* || fail "the first version has not gone: $(cat gc.*)"
gone() {
    # The kernel's NBD devices stay, without anybody who serves them.
    local block=/sys/block/${device#/dev/}
    if [[ $driver == nbd ]]; then [[ ! -e $block/pid ]]; else [[ ! -e $block ]]; fi
}
until_true 60 gone
expect "$(sha256sum <"$next")" "${sums[1]}" "the version before"
expect "$(sha256sum <"$last")" "${sums[2]}" "the last version"
must node leave
wait "${pid[node]}" || fail "the guard ended with status $?"

# A device whose bytes do not come holds nobody up but its own readers.
daemon middle join 127.0.0.1 --image v1.img --image late.img --store 0 --listen "127.0.0.$((++serial)):4440"
daemon late join 127.0.0.1 --image v1.img --store 0 --guard --device "$driver" --listen "127.0.0.$((++serial)):4440"
late() { "$vfield" -q "$@" --control /run/late.sock; }
device=$(late status --device v1.img)
kill -STOP "${pid[origin]}"
late add late.img --store 0 &
comes() { late status | grep -q '^image late.img'; }
until_true 60 comes
# It is drained at once, and then waits for the read.
said=$(timeout 60 "$vfield" -q drain --timeout 1s --control /run/late.sock 2>&1)
[[ $said == *"1 read of this machine waits"* ]] || fail "draining meanwhile: $said"
must_not late status --device late.img
# A daemon that is killed while the kernel reads its device can end, and its guard goes on.
kill_daemon late
has_taken_over() { grep -q 'took over the device' late.log; }
until_true 120 has_taken_over
until_true 60 late status
late add late.img --store 0 &
adding=$!
until_true 60 comes
kill -CONT "${pid[origin]}"
must wait $adding
expect "$(sha256sum <"$(late status --device late.img)")" "${sums[3]}" "what came late"
# A reader that is killed keeps its device from being opened until the read has ended, and nobody
# from stopping the daemon.
drop
kill -STOP "${pid[origin]}"
dd if="$device" of=/dev/null bs=4k count=1 skip=3000 status=none &
reader=$!
waits() { late status | grep -q 'wait'; }
until_true 60 waits
kill -KILL $reader
tolerated="I/O error.* ${device#/dev/}, "
stop late
kill -CONT "${pid[origin]}"
stop middle
stop origin
end
