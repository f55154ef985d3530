# Images with an overlay as block devices that can be written: file systems on them, full ones, and
# daemons that are killed.
head -c 1m /dev/urandom >disk.img
truncate -s 96m disk.img
sum=$(sha256sum <disk.img)
daemon origin serve disk.img --listen 127.0.0.1:4440
device=/dev/ublkb0
mkdir -p /mnt/fs /tmp/changes
held() { "$vfield" overlay status --json --control /run/node.sock | sed -n 's/.*"held_bytes": *\([0-9]*\).*/\1/p'; }

# In memory.
daemon node join 127.0.0.1 --store all --listen 127.0.0.2:4440 --ublk --overlay ram
expect "$(blockdev --getro $device)" 0 "writable"
expect "$(sha256sum <$device)" "$sum" "bytes before anything is written"
must fio --name=image --filename=$device --rw=randwrite --bsrange=512-64k --size=32m --io_size=16m \
    --blockalign=512 --direct=1 --ioengine=libaio --iodepth=32 --verify=crc32c --serialize_overlap=1 --eta=never --minimal --output=/dev/null
must blkdiscard $device
expect "$(held)" 0 "bytes held after a discard of everything"
expect "$(sha256sum <$device)" "$(head -c 96m /dev/zero | sha256sum)" "zeros after it"
must mkfs.ext4 -q $device
must mount $device /mnt/fs
must cp -r /usr/lib/x86_64-linux-gnu/perl-base /mnt/fs/
must fio --name=file --directory=/mnt/fs --size=24m --rw=randwrite --bs=4k --fsync=64 --verify=crc32c --eta=never --minimal \
    --output=/dev/null
must fstrim /mnt/fs
must diff -r /usr/lib/x86_64-linux-gnu/perl-base /mnt/fs/perl-base
must umount /mnt/fs
must e2fsck -fn $device >/dev/null
must "$vfield" overlay reset --control /run/node.sock
blockdev --flushbufs $device
expect "$(sha256sum <$device)" "$sum" "bytes after a reset"

# Changes in a daemon's memory are gone with it, and its device does not pretend otherwise.
must dd if=/dev/zero of=$device bs=4k count=1 oflag=direct status=none
kill_hard node
gone() { ! dd if=$device of=/dev/null bs=4k count=1 iflag=direct; }
until_true 120 gone
dmesg --clear

# In a directory, with room for less than the image.
node() { daemon node join 127.0.0.1 --store all --listen 127.0.0.2:4440 --ublk --overlay /tmp/changes --overlay-size 48m; }
node
must test -b $device
expect "$(sha256sum <$device)" "$sum" "bytes of a new device"
said=$(dd if=/dev/zero of=$device bs=1M count=64 oflag=direct 2>&1) && fail "64 MiB fit into 48"
[[ $said == *"No space left"* ]] || fail "a full overlay says $said"
must blkdiscard $device
dmesg --clear
must mkfs.ext4 -q $device
must mount $device /mnt/fs
again() { kill_hard node; node; }
for n in 1 2 3; do
    while_written $n again
done
all_written "a kill"
must umount /mnt/fs
must e2fsck -fn $device >/dev/null
stop node
node
must mount $device /mnt/fs
all_written "a restart"
expect "$(ls /mnt/fs | wc -l)" 121 "files"
must umount /mnt/fs
stop node
stop origin
end
