# shellcheck shell=sh
# Makes an image this machine's root file system. Sourced in an initramfs, by initramfs-tools'
# script and by dracut's; POSIX sh.
#
# The daemon lives in a directory of its own, which moves to the real root with /run. It never opens
# a file of the file system that it carries. Its program and the changes that it keeps lie in
# memory, so nothing of it has to be unmounted before the machine is off. systemd leaves everything
# below /run/initramfs alone.

vfield_home=/run/initramfs/vfield
# Where file systems of image and changes are mounted that are put together as one.
vfield_layers=$vfield_home/layers
# What a saved overlay may have to wait for: a disk that is slow to appear.
vfield_disk_seconds=10

# What the initramfs has of its own: trust/*.pub are the only keys that are trusted, admission/*.pub
# the only ones for admission lists, and initramfs.key is the field's key.
vfield_own=/etc/vfield
# Where credentials of the machine are: those that its firmware or emulator has, those that systemd
# has taken from there, and encrypted ones, which systemd's stub found beside the kernel's file.
vfield_firmware=/sys/firmware
vfield_credentials=/run/credentials
vfield_encrypted=/.extra

vfield_say() { printf 'vfield: %s\n' "$*" >/dev/console; }

# The words of a list with commas, in $vfield_listed. Fails if one of them could be taken for an
# option: whoever writes the command line does not choose the daemon's options, such as a key to
# trust besides the initramfs' own.
vfield_list() {
    vfield_listed='' vfield_separators=$IFS
    IFS=,
    set -f
    # shellcheck disable=SC2086 # it is split at commas
    set -- $1
    set +f
    IFS=$vfield_separators
    for vfield_item in "$@"; do
        case $vfield_item in '' | -*) return 1 ;; esac
        vfield_listed="$vfield_listed${vfield_listed:+ }$vfield_item"
    done
    [ -n "$vfield_listed" ]
}

