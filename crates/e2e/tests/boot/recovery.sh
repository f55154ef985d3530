# A daemon that is killed while its device is read, and started again: nobody sees an error, only a
# pause.
verified_image disk.img 48m
sum=$(sha256sum <disk.img)
daemon origin serve disk.img --listen 127.0.0.1:4440
node() { daemon node join 127.0.0.1 --store all --ublk --listen 127.0.0.2:4440; }
again() { kill_hard node; node; }
took_over() { grep -c 'took over the device' node.log; }
device=/dev/ublkb0
node
must test -b $device

# Without readers: the device stays, as it was.
kill_hard node
must test -b $device
node
expect "$(took_over)" 1 "taken over"
must_not test -e /dev/ublkb1
expect "$(sha256sum <$device)" "$sum" "bytes after a takeover"

while_read $device 48m "$sum" again
expect "$(took_over)" 4 "taken over"

# While every place of the device waits for an origin that does not answer.
kill_hard node
node() { daemon node join 127.0.0.1 --store 0 --ublk --listen 127.0.0.2:4440; }
node
kill -STOP "${pid[origin]}"
fio --name=all --readonly --filename=$device --direct=1 --rw=randread --ioengine=libaio --bs=4k --iodepth=256 --io_size=2m \
    --numjobs=2 --cpus_allowed=0,1 --cpus_allowed_policy=split --eta=never --minimal --output=/dev/null &
reader=$!
places=$(($(cat /sys/block/ublkb0/queue/nr_requests) * $(ls /sys/block/ublkb0/mq | wc -l)))
all_wait() { read -r reads _ </sys/block/ublkb0/inflight && [[ $reads -ge $places ]]; }
until_true 120 all_wait
kill_hard node
start=${EPOCHREALTIME/./}
kill -CONT "${pid[origin]}"
node
echo "taken over with all $places places waiting: $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
must wait $reader

stop node
must_not test -e $device
stop origin
end
