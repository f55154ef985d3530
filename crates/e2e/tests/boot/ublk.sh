# An image as a block device: what it looks like, every byte of it, and that it cannot be changed.
verified_image disk.img 20m
# Neither a chunk nor a sector long at its end.
printf 'the end' >>disk.img
daemon origin serve disk.img --ublk
device=/dev/ublkb0
must test -b $device

expect "$(blockdev --getsize64 $device)" $(((20 << 20) + 512)) "length in bytes"
expect "$(blockdev --getro $device)" 1 "read-only"
expect "$(blockdev --getss $device) $(blockdev --getpbsz $device)" "512 4096" "logical and physical block"
expect "$(blockdev --getioopt $device)" 65536 "the best read is a chunk"
expect "$(lsblk -nbdo SIZE,RO,TYPE $device | xargs)" "$(((20 << 20) + 512)) 1 disk" "lsblk"
expect "$("$vfield" status --device disk.img --control /run/origin.sock)" "$device" "status"

must cmp -n $(((20 << 20) + 7)) disk.img $device
expect "$(tail -c 512 $device | od -An -tx1 -v | tr -d ' \n' | sha256sum)" \
    "$( (printf 'the end'; head -c 505 /dev/zero) | od -An -tx1 -v | tr -d ' \n' | sha256sum)" "zeros behind the end"
# Direct reads: many at a time in any order, each checked against the written bytes; then short
# and long ones.
must fio --name=image --filename=$device --readonly --rw=randread --bs=4k --size=20m --direct=1 --ioengine=libaio \
    --iodepth=64 --verify=crc32c --eta=never --minimal --output=/dev/null
must cmp <(dd if=$device bs=512 count=4000 iflag=direct status=none) <(head -c $((4000 * 512)) disk.img)
must cmp <(dd if=$device bs=1M iflag=direct status=none | head -c 20971527) disk.img

must_not dd if=/dev/zero of=$device bs=4096 count=1 conv=fsync status=none
must_not blkdiscard -f $device
must_not blkdiscard -f -z $device
must cmp -n $(((20 << 20) + 7)) disk.img $device

# A second one for the same image is refused, and does no harm.
refused "already /dev/ublkb0 of process ${pid[origin]}" \
    "$vfield" -q serve disk.img --ublk --listen 127.0.0.1:4441 --control /run/second.sock
must cmp -n $(((20 << 20) + 7)) disk.img $device

stop origin
must_not test -e $device
must_not test -e /dev/ublkc0

# File systems.
mkdir -p tree/a /mnt/fs
for n in 1 2 3; do head -c ${n}00000 /dev/urandom >tree/a/$n; done
must mksquashfs tree fs.squash -quiet -no-progress >/dev/null
must mkfs.erofs --quiet fs.erofs tree >/dev/null
must mke2fs -q -t ext4 -d tree fs.ext4 8M
daemon origin serve fs.squash fs.erofs fs.ext4 --ublk
while read -r number type options; do
    must mount -t "$type" -o "ro$options" "/dev/ublkb$number" /mnt/fs
    must diff -r tree /mnt/fs --exclude lost+found
    must umount /mnt/fs
done <<<'0 squashfs
1 erofs
2 ext4 ,noload'

# A mounted device does not hold the daemon up.
must mount -t squashfs -o ro /dev/ublkb0 /mnt/fs
stop origin
grep -q '/dev/ublkb0 was in use; its readers were disconnected' origin.log || fail "nothing was said of the mount"
must_not ls /dev/ublkb*
must umount /mnt/fs
dmesg --clear
end
