# shellcheck shell=sh
# Makes an image this machine's root file system. Sourced in an initramfs, by initramfs-tools' script and by dracut's; POSIX sh.
#
# The daemon lives in a directory of its own, which moves to the real root with /run: it never opens a file of
# the file system that it carries, its program and the changes that it keeps lie in memory, and nothing of it has to be
# unmounted before the machine is off. systemd leaves what is below /run/initramfs alone.

vfield_home=/run/initramfs/vfield
# Where file systems of image and changes are mounted that are put together as one.
vfield_layers=$vfield_home/layers
# What a saved overlay may have to wait for: a disk that is slow to appear.
vfield_disk_seconds=10

vfield_say() { echo "vfield: $*" >/dev/console; }

# Reads root=vfield:IMAGE@ADDR[,ADDR...] and vfield.NAME=VALUE; of a word that stands there twice, the last counts.
# Fails if there is no such root.
vfield_read_command_line() {
    vfield_image='' vfield_members='' vfield_kind=auto vfield_overlay=ram vfield_size='' vfield_from='' vfield_also=''
    vfield_store='' vfield_zone='' vfield_listen='' vfield_threads='' vfield_join_boost=''
    # shellcheck disable=SC2013 # its words are what is wanted
    for vfield_word in $(cat /proc/cmdline); do
        vfield_value=${vfield_word#*=}
        case $vfield_word in
        root=vfield:*@*)
            vfield_image=${vfield_word#root=vfield:}
            vfield_members=$(echo "${vfield_image##*@}" | tr , ' ')
            vfield_image=${vfield_image%@*}
            ;;
        root=vfield:*) vfield_say "$vfield_word names nobody to join: root=vfield:IMAGE@ADDR[,ADDR...]" ;;
        vfield.device=*) vfield_kind=$vfield_value ;;
        vfield.overlay=*) vfield_overlay=$vfield_value ;;
        vfield.overlay_size=*) vfield_size=$vfield_value ;;
        vfield.overlay_from=*) vfield_from=$vfield_value ;;
        vfield.also=*) vfield_also=$(echo "$vfield_value" | tr , ' ') ;;
        vfield.store=*) vfield_store=$vfield_value ;;
        vfield.zone=*) vfield_zone=$vfield_value ;;
        vfield.listen=*) vfield_listen=$vfield_value ;;
        vfield.threads=*) vfield_threads=$vfield_value ;;
        vfield.join_boost=*) vfield_join_boost=$vfield_value ;;
        vfield.*) vfield_say "nothing is called ${vfield_word%%=*}" ;;
        esac
    done
    vfield_options="${vfield_store:+ --store $vfield_store}${vfield_zone:+ --zone $vfield_zone}${vfield_listen:+ --listen $vfield_listen}"
    vfield_options="$vfield_options${vfield_threads:+ --threads $vfield_threads}${vfield_join_boost:+ --join-boost $vfield_join_boost}"
    [ -n "$vfield_members" ]
}

# In the daemon's own directory.
vfield_run() { chroot "$vfield_home" /vfield "$@"; }

vfield_prepare_home() {
    mkdir -p "$vfield_home" /run/vfield
    # Not a part of /run itself, from which nothing can be started.
    mount -t tmpfs -o mode=755 vfield "$vfield_home" || return 1
    mkdir -p "$vfield_home/dev" "$vfield_home/proc" "$vfield_home/sys" "$vfield_home/run" "$vfield_home/saved" "$vfield_home/state" "$vfield_layers"
    cp "$(command -v vfield)" "$vfield_home/vfield" || return 1
    mount -o bind /dev "$vfield_home/dev" || return 1
    mount -t proc proc "$vfield_home/proc" || return 1
    mount -t sysfs sysfs "$vfield_home/sys" || return 1
    mount -o bind /run "$vfield_home/run"
}

# The disk on which changes are saved, and the saved ones if there are some: vfield.overlay_from=DEVICE:/FILE.
vfield_find_saved() {
    vfield_second=0
    while :; do
        vfield_disk=${vfield_from%%:*}
        case $vfield_disk in
        LABEL=* | UUID=*) vfield_disk=$(blkid -l -t "$vfield_disk" -o device) ;;
        esac
        if [ -b "$vfield_disk" ] || [ $vfield_second -ge $vfield_disk_seconds ]; then break; fi
        sleep 1
        vfield_second=$((vfield_second + 1))
    done
    vfield_type=$(blkid -o value -s TYPE "$vfield_disk")
    if ! mount -t "${vfield_type:-ext4}" "$vfield_disk" "$vfield_home/saved"; then
        vfield_say "${vfield_from%%:*} cannot be mounted: nothing that was saved is here, and nothing can be saved"
        return
    fi
    ln -s "$vfield_home/saved" /run/vfield/saved
    vfield_file=saved/${vfield_from#*:}
    if [ -e "$vfield_home/$vfield_file" ]; then
        vfield_options="$vfield_options --overlay-from /$vfield_file"
    else
        vfield_say "nothing has been saved in ${vfield_from#*:} yet"
    fi
}

# Starts the daemon and waits until the image is a block device, $vfield_device. Goes on for as long as nobody answers.
vfield_attach() {
    [ "$vfield_kind" = nbd ] || modprobe -q ublk_drv
    [ "$vfield_kind" = ublk ] || [ -e /dev/ublk-control ] || modprobe -q nbd
    vfield_prepare_home || return 1
    if [ "$vfield_overlay" != none ]; then
        mkdir "$vfield_home/changes"
        vfield_options="$vfield_options --overlay /changes"
        [ -z "$vfield_size" ] || vfield_options="$vfield_options --overlay-size $vfield_size"
        [ -z "$vfield_from" ] || vfield_find_saved
    fi
    for vfield_word in $vfield_also; do vfield_options="$vfield_options --image $vfield_word"; done
    vfield_say "joining $vfield_image through $vfield_members"
    # No shell stays behind it.
    # shellcheck disable=SC2086
    exec chroot "$vfield_home" /vfield --quiet join $vfield_members --image "$vfield_image" $vfield_options --members /state/members --device "$vfield_kind" --root \
        </dev/null >/dev/console 2>&1 &
    vfield_guard=$!
    until vfield_run status --wait ready --timeout 10s >/dev/null 2>&1; do
        kill -0 $vfield_guard 2>/dev/null || return 1
    done
    vfield_device=$(vfield_run status --device "$vfield_image")
    [ -b "$vfield_device" ]
}

# Mounts what was attached. Of a file system that cannot be written, changes lie in a file system in memory.
vfield_mount() {
    vfield_type=$(blkid -o value -s TYPE "$vfield_device")
    modprobe -q "$vfield_type"
    case $vfield_type:$vfield_overlay in
    *:none) mount -t "$vfield_type" -o ro "$vfield_device" "$1" ;;
    squashfs:* | erofs:*)
        modprobe -q overlay
        mkdir "$vfield_layers/image" "$vfield_layers/changes"
        mount -t "$vfield_type" -o ro "$vfield_device" "$vfield_layers/image" || return 1
        mount -t tmpfs -o "mode=755${vfield_size:+,size=$vfield_size}" changes "$vfield_layers/changes" || return 1
        mkdir "$vfield_layers/changes/upper" "$vfield_layers/changes/work"
        mount -t overlay -o "lowerdir=$vfield_layers/image,upperdir=$vfield_layers/changes/upper,workdir=$vfield_layers/changes/work" \
            vfield "$1"
        ;;
    *) mount -t "$vfield_type" "$vfield_device" "$1" ;;
    esac
}
