#!/bin/sh
# One proof of each hook on the older Hadoop that the jars are compiled against; the suite runs the newest.
set -eu
cd "$(dirname "$0")/../../.."
version=$(sed -n 's/^hadoop\.version=//p' hooks/versions.properties)
echo "engine: hadoop $version"
HEADROOM_HADOOP=$version ${GO:-go} test -count=1 -v -timeout 1800s \
	-run '^(TestCapacitySchedulerFollows|TestDeadlinesAtTheDoor|TestAJobUnderACut|TestEarlyStopUnderACut|TestCopiesOvertake)$' ./lab/test/hadoop
