#!/bin/sh
# Names the packages of the unit tests: sh test/packages.sh race|plain.
#
# race: those with concurrency of their own, in code or tests: a go statement, a WaitGroup's
# or errgroup's Go, or anything of sync. They run with the race detector.
# plain: the rest, and the studies, models and texts whose only goroutines are pools that
# other packages run with the race detector, which makes these ten times slower.
# Tests of whole machines and clusters are in neither.
set -eu
cd "$(dirname "$0")/.."
whole='/test/(e2e|vm|nspawn|bmc|netns|hadoop|spark|faults|walk)(/| )'
pools='^headroom$|/(jobs/deflation|jobs/queueing|lab/papers/.*|lab/studies|lab/arbitration|deploy/.*|internal/vet)$'
"${GO:-go}" list -f '{{.ImportPath}} {{.Dir}}' ./... | grep -vE "^[^ ]*$whole" | while read -r package dir; do
	kind=plain
	if grep -qsE '\bgo (func\b|[a-z][A-Za-z.]*\()|\.Go\(|\bsync\.|\batomic\.' "$dir"/*.go; then
		kind=race
	fi
	if echo "$package" | grep -qE "$pools"; then
		kind=plain
	fi
	[ "$kind" != "$1" ] || echo "$package"
done
