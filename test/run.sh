#!/bin/sh
# Runs all tests: the packages with the race detector, the simulation's sabotages without
# it, then, one after the other, those of whole machines and clusters: systemd, a virtual
# machine, a BMC, the demonstration, servers and nodes in networks of their own, Hadoop, Spark. Ends with
# the list of what this machine did not permit and with go test's own closing lines; the
# exit code is 0 only when nothing failed.
#
# usage: test/run.sh
set -u
cd "$(dirname "$0")/.." || exit 1

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

sh test/install.sh | tee "$scratch/install.log"

# The race detector needs cgo, and that a C compiler.
race=-race CGO_ENABLED=1
if ! printf 'int main(void){return 0;}' | "${CC:-gcc}" -x c -o "$scratch/probe" - 2>/dev/null; then
	race='' CGO_ENABLED=0
	grep -q 'race detector' "$scratch/install.log" ||
		echo 'not run: the race detector: no working C compiler' | tee -a "$scratch/install.log"
fi
export CGO_ENABLED

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

# skipped lists the tests that did not run, with the reason they gave.
skipped() {
	sed -n 's/^not run: //p' "$scratch/install.log"
	awk '
		/^=== (RUN|NAME|CONT)/ { name = $3 }
		/not run: / { why = $0; sub(/.*not run: /, "", why); print name ": " why; told[name] = 1 }
		/^ *--- SKIP: / { if (!($3 in told)) print $3 ": skipped" }
	' "$@"
}

# closing is what go test says at its end, one line a package.
closing() {
	grep -hE '^ *--- FAIL: |^panic: ' "$@"
	grep -hE '^(ok|FAIL)[[:space:]]' "$@"
}

failed=0
whole='/test/(e2e|vm|nspawn|bmc|netns|hadoop|spark)(/|$)'
packages=$(go list ./... | grep -vE "$whole") || exit 1
echo "== go test $race (all but whole machines and clusters)"
# shellcheck disable=SC2086 # one word per package
run "$scratch/unit.log" $race $packages || failed=1

echo "== go test -count=1 (what takes too long with the race detector)"
run "$scratch/plain.log" -count=1 -run '^TestSabotageIsFound$' ./simulation || failed=1

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

machines=$(go list ./test/... | grep -E "$whole") || exit 1
echo "== go test -count=1 -p 1 (whole machines and clusters)"
# shellcheck disable=SC2086 # one word per package
run "$scratch/e2e.log" -count=1 -p 1 -timeout 20m $machines || failed=1

skipped "$scratch/unit.log" "$scratch/plain.log" "$scratch/e2e.log" >"$scratch/skipped"
echo
if [ -s "$scratch/skipped" ]; then
	echo "not run on this machine: $(wc -l <"$scratch/skipped")"
	sed 's/^/  not run: /' "$scratch/skipped"
	echo
fi
[ ! -s "$scratch/hooks.failed" ] || cat "$scratch/hooks.failed"
closing "$scratch/unit.log" "$scratch/plain.log" "$scratch/e2e.log"
exit "$failed"