# Reads root=vfield:IMAGE@ADDR[,ADDR...] and vfield.NAME=VALUE; of a word that stands there twice,
# the last counts.
# Fails if there is no such root. Why nothing may be booted although there is one, is in
# $vfield_refused.
vfield_read_command_line() {
    vfield_image='' vfield_members='' vfield_kind=auto vfield_overlay=ram vfield_size='' vfield_from='' vfield_also=''
    vfield_store='' vfield_zone='' vfield_listen='' vfield_threads='' vfield_join_boost='' vfield_trust='' vfield_refused=''
    vfield_compress='' vfield_admission_trust='' vfield_key='' vfield_identity='' vfield_booted='' vfield_follow='' vfield_failed=''
    # A word is no pattern for names of files.
    set -f
    # shellcheck disable=SC2013 # its words are wanted
    for vfield_word in $(cat /proc/cmdline); do
        vfield_value=${vfield_word#*=}
        case $vfield_word in
        root=vfield:*@*)
            vfield_image=${vfield_word#root=vfield:}
            vfield_list "${vfield_image##*@}" || vfield_refused="$vfield_word: there is a member without an address"
            vfield_members=$vfield_listed
            vfield_image=${vfield_image%@*}
            ;;
        root=vfield:*) vfield_say "$vfield_word names nobody to join: root=vfield:IMAGE@ADDR[,ADDR...]" ;;
        vfield.device=*) vfield_kind=$vfield_value ;;
        vfield.overlay=*) vfield_overlay=$vfield_value ;;
        vfield.overlay_size=*) vfield_size=$vfield_value ;;
        vfield.overlay_from=*) vfield_from=$vfield_value ;;
        vfield.also=*)
            vfield_list "$vfield_value" || vfield_refused="$vfield_word: there is an image without a name"
            vfield_also=$vfield_listed
            ;;
        vfield.trust=*)
            vfield_list "$vfield_value" || vfield_refused="vfield.trust= has no key"
            vfield_trust=$vfield_listed
            ;;
        vfield.admission_trust=*)
            vfield_list "$vfield_value" || vfield_refused="vfield.admission_trust= has no key"
            vfield_admission_trust=$vfield_listed
            ;;
        # Everybody who hears how machines boot would hear it. The key is not repeated.
        vfield.key=*)
            vfield_key=$vfield_value
            [ "$vfield_key" = credential ] || vfield_refused="vfield.key= can only be vfield.key=credential: a key on the command line is no secret"
            ;;
        vfield.identity=*)
            vfield_identity=$vfield_value
            [ "$vfield_identity" = credential ] ||
                vfield_refused="vfield.identity= can only be vfield.identity=credential: an identity on the command line is no secret"
            ;;
        vfield.store=*) vfield_store=$vfield_value ;;
        vfield.compress_store=yes) vfield_compress=yes ;;
        vfield.compress_store=*) vfield_say "vfield.compress_store= can only be vfield.compress_store=yes" ;;
        vfield.zone=*) vfield_zone=$vfield_value ;;
        vfield.listen=*) vfield_listen=$vfield_value ;;
        vfield.threads=*) vfield_threads=$vfield_value ;;
        vfield.join_boost=*) vfield_join_boost=$vfield_value ;;
        vfield.booted=*) vfield_booted=$vfield_value ;;
        vfield.follow=*)
            case $vfield_value in
            '' | -* | *[!A-Za-z0-9._-]*) vfield_refused="$vfield_word: that is no tag" ;;
            esac
            vfield_follow=$vfield_value
            ;;
        vfield.failed=*)
            # shellcheck disable=SC2034 # vfield-soft-reboot reads it
            vfield_failed=$vfield_value
            ;;
        vfield.*) vfield_say "nothing is called ${vfield_word%%=*}" ;;
        esac
    done
    set +f
    vfield_options="${vfield_store:+ --store $vfield_store}${vfield_zone:+ --zone $vfield_zone}${vfield_listen:+ --listen $vfield_listen}"
    vfield_options="$vfield_options${vfield_threads:+ --threads $vfield_threads}${vfield_join_boost:+ --join-boost $vfield_join_boost}"
    vfield_options="$vfield_options${vfield_follow:+ --follow $vfield_follow}${vfield_compress:+ --compress-store}"
    [ -z "$vfield_follow" ] || [ -z "$vfield_from" ] ||
        vfield_refused="vfield.overlay_from= and vfield.follow= exclude each other: saved changes are those of one image"
    [ -n "$vfield_members$vfield_refused" ]
}

# The keys of an option. Those of a directory of the initramfs count alone: what the command line
# says came over the network. Called as:
# vfield_find_signers OPTION WORD DIRECTORY "KEY...".
vfield_find_signers() {
    vfield_option=$1 vfield_word=$2 vfield_directory=$vfield_own/$3
    if [ -d "$vfield_directory" ]; then
        [ -z "$4" ] || vfield_say "$vfield_word= is ignored: this initramfs has its own trusted keys"
        set -- "$vfield_directory"/*.pub
        if [ ! -e "$1" ]; then
            vfield_say "$vfield_directory of this initramfs has no key, so nothing can be trusted"
            return 1
        fi
    else
        # shellcheck disable=SC2086 # a list of words
        set -- $4
    fi
    vfield_number=0
    for vfield_item in "$@"; do
        case $vfield_item in
        /*)
            vfield_number=$((vfield_number + 1))
            vfield_copy=/keys/${vfield_option#--}-$vfield_number.pub
            if ! cp "$vfield_item" "$vfield_home$vfield_copy"; then
                vfield_say "the trusted key $vfield_item cannot be read"
                return 1
            fi
            vfield_item=$vfield_copy
            ;;
        esac
        vfield_options="$vfield_options $vfield_option $vfield_item"
    done
}

# The keys that images, and admission lists, have to be signed with.
vfield_find_trust() {
    vfield_find_signers --trust vfield.trust trust "$vfield_trust" || return 1
    case $vfield_follow:$vfield_options in
    :* | *" --trust "*) ;;
    *)
        vfield_say "vfield.follow= needs vfield.trust=, or a key in the initramfs: any member can sign a tag with a key of its own"
        return 1
        ;;
    esac
    vfield_find_signers --admission-trust vfield.admission_trust admission "$vfield_admission_trust"
}

# Prints a credential of the machine. Fails with 1 if there is none, and with 2 if it cannot be
# decrypted here.
vfield_read_credential() {
    for vfield_file in "$vfield_encrypted/credentials/$1.cred" "$vfield_encrypted/global_credentials/$1.cred"; do
        if [ -e "$vfield_file" ]; then
            # The drivers of a TPM2, whose key it may need.
            modprobe -q -a tpm_crb tpm_tis
            systemd-creds decrypt --name="$1" "$vfield_file" - && return
            return 2
        fi
    done
    modprobe -q qemu_fw_cfg
    modprobe -q dmi_sysfs
    for vfield_file in "$vfield_firmware/qemu_fw_cfg/by_name/opt/io.systemd.credentials/$1/raw" \
        "$vfield_credentials/@initrd/$1" "$vfield_credentials/@system/$1"; do
        if [ -e "$vfield_file" ]; then
            cat "$vfield_file"
            return
        fi
    done
    # The strings of SMBIOS' type 11, each with a zero behind it, behind a head of a few bytes. One
    # may have lines, as a key file has.
    for vfield_file in "$vfield_firmware"/dmi/entries/11-*/raw; do
        [ -e "$vfield_file" ] || continue
        vfield_string=$(tr '\n\0' '\r\n' <"$vfield_file" | while read -r vfield_line; do
            case $vfield_line in
            *"io.systemd.credential:$1="*) printf '%s\n' "=${vfield_line##*"io.systemd.credential:$1="}" ;;
            esac
        done)
        if [ -n "$vfield_string" ]; then
            printf '%s\n' "${vfield_string#=}" | tr '\r' '\n'
            return
        fi
    done
    return 1
}

