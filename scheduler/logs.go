package scheduler

import (
	"context"
	"fmt"
	"os"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/scheduler/access"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/spark"
)

const (
	// logsAtOnce bounds what one answer holds of a job's logs, bytes.
	logsAtOnce = 256 << 10
	// logsMost bounds the logs that a caller may have read parts of.
	logsMost = 4096
)

// logged is a job whose logs are asked for.
type logged struct {
	spec  []byte
	run   uint32
	tasks int
	ended bool
}

// Logs returns what a job's tasks or driver have written, to its submitter and to operators.
func (s *service) Logs(ctx context.Context, req *connect.Request[headroomv1.LogsRequest]) (*connect.Response[headroomv1.LogsResponse], error) {
	resp, err := s.logs(ctx, req.Msg)
	if err != nil {
		return nil, refusal(err, "logs")
	}
	return connect.NewResponse(resp), nil
}

func (s *service) logs(ctx context.Context, m *headroomv1.LogsRequest) (*headroomv1.LogsResponse, error) {
	if len(m.GetRead()) > logsMost {
		e := cli.Usage("job %s has more than %d logs", m.GetId(), logsMost)
		e.Hint = "name one of its tasks with --task"
		return nil, e
	}
	j, err := s.findLogged(ctx, m.GetId())
	if err != nil {
		return nil, err
	}
	who, submitter := access.CallerOf(ctx), jobfile.SubmitterOf(j.spec)
	if err := access.OwnJob(who, m.GetId(), submitter); err != nil {
		s.guard.Audit(who, "logs", "read the logs of job "+m.GetId())
		return nil, err
	}
	file, err := jobfile.Parse("/", j.spec, nil)
	if err != nil {
		return nil, err
	}
	folder := s.folders.of(file, m.GetId())
	folder.Run = j.run
	type answer struct {
		parts []jobdir.Log
		more  bool
	}
	read := make(chan answer, 1)
	err = s.operations.do(ctx, owner{submitter, folder.Output}, func() error {
		parts, more, err := readLogs(folder, file.Spark != nil, j.tasks, m)
		read <- answer{parts, more}
		return err
	})
	if err != nil {
		return nil, &cli.Error{Code: "logs", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("the logs of job %s cannot be read: %v", m.GetId(), err), Hint: "check that the scheduler reaches the job's output folder"}
	}
	a := <-read
	resp := &headroomv1.LogsResponse{More: a.more, Ended: j.ended}
	for _, p := range a.parts {
		resp.Parts = append(resp.Parts, &headroomv1.LogPart{Name: p.Name, From: uint64(p.From), Text: p.Text})
	}
	return resp, nil
}

// findLogged finds a job of the scheduler. Engines that run their jobs by themselves keep the logs too.
func (s *service) findLogged(ctx context.Context, id string) (logged, error) {
	if s.engines.yarn != nil && id != "" && len(s.engines.yarn.List(id)) > 0 {
		return logged{}, &cli.Error{
			Code: "engine", Exit: cli.ExitRefused, Message: fmt.Sprintf("job %s runs on YARN, which keeps its logs", id),
			Hint: "yarn logs -applicationId " + id,
		}
	}
	v, err := s.look(ctx, id)
	if err != nil {
		return logged{}, err
	}
	for _, j := range v.waiting {
		if id != "" && j.GetId() == id {
			return logged{j.GetSpec(), j.GetRun().GetNumber(), int(j.GetInputs().GetTasks()), false}, nil
		}
	}
	if id == "" || len(v.jobs) != 1 {
		return logged{}, NoJob(id)
	}
	j := v.jobs[0]
	return logged{j.spec, progressToProto(j).GetRun(), j.Tasks, j.State.Ended()}, nil
}

// readLogs reads parts of the logs of a job's newest run.
func readLogs(folder jobdir.Folder, driver bool, tasks int, m *headroomv1.LogsRequest) (parts []jobdir.Log, more bool, err error) {
	if driver {
		root, err := os.OpenRoot(folder.Path(fmt.Sprintf("run-%d", max(1, folder.Run))))
		if err != nil {
			return nil, false, jobdir.IgnoreMissing(err)
		}
		defer root.Close() //nolint:errcheck // only read
		parts, more = jobdir.ReadLogs(root, spark.Outputs(), m.GetRead(), logsAtOnce)
		return parts, more, nil
	}
	task := -1
	if m.Task != nil {
		task = int(m.GetTask())
	}
	dir, err := jobdir.Open(folder)
	if err != nil {
		return nil, false, jobdir.IgnoreMissing(err)
	}
	defer dir.Close() //nolint:errcheck // only read
	root, names, err := dir.Logs(folder.Run, tasks, task)
	if err != nil {
		return nil, false, err
	}
	parts, more = jobdir.ReadLogs(root, names, m.GetRead(), logsAtOnce)
	return parts, more, nil
}
