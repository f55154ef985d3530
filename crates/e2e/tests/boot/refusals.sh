# Kernels and users that cannot have a block device are told so, and how to do without.
echo image >disk.img
try() { "$@" "$vfield" -q serve disk.img --ublk --control /tmp/control.sock; }
chmod 1777 /tmp
chmod 755 "$vfield"
refused "no permission to use ublk" try setpriv --reuid=65534 --regid=65534 --clear-groups --
echo 2 >/proc/sys/kernel/io_uring_disabled
refused "ublk needs io_uring, which is not available" try
echo 0 >/proc/sys/kernel/io_uring_disabled
rmmod ublk_drv
refused "this kernel has no ublk: /dev/ublk-control does not exist" try

# Another driver does as well, unless there is none.
daemon other serve disk.img --device auto
expect "$(head -c 5 /dev/nbd0)" image "what is read through the other one"
stop other
grep -q "kernel's NBD client makes block devices: this kernel has no ublk" other.log || fail "nothing was said of it"
rmmod nbd
refused "this kernel has no NBD client" "$vfield" -q serve disk.img --device auto --control /tmp/control.sock
refused "this kernel has no NBD client" "$vfield" -q serve disk.img --device nbd --control /tmp/control.sock
end
