#!/bin/sh
# Runs again what shows a bug that was found: sh test/repro.sh NAME, or all. The
# names are in test/repro.txt.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
known=0
while read -r name where test; do
	case $name in '#'* | '') continue ;; esac
	[ "$1" = all ] || [ "$1" = "$name" ] || continue
	known=1
	echo "== $name"
	case $where in
	seed) "$GO" run ./cmd/powerlab simulate --replay "lab/simulation/testdata/seeds/$name.json" </dev/null ;;
	*) "$GO" test -count=1 -run "^$test\$" "$where" </dev/null ;;
	esac
done <test/repro.txt
if [ "$known" = 0 ]; then
	echo "error: no bug is called $1; test/repro.txt lists them" >&2
	exit 2
fi
