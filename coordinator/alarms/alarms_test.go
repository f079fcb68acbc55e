// Claims: a job that ended below its quality floor is an alarm for a day; one that has not
// ended by its deadline is one until it ends.
package alarms

import (
	"strings"
	"testing"
	"time"

	"headroom/ledger"
)

func TestEndBelowTheFloorIsAnAlarm(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ledger.New()
	for id, j := range map[string]ledger.Job{
		"below": {Done: 29, Ended: now.Add(-23 * time.Hour).UnixMicro()}, "at": {Done: 30, Ended: now.UnixMicro()}, "long ago": {Done: 1, Ended: now.Add(-25 * time.Hour).UnixMicro()},
	} {
		j.ID, j.State, j.Floor, j.Tasks = id, ledger.JobDone, 0.75, 40
		s.Jobs[id] = j
	}
	got := jobAlarms(s, now)
	if len(got) != 1 || got[0].Key() != "quality-floor/below" || got[0].Severity != Fail || !strings.Contains(got[0].Text, "29 of 40 tasks, its quality floor is 30") {
		t.Errorf("alarms %+v", got)
	}
}

func TestMissedDeadlineIsAnAlarm(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ledger.New()
	for id, j := range map[string]ledger.Job{
		"late": {State: ledger.JobAccepted, Deadline: time.Minute}, "in time": {State: ledger.JobAccepted, Deadline: time.Hour}, "none": {State: ledger.JobAccepted},
		"over": {State: ledger.JobDone, Deadline: time.Minute},
	} {
		j.ID, j.Submitted = id, now.Add(-10*time.Minute).UnixMicro()
		s.Jobs[id] = j
	}
	got := jobAlarms(s, now)
	if len(got) != 1 || got[0].Key() != "deadline-missed/late" || got[0].Severity != Warn || !strings.Contains(got[0].Text, "its deadline was 1m00s after it was submitted, 9m00s ago") {
		t.Errorf("alarms %+v", got)
	}
}
