#!/bin/sh
# Takes a root=vfield:IMAGE@ADDR[,ADDR...] for one that wants the network; sourced by dracut's cmdline hook.
case $root in
vfield:*)
    netroot=$root
    root=vfield
    rootok=1
    # Whatever is mounted, dracut waits for this.
    wait_for_dev -n /dev/root
    ;;
esac