# A credential of the machine, for an option. If it is there, it is used, whatever the command line
# says. Called as:
# vfield_find_credential OPTION NAME FILE WHAT-THE-WORD-SAYS WHAT-IT-DOES-WITHOUT.
vfield_find_credential() {
    vfield_found=0
    (umask 077 && vfield_read_credential "$2" >"$vfield_home/keys/$3") || vfield_found=$?
    if [ $vfield_found = 0 ]; then
        vfield_options="$vfield_options $1 /keys/$3"
    elif [ $vfield_found = 2 ]; then
        vfield_say "the credential $2 cannot be decrypted on this machine, and nothing boots without it"
        return 1
    elif [ -n "$4" ]; then
        vfield_say "$2=credential: this machine has no credential $2, and does not $5 instead"
        return 1
    fi
}

# The field's key, of the initramfs or the machine, and the machine's identity.
vfield_find_key() {
    if [ -e "$vfield_own/initramfs.key" ]; then
        (umask 077 && cat "$vfield_own/initramfs.key" >"$vfield_home/keys/field.key") || return 1
        vfield_options="$vfield_options --field-key /keys/field.key"
    else
        vfield_find_credential --field-key vfield.key field.key "$vfield_key" "join an open field" || return 1
    fi
    vfield_find_credential --identity vfield.identity identity "$vfield_identity" "draw an identity"
}

# In the daemon's own directory.
vfield_run() { chroot "$vfield_home" /vfield "$@"; }

vfield_prepare_home() {
    mkdir -p "$vfield_home" /run/vfield
    # Not a part of /run itself, from which nothing can be started.
    mount -t tmpfs -o mode=755 vfield "$vfield_home" || return 1
    mkdir -p "$vfield_home/dev" "$vfield_home/proc" "$vfield_home/sys" "$vfield_home/run" "$vfield_home/saved" "$vfield_home/state" "$vfield_layers" || return 1
    mkdir -m 700 "$vfield_home/keys" || return 1
    cp "$(command -v vfield)" "$vfield_home/vfield" || return 1
    mount -o bind /dev "$vfield_home/dev" || return 1
    mount -t proc proc "$vfield_home/proc" || return 1
    mount -t sysfs sysfs "$vfield_home/sys" || return 1
    mount -o bind /run "$vfield_home/run"
}

# The disk on which changes are saved, and the saved ones if there are some:
# vfield.overlay_from=DEVICE:/FILE.
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

