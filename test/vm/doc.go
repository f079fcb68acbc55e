// Package vm tests against a kernel's own power interfaces: a virtual machine under
// software emulation with the kernel's RAPL driver and cpufreq core on simulated
// registers, /dev/cpu/N/msr, and an in-band BMC at /dev/ipmi0.
//
// The one idea: what a tree of files cannot show (rounding, truncation, locked
// registers, writes that succeed without effect, a hung BMC) is shown by the kernel
// itself. The tests in guest/ run inside; the ones here build the image once (see
// image.sh), boot it, and read from its serial line how the tests inside went.
//
// It needs Linux on amd64 and the Debian packages of packages.txt; without them it
// is reported as not run. Nothing is loaded into the kernel of this machine, and the
// modules in module/ keep a licence of their own.
package vm
