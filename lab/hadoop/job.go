package hadoop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/lab/cluster"
	"headroom/scheduler/jhist"
)

// Job is a MapReduce program to run.
type Job struct {
	// Jar holds the program; empty for Hadoop's examples.
	Jar string
	// Program is the name by which the jar's own driver finds it, such as wordcount; for
	// a jar without a driver it is a main class.
	Program string
	// Main is a main class to run instead of the driver that the jar has.
	Main string
	// Queue is the queue's name below root, such as q1.
	Queue string
	// Properties are given as -D NAME=VALUE, LibJars as -libjars.
	Properties map[string]string
	// LibJars are jars that the job's containers get; the client has them too.
	LibJars []string
	// Args are the program's own arguments, such as the folders of input and output.
	Args []string
}

// Result is how a job ended.
type Result struct {
	// Application is the id in YARN, application_1700000000000_0001.
	Application string
	// Queue is the queue that it ran in, such as root.q1.
	Queue string
	// State is FINISHED, FAILED or KILLED; FinalStatus SUCCEEDED, FAILED or KILLED.
	State, FinalStatus string
	// Diagnostics is YARN's explanation of a failure.
	Diagnostics string
	// Started and Finished are as YARN has them.
	Started, Finished time.Time
	// History is what the application master wrote; nil where there is none, which is so
	// when the job was killed before its master could.
	History *jhist.History
}

// Succeeded reports whether the job succeeded.
func (r Result) Succeeded() bool { return r.FinalStatus == "SUCCEEDED" }

// Elapsed is the time from submission to end.
func (r Result) Elapsed() time.Duration { return r.Finished.Sub(r.Started) }

// RunningJob is a job that YARN has accepted.
type RunningJob struct {
	// ID is its application id.
	ID string

	cluster *Cluster
	client  *cluster.Program
}

// Submit starts a job's client and returns when YARN has accepted the job. FairScheduler can lose
// its first container and leave it waiting: bound ctx.
func (c *Cluster) Submit(ctx context.Context, job Job) (*RunningJob, error) {
	tag := "headroom-" + strings.ToLower(rand.Text())
	argv := c.client(job)
	if len(job.LibJars) > 0 {
		argv = append(argv, "-libjars", strings.Join(job.LibJars, ","))
	}
	set := map[string]string{}
	maps.Copy(set, job.Properties)
	const tags = "mapreduce.job.tags"
	set[tags] = strings.TrimPrefix(set[tags]+","+tag, ",")
	if job.Queue != "" {
		set["mapreduce.job.queuename"] = "root." + job.Queue
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		argv = append(argv, "-D"+name+"="+set[name])
	}
	client, err := c.group.Start(fmt.Sprintf("job-%d", c.jobs.Add(1)), c.environment(), append(argv, job.Args...)...)
	if err != nil {
		return nil, err
	}
	j := &RunningJob{cluster: c, client: client}
	if err := j.accepted(ctx, tag); err != nil {
		client.Kill()
		return nil, err
	}
	return j, nil
}

// client is the command line of a job's client, without the program's arguments.
func (c *Cluster) client(job Job) []string {
	const heap = "256m"
	jar := cmp.Or(job.Jar, c.config.Jars.Examples())
	classPath := strings.Join(append([]string{c.classPath()}, job.LibJars...), ":")
	if job.Main != "" {
		return c.command("client", heap, classPath+":"+jar, job.Main)
	}
	return c.command("client", heap, classPath, "org.apache.hadoop.util.RunJar", jar, job.Program)
}

// Sleep is a job of maps that each sleep for so long: containers that cost little more
// than their start.
func (c *Cluster) Sleep(queue string, maps int, each time.Duration) Job {
	return Job{
		Jar: c.config.Jars.tests(), Main: "org.apache.hadoop.mapreduce.SleepJob", Queue: queue,
		Args: []string{"-m", strconv.Itoa(maps), "-r", "0", "-mt", strconv.FormatInt(each.Milliseconds(), 10)},
	}
}

// accepted waits until YARN has accepted the job, or its client gives up.
func (j *RunningJob) accepted(ctx context.Context, tag string) error {
	var gaveUp error
	err := j.cluster.await(ctx, "YARN does not know the job yet", func() bool {
		gone := j.client.Ended() // before the question: a job may be that quick
		app, err := j.cluster.tagged(ctx, tag)
		j.ID = app.ID
		if errors.Is(err, os.ErrNotExist) { // other errors may pass: the ResourceManager is away or starts
			gaveUp = gone
		}
		return err == nil || gaveUp != nil
	})
	return errors.Join(err, gaveUp)
}

// Run submits a job and waits for its end. A job that ends badly is no error.
func (c *Cluster) Run(ctx context.Context, job Job) (Result, error) {
	j, err := c.Submit(ctx, job)
	if err != nil {
		return Result{}, err
	}
	return j.Wait(ctx)
}

// clientMost is how long the client may take to see that its job has ended.
const clientMost = 20 * time.Second

