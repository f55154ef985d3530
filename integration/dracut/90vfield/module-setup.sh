#!/bin/bash
# dracut module: what a root=vfield:... needs in an initramfs.

check() {
    require_binaries vfield || return 1
    # Only where it is asked for: dracut --add vfield.
    return 255
}

depends() { echo network; }

installkernel() { instmods ublk_drv nbd loop overlay squashfs erofs ext4; }

install() {
    inst_multiple vfield blkid modprobe chroot mount sed tr cat cp ln mkdir sleep
    inst_simple /usr/share/vfield/root.sh
    inst_hook cmdline 90 "$moddir/parse-vfield.sh"
    inst_script "$moddir/vfieldroot.sh" /sbin/vfieldroot
}
