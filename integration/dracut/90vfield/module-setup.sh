#!/bin/bash
# dracut module: what a root=vfield:... needs in an initramfs.
# shellcheck disable=SC2154 # the variables of dracut, which sources this

check() {
    require_binaries vfield || return 1
    # Only where it is asked for: dracut --add vfield.
    return 255
}

depends() { echo network; }

installkernel() {
    # What the machine that makes the initramfs has loaded says nothing of the one that boots.
    hostonly='' instmods ublk_drv nbd loop overlay squashfs erofs ext4
    # A disk on which changes are saved.
    hostonly='' instmods virtio_blk virtio_scsi nvme ahci sd_mod usb_storage
}

install() {
    inst_multiple vfield blkid chroot mount tr cat cp ln mkdir sleep ip
    inst_simple /usr/share/vfield/root.sh
    inst_hook cmdline 90 "$moddir/parse-vfield.sh"
    inst_hook initqueue/settled 90 "$moddir/settled-vfield.sh"
    inst_hook cleanup 90 "$moddir/cleanup-vfield.sh"
    inst_script "$moddir/vfieldroot.sh" /sbin/vfieldroot
    dracut_need_initqueue
}
