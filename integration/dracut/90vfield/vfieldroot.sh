#!/bin/sh
# Attaches and mounts the image; called as: vfieldroot INTERFACE NETROOT NEWROOT. By dracut's
# netroot once for each interface, and only the first has something to do.
. /lib/dracut-lib.sh
. /usr/share/vfield/root.sh

# shellcheck disable=SC2154 # root.sh says where
[ ! -e "$vfield_home/vfield" ] || exit 0
vfield_read_command_line || die "root=vfield:IMAGE@ADDR[,ADDR...] is what the command line should have"
vfield_attach || die "the image could not be attached"
vfield_mount "$3" || die "the image could not be mounted"
