#!/busybox/busybox sh
# The first and only process of a test machine: brings up what a test needs, runs it, and switches
# the machine off.
export PATH=/busybox
/busybox/busybox --install -s /busybox
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
ln -s /proc/self/fd /dev/fd
for dir in /dev/shm /tmp /run; do mount -t tmpfs tmpfs $dir; done
while read -r module; do insmod "/modules/$module"; done </modules/order
nines=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$nines,ro,cache=loose" usr /usr
mount -t 9p -o "$nines" shared /shared
ip link set lo up
hostname machine
# The programs are those of the machine that this one runs on; busybox has what they lack.
export PATH=/usr/sbin:/usr/bin:/busybox HOME=/root
cd /tmp
: >/shared/begun
# Each step with its second is written to a file, so that a script that does not end can be asked
# where it is. Bash takes no PS4 from outside.
BASH_XTRACEFD=9 bash -c 'PS4="+ \$SECONDS s: "; set -x; . /shared/script' 9>/shared/steps
echo $? >/shared/status
sync
/busybox/poweroff -f
