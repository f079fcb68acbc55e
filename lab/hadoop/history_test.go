// Claims: of a history file its counters and attempts are read, with the node and times
// of each; what is not a history in JSON is refused.
package hadoop

import (
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

const jhist = `Avro-Json
{"type":"record","name":"Event","fields":[]}
{"type":"JOB_SUBMITTED","event":{"org.apache.hadoop.mapreduce.jobhistory.JobSubmitted":{"jobid":"job_1_0001","jobName":"x","submitTime":500}}}

{"type":"MAP_ATTEMPT_STARTED","event":{"org.apache.hadoop.mapreduce.jobhistory.TaskAttemptStarted":{"taskid":"task_1_0001_m_000000","taskType":"MAP","attemptId":"attempt_1_0001_m_000000_0","startTime":1000,"trackerName":"node1"}}}
{"type":"MAP_ATTEMPT_FINISHED","event":{"org.apache.hadoop.mapreduce.jobhistory.MapAttemptFinished":{"taskid":"task_1_0001_m_000000","attemptId":"attempt_1_0001_m_000000_0","taskType":"MAP","taskStatus":"SUCCEEDED","mapFinishTime":2500,"finishTime":3000,"hostname":"node1","counters":{"name":"COUNTERS","groups":[{"name":"g","displayName":"G","counts":[{"name":"n","displayName":"N","value":7}]}]}}}}
{"type":"MAP_ATTEMPT_KILLED","event":{"org.apache.hadoop.mapreduce.jobhistory.TaskAttemptUnsuccessfulCompletion":{"taskid":"task_1_0001_m_000001","taskType":"MAP","attemptId":"attempt_1_0001_m_000001_0","finishTime":4000,"hostname":"node2","status":"KILLED","error":"","counters":null}}}
{"type":"JOB_FINISHED","event":{"org.apache.hadoop.mapreduce.jobhistory.JobFinished":{"jobid":"job_1_0001","finishTime":5000,"totalCounters":{"name":"TOTAL","groups":[{"name":"g","displayName":"G","counts":[{"name":"n","displayName":"N","value":9}]}]}}}}
`

func TestHistoryIsRead(t *testing.T) {
	t.Parallel()
	h := testkit.Need(ReadHistory(strings.NewReader(jhist)))(t)
	if n, ok := h.Counters.Get("g", "n"); !ok || n != 9 {
		t.Errorf("the job's counter is %d, %v", n, ok)
	}
	if _, ok := h.Counters.Get("g", "other"); ok {
		t.Error("a counter that is not there is found")
	}
	if h.Submitted.UnixMilli() != 500 || h.Ended.UnixMilli() != 5000 {
		t.Errorf("from %v to %v", h.Submitted, h.Ended)
	}
	good, killed := h.Of("MAP", "SUCCEEDED"), h.Of("MAP", "KILLED")
	if len(h.Attempts) != 2 || len(good) != 1 || len(killed) != 1 {
		t.Fatalf("attempts %+v", h.Attempts)
	}
	if a := good[0]; a.Node != "node1" || a.Finished.Sub(a.Started) != 2*time.Second || a.Counters["g"]["n"] != 7 {
		t.Errorf("attempt %+v", a)
	}
	if a := killed[0]; a.Node != "node2" || a.Counters != nil {
		t.Errorf("killed attempt %+v", a)
	}
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "Avro-Binary\n", "Avro-Json\nnonsense\n"} {
		if _, err := ReadHistory(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a history", text)
		}
	}
}
