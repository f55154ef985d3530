# Images as devices of the kernel's NBD client, attached by the daemon itself: what they are, and
# what daemons that die leave.
verified_image disk.img 48m
sum=$(sha256sum <disk.img)
daemon origin serve disk.img --listen 127.0.0.1:4440
node() { daemon node join 127.0.0.1 --store all --listen 127.0.0.2:4440 --device nbd "$@"; }
again() { kill_hard node; node "$@"; }
took_over() { grep -c 'took over the device' node.log; }
device=/dev/nbd0
node
expect "$(blockdev --getsize64 $device) $(blockdev --getro $device)" "$((48 << 20)) 1" "length and read-only"
expect "$("$vfield" status --device disk.img --control /run/node.sock)" "$device" "status"
expect "$(sha256sum <$device)" "$sum" "bytes"
must_not dd if=/dev/zero of=$device bs=4096 count=1 conv=fsync status=none
refused "already $device of another process" \
    "$vfield" -q join 127.0.0.1 --device nbd --listen 127.0.0.3:4440 --control /run/second.sock

while_read $device 48m "$sum" again
expect "$(took_over)" 3 "taken over"
must_not test -s /sys/block/nbd1/backend
stop node
gone() { ! test -e /sys/block/nbd0/pid; }
until_true 120 gone

# With changes in a directory.
mkdir -p /mnt/fs /tmp/changes
node --overlay /tmp/changes
expect "$(blockdev --getro $device)" 0 "writable"
must mkfs.ext4 -q $device
must mount $device /mnt/fs
while_written changed again --overlay /tmp/changes
drop
all_written "a kill"
must umount /mnt/fs
must e2fsck -fn $device >/dev/null
stop node
stop origin
end
