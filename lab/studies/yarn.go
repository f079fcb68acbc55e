package studies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"headroom/internal/cli"
	"headroom/lab/hadoop"
)

// engineYARN is the engine's name in profiles of jobs that ran on Hadoop.
const engineYARN = "yarn"

// Bounds of a profile on Hadoop.
const (
	clusterMost = 3 * time.Minute
	jobMost     = 10 * time.Minute
	yarnMaps    = 12 // files of generated data
	yarnPoints  = 1_000_000
	yarnTop     = 100
)

// application is a MapReduce program that can be profiled.
type application struct {
	// ours: it is in headroom-apps.jar; otherwise in Hadoop's examples.
	ours bool
	// args are its arguments.
	args func(in, out string, maps int) []string
	// data writes an input of so many files.
	data func(in string, maps int) error
	// lines makes its output lines of a key, a tab and a number; nil where it is that already.
	lines func([]byte) ([]byte, error)
}

// applications are those that `powerlab profile --engine yarn` knows.
func applications() map[string]application {
	inOut := func(in, out string, _ int) []string { return []string{in, out} }
	text := func(in string, maps int) error {
		_, err := hadoop.Text{Files: maps, Bytes: 50_000, Spread: 0.2, Topical: 0.5, Seed: 1}.Write(in)
		return err
	}
	ratings := func(in string, maps int) error {
		_, err := hadoop.Ratings{Files: maps, Bytes: 50_000, Spread: 0.2, Drift: 1, Seed: 1}.Write(in)
		return err
	}
	return map[string]application{
		"wordcount":  {args: inOut, data: text},
		"wordmean":   {args: inOut, data: text, lines: meanLength},
		"topn":       {ours: true, args: func(in, out string, _ int) []string { return []string{in, out, fmt.Sprint(yarnTop)} }, data: text},
		"histmovies": {ours: true, args: inOut, data: ratings},
		"pi": {
			ours: true, args: func(_, out string, maps int) []string { return []string{fmt.Sprint(maps), fmt.Sprint(yarnPoints), out} },
			data: func(string, int) error { return nil }, lines: estimateOfPi,
		},
	}
}

// applicationNames are their names, sorted.
func applicationNames() []string {
	var names []string
	for name := range applications() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// meanLength makes wordmean's output, the sum of lengths and the number of words, their ratio.
func meanLength(out []byte) ([]byte, error) {
	var count, length float64
	for line := range strings.Lines(string(out)) {
		var key string
		var n float64
		if _, err := fmt.Sscan(line, &key, &n); err != nil {
			return nil, fmt.Errorf("line %q of wordmean: %w", line, err)
		}
		switch key {
		case "count":
			count += n
		case "length":
			length += n
		}
	}
	if count == 0 {
		return nil, errors.New("wordmean counted no words")
	}
	return fmt.Appendf(nil, "mean\t%g\n", length/count), nil
}

// estimateOfPi makes of "3.14 from 100 points" a key and a number.
func estimateOfPi(out []byte) ([]byte, error) {
	value, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte(" "))
	return fmt.Appendf(nil, "pi\t%s\n", value), nil
}

// chosenMaps is the hooks' server of a profile: a map runs when it is chosen. It is one
// side of docs/hooks.md, the part that an input wrapper asks.
type chosenMaps struct {
	server *http.Server
	url    string

	mu     sync.Mutex
	run    map[int]bool
	denied map[int]bool
	ran    map[int]bool
}

func newChosenMaps() (*chosenMaps, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("profile: serve the hooks: %w", err)
	}
	c := &chosenMaps{url: "http://" + l.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/{job}/begin", c.begin)
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: 2 * time.Second}
	go func() { _ = c.server.Serve(l) }() // until close
	return c, nil
}

func (c *chosenMaps) close() { _ = c.server.Close() }

// choose returns which maps of the next job run.
func (c *chosenMaps) choose(tasks []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.denied, c.ran = map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, i := range tasks {
		c.run[i] = true
	}
}

