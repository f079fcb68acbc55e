#!/bin/sh
# Names the project's packages: sh tools/packages.sh all|race|plain|sweeps|whole.
#
# all: every package, as a folder. race: those of the product with concurrency of their own, in
# code or tests (a go statement, a WaitGroup's or errgroup's Go, or anything of sync), and the
# emulated machines; they run with the race detector. plain: the rest, which it would make five to ten
# times slower and which has no concurrency but pools. sweeps: those of race of which a part only runs
# with the race detector (testkit.Sweep, testkit.Unraced). whole: tests of whole machines and clusters,
# which are in neither.
set -eu
cd "$(dirname "$0")/.."
whole='^lab/test/(e2e|vm|nspawn|bmc|netns|hadoop|spark|faults|walk)(/|$)'
raced='^(agent|consensus|coordinator|gossip|internal|ipmi|scheduler|systemd|thermal|lab/emulator)(/|$)'
plain='^internal/vet$'
sweeps='^(agent|consensus|coordinator|gossip|internal/rpc)$'

# Folders that hold Go files, as ./... finds them, but the project's own only.
list=$(sh tools/files.sh)
folders=$(echo "$list" | grep '\.go$' | grep -vE '(^|/)(testdata|[._][^/]*)/' | sed -E 's|^|./|; s|/[^/]*$||' | sort -u)
# A folder that the build's constraints leave empty is no package.
# shellcheck disable=SC2086 # one word per folder
folders=$("${GO:-go}" list -e -f '{{if or .GoFiles .CgoFiles .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $folders | sed -E '/^$/d; s|^headroom/?||; s|^$|.|')

for folder in $folders; do
	kind=plain
	if echo "$folder" | grep -qE "$whole"; then
		kind=whole
	elif echo "$folder" | grep -qE "$raced" && ! echo "$folder" | grep -qE "$plain" &&
		grep -qsE '\bgo (func\b|[a-z][A-Za-z.]*\()|\.Go\(|\bsync\.|\batomic\.' "$folder"/*.go; then
		kind=race
		if [ "$1" = sweeps ] && echo "$folder" | grep -qE "$sweeps"; then kind=sweeps; fi
	fi
	case $1 in all | "$kind") [ "$folder" = . ] && echo . || echo "./$folder" ;; esac
done
