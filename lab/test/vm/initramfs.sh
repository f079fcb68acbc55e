#!/bin/sh
# Packs the file system that the test machine starts from: busybox, the modules, and
# what the test brings.
#
# usage: initramfs.sh IMAGE OUT INIT [FILE:PLACE ...]
set -eu
image=$1 out=$2 init=$3
shift 3
version=$(cat "$image/version")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir -p "$root/bin" "$root/sbin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/etc" \
	"$root/psim" "$root/lib/modules/$version"
cp /bin/busybox "$root/bin/busybox"
install -m755 "$init" "$root/init"
cp "$image/module/psim.ko" "$image/module/psim_msr.ko" "$root/psim/"
cp "$image/kernel/lib/modules/$version"/modules.order "$image/kernel/lib/modules/$version"/modules.builtin* \
	"$root/lib/modules/$version/"
for name in msr intel_rapl_common ipmi_si ipmi_devintf cpufreq_userspace cpufreq_powersave; do
	for file in $(modprobe -d "$image/kernel" -S "$version" --show-depends "$name" 2>/dev/null | awk '/^insmod/{print $2}'); do
		install -D -m644 "$file" "$root/${file#"$image/kernel/"}"
	done
done
for pair in "$@"; do
	install -D -m755 "${pair%%:*}" "$root/${pair#*:}"
done
depmod -b "$root" "$version"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$out"
