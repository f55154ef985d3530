#!/bin/sh
# Takes a root=vfield:IMAGE@ADDR[,ADDR...] for one that wants the network; sourced by dracut's
# cmdline hook.
# shellcheck disable=SC2154,SC2034 # the variables of dracut, which sources this
case $root in
vfield:*)
    netroot=$root
    root=vfield
    # shellcheck disable=SC2034
    rootok=1
    # What dracut waits for.
    # shellcheck disable=SC2016
    echo '[ -e "$NEWROOT/proc" ]' >"$hookdir/initqueue/finished/vfield.sh"
    ;;
esac
