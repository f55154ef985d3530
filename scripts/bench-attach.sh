# shellcheck shell=bash disable=SC2154 # names are set by what runs it
# Runs in a machine (see bench-attach): reads a filled store through each of the ways in which it
# can be attached.
# Leaves a line for each run in /shared/rows: round, way, order of reading, bytes, reads, seconds,
# processor seconds of the daemon and of the whole machine.
rounds=5
bytes=$((192 << 20))
name=disk.img
head -c $bytes /dev/urandom >$name
daemon origin serve $name --listen 127.0.0.1:4440
mkdir -p /mnt/field
daemon node join 127.0.0.1 --store all --join-boost 9 --listen 127.0.0.2:4440 --ublk --nbd unix:/run/node.nbd --mount /mnt/field
must "$vfield" status --control /run/node.sock --wait filled --timeout 120s
stop origin
must nbd-client -unix /run/node.nbd -N $name -R -C 2 /dev/nbd0 >/dev/null
loop=$(losetup --find --show --read-only --direct-io=on "/mnt/field/$name")
expect "$(cat "/sys/block/${loop#/dev/}/loop/dio")" 1 "the loop device reads past the page cache"
declare -A device=([ublk]=/dev/ublkb0 [nbd]=/dev/nbd0 [fuse]=$loop)
# The file systems' read-ahead is to be the same for all.
for way in ublk nbd fuse; do blockdev --setra 256 "${device[$way]}"; done

ticks=$(getconf CLK_TCK)
# Ticks of the daemon, then those in which the machine was not idle.
spent() {
    local stat
    read -r stat </proc/"${pid[node]}"/stat
    awk -v stat="${stat##*) }" '/^cpu / { split(stat, own, " "); print own[12] + own[13], $2 + $3 + $4 + $7 + $8 }' /proc/stat
}

# run WAY ORDER FIO-OPTIONS
run() {
    local way=$1 order=$2 before after told
    shift 2
    echo 3 >/proc/sys/vm/drop_caches
    before=$(spent)
    told=$(fio --name=run --filename="${device[$way]}" --readonly --size=$bytes --eta=never --minimal "$@") || fail "$way $order"
    after=$(spent)
    # Of fio's fields the 6th, 8th and 9th are kilobytes, reads a second and milliseconds.
    awk -F';' -v OFS='\t' -v round="$round" -v way="$way" -v order="$order" -v before="$before" -v after="$after" -v ticks="$ticks" \
        '{ split(before, b, " "); split(after, a, " ")
           print round, way, order, $6 * 1024, $8, $9 / 1000, (a[1] - b[1]) / ticks, (a[2] - b[2]) / ticks }' <<<"$told" >>/shared/rows
}

for ((round = 0; round < rounds; round++)); do
    for way in ublk nbd fuse; do
        run $way buffered --rw=read --bs=128k --ioengine=psync
        run $way sequential --rw=read --bs=1m --direct=1 --ioengine=libaio --iodepth=4
        run $way deep --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32 --runtime=3 --time_based
        run $way single --rw=randread --bs=4k --direct=1 --ioengine=psync --runtime=3 --time_based
    done
done
losetup --detach "$loop"
must nbd-client -d /dev/nbd0 >/dev/null
end
