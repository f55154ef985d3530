# A guard's daemon is killed while its device is read, and nobody else has what it held: it finds its store again.
verified_image disk.img 24m
sum=$(sha256sum <disk.img)
daemon origin serve disk.img --listen 127.0.0.1:4440
daemon node join 127.0.0.1 --store all --join-boost 9 --ublk --root --listen 127.0.0.2:4440
node() { "$vfield" "$@" --control /run/node.sock; }
device=/dev/ublkb0
must node status --wait filled --timeout 60s
kill -KILL "${pid[origin]}"
wait "${pid[origin]}" 2>/dev/null

# While a file system's reads and direct ones are under way, three times.
cat >reads.fio <<-FIO
	[image]
	filename=$device
	size=24m
	direct=1
	rw=randread
	time_based
	runtime=12
	verify=crc32c
	ioengine=libaio
	iodepth=32
	bs=4k
FIO
fio --readonly --eta=never --output-format=json --output=fio.json reads.fio &
reader=$!
(while kill -0 $reader 2>/dev/null; do echo 3 >/proc/sys/vm/drop_caches; sha256sum <$device || echo "error"; done >sums) &
sums=$!
took_over() { [[ $(grep -c 'taken over from before' node.log) -ge $1 ]]; }
for time in 1 2 3; do
    sleep 1
    kill -KILL "$(cat "/proc/${pid[node]}/task/${pid[node]}/children")"
    until_true 30 took_over $time
done
must wait $reader
wait $sums
expect "$(sort -u sums)" "$sum" "what was read meanwhile"
expect "$(grep -c 'chunks* of it w' node.log)" 0 "spoiled stores"
expect "$(node status --json | sed -n 's/.*"from_\(peers\|origin\)_bytes": \([0-9]*\).*/\2/p' | sort -u)" 0 "bytes from others"
longest=$(grep -A 3 '"clat_ns"' fio.json | sed -n 's/.*"max" : \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
echo "longest wait while the only holder was killed three times: $((longest / 1000000)) ms"

must node leave
wait "${pid[node]}" || fail "the guard ended with status $?"
must_not test -e $device
end
