#!/bin/sh
# build.sh DIR [OPTION...]: compile and test the hooks, and put their jars into DIR.
# Options go to Maven; -Dmaven.test.skip=true leaves their tests out.
# Only the first run fetches anything. Exit code 3: this machine cannot build them
# (no Maven, no JDK, nothing to fetch from); 1: they are wrong.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
cd "$(dirname "$0")"

# Without their tests, jars that are newer than everything they are built from are kept.
# The first is the oldest: all four are copied in this order.
case " $* " in *" -Dmaven.test.skip=true "*)
	if [ -f "$out/headroom-hadoop.jar" ] && [ -f "$out/headroom-spark-apps.jar" ] &&
		[ -z "$(find . -name target -prune -o -newer "$out/headroom-hadoop.jar" -print)" ]; then
		exit 0
	fi
	;;
esac

for need in mvn javac; do
	command -v "$need" > /dev/null || { echo "the hooks are built with Maven and a JDK 17, and there is no $need: install maven and openjdk-17-jdk-headless" >&2; exit 3; }
done
versions=$(sed -n 's/^\([a-z][a-z.]*=\)/-D\1/p' versions.properties)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086 # one word per version
build() { mvn -B -q $versions "$@" package > "$log" 2>&1; }

if ! build -o "$@"; then
	# Offline it fails for what is not fetched yet; all else is an error of ours, which a second run would only repeat.
	grep -qiE 'in offline mode|not been downloaded from it before' "$log" || { cat "$log" >&2; exit 1; }
	if ! build "$@"; then
		cat "$log" >&2
		grep -qE 'Could not (transfer|resolve|find artifact)|could not be resolved' "$log" && exit 3
		exit 1
	fi
fi
cp hadoop/target/headroom-hadoop.jar apps/target/headroom-apps.jar spark/target/headroom-spark.jar apps-spark/target/headroom-spark-apps.jar "$out/"
