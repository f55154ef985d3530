# A daemon that is killed while its device is read, and started again: nobody sees an error, only a pause.
verified_image disk.img 48m
sum=$(sha256sum <disk.img)
daemon origin serve disk.img --listen 127.0.0.1:4440
node() { daemon node join 127.0.0.1 --store all --ublk --listen 127.0.0.2:4440; }
killed() { kill -KILL "${pid[node]}"; wait "${pid[node]}" 2>/dev/null; }
drop() { echo 3 >/proc/sys/vm/drop_caches; }
took_over() { grep -c 'took over the device' node.log; }
device=/dev/ublkb0
node
must test -b $device

# Without readers: the device stays, as it was.
killed
must test -b $device
node
expect "$(took_over)" 1 "taken over"
must_not test -e /dev/ublkb1
expect "$(sha256sum <$device)" "$sum" "bytes after a takeover"

# While a file system's reads and direct ones are under way, three times.
cat >reads.fio <<-FIO
	[global]
	size=48m
	filename=$device
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
(while kill -0 $reader 2>/dev/null; do drop; sha256sum <$device || echo "error"; done >sums) &
sums=$!
for _ in 1 2 3; do
    sleep 1
    killed
    node
done
must wait $reader
wait $sums
expect "$(sort -u sums)" "$sum" "what was read meanwhile"
expect "$(took_over)" 4 "taken over"
longest=$(grep -A 3 '"clat_ns"' fio.json | sed -n 's/.*"max" : \([0-9]*\).*/\1/p' | sort -n | tail -n 1)
echo "longest wait while the daemon was killed and started again three times: $((longest / 1000000)) ms"

# While every place of the device waits for an origin that does not answer.
killed
node() { daemon node join 127.0.0.1 --store 0 --ublk --listen 127.0.0.2:4440; }
node
kill -STOP "${pid[origin]}"
fio --name=all --readonly --filename=$device --direct=1 --rw=randread --ioengine=libaio --bs=4k --iodepth=256 --io_size=2m \
    --numjobs=2 --cpus_allowed=0,1 --cpus_allowed_policy=split --eta=never --minimal --output=/dev/null &
reader=$!
places=$(($(cat /sys/block/ublkb0/queue/nr_requests) * $(ls /sys/block/ublkb0/mq | wc -l)))
all_wait() { read -r reads _ </sys/block/ublkb0/inflight && [[ $reads -ge $places ]]; }
until_true 120 all_wait
killed
start=${EPOCHREALTIME/./}
kill -CONT "${pid[origin]}"
node
echo "taken over with all $places places waiting: $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
must wait $reader

stop node
must_not test -e $device
stop origin
end
