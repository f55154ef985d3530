#!/bin/sh
# Attaches and mounts the image; called by dracut's netroot as: vfieldroot INTERFACE NETROOT NEWROOT.
. /lib/dracut-lib.sh
. /usr/share/vfield/root.sh

# Once for each interface, and only the first has something to do.
[ -e /run/initramfs/vfield/vfield ] && exit 0
vfield_read_command_line || die "root=vfield:IMAGE@ADDR[,ADDR...] is what the command line should have"
vfield_attach || die "the image could not be attached"
vfield_mount "$3" || die "the image could not be mounted"
ln -s null /dev/root
need_shutdown
