#!/bin/sh
# Process 1 of the node, in mount, network, PID and UTS namespaces of its own.
# Everything that the node's daemons write outside the state folder (shim
# sockets, CNI caches, log links) lands in file systems that exist only here,
# so the end of this process is the end of the node, without residue.
set -eu
state=$1 binaries=$2 name=$3

hostname "$name"
exec 8<"$state" 9<"$binaries"
for hidden in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=755 node "$hidden"
done
# What the tmpfs has just covered is bound again, through the open folder.
keep() {
    case "$2" in
    /run/* | /var/lib/* | /var/log/*)
        mkdir -p "$2"
        mount --no-canonicalize --bind "/proc/self/fd/$1" "$2"
        ;;
    esac
}
keep 8 "$state"
keep 9 "$binaries"
exec 8<&- 9<&-

mkdir -p /var/lib/kubelet "$state/node/kubelet" "$state/node/log"
mount --bind "$state/node/kubelet" /var/lib/kubelet
mount --bind "$state/node/log" /var/log
# Volumes that the kubelet mounts must reach the containers.
mount --make-rshared /
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
touch "$state/node/ready"
exec "$binaries/pause"
