#!/bin/busybox sh
# First process of a guest with systemd: makes the root file system in memory out of the packages' files and the guest's
# own, and becomes systemd. The initial root itself cannot be it: services with a view of their own need to leave it.
/bin/busybox mkdir -p /applets /root-of-guest /dev
/bin/busybox --install -s /applets
export PATH=/applets
mount -t devtmpfs dev /dev
exec > /dev/ttyS0 2>&1
mount -t tmpfs -o mode=755,size=80% root /root-of-guest
cd /root-of-guest || exit 1
mkdir -p dev proc sys run tmp var/tmp root usr/bin
chmod 1777 tmp var/tmp
# What the packages have wins over busybox, and what the guest was given over both.
/bin/busybox --install -s /root-of-guest/usr/bin
# It would be a link to itself.
rm -f usr/bin/busybox
tar -xf /system.tar
for directory in bin sbin lib lib64 usr etc; do
    [ ! -d /$directory ] || cp -a /$directory/. $directory/
done
cp /run.sh run.sh
echo 'messagebus:x:100:100::/nonexistent:/bin/false' >> etc/passwd
printf 'root:x:0:\nmessagebus:x:100:\n' > etc/group
while read -r module; do
    insmod "$module" || echo "cannot load $module"
done < /modules
cd /
mount --move /dev /root-of-guest/dev
exec switch_root /root-of-guest /lib/systemd/systemd
