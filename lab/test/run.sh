#!/bin/sh
# Runs all tests: the packages with the race detector; those without concurrency, and beside them
# what the race detector makes too long; then, in two lanes at once, those of whole machines and clusters:
# Hadoop and Spark, and beside them systemd, a virtual machine, a BMC, the demonstration, servers
# and nodes in networks of their own, and the commands of the documents. The plug-ins in Java are
# built in the background. Ends with the slowest tests, the list of what this machine did not permit
# and go test's own closing lines; the exit code is 0 only when nothing failed.
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
memory=''
trap 'rm -rf "$scratch" $memory' EXIT
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

# The go command, perhaps behind another.
go=go

# run LOG ARGUMENT... is go test: the whole output goes to LOG, what passed is not
# shown. Returns go test's exit code.
run() {
	into=$1
	shift
	{
		$go test -v "$@" 2>&1
		echo $? >"$into.code"
	} | tee "$into" | grep --line-buffered -vE '^=== |^ *--- PASS|^PASS$|no test files|\[rapid\] OK'
	return "$(cat "$into.code")"
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
	# The suite has a bound, and what failed early may fail again late.
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

# skipped lists the tests that did not run, with the reason they gave; not those that another command or stage runs.
skipped() {
	sed -n 's/^not run: //p' "$scratch/install.log"
	awk '
		/^=== (RUN|NAME|CONT)/ { name = $3 }
		/not run: / { why = $0; sub(/.*not run: /, "", why); print name ": " why; told[name] = 1 }
		/left to / { told[name] = 1 }
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

# stage NAME LOG PACKAGES ARGUMENT... runs a stage; what failed runs once more.
stage() {
	echo "== go test: $1"
	log=$scratch/$2.log packages=$3
	shift 3
	# shellcheck disable=SC2086 # one word per package
	run "$log" "$@" $packages || again "$log" "$@" || echo "$log" >>"$scratch/failed"
	lap
}

# hooks builds the plug-ins and runs their own tests; other tests wait for their jars.
hooks() {
	sh hooks/build.sh bin >"$scratch/hooks.log" 2>&1
	case $? in
	0) ;;
	3) echo "not run: the hooks: $(grep -m 1 . "$scratch/hooks.log")" >>"$scratch/install.log" ;;
	*) echo 'FAIL	the hooks (make hooks)' | tee "$scratch/hooks.failed" >>"$scratch/failed" ;;
	esac
}

# alone runs a command in a network of its own, where that is permitted, so that two lanes share no port.
alone() {
	if unshare -n true 2>/dev/null && command -v ip >/dev/null 2>&1; then
		unshare -n sh -c 'ip link set lo up && exec "$@"' sh "$@"
	else
		"$@"
	fi
}

# whole PATTERN prints the packages of whole machines and clusters that match.
whole() { sh tools/packages.sh whole | grep -E "$1"; }

# lane NAME runs one of the two lanes.
lane() {
	# Programs that people run have what they have in production.
	unset GOGC
	case $1 in
	engines) stage 'Hadoop and Spark' engines "$(whole '/(hadoop|spark)$')" -count=1 -p 1 -timeout 25m ;;
	machines) go="alone go" stage 'whole machines and clusters' machines "$(whole '/(bmc|e2e|faults|netns|nspawn|vm|walk)$')" -count=1 -p 1 -timeout 25m ;;
	esac
}

# Tests of one process keep their files in memory, where there is room: they sync thousands of times, and
# what a disk does is the subject of the tests of whole machines.
disk=${TMPDIR-}
if [ "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')" -gt 4000000 ] 2>/dev/null; then
	memory=$(mktemp -d /dev/shm/headroom-test-XXXXXX) && chmod 1777 "$memory" && export TMPDIR="$memory"
fi

hooks &
# Tests that wait overlap: two processors would otherwise run two at a time.
# shellcheck disable=SC2086 # $race is empty or one word
stage "with concurrency ($race)" unit "$(sh tools/packages.sh race)" $race -parallel 6
# Of the sweeps' packages only the tests that the race detector has not seen whole.
swept=$(sh tools/packages.sh sweeps)
names=$(for p in $swept; do awk '
	/^func (Test|Fuzz)/ { name = $2; sub(/\(.*/, "", name) }
	/testkit\.(Sweep|Unraced)\(/ { print name }' "$p"/*_test.go; done | sort -u | paste -sd'|')
stage 'sweeps, without the race detector' sweeps "$swept" -count=1 -p 1 -run "^($names)\$" &
stage 'without concurrency' models "$(sh tools/packages.sh plain)" -count=1
wait
if [ -n "$disk" ]; then TMPDIR=$disk; else unset TMPDIR; fi
grep -h . "$scratch/hooks.failed" 2>/dev/null && cat "$scratch/hooks.log"
# What the lanes build is fetched while there is a network.
# shellcheck disable=SC2046 # one word per package
go list -deps -test $(sh tools/packages.sh whole) >/dev/null
lane engines &
lane machines
wait
failed=0
[ ! -s "$scratch/failed" ] || failed=1

logs="$scratch/unit.log $scratch/sweeps.log $scratch/models.log $scratch/engines.log $scratch/machines.log"
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
