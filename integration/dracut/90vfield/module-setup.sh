#!/bin/bash
# dracut module: what a root=vfield:... needs in an initramfs.
# shellcheck disable=SC2154 # the variables of dracut, which sources this

# The program that was cut for an initramfs, else the one of the machine.
find_program() {
    local program
    for program in /usr/lib/vfield/initramfs/vfield /usr/bin/vfield /usr/local/bin/vfield; do
        if [ -x "${dracutsysrootdir:-}$program" ]; then
            echo "$program"
            return
        fi
    done
    return 1
}

check() {
    find_program >/dev/null || { dinfo "vfield: there is no program vfield"; return 1; }
    # Only where it is asked for: dracut --add vfield.
    return 255
}

depends() { echo network; }

installkernel() {
    # What the machine that makes the initramfs has loaded says nothing of the one that boots.
    hostonly='' instmods ublk_drv nbd loop overlay squashfs erofs ext4
    # A disk on which changes are saved.
    hostonly='' instmods virtio_blk virtio_scsi nvme ahci sd_mod usb_storage
    # What shows a machine's credentials.
    hostonly='' instmods qemu_fw_cfg dmi_sysfs
    # The drivers of a TPM2.
    hostonly='' instmods tpm_crb tpm_tis
}

install() {
    inst_binary "$(find_program)" /usr/bin/vfield
    inst_multiple blkid chroot mount unshare modprobe tr cat cp ln mkdir sleep ip
    inst_simple /usr/share/vfield/root.sh
    inst_hook cmdline 90 "$moddir/parse-vfield.sh"
    inst_hook initqueue/settled 90 "$moddir/settled-vfield.sh"
    inst_hook cleanup 90 "$moddir/cleanup-vfield.sh"
    inst_script "$moddir/vfieldroot.sh" /sbin/vfieldroot
    dracut_need_initqueue
    # What decrypts credentials, where the libraries for a TPM2 are installed. systemd loads them
    # when it needs them.
    if inst_libdir_file 'libtss2-esys.so.0*' 'libtss2-rc.so.0*' 'libtss2-mu.so.0*' 'libtss2-tcti-device.so.0*'; then
        inst_multiple -o systemd-creds
    fi
    install_trust
}

# Keys that are trusted, whatever the command line says. Half of it is not less than all of it.
install_trust() {
    local keys key sysroot=${dracutsysrootdir:-}
    for keys in trust admission; do
        [ -d "$sysroot/etc/vfield/$keys" ] || continue
        for key in "$sysroot/etc/vfield/$keys"/*.pub; do
            [ -e "$key" ] || { dfatal "vfield: /etc/vfield/$keys has no *.pub: nothing could be trusted"; exit 1; }
            inst_simple "${key#"$sysroot"}" || { dfatal "vfield: $key cannot be installed"; exit 1; }
        done
    done
    if [ -e "$sysroot/etc/vfield/initramfs.key" ]; then
        dwarn "vfield: the field's key is in this initramfs: whoever reads the initramfs can join"
        inst_simple /etc/vfield/initramfs.key || { dfatal "vfield: the field's key cannot be installed"; exit 1; }
    fi
}
