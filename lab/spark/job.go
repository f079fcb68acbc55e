package spark

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/lab/cluster"
)

// quietLog is the drivers' and executors' log4j2.properties: warnings, and the hook's messages.
const quietLog = `rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
`

// writeDefaults writes what every application of the cluster has as configuration.
func (c *Cluster) writeDefaults() error {
	conf := map[string]string{
		"spark.driver.host": c.address(lastDriver), "spark.driver.bindAddress": c.address(lastDriver),
		"spark.driver.memory": "512m", "spark.executor.memory": "512m",
		"spark.driver.extraJavaOptions": jvm, "spark.executor.extraJavaOptions": jvm,
		"spark.local.dir": c.path("scratch"), "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
		"spark.pyspark.python": c.config.Release.Python, "spark.pyspark.driver.python": c.config.Release.Python,
		"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://" + c.path("events"), "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false",
		"spark.sql.shuffle.partitions": "4", "spark.sql.warehouse.dir": "file://" + c.path("warehouse"),
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&b, "%s %s\n", key, conf[key])
	}
	var errs []error
	for _, dir := range []string{"conf", "daemons", "scratch", "events"} {
		errs = append(errs, os.MkdirAll(c.path(dir), 0o755))
	}
	return errors.Join(append(errs,
		os.WriteFile(c.path("conf", "spark-defaults.conf"), []byte(b.String()), 0o644),
		os.WriteFile(c.path("conf", "log4j2.properties"), []byte(quietLog), 0o644))...)
}

// Job is an application as a user submits it.
type Job struct {
	// Name is the application's; it names its log too.
	Name string
	// Application is a jar or a Python program, Main the jar's class.
	Application, Main string
	Args              []string
	// Master replaces the cluster's own, which then only starts executors; empty for the cluster's.
	Master string
	// Drop is what the hook gets from the configuration. Without Config.Plugin there is no hook.
	Drop
	// Conf are further properties.
	Conf map[string]string
}

// RunningJob is an application whose driver was started.
type RunningJob struct {
	cluster *Cluster
	program *cluster.Program
	began   time.Time
}

// Result is the result of an application.
type Result struct {
	// Began is when the driver was started, Elapsed how long it then ran.
	Began   time.Time
	Elapsed time.Duration
	// Output is the driver's output.
	Output string
	// Log is its event log.
	Log EventLog
}

// EventLog is Spark's event log of an application.
type EventLog struct {
	// Stages, in the order in which they ended; one that was begun again is there again.
	Stages []StageRecord
	// InputBytes is the number of bytes that successful tasks read from files.
	InputBytes int64
	// Attempts is how many attempts of tasks ended, Succeeded how many of those well.
	Attempts, Succeeded int
	// TaskSeconds is the sum of the run times of the attempts that succeeded.
	TaskSeconds float64
	// Jobs is from the begin of the first action to the end of the last.
	Jobs time.Duration
	// Tasks are the attempts that succeeded, in the order in which they ended.
	Tasks []TaskRecord
}

// TaskRecord is an attempt of a task that succeeded, by the driver's clock.
type TaskRecord struct {
	Stage        int
	Begun, Ended time.Time
}

// StageRecord is a stage that has ended.
type StageRecord struct {
	ID      int    `json:"Stage ID"`
	Attempt int    `json:"Stage Attempt ID"`
	Tasks   int    `json:"Number of Tasks"`
	Name    string `json:"Stage Name"`
}

// Submit starts an application's driver.
func (c *Cluster) Submit(j Job) (*RunningJob, error) {
	if c.config.Plugin == "" && j.Drop != (Drop{}) {
		return nil, fmt.Errorf("%w: a drop ratio without a hook: Config.Plugin names it", errConfig)
	}
	name := fmt.Sprintf("%s-%d", j.Name, c.jobs.Add(1))
	r := &RunningJob{cluster: c, began: time.Now()}
	var err error
	r.program, err = c.group.Start(name, []string{"SPARK_HOME=" + c.config.Release.Home, "SPARK_CONF_DIR=" + c.ConfDir()}, c.submit(j, name)...)
	return r, err
}

