# Kernels and users that cannot have a block device are told so, and how to do without.
echo image >disk.img
try() { "$@" "$vfield" -q serve disk.img --ublk --control /tmp/control.sock; }
chmod 1777 /tmp
chmod 755 "$vfield"
refused "no permission to use ublk" try setpriv --reuid=65534 --regid=65534 --clear-groups --
echo 2 >/proc/sys/kernel/io_uring_disabled
refused "ublk needs io_uring, which cannot be used" try
echo 0 >/proc/sys/kernel/io_uring_disabled
rmmod ublk_drv
refused "this kernel has no ublk: /dev/ublk-control does not exist" try
end
