#!/bin/busybox sh
# First process of the guest: mounts what a machine has mounted, runs /run.sh, reports its output and status on the
# second serial port and switches the machine off.
export PATH=/bin:/sbin HOME=/
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /run /tmp /root
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
if [ -f /cgroup-v1 ]; then
    mount -t tmpfs cgroup /sys/fs/cgroup
    for controllers in cpu,cpuacct memory pids freezer; do
        mkdir -p /sys/fs/cgroup/$controllers
        mount -t cgroup -o $controllers cgroup /sys/fs/cgroup/$controllers
    done
    mkdir -p /sys/fs/cgroup/unified
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
    done
fi
while read -r module; do
    insmod "$module" || echo "cannot load $module"
done < /modules
ip link set lo up
hostname guest
stty -F /dev/ttyS1 raw -echo
/bin/sh /run.sh > /dev/ttyS1 2>&1 < /dev/null
echo "evenkeel-vm-exit: $?" > /dev/ttyS1
# Setting a terminal waits until what was written is sent; closing it does not, while the script's children have it open.
stty -F /dev/ttyS1 raw -echo
sync
# isa-debug-exit: qemu ends at the first byte written to its port.
printf '\000' | dd of=/dev/port bs=1 seek=244 conv=notrunc 2> /dev/null
poweroff -f
