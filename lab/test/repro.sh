#!/bin/sh
# Runs again what shows a bug that was found: sh lab/test/repro.sh NAME, or all. The
# names are in lab/test/repro.txt.
set -eu
cd "$(dirname "$0")/../.."
GO=${GO:-go}
known=0
while read -r name where test; do
	case $name in '#'* | '') continue ;; esac
	[ "$1" = all ] || [ "$1" = "$name" ] || continue
	known=1
	echo "== $name"
	case $where in
	seed) "$GO" run ./lab/cmd/powerlab simulate --replay "lab/simulation/testdata/seeds/$name.json" </dev/null ;;
	hooks/*) # a test class of the plug-ins
		# shellcheck disable=SC2046 # one word for each version
		(cd hooks && mvn -B -q $(sed -n 's/^\([a-z][a-z.]*=\)/-D\1/p' versions.properties) -pl "client,${where#hooks/}" \
			-Dtest="$test" -Dsurefire.failIfNoSpecifiedTests=false test </dev/null)
		;;
	*) "$GO" test -count=1 -run "^$test\$" "$where" </dev/null ;;
	esac
done <lab/test/repro.txt
if [ "$known" = 0 ]; then
	echo "error: no bug is called $1; lab/test/repro.txt lists them" >&2
	exit 2
fi
