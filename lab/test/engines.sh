#!/bin/sh
# Runs the proofs on real engines that the suite leaves out, one at a time, and appends a line
# for each to lab/test/engines.jsonl: name, date, commit, versions, result, seconds, and why it was
# not run. lab/test/engines.txt lists them. With uncommitted changes the lines are only printed,
# because they would name a commit that was not proven.
#
# usage: lab/test/engines.sh [NAME...], or --stale to print the proofs that must run again
set -u
cd "$(dirname "$0")/../.." || exit 1
GO=${GO:-go}
lines=lab/test/engines.jsonl
# One proof's time, seconds: the longest takes a fraction of it.
most=3600

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

if [ "${1-}" = --stale ]; then
	"$GO" test -count=1 -v -run '^TestEnginesAreProven$' . >"$scratch/log" 2>&1 || {
		cat "$scratch/log"
		exit 1
	}
	sed -n -E 's/.*(warning: |not run: )/\1/p' "$scratch/log"
	exit 0
fi

for name in "$@"; do
	grep -q "^$name " lab/test/engines.txt || {
		echo "error: no proof is called $name; lab/test/engines.txt lists them" >&2
		exit 2
	}
done

sh lab/test/install.sh

commit=$(git rev-parse HEAD 2>/dev/null) || commit=''
if [ -z "$commit" ]; then
	echo 'no repository: the lines are printed, not written'
elif [ -n "$(git status --porcelain --untracked-files=no -- . ":!$lines")" ]; then
	echo 'uncommitted changes: the lines are printed, not written'
	commit=''
fi

# prove WHERE WHAT... runs one proof into $log.
prove() {
	where=$1
	shift
	case $where in
	sh) HEADROOM_ENGINES=1 timeout "$most" sh "$@" ;;
	*) HEADROOM_ENGINES=1 GOFLAGS="${GOFLAGS-} -trimpath" "$GO" test -count=1 -v -timeout "${most}s" -run "^$1\$" "$where" ;;
	esac >"$log" 2>&1 </dev/null
}

# plain makes a text one line of a JSON string.
plain() { tr '\n' ' ' | tr -d '"\\' | tr -cd '[:print:]' | cut -c -300 | sed 's/ *$//'; }

failed=0
while read -r name where what; do
	case $name in '#'* | '') continue ;; esac
	case " $* " in '  ' | *" $name "*) ;; *) continue ;; esac
	log=$scratch/$name.log began=$(date +%s)
	echo "== $name"
	# shellcheck disable=SC2086 # one word per argument
	prove "$where" $what
	code=$? result=passed reason=''
	if why=$(grep -m 1 -o 'not run: .*' "$log") && { [ "$code" = 3 ] || [ "$code" = 0 ]; }; then
		result='not run' reason=",\"reason\":\"$(printf '%s' "${why#not run: }" | plain)\""
	elif [ "$code" != 0 ] || ! grep -q 'engine: ' "$log"; then
		result=failed failed=1 # also when no test of that name exists
		tail -n 60 "$log"
	fi
	versions=$(sed -n 's/.*engine: //p' "$log" | sort -u | paste -sd, | sed 's/,/, /g' | plain)
	line=$(printf '{"name":"%s","date":"%s","commit":"%s","versions":"%s","result":"%s","seconds":%d%s}' \
		"$name" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$commit" "$versions" "$result" "$(($(date +%s) - began))" "$reason")
	echo "$line"
	[ -n "$commit" ] || continue
	echo "$line" >>"$lines"
	# The last ten of each are enough to see what changed.
	awk -F'"' '{ text[NR] = $0; of[NR] = $4; left[$4]++ } END { for (i = 1; i <= NR; i++) if (left[of[i]]-- <= 10) print text[i] }' "$lines" >"$scratch/lines" &&
		cp "$scratch/lines" "$lines"
done <lab/test/engines.txt
exit "$failed"
