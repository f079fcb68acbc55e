#!/bin/sh
# Names the project's packages: sh tools/packages.sh all|race|plain|whole.
#
# all: every package, as a folder. race: those with concurrency of their own, in code or
# tests: a go statement, a WaitGroup's or errgroup's Go, or anything of sync. They run with
# the race detector. plain: the rest, and the studies, models and texts whose only goroutines
# are pools that other packages run with the race detector, which makes these ten times
# slower. whole: tests of whole machines and clusters, which are in neither.
set -eu
cd "$(dirname "$0")/.."
whole='^lab/test/(e2e|vm|nspawn|bmc|netns|hadoop|spark|faults|walk)(/|$)'
pools='^(\.|jobs/deflation|jobs/queueing|lab/papers/.*|lab/studies|lab/arbitration|deploy/.*|internal/vet)$'

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
	elif echo "$folder" | grep -qE "$pools"; then
		kind=plain
	elif grep -qsE '\bgo (func\b|[a-z][A-Za-z.]*\()|\.Go\(|\bsync\.|\batomic\.' "$folder"/*.go; then
		kind=race
	fi
	case $1 in all | "$kind") [ "$folder" = . ] && echo . || echo "./$folder" ;; esac
done