func (c *chosenMaps) begin(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Task *int `json:"task"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Task == nil {
		http.Error(w, `{"error":"a task is needed"}`, http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	run := c.run[*ask.Task]
	if run {
		c.ran[*ask.Task] = true
	} else {
		c.denied[*ask.Task] = true
	}
	c.mu.Unlock()
	_, _ = fmt.Fprintf(w, `{"run":%t}`, run) // one that is gone runs, and is noticed
}

// asked is how many maps were told to run, and how many not to.
func (c *chosenMaps) asked() (ran, denied int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ran), len(c.denied)
}

// yarnRuns runs an application on a real Hadoop of one node. Maps that are not chosen are
// dropped by Headroom's input wrapper, as in production; all maps of a job run in its
// application master's process, one after the other, which makes small jobs cheap.
type yarnRuns struct {
	name     string
	app      application
	dir, bin string
	in       string
	maps     int
	cluster  *hadoop.Cluster
	chosen   *chosenMaps
	parts    int
}

// newYARNRuns starts the cluster; close ends it.
func newYARNRuns(ctx context.Context, name, in, bin, dir string, maps int, note func(string, ...any)) (r *yarnRuns, err error) {
	app, known := applications()[name]
	if !known {
		return nil, cli.Usage("unknown application %q: --engine yarn runs %s", name, strings.Join(applicationNames(), ", "))
	}
	if bin == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("profile: own program: %w", err)
		}
		bin = filepath.Dir(self)
	}
	r = &yarnRuns{name: name, app: app, dir: dir, bin: bin, in: in, maps: maps}
	for _, jar := range []string{"headroom-hadoop.jar", "headroom-apps.jar"} {
		if _, err := os.Stat(r.jar(jar)); err != nil {
			return nil, cli.Failed("build both jars with make hooks (needs Maven and a JDK), or set their folder with --bin", "--engine yarn needs %s: %w", jar, err)
		}
	}
	if err := r.input(); err != nil {
		return nil, err
	}
	jars, err := hadoop.Fetch(ctx, "")
	if err != nil {
		return nil, cli.Failed("install the missing programs (sh lab/test/install.sh), or profile a job file without --engine", "--engine yarn: %w", err)
	}
	if r.chosen, err = newChosenMaps(); err != nil {
		return nil, err
	}
	note("starting Hadoop %s with one node", hadoop.Version)
	ctx, cancel := context.WithTimeout(ctx, clusterMost)
	defer cancel()
	if r.cluster, err = hadoop.Start(ctx, hadoop.Config{
		Dir: filepath.Join(dir, "cluster"), Jars: jars, Nodes: hadoop.Nodes(1), Plugins: []string{r.jar("headroom-hadoop.jar")}, Scheduler: hadoop.LiveFairScheduler,
	}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// input makes the data, or counts the files of the folder that was named.
func (r *yarnRuns) input() error {
	if r.in == "" {
		r.in = filepath.Join(r.dir, "in")
		return r.app.data(r.in, r.maps)
	}
	in, err := filepath.Abs(r.in)
	if err != nil {
		return cli.Usage("--input: %w", err)
	}
	r.in = in
	files, err := os.ReadDir(r.in)
	if err != nil {
		return cli.Usage("--input: %w", err)
	}
	files = slices.DeleteFunc(files, func(f os.DirEntry) bool {
		return !f.Type().IsRegular() || strings.HasPrefix(f.Name(), ".") || strings.HasPrefix(f.Name(), "_")
	})
	if r.maps = len(files); r.maps < 2 {
		return cli.Usage("--input %s has %d files: at least 2 are needed, one per map task", r.in, r.maps)
	}
	return nil
}

func (r *yarnRuns) jar(name string) string { return filepath.Join(r.bin, name) }

func (r *yarnRuns) tasks() int { return r.maps }

// close ends the cluster and the server.
func (r *yarnRuns) close() error {
	r.chosen.close()
	if r.cluster == nil {
		return nil
	}
	return r.cluster.Close()
}

// Run implements Runner.
func (r *yarnRuns) Run(ctx context.Context, tasks []int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, jobMost)
	defer cancel()
	r.parts++
	out := filepath.Join(r.dir, fmt.Sprintf("out-%d", r.parts))
	r.chosen.choose(tasks)
	ended, err := r.cluster.Run(ctx, r.job(out))
	if err != nil {
		return nil, err
	}
	if !ended.Succeeded() || ended.History == nil {
		return nil, cli.Failed("see the logs in "+r.cluster.Dir(), "profile: %s with %d of %d maps: final state %s: %s", r.name, len(tasks), r.maps, ended.FinalStatus, ended.Diagnostics)
	}
	dropped, _ := ended.History.Counters.Get("headroom.hadoop.EarlyStopCounter", "DROPPED_TASKS")
	if ran, denied := r.chosen.asked(); ran != len(tasks) || ran+denied != r.maps || int(dropped) != denied {
		return nil, cli.Failed("use shorter files: a file longer than a block becomes several maps",
			"profile: %s was to run %d of %d maps; %d ran, %d were told not to, its counters say %d", r.name, len(tasks), r.maps, ran, denied, dropped)
	}
	return r.lines(out)
}

// job is the application as it is submitted.
func (r *yarnRuns) job(out string) hadoop.Job {
	j := hadoop.Job{
		Program: r.name, Queue: "q1", LibJars: []string{r.jar("headroom-hadoop.jar")}, Args: r.app.args(r.in, out, r.maps),
		Properties: map[string]string{
			"headroom.url": r.chosen.url, "mapreduce.job.inputformat.class": "headroom.hadoop.EarlyStopInputFormat",
			"mapreduce.job.ubertask.enable": "true", "mapreduce.job.ubertask.maxmaps": "1000000", "mapreduce.job.ubertask.maxbytes": "1000000000000",
			"mapreduce.input.fileinputformat.split.minsize": "1000000000000",
		},
	}
	if r.app.ours {
		j.Jar = r.jar("headroom-apps.jar")
	}
	return j
}

// lines is a job's output.
func (r *yarnRuns) lines(out string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(out, "part-r-*"))
	if len(found) == 0 && err == nil { // pi puts it one folder deeper
		found, err = filepath.Glob(filepath.Join(out, "out", "part-r-*"))
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	var all bytes.Buffer
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
		all.Write(text)
	}
	if err := os.RemoveAll(out); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if r.app.lines == nil {
		return all.Bytes(), nil
	}
	return r.app.lines(all.Bytes())
}
