// Claims: of a history file its counters and attempts are read, with the node and times
// of each, in JSON and in Hadoop's default binary form; what is not a history, or is cut, is refused with its place.
package jhist

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
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
	h := testkit.Need(Read(strings.NewReader(jhist)))(t)
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
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a history", text)
		}
	}
}

// The same events as Hadoop 3.4.2's own writer wrote them in both forms: three maps, one of them killed once, and a reduce.
func TestBinaryHistory(t *testing.T) {
	t.Parallel()
	text := testkit.Need(os.ReadFile("testdata/binary.jhist"))(t)
	want := testkit.Need(Read(bytes.NewReader(testkit.Need(os.ReadFile("testdata/json.jhist"))(t))))(t)
	got := testkit.Need(Read(bytes.NewReader(text)))(t)
	if !reflect.DeepEqual(got, want) || len(got.Of("MAP", "SUCCEEDED")) != 3 || len(got.Attempts) != 5 || got.Ended.IsZero() {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	schema := bytes.IndexByte(text[len("Avro-Binary\n"):], '\n') + len("Avro-Binary\n") + 1
	for cut := schema + 1; cut < len(text); cut += 7 {
		h, err := Read(bytes.NewReader(text[:cut]))
		if err == nil && !h.Ended.IsZero() || err != nil && !strings.Contains(err.Error(), "byte ") {
			t.Fatalf("cut after %d bytes: %v, %v", cut, h, err)
		}
	}
	for name, x := range map[string][]byte{
		"no schema":         []byte("Avro-Binary\nnonsense\n"),
		"an unknown type":   []byte("Avro-Binary\n{\"type\":\"what\"}\n"),
		"a type in itself":  []byte(`Avro-Binary` + "\n" + `{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}` + "\n\x00"),
		"a deep schema":     []byte("Avro-Binary\n" + strings.Repeat(`{"type":`, 100) + `"int"` + strings.Repeat("}", 100) + "\n"),
		"an endless string": append([]byte("Avro-Binary\n\"string\"\n"), binary.AppendVarint(nil, 1<<40)...),
		"endless nothing":   append([]byte(`Avro-Binary`+"\n"+`{"type":"array","items":"null"}`+"\n"), binary.AppendVarint(nil, 1<<40)...),
		"events of nothing": []byte(`Avro-Binary` + "\n" + `{"type":"record","name":"R","fields":[]}` + "\nx"),
		"no such choice":    append(bytes.Clone(text[:schema]), 0xfe, 0x01),
	} {
		if _, err := Read(bytes.NewReader(x)); err == nil {
			t.Errorf("%s is taken for a history", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"binary", "json"} {
		f.Add(testkit.Need(os.ReadFile(fmt.Sprintf("testdata/%s.jhist", name)))(f))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		testkit.Cheap(t, len(text), func() { _, _ = Read(bytes.NewReader(text)) })
	})
}
