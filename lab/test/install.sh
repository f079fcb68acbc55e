#!/bin/sh
# Installs by Debian package name what the tests need, as root or by sudo without a
# password. It never fails: what could not be installed is said as "not run: ...",
# and the tests that need it do not run.
#
# usage: lab/test/install.sh
#
# One line per need: the packages, then what they are for. A folder of tests lists its
# own in packages.txt, one a line; what several need is in each of their lists, so that
# what is said about a missing one is whole, and is installed once.
set -u
cd "$(dirname "$0")" || exit 1

needs() {
	cat <<'NEEDS'
gcc libc6-dev|the race detector
etcd-server|the ratios to etcd of powerlab bench cluster
krb5-kdc krb5-admin-server|the tests of Kerberos, scheduler/webclient and lab/test/hadoop
NEEDS
	for list in */packages.txt; do
		printf '%s|the tests of lab/test/%s\n' "$(tr '\n' ' ' <"$list")" "${list%/*}"
	done
}

say() { printf 'not run: %s\n' "$*"; }

# as_root runs a command as root, or fails without asking for anything.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo -n "$@" 2>/dev/null
	else
		return 1
	fi
}

installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

missing=$(needs | while IFS='|' read -r packages purpose; do
	for p in $packages; do
		installed "$p" || echo "$p"
	done
done | sort -u | tr '\n' ' ')
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	needs | while IFS='|' read -r packages purpose; do say "$purpose: this is no Debian; install what matches $packages"; done
	exit 0
fi

echo "installing: $missing"
# shellcheck disable=SC2086 # one word per package
if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1; then
	# The package lists of a fresh machine may be old or absent.
	as_root apt-get update -q >/dev/null 2>&1
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1
fi

# Debian starts what it installs; the tests start servers of their own.
for of in etcd-server:etcd krb5-kdc:krb5-kdc krb5-admin-server:krb5-admin-server; do
	case " $missing " in
	*" ${of%:*} "*) command -v systemctl >/dev/null 2>&1 && as_root systemctl disable --now "${of#*:}" >/dev/null 2>&1 ;;
	esac
done

needs | while IFS='|' read -r packages purpose; do
	for p in $packages; do
		installed "$p" || { say "$purpose: $p could not be installed (neither root nor sudo without a password, or no package source)"; break; }
	done
done
exit 0