func (c *Cluster) submit(j Job, name string) []string {
	conf := map[string]string{"spark.app.name": name}
	if c.config.Plugin != "" {
		maps.Copy(conf, map[string]string{
			"spark.plugins": "headroom.spark.HeadroomPlugin", "spark.shuffle.manager": "headroom.spark.HeadroomShuffleManager",
			"spark.headroom.theta": strconv.FormatFloat(j.Theta, 'g', -1, 64), "spark.headroom.seed": strconv.FormatInt(int64(j.Seed), 10),
		})
		if j.Stages != "" {
			conf["spark.headroom.stages"] = j.Stages
		}
	}
	maps.Copy(conf, j.Conf)
	argv := []string{filepath.Join(c.config.Release.Home, "bin", "spark-submit"), "--master", cmp.Or(j.Master, c.master)}
	if j.Main != "" {
		argv = append(argv, "--class", j.Main)
	}
	if c.config.Plugin != "" {
		argv = append(argv, "--jars", c.config.Plugin)
	}
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		argv = append(argv, "--conf", key+"="+conf[key])
	}
	return append(append(argv, j.Application), j.Args...)
}

// Log is what the event log holds so far; an error before there is one.
func (r *RunningJob) Log() (EventLog, error) { return r.cluster.eventLog(r.program.Name) }

// Wait waits for the end. An application that failed is an error that wraps errJob and has
// the end of its log; when ctx ends the driver is killed.
func (r *RunningJob) Wait(ctx context.Context) (Result, error) {
	err := r.program.Wait(ctx)
	text, _ := os.ReadFile(r.program.Log) // an unreadable log counts as empty
	result := Result{Began: r.began, Elapsed: time.Since(r.began), Output: string(text)}
	if err == nil {
		result.Log, err = r.cluster.eventLog(r.program.Name)
	} else if ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errJob, err)
	}
	return result, err
}

// Run runs an application to its end.
func (c *Cluster) Run(ctx context.Context, j Job) (Result, error) {
	r, err := c.Submit(j)
	if err != nil {
		return Result{}, err
	}
	return r.Wait(ctx)
}

// eventLog finds the log of the application with this name.
func (c *Cluster) eventLog(name string) (EventLog, error) {
	paths, _ := filepath.Glob(c.path("events", "*")) // the pattern is valid
	for _, path := range slices.Backward(paths) {
		log, app, err := readEventLog(path)
		if err == nil && app == name {
			return log, nil
		}
	}
	return EventLog{}, fmt.Errorf("spark: no event log of %s in %s", name, c.path("events"))
}

// event is what is read of a line of an event log.
type event struct {
	Event  string
	Name   string                  `json:"App Name"`
	Submit int64                   `json:"Submission Time"`
	End    int64                   `json:"Completion Time"`
	Reason struct{ Reason string } `json:"Task End Reason"`
	Of     int                     `json:"Stage ID"` // a task's stage
	Task   struct {
		Launch int64 `json:"Launch Time"`
		Finish int64 `json:"Finish Time"`
	} `json:"Task Info"`
	Stage   StageRecord `json:"Stage Info"`
	Metrics struct {
		RunTime int64 `json:"Executor Run Time"`
		Input   struct {
			Bytes int64 `json:"Bytes Read"`
		} `json:"Input Metrics"`
	} `json:"Task Metrics"`
}

// readEventLog reads an event log, also of an application that still runs, and the
// application's name. A last line that was cut short is passed over.
func readEventLog(path string) (log EventLog, name string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return log, "", fmt.Errorf("spark: event log: %w", err)
	}
	var begin, end int64
	for line := range bytes.Lines(data) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Event {
		case "SparkListenerApplicationStart":
			name = e.Name
		case "SparkListenerJobStart":
			begin = cmp.Or(begin, e.Submit)
		case "SparkListenerJobEnd":
			end = e.End
		case "SparkListenerTaskEnd":
			log.task(e)
		case "SparkListenerStageCompleted":
			log.Stages = append(log.Stages, e.Stage)
		}
	}
	log.Jobs = time.Duration(max(0, end-begin)) * time.Millisecond
	return log, name, nil
}

func (l *EventLog) task(e event) {
	l.Attempts++
	if e.Reason.Reason != "Success" {
		return
	}
	l.Succeeded++
	l.InputBytes += e.Metrics.Input.Bytes
	l.TaskSeconds += float64(e.Metrics.RunTime) / 1000
	l.Tasks = append(l.Tasks, TaskRecord{Stage: e.Of, Begun: time.UnixMilli(e.Task.Launch), Ended: time.UnixMilli(e.Task.Finish)})
}
