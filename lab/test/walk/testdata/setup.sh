#!/bin/sh
# Prepares the namespaces of one page, in which this runs as root: a network, and the repository as an
# overlay whose changes are dropped. Then starts the page's machines, connects them and waits.
#
# usage: setup.sh FOLDER REPOSITORY MACHINE...
set -eu
walk=$1
repository=$2
shift 2
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
mount -t tmpfs none /mnt
mkdir /mnt/walk /mnt/project /mnt/upper /mnt/work
mount --bind "$walk" /mnt/walk
mount -t overlay overlay -o "lowerdir=$repository,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/project
for machine in "$@"; do
	unshare --net --mount --uts bash /mnt/walk/machine.sh "$machine" &
	while [ ! -e "/mnt/walk/$machine.ready" ]; do sleep 0.05; done
	ip link add "$machine" type veth peer name eth0 netns $!
	ip link set "$machine" master br0 up
done
wait
