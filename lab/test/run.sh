#!/bin/sh
# Runs all tests: the packages with the race detector, those without concurrency and the
# simulation's sabotages without it, then, one after the other, those of whole machines
# and clusters: systemd, a virtual machine, a BMC, the demonstration, servers and nodes in
# networks of their own, the commands of the documents, Hadoop, Spark. Ends with the slowest
# tests, the list of what this machine did not permit and go test's own closing lines; the
# exit code is 0 only when nothing failed.
#
# A test that failed runs once more, alone, when at most three did: the machine may have
# been busy. What then passes is listed as unsteady. A data race, a panic, a package that
# ran out of time or does not build fails at once.
#
# usage: lab/test/run.sh
set -u
cd "$(dirname "$0")/../.." || exit 1

began=$(date +%s)
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

sh lab/test/install.sh | tee "$scratch/install.log"

# The race detector needs cgo, and that a C compiler.
race=-race CGO_ENABLED=1
if ! printf 'int main(void){return 0;}' | "${CC:-gcc}" -x c -o "$scratch/probe" - 2>/dev/null; then
	race='' CGO_ENABLED=0
	grep -q 'race detector' "$scratch/install.log" ||
		echo 'not run: the race detector: no working C compiler' | tee -a "$scratch/install.log"
fi
export CGO_ENABLED
# A program with the race detector sleeps a second when it ends; the command line's tests
# start hundreds.
export GORACE=atexit_sleep_ms=0
# Tests and compilers collect garbage a third as often: the time counts here, not the memory.
export GOGC=300
# The build cache then serves every folder that a copy of the project stands in.
export GOFLAGS="${GOFLAGS-} -trimpath"

# run LOG ARGUMENT... is go test: the whole output goes to LOG, what passed is not
# shown. Returns go test's exit code.
run() {
	log=$1
	shift
	{
		go test -v "$@" 2>&1
		echo $? >"$log.code"
	} | tee "$log" | grep --line-buffered -vE '^=== |^ *--- PASS|^PASS$|no test files|\[rapid\] OK'
	return "$(cat "$log.code")"
}

# broken LOG prints "PACKAGE TEST" for each outermost test that failed in LOG.
broken() {
	awk '
		/^--- FAIL: / { fails[++n] = $3 }
		/^FAIL[[:space:]]+[^[:space:]]/ { for (i = 1; i <= n; i++) print $2, fails[i]; n = 0 }
		/^ok[[:space:]]/ { n = 0 }
	' "$1"
}

# hopeless LOG reports whether LOG shows what a second run cannot mend, or a package
# that failed without naming a test.
hopeless() {
	grep -qE 'WARNING: DATA RACE|^panic: |\[build failed\]|\[setup failed\]|^fatal error: ' "$1" && return 0
	for p in $(awk '/^FAIL[[:space:]]+[^[:space:]]/ { print $2 }' "$1"); do
		broken "$1" | grep -q "^$p " || return 0
	done
	return 1
}

# again LOG ARGUMENT... runs the tests that failed in LOG once more. It succeeds when all
# passed, and writes them to the list of unsteady tests.
again() {
	of=$1
	shift
	hopeless "$of" && return 1
	broken "$of" >"$of.broken"
	[ -s "$of.broken" ] && [ "$(wc -l <"$of.broken")" -le 3 ] || return 1
	# Two hours are not there for a suite of forty minutes.
	[ $(($(date +%s) - began)) -lt 3600 ] || return 1
	cp "$of" "$of.first"
	while read -r package name; do
		echo "== once more: $package $name"
		run "$of.again" -count=1 -timeout 8m "$@" -run "^$name\$" "$package" </dev/null || return 1
		echo "$package $name" >>"$scratch/unsteady"
	done <"$of.broken"
	# What is said at the end is what the second run said.
	while read -r package name; do
		sed -i -E -e "/^ *--- FAIL: $name[ /]/d" -e "s|^FAIL[[:space:]]+$package[[:space:]].*|ok  	$package	(unsteady: passed when run again)|" "$of"
	done <"$of.broken"
	sed -i '/^FAIL$/d' "$of"
}

