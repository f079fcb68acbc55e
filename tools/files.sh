#!/bin/sh
# Prints the project's own files, one a line: what git tracks, or, in a source archive
# (make archive), what its files.txt lists. Checks, lints and tests read this list, so that
# folders that the commands write and anybody's untracked work do not count.
#
# usage: tools/files.sh
set -eu
cd "$(dirname "$0")/.."
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
	list=$(git -c core.quotePath=off ls-files)
elif [ -f files.txt ]; then
	list=$(cat files.txt)
else
	echo "error: cannot list the project's files: no git checkout that git may read, and no files.txt" >&2
	echo 'hint: clone the repository, or use the archive that make archive writes' >&2
	exit 3
fi
# What was removed and not yet committed is listed and absent.
echo "$list" | while IFS= read -r file; do
	[ ! -f "$file" ] || printf '%s\n' "$file"
done
