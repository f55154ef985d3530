#!/bin/sh
# Mounts the root as soon as there is a way to others. For whoever brings the network up and does
# not call netroot (systemd-networkd, in dracut 059); sourced by dracut's initqueue/settled hook.
# shellcheck disable=SC2154,SC2034 # the variables of dracut, which sources this
case $netroot in
vfield:*) [ -z "$(ip -o route show)$(ip -o -6 route show default)" ] || /sbin/vfieldroot any "$netroot" "$NEWROOT" ;;
esac