# Starts the daemon and waits until the image is a block device, $vfield_device. Goes on for as long
# as nobody answers.
vfield_attach() {
    if [ -n "$vfield_refused" ]; then
        vfield_say "$vfield_refused"
        return 1
    fi
    [ "$vfield_kind" = nbd ] || modprobe -q ublk_drv
    [ "$vfield_kind" = ublk ] || [ -e /dev/ublk-control ] || modprobe -q nbd
    vfield_prepare_home && vfield_find_trust && vfield_find_key || return 1
    # What follows a tag has its changes in a file system over the image: the next image takes none.
    if [ "$vfield_overlay" != none ] && [ -z "$vfield_follow" ]; then
        mkdir "$vfield_home/changes"
        vfield_options="$vfield_options --overlay /changes"
        [ -z "$vfield_size" ] || vfield_options="$vfield_options --overlay-size $vfield_size"
        [ -z "$vfield_from" ] || vfield_find_saved
    fi
    for vfield_word in $vfield_also; do vfield_options="$vfield_options --image $vfield_word"; done
    vfield_say "joining $vfield_image through $vfield_members"
    # Its mounts are its own: a later change of roots takes away those of the system alone.
    vfield_apart=''
    if command -v unshare >/dev/null; then vfield_apart='unshare --mount --propagation private'; fi
    set -f
    # No shell stays behind it.
    # shellcheck disable=SC2086
    exec $vfield_apart chroot "$vfield_home" /vfield --quiet join $vfield_members --image "$vfield_image" $vfield_options --members /state/members --device "$vfield_kind" --root \
        </dev/null >/dev/console 2>&1 &
    vfield_guard=$!
    set +f
    until vfield_run status --wait ready --timeout 10s >/dev/null 2>&1; do
        kill -0 $vfield_guard 2>/dev/null || return 1
    done
    # An image that is given as NAME=ID is asked for by its id.
    case ${vfield_image##*=} in
    '' | *[!0-9a-fA-F]*) vfield_wanted=$vfield_image ;;
    *) vfield_wanted=${vfield_image##*=} ;;
    esac
    vfield_device=$(vfield_run status --device "$vfield_wanted")
    [ -b "$vfield_device" ]
}

# Mounts the attached image, and has the network boot told a while later that the machine runs.
vfield_mount() {
    vfield_mount_image "$1" || return 1
    case $vfield_booted in
    '' | -*) ;;
    *) vfield_run booted "$vfield_booted" </dev/null >/dev/console 2>&1 & ;;
    esac
}

# Mounts the image of $vfield_device. Changes of a file system that cannot be written, or of a root
# that follows a tag, lie in a file system in memory.
vfield_mount_image() {
    vfield_type=$(blkid -o value -s TYPE "$vfield_device")
    modprobe -q "$vfield_type"
    case $vfield_type:$vfield_overlay:$vfield_follow in
    *:none:*) mount -t "$vfield_type" -o ro "$vfield_device" "$1" ;;
    squashfs:* | erofs:* | *:?*:?*) vfield_mount_layers "$1" ;;
    *) mount -t "$vfield_type" "$vfield_device" "$1" ;;
    esac
}

# The source of the mount says which device is below it: vfield-soft-reboot reads it.
vfield_mount_layers() {
    vfield_read_only=ro
    # Its log is not for this machine to write.
    [ "$vfield_type" != ext4 ] || vfield_read_only=ro,noload
    modprobe -q overlay
    mkdir -p "$vfield_layers/image" "$vfield_layers/changes"
    mount -t "$vfield_type" -o "$vfield_read_only" "$vfield_device" "$vfield_layers/image" || return 1
    mount -t tmpfs -o "mode=755${vfield_size:+,size=$vfield_size}" changes "$vfield_layers/changes" || return 1
    mkdir "$vfield_layers/changes/upper" "$vfield_layers/changes/work"
    mount -t overlay -o "lowerdir=$vfield_layers/image,upperdir=$vfield_layers/changes/upper,workdir=$vfield_layers/changes/work" \
        "vfield:$vfield_device" "$1"
}
