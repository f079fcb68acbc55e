// Package vm tests against a kernel's own power interfaces: a virtual machine under software
// emulation with the kernel's RAPL driver and cpufreq core on simulated registers, /dev/cpu/N/msr,
// and an in-band BMC at /dev/ipmi0.
//
// The one idea: the kernel shows what a tree of files cannot: rounding, truncation, locked
// registers, writes that succeed without effect, a hung BMC. The tests in guest/ run inside the
// machine. The tests here build the image once (see image.sh), boot it, and read the results of the
// tests inside from its serial line.
//
// It needs Linux on amd64 and the Debian packages of packages.txt; without them it is reported as
// not run. Nothing is loaded into the kernel of this machine, and the modules in module/ have their
// own licence.
package vm
