#!/bin/sh
# Prepares the namespaces of one page, in which this runs as root: the network, and the repository as an
# overlay whose changes are dropped. Then starts the page's machines and waits.
#
# usage: setup.sh FOLDER REPOSITORY MACHINE...
set -eu
walk=$1
repository=$2
shift 2
ip link set lo up
for n in $(seq 11 40); do
	ip addr add "10.0.0.$n/32" dev lo
done
mount -t tmpfs none /mnt
mkdir /mnt/walk /mnt/project /mnt/upper /mnt/work
mount --bind "$walk" /mnt/walk
mount -t overlay overlay -o "lowerdir=$repository,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/project
for machine in "$@"; do
	unshare --mount --uts bash /mnt/walk/machine.sh "$machine" &
done
wait
