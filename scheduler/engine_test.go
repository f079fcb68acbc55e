package scheduler

// A run of Spark has the error bound of its job's file.

import (
	"testing"

	"headroom/jobs/dispatch"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/spark"
)

func TestRunsHaveTheErrorBound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"5%": true, "0": true, "": false} {
		l := &loop{records: map[string]*record{"j": {file: &jobfile.File{Error: text, Spark: &spark.Spec{}}}}}
		if got := l.order("j", dispatch.RunRecord{Number: 1}); got.Bounded != want {
			t.Errorf("error %q: bounded is %v", text, got.Bounded)
		}
	}
}
