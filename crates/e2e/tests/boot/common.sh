# What the scripts have in common: daemons, waiting for states, and a status that says whether all
# was as it should be.
set -uo pipefail

vfield=/tmp/vfield
cp /shared/vfield "$vfield"
failures=0

# fail WORDS: goes on, so that one run shows all that is wrong.
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# expect VALUE WANTED WORDS
expect() { [[ $1 == "$2" ]] || fail "$3: $1 instead of $2"; }

# must COMMAND: it has to succeed.
must() { "$@" || fail "$* (status $?)"; }

# must_not COMMAND: it has to fail.
must_not() { if "$@"; then fail "succeeded: $*"; fi; }

# until_true SECONDS COMMAND: waits for a state.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [[ $SECONDS -lt $end ]] || { fail "not in time: $*"; return 1; }
        sleep 0.05
    done
}

# verified_image FILE SIZE: random bytes that fio can check, 4 KiB at a time, in a job named
# "image".
verified_image() {
    fio --name=image --filename="$1" --rw=write --bs=4k --size="$2" --verify=crc32c --do_verify=0 --eta=never --minimal \
        --output=/dev/null || fail "making an image"
}

# daemon NAME WORDS: starts one with a control socket of its own, and waits until its images can be
# read.
declare -A pid
daemon() {
    local name=$1
    shift
    "$vfield" -v "$@" --control "/run/$name.sock" >>"/tmp/$name.log" 2>&1 &
    pid[$name]=$!
    until_true 120 "$vfield" status --control "/run/$name.sock" || cat "/tmp/$name.log"
}

# Drops the kernel's copies of earlier reads, so that it reads again.
drop() { echo 3 >/proc/sys/vm/drop_caches; }

# while_read DEVICE SIZE SUM COMMAND: runs a command three times, a second apart, while a file of
# verified_image is read from a device: at random, past the kernel's copies, each block checked; in
# long reads; and in order. No read may fail or be wrong.
while_read() {
    local device=$1 size=$2 sum=$3 reader sums longest
    shift 3
    cat >reads.fio <<-FIO
	[global]
	filename=$device
	size=$size
	direct=1
	rw=randread
	time_based
	runtime=12
	[image]
	verify=crc32c
	ioengine=libaio
	iodepth=32
	bs=4k
	[long]
	ioengine=psync
	bs=1m
	FIO
    fio --readonly --eta=never --output-format=json --output=fio.json reads.fio &
    reader=$!
    (while kill -0 $reader 2>/dev/null; do drop; sha256sum <"$device" || echo "error"; done >sums) &
    sums=$!
    for _ in 1 2 3; do
        sleep 1
        "$@"
    done
    must wait $reader
    wait $sums
    expect "$(sort -u sums)" "$sum" "what was read meanwhile"
    longest=$(grep -A 3 '"clat_ns"' fio.json | sed -n 's/.*"max" : \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    echo "longest wait for a read meanwhile: $((longest / 1000000)) ms"
}

# while_written NAME COMMAND: runs a command while forty files, NAME.0 and so on, are written below
# /mnt/fs, of which some are answered without a flush and some with one. No write may fail. The
# files to be written are in /tmp/files.
while_written() {
    local name=$1 writer
    shift
    mkdir -p /tmp/files
    (for ((i = 0; i < 40; i++)); do
        head -c 128k /dev/urandom >"/tmp/files/$name.$i"
        flags=oflag=direct
        ((i % 2)) && flags=conv=fsync
        dd if="/tmp/files/$name.$i" of="/mnt/fs/$name.$i" bs=64k $flags status=none || echo "error"
    done >/tmp/errors 2>&1) &
    writer=$!
    sleep 0.5
    "$@"
    must wait $writer
    expect "$(cat /tmp/errors)" "" "errors meanwhile"
}

# all_written WORDS: the files that while_written has written are what they should be.
all_written() {
    (cd /tmp/files && sha256sum ./*) >/tmp/sums
    (cd /mnt/fs && sha256sum --quiet -c /tmp/sums) || fail "files changed over $*"
}

# refused WANTED WORDS: the command has to fail, and to say why in one line and a hint.
refused() {
    local wanted=$1 said
    shift
    if said=$("$@" 2>&1); then fail "succeeded: $*"; fi
    [[ $said == *"$wanted"* ]] || fail "$*: said not \"$wanted\" but: $said"
    [[ $(wc -l <<<"$said") -le 2 ]] || fail "$*: more than a line and a hint: $said"
}

# kill_hard NAME: without a word.
kill_hard() {
    kill -KILL "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null
}

# kill_daemon NAME: the daemon of a guard, without a word.
kill_daemon() { kill -KILL "$(cat "/proc/${pid[$1]}/task/${pid[$1]}/children")"; }

# stop NAME: politely.
stop() {
    kill "${pid[$1]}"
    wait "${pid[$1]}" || fail "$1 ended with status $?: $(tail -n 5 "/tmp/$1.log")"
}

# What the kernel may complain about.
tolerated='^$'

end() {
    if dmesg | grep -vE "$tolerated" | grep -E 'BUG|WARNING|I/O error|hung task|Call Trace'; then fail "the kernel complained"; fi
    echo "$failures failures"
    exit $((failures > 0))
}