// Wait waits for the job's end, through restarts of the ResourceManager. When ctx ends
// first, the result is YARN's last report.
func (j *RunningJob) Wait(ctx context.Context) (Result, error) {
	var app application
	c := j.cluster
	err := c.await(ctx, "job "+j.ID+" has not ended", func() bool {
		var err error
		app, err = c.application(ctx, j.ID)
		return err == nil && app.over()
	})
	r := Result{
		Application: app.ID, Queue: app.Queue, State: app.State, FinalStatus: app.FinalStatus, Diagnostics: app.Diagnostics,
		Started: time.UnixMilli(app.StartedMs), Finished: time.UnixMilli(app.FinishedMs),
	}
	if err != nil {
		return r, err
	}
	j.client.Stop(clientMost)
	r.History, err = c.history(ctx, app.ID)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	return r, err
}

// Diagnostics is what the ResourceManager's page of the job explains now.
func (j *RunningJob) Diagnostics(ctx context.Context) (string, error) {
	app, err := j.cluster.application(ctx, j.ID)
	return app.Diagnostics, err
}

// Kill has YARN end the job; Wait waits for that.
func (j *RunningJob) Kill(ctx context.Context) error { return j.cluster.KillApplication(ctx, j.ID) }

// KillApplication ends the application with this id, of any user.
func (c *Cluster) KillApplication(ctx context.Context, id string) error {
	return c.set(ctx, http.MethodPut, "/apps/"+id+"/state", `{"state":"KILLED"}`)
}

// Master is the node that the job's newest application master runs on.
func (j *RunningJob) Master(ctx context.Context) (string, error) {
	a, err := j.cluster.attempt(ctx, j.ID)
	host, _, _ := strings.Cut(a.Node, ":")
	return host, err
}

// KillMaster ends the job's application master by SIGKILL.
func (j *RunningJob) KillMaster(ctx context.Context) error {
	a, err := j.cluster.attempt(ctx, j.ID)
	if err != nil {
		return err
	}
	if j.cluster.group.Kill(func(p cluster.Process) bool { return p.Has("CONTAINER_ID=" + a.Container) }) == 0 {
		return fmt.Errorf("%w: container %s has no process", errNotFound, a.Container)
	}
	return nil
}

// AwaitContainers waits until the job has so many containers, its master's included.
func (j *RunningJob) AwaitContainers(ctx context.Context, n int) error {
	return j.cluster.await(ctx, fmt.Sprintf("job %s has not got %d containers", j.ID, n), func() bool {
		app, err := j.cluster.application(ctx, j.ID)
		return err == nil && app.Containers >= n
	})
}

// Progress returns the job's progress as reported by its application master.
type Progress struct {
	// Maps is how many maps there are, MapsDone how many of them have ended well.
	Maps     int `json:"mapsTotal"`
	MapsDone int `json:"mapsCompleted"`
}

// Progress queries the job's application master. It fails before the master answers and
// after the job's end.
func (j *RunningJob) Progress(ctx context.Context) (Progress, error) {
	return getFrom[Progress](ctx, j.master(), "job")
}

// Began returns when the job's first task started, as reported by its application master.
func (j *RunningJob) Began(ctx context.Context) (time.Time, error) {
	type task struct {
		StartMs int64 `json:"startTime"`
	}
	tasks, err := getFrom[[]task](ctx, j.master()+"/tasks", "tasks", "task")
	first := int64(math.MaxInt64)
	for _, t := range tasks {
		if t.StartMs > 0 {
			first = min(first, t.StartMs)
		}
	}
	if err == nil && first == math.MaxInt64 {
		err = fmt.Errorf("%w: a task of %s that has started", errNotFound, j.ID)
	}
	return time.UnixMilli(first), err
}

// master is the address of the job's application master, through the ResourceManager.
func (j *RunningJob) master() string {
	return j.cluster.RM() + "/proxy/" + j.ID + "/ws/v1/mapreduce/jobs/" + strings.Replace(j.ID, "application", "job", 1)
}

// AwaitMaps waits until so many maps of the job have ended well, or it is over.
func (j *RunningJob) AwaitMaps(ctx context.Context, done int) error {
	return j.cluster.await(ctx, fmt.Sprintf("job %s has not done %d maps", j.ID, done), func() bool {
		if p, err := j.Progress(ctx); err == nil && p.MapsDone >= done {
			return true
		}
		app, err := j.cluster.application(ctx, j.ID)
		return err == nil && app.over()
	})
}

// history reads the history file of an application. The error is os.ErrNotExist when
// there is none.
func (c *Cluster) history(ctx context.Context, application string) (h *jhist.History, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("hadoop: history of %s: %w", application, err)
		}
	}()
	file := filepath.Join("history", "new", "*", strings.Replace(application, "application", "job", 1)+"-*.jhist")
	if c.config.HDFS {
		copied := filepath.Join("history", "new", application)
		if err := os.MkdirAll(c.path(copied), 0o755); err != nil {
			return nil, err
		}
		if err := c.Get(ctx, "/"+file, c.path(copied)); err != nil && !strings.Contains(err.Error(), "No such file or directory") {
			return nil, err
		}
	}
	found, _ := filepath.Glob(c.path(file)) // the pattern is valid
	if len(found) == 0 {
		return nil, os.ErrNotExist
	}
	f, err := os.Open(slices.Max(found))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return jhist.Read(f)
}
