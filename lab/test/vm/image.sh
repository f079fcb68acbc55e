#!/bin/sh
# Builds what the test machine boots, once per kernel version, into a cache folder:
# the uncompressed kernel, the unpacked kernel package and the simulated hardware's
# modules. Needs the packages of packages.txt and a package source; changes nothing
# on this machine outside the folder.
#
# usage: image.sh FOLDER      prints the folder of the finished image
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cache=$(cd "$1" && pwd)

# Image and headers must be of one version: the one that the installed headers are for.
headers=$(readlink -f "/usr/src/linux-headers-$(dpkg-query -W -f '${Depends}' linux-headers-amd64 |
	sed -n 's/.*linux-headers-\([^ ,]*\).*/\1/p')")
version=${headers##*/linux-headers-}
[ -d "$headers" ] || { echo "no kernel headers: install linux-headers-amd64" >&2; exit 1; }

sum=$(cat "$here/image.sh" "$here"/module/*.[ch] "$here/module/Makefile" | sha256sum | cut -c1-12)
image=$cache/$version-$sum
if [ -f "$image/done" ]; then
	echo "$image"
	exit 0
fi

# Two runs at once must not share a half-built folder.
work=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

(cd "$work" && apt-get download "linux-image-$version" >download.log 2>&1) || {
	# The mirror may no longer have the version that the lists name.
	cat "$work/download.log" >&2
	exit 1
}
dpkg -x "$work"/linux-image-*.deb "$work/kernel"
rm "$work"/linux-image-*.deb
depmod -b "$work/kernel" "$version"

# A bzImage carries the kernel as an xz stream; unpacked, the machine boots twice as
# fast, since nothing has to be unpacked by an emulated processor.
offset=$(LC_ALL=C grep -abom1 "$(printf '\375\067zXZ')" "$work/kernel/boot/vmlinuz-$version" | head -n1 | cut -d: -f1)
[ -n "$offset" ] || { echo "no xz stream in vmlinuz-$version" >&2; exit 1; }
tail -c "+$((offset + 1))" "$work/kernel/boot/vmlinuz-$version" | xz -dcq >"$work/vmlinux" 2>/dev/null || true
[ "$(head -c4 "$work/vmlinux" | tail -c3)" = ELF ] || { echo "vmlinuz-$version holds no ELF" >&2; exit 1; }

cp -r "$here/module" "$work/module"
make -s -C "$work/module" KBUILD="$headers" >"$work/module.log" 2>&1 || { cat "$work/module.log" >&2; exit 1; }

echo "$version" >"$work/version"
touch "$work/done"
trap - EXIT
mv -T "$work" "$image" 2>/dev/null || rm -rf "$work" # another run was faster
echo "$image"
