#!/bin/bash
# One machine of a page: a shell with a host name, an address, and /etc, /var and /run of its own. It reads names of files
# with commands from its queue, runs each in this shell, and leaves FILE.out, FILE.failed (exit code and line of each
# command that failed) and, when it is done, FILE.rc.
#
# usage: machine.sh NAME
name=$1
own=/mnt/walk/machines/$name
users() { # the users and groups of the packages
	while read -r kind user group rest; do
		id=$((900 + $(wc -l <"$own/etc/group")))
		case $kind in
		g) echo "$user:x:$id:" >>"$own/etc/group" ;;
		u)
			echo "$user:x:$id:" >>"$own/etc/group"
			echo "$user:x:$id:$id::/:/bin/false" >>"$own/etc/passwd"
			;;
		m) sed -i -E "s/^($group:x:[0-9]+:)(.*[^:])\$/\1\2,$user/; s/^($group:x:[0-9]+:)\$/\1$user/" "$own/etc/group" ;;
		esac
	done </mnt/project/deploy/systemd/headroom.sysusers.conf
}
set -e
mkdir -p "$own/etc" "$own/var/lib/headroom" "$own/var/backups" "$own/var/tmp" "$own/run" "$own/root"
cp -a /etc/. "$own/etc"
mkdir -p "$own/etc/headroom"
printf '127.0.0.1 localhost\n' >"$own/etc/hosts"
for n in 1 2 3 4; do echo "10.0.0.1$n c$n" >>"$own/etc/hosts"; done
for n in $(seq 16); do printf '10.0.0.%d n%02d\n' $((20 + n)) "$n" >>"$own/etc/hosts"; done
awk '{ exit $3 == 1 }' /proc/self/uid_map && users
mount --bind "$own/etc" /etc
mount --bind "$own/var" /var
mount --bind "$own/run" /run
hostname "$name"
: >"/mnt/walk/$name.ready"
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip link set eth0 up
# A machine without a name of the hosts is the scheduler's, 10.0.0.20.
address=$(awk -v name="$name" '$2 == name { print $1 }' /etc/hosts)
ip addr add "${address:-10.0.0.20}/24" dev eth0
[ -n "$address" ] || echo "10.0.0.20 $name" >>/etc/hosts
export HOME=$own/root TMPDIR=/tmp PATH=/mnt/walk/bin:$PATH
cd "${WALK_FOLDER:-$HOME}"
exec 9<"/mnt/walk/$name.queue" </dev/null
set +e
set -E
: >"/mnt/walk/$name.up"
trap 'echo "$? $LINENO" >>"$step.failed"' ERR
while read -r step <&9; do
	# shellcheck disable=SC1090 # the step is a file of the page
	. "$step" >"$step.out" 2>&1
	if [ -e "$step.settles" ]; then
		# What was started in the background has said what there is to read when it is silent for a second.
		said=
		for _ in $(seq 10); do
			sleep 1
			now=$(wc -c <"$step.out")
			[ "$now" != "$said" ] || break
			said=$now
		done
	fi
	: >"$step.rc"
done