# skipped lists the tests that did not run, with the reason they gave; not those that belong to make engines.
skipped() {
	sed -n 's/^not run: //p' "$scratch/install.log"
	awk '
		/^=== (RUN|NAME|CONT)/ { name = $3 }
		/not run: / { why = $0; sub(/.*not run: /, "", why); print name ": " why; told[name] = 1 }
		/left to make engines: / { told[name] = 1 }
		/^ *--- SKIP: / { if (!($3 in told)) print $3 ": skipped" }
	' "$@"
}

# slowest lists the outermost tests that took longest, in seconds.
slowest() {
	sed -nE 's/^--- (PASS|FAIL): ([^ ]+) \(([0-9.]+)s\)$/\3 \2/p' "$@" | sort -rn | head -n 15 |
		awk '{ printf "%9.1f s  %s\n", $1, $2 }'
}

# closing is what go test says at its end, one line a package.
closing() {
	grep -hE '^ *--- FAIL: |^panic: ' "$@"
	grep -hE '^(ok|FAIL)[[:space:]]' "$@"
}

lap() { echo "   ($(($(date +%s) - began)) s since the start)"; }

failed=0
# Tests that wait overlap: two processors would otherwise run two at a time.
together=6
packages=$(sh tools/packages.sh race) || exit 1
echo "== go test $race (packages with concurrency)"
# shellcheck disable=SC2086 # one word per package
run "$scratch/unit.log" $race -parallel $together $packages || again "$scratch/unit.log" $race || failed=1
lap

models=$(sh tools/packages.sh plain) || exit 1
echo "== go test (packages without, studies, models, texts)"
# shellcheck disable=SC2086 # one word per package
run "$scratch/models.log" -count=1 $models || again "$scratch/models.log" || failed=1
lap

echo "== go test (what takes too long with the race detector)"
run "$scratch/plain.log" -count=1 -run 'Sabotage|BreakAll|EditsFit' ./lab/simulation || again "$scratch/plain.log" || failed=1
lap

echo "== make hooks (the plug-ins for Hadoop and Spark, and their own tests)"
sh hooks/build.sh bin >"$scratch/hooks.log" 2>&1
case $? in
0) echo 'ok' ;;
3) echo "not run: the hooks: $(grep -m 1 . "$scratch/hooks.log")" | tee -a "$scratch/install.log" ;;
*)
	cat "$scratch/hooks.log"
	echo 'FAIL	the hooks (make hooks)' | tee "$scratch/hooks.failed"
	failed=1
	;;
esac
lap

# Programs that people run have what they have in production.
unset GOGC
machines=$(sh tools/packages.sh whole) || exit 1
echo "== go test -p 1 (whole machines and clusters)"
# shellcheck disable=SC2086 # one word per package
run "$scratch/e2e.log" -count=1 -p 1 -timeout 25m $machines || again "$scratch/e2e.log" -p 1 || failed=1
lap

logs="$scratch/unit.log $scratch/models.log $scratch/plain.log $scratch/e2e.log"
# shellcheck disable=SC2086 # one word per log
{
	skipped $logs >"$scratch/skipped"
	echo
	echo "slowest tests:"
	slowest $logs
	echo "all tests: $(($(date +%s) - began)) s"
	echo
	if [ -s "$scratch/unsteady" ]; then
		echo "unsteady on this machine, passed when run again:"
		sed 's/^/  unsteady: /' "$scratch/unsteady"
		echo
	fi
	if [ -s "$scratch/skipped" ]; then
		echo "not run on this machine: $(wc -l <"$scratch/skipped")"
		sed 's/^/  not run: /' "$scratch/skipped"
		echo
	fi
	[ ! -s "$scratch/hooks.failed" ] || cat "$scratch/hooks.failed"
	closing $logs
}
exit "$failed"
