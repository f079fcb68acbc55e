package command

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/pause"
	"headroom/scheduler/jobfile"
)

const (
	// hadoopJar and sparkJar are where the packages install the hooks.
	hadoopJar = "/usr/share/java/headroom-hadoop.jar"
	sparkJar  = "/usr/share/java/headroom-spark.jar"
	// placeMark is where the properties of a MapReduce job go, if its program takes them elsewhere than usual.
	placeMark = "{headroom}"
	// listWait is how long an application that has ended may take until the scheduler lists it so.
	listWait = 10 * time.Second
)

const jobRunLong = `Run a Spark or MapReduce command with a deadline and a quality. It adds the properties that carry them, the hook and what the
hook needs to reach the scheduler (hooks, ca and hooks_token_file of the client configuration) to the command line, starts
it, prints what the coordinators decide about the job, waits for its end, and exits by its promise.

CMD is spark-submit, or hadoop jar, yarn jar or mapred jar. Properties that CMD sets itself stay as they are. Those of a MapReduce
job go before the first generic option (-D, -libjars and so on); without one, after the main class or, in a jar whose
manifest names a Driver or Main, after the name of its program. The word {headroom} names another place.`

// wishes are what a user asks for a job, in the words of every engine: keys of a job file, headroom.WORD of MapReduce and
// spark.headroom.WORD of Spark.
type wishes struct {
	deadline, quality, minTasks, bound, profile string
	class, name, jar                            string
}

func (w *wishes) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.deadline, "deadline", "", "time from submission to completion, 10m")
	f.StringVar(&w.quality, "quality", "", "minimum accuracy of the result by the job's profile, 90%")
	f.StringVar(&w.minTasks, "min-tasks", "", "minimum fraction of the map tasks needed for a result, 75%")
	f.StringVar(&w.bound, "error", "", "fraction of the map tasks that may be missing, 5%")
	f.StringVar(&w.profile, "profile", "", "name of the quality profile (default the job's name)")
	f.StringVar(&w.class, "class", "", "priority class (default the queue's)")
	f.StringVar(&w.name, "name", "", "the job's name")
	f.StringVar(&w.jar, "jar", "", "jar of the hook (default "+hadoopJar+" or "+sparkJar+")")
}

// check reads the values as the scheduler does.
func (w *wishes) check() error {
	hints := map[string]string{"quality": "above 0 and at most 1, as 90% or 0.9", "min-tasks": "above 0 and at most 1, as 75% or 0.75", "error": "at least 0 and below 1, as 5% or 0.05"}
	wrong := func(flag, value string, err error) error {
		e := cli.Usage("--%s %q: %w", flag, value, err)
		e.Hint = hints[flag]
		return e
	}
	if w.deadline != "" {
		switch d, err := config.ParseDuration(w.deadline); {
		case err != nil:
			return fmt.Errorf("--deadline %w", err)
		case d <= 0:
			return cli.Usage("--deadline is %v; it must be above 0", d)
		}
	}
	for flag, value := range map[string]string{"quality": w.quality, "min-tasks": w.minTasks} {
		if _, err := config.ParseFraction(value); value != "" && err != nil {
			return wrong(flag, value, err)
		}
	}
	if part, err := config.ParsePart(w.bound); w.bound != "" && (err != nil || part >= 1) {
		return wrong("error", w.bound, cmp.Or(err, config.ErrNotPart))
	}
	if w.profile != "" && !jobfile.ValidName(w.profile) {
		return cli.Usage("--profile %q is no name of a profile", w.profile)
	}
	return nil
}

// property is one property of a command line.
type property struct{ key, value string }

// words are the properties that mean the same in each engine, below its prefix.
func (w *wishes) words(prefix string) (all []property) {
	for _, p := range []property{{"deadline", w.deadline}, {"quality", w.quality}, {"min-tasks", w.minTasks}, {"error", w.bound}, {"profile", w.profile}, {"class", w.class}} {
		if p.value != "" {
			all = append(all, property{prefix + p.key, p.value})
		}
	}
	return all
}

// tags carry the deadline to the ResourceManager, which asks for admission.
func (w *wishes) tags() string {
	if w.deadline == "" {
		return ""
	}
	tags := "headroom-deadline:" + w.deadline
	if w.bound != "" {
		tags += ",headroom-error:" + w.bound
	}
	return tags
}

// commandLine returns CMD with the wishes.
func (w *wishes) commandLine(c config.Client, argv []string) ([]string, error) {
	program := filepath.Base(argv[0])
	switch {
	case program == "spark-submit":
		return w.spark(c, argv)
	case slices.Contains([]string{"hadoop", "yarn", "mapred"}, program) && len(argv) > 2 && argv[1] == "jar":
		return w.mapReduce(c, argv)
	}
	e := cli.Usage("%q is not a command that carries a deadline", strings.Join(argv[:min(2, len(argv))], " "))
	e.Hint = "use spark-submit, hadoop jar, yarn jar or mapred jar; scheduler submit runs other programs from a job file"
	return nil, e
}

func (w *wishes) spark(c config.Client, argv []string) ([]string, error) {
	props := append([]property{
		{"spark.shuffle.manager", "headroom.spark.HeadroomShuffleManager"},
		{"spark.plugins", "headroom.spark.HeadroomPlugin"},
		{"spark.headroom.url", c.Hooks},
		{"spark.headroom.ca", c.CA},
		{"spark.headroom.token-file", c.HooksTokenFile},
	}, w.words("spark.headroom.")...)
	if w.deadline != "" {
		props = append(props, property{"spark.headroom.refuse", "true"})
	}
	if w.name != "" {
		argv = slices.Insert(slices.Clone(argv), 1, "--name", w.name)
	}
	argv = withList(argv, 1, "--jars", cmp.Or(w.jar, sparkJar))
	argv = withTags(argv, 1, "--conf", "spark.yarn.tags", w.tags())
	return withProperties(argv, 1, "--conf", "spark.headroom.url", props)
}

func (w *wishes) mapReduce(c config.Client, argv []string) ([]string, error) {
	at, argv, err := optionsAt(argv)
	if err != nil {
		return nil, err
	}
	token := property{"headroom.token-file", c.HooksTokenFile}
	if data, err := config.ReadFile(c.HooksTokenFile, jobfile.SizeMax); err == nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		token.key = "mapreduce.job.credentials.json" // a user's token, of which each job makes its own
	}
	props := append([]property{
		{"headroom.url", c.Hooks},
		{"headroom.ca", c.CA},
		token,
		{"yarn.app.mapreduce.am.job.speculator.class", "headroom.hadoop.EarlyStopSpeculator"},
		{"mapreduce.map.speculative", "true"},
		{"mapreduce.job.name", w.name},
	}, w.words("headroom.")...)
	argv = withList(argv, at, "-libjars", cmp.Or(w.jar, hadoopJar))
	argv = withTags(argv, at, "-D", "mapreduce.job.tags", w.tags())
	return withProperties(argv, at, "-D", "headroom.url", props)
}

// optionsAt returns where the generic options of a MapReduce job are, or go.
func optionsAt(argv []string) (int, []string, error) {
	if i := slices.Index(argv, placeMark); i > 2 {
		return i, slices.Delete(slices.Clone(argv), i, i+1), nil
	}
	generic := regexp.MustCompile(`^-(D.*|libjars|files|archives|conf|fs|jt)$`)
	if i := slices.IndexFunc(argv, generic.MatchString); i > 2 {
		return i, argv, nil
	}
	main, err := mainClass(argv[2])
	if err != nil {
		return 0, nil, cli.Failed("name a jar that this user can read", "jar %s: %w", argv[2], err)
	}
	if name := main[strings.LastIndex(main, ".")+1:]; len(argv) > 3 && (main == "" || strings.HasSuffix(name, "Driver") || name == "Main") {
		return 4, argv, nil // after the main class, or the name of the program
	}
	return 3, argv, nil
}

// mainClass returns the main class that a jar's manifest names; empty for none.
func mainClass(path string) (string, error) {
	jar, err := zip.OpenReader(path)
	if err != nil {
		return "", err
	}
	defer jar.Close() //nolint:errcheck // only read
	f, err := jar.Open("META-INF/MANIFEST.MF")
	if err != nil {
		return "", nil //nolint:nilerr // a jar without a manifest
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, jobfile.SizeMax))
	if m := regexp.MustCompile(`(?m)^Main-Class: *(\S+)`).FindSubmatch(text); m != nil {
		return string(m[1]), nil
	}
	return "", err
}

// setting returns the word that sets a property, -1 for none: after its flag, or in one word with it.
func setting(argv []string, flag, key string) int {
	return slices.IndexFunc(argv, func(word string) bool {
		return strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(word, flag), "="), key+"=")
	})
}

// withProperties adds the properties that a command line does not set itself. The one named url must be set.
func withProperties(argv []string, at int, flag, url string, props []property) ([]string, error) {
	var add []string
	for _, p := range props {
		switch own := setting(argv, flag, p.key); {
		case own < 0 && p.value != "":
			add = append(add, flag, p.key+"="+p.value)
		case own < 0 && p.key == url:
			return nil, &cli.Error{
				Code: "config", Exit: cli.ExitUsage, Message: "the address at which jobs reach the scheduler is unknown",
				Hint: "set hooks in " + config.ClientFile + " or ~/.config/headroom/client.yaml, hooks: https://HOST:7411",
			}
		}
	}
	return slices.Insert(slices.Clone(argv), at, add...), nil
}

// withList adds an item to the list of an option.
func withList(argv []string, at int, flag, item string) []string {
	argv = slices.Clone(argv)
	if i := slices.Index(argv, flag); i > 0 && i+1 < len(argv) {
		argv[i+1] += "," + item
		return argv
	}
	return slices.Insert(argv, at, flag, item)
}

// withTags adds tags to those that a command line sets.
func withTags(argv []string, at int, flag, key, tags string) []string {
	argv = slices.Clone(argv)
	switch i := setting(argv, flag, key); {
	case tags == "":
	case i >= 0:
		argv[i] += "," + tags
	default:
		argv = slices.Insert(argv, at, flag, key+"="+tags)
	}
	return argv
}

func jobRunCommand(path string) *cobra.Command {
	var (
		w      jobWait
		wish   wishes
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "Run a Spark or MapReduce command with a deadline and a quality",
		Long:  jobRunLong + promiseLong,
		Example: "  " + path + " --deadline 10m --quality 90% -- spark-submit --master yarn words.py\n  " +
			path + " --deadline 10m -- hadoop jar jobs.jar Words IN OUT",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wish.check(); err != nil {
				return err
			}
			c, err := config.ReadClient(os.LookupEnv)
			if err != nil {
				return err
			}
			argv, err := wish.commandLine(c, args)
			if err != nil {
				return err
			}
			if dryRun {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), cli.ShellWords(argv))
				return err
			}
			return w.runCommand(cmd, argv, &wish)
		},
	}
	cmd.Flags().SetInterspersed(false)
	w.to.flags(cmd)
	w.out.Flags(cmd)
	wish.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the command line with its properties; start nothing")
	return cmd
}

// applicationFinder finds the id of a job in what its client writes.
type applicationFinder struct {
	mu   sync.Mutex
	last []byte
	id   string
}

// Write never fails.
func (f *applicationFinder) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.id == "" {
		f.last = append(f.last, p...)
		if m := regexp.MustCompile(`\b(?:application|job)_([0-9]+_[0-9]+)\W`).FindSubmatch(f.last); m != nil {
			f.id = "application_" + string(m[1])
		}
		f.last = f.last[max(0, len(f.last)-100):] // longer than an id
	}
	return len(p), nil
}

func (f *applicationFinder) found() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// runCommand starts a command, prints the changes of its job while it runs, and ends by the job's promise.
func (w *jobWait) runCommand(cmd *cobra.Command, argv []string, wish *wishes) error {
	w.stdout, w.notes, w.began = cmd.OutOrStdout(), cmd.ErrOrStderr(), time.Now()
	var finder applicationFinder
	child := exec.CommandContext(cmd.Context(), argv[0], argv[1:]...)
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.Stdin, child.Stderr = os.Stdin, io.MultiWriter(cli.Raw(w.notes), &finder)
	child.Stdout = io.MultiWriter(cli.Raw(w.stdout), &finder)
	if w.out.IsJSON() {
		child.Stdout = child.Stderr // stdout is the document's
	}
	if err := child.Start(); err != nil {
		return &cli.Error{Code: "not-installed", Exit: cli.ExitUsage, Err: err, Message: fmt.Sprintf("%s cannot be started: %v", argv[0], err), Hint: "check that it is installed and on PATH"}
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	job, err := w.beside(cmd, &finder, ended)
	id := finder.found()
	switch {
	case cmd.Context().Err() != nil:
		if id != "" {
			cli.Notef(w.notes, "job %s continues if its driver runs in the cluster: yarn application -kill %s ends it", id, id)
		}
		return context.Canceled
	case job == nil:
		return w.unlisted(wish, err)
	}
	if w.changed, w.limit = nil, 0; w.out.IsJSON() {
		if err := w.document([]*headroomv1.Job{job}, details{}, 0); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(w.stdout, endText(job, time.Now())); err != nil {
		return err
	}
	if broken := promiseError(job, time.Now()); broken != nil {
		return broken
	}
	return childError(err)
}

// beside follows the job of a command until both have ended. It returns nil for a job that the scheduler does not list.
func (w *jobWait) beside(cmd *cobra.Command, finder *applicationFinder, ended <-chan error) (*headroomv1.Job, error) {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	listed := make(chan struct{})
	first, show := sync.OnceFunc(func() { close(listed) }), w.printChanges(w.notes, nil)
	w.changed = func(resp *headroomv1.ListResponse) error {
		first()
		return show(resp)
	}
	over := make(chan *headroomv1.Job, 1)
	go func() {
		defer close(over)
		for pause.For(ctx, logLook) {
			if id := finder.found(); id != "" {
				if resp, err := w.end(ctx, id); err == nil {
					over <- resp.GetJobs()[0]
					return
				}
			}
		}
	}()
	err := <-ended
	if finder.found() == "" {
		cancel()
	}
	late := time.AfterFunc(listWait, cancel)
	defer late.Stop()
	select {
	case <-listed:
		if err == nil { // its client may have left it running in the cluster
			late.Stop()
		}
	case <-ctx.Done():
	}
	return <-over, err
}

// unlisted is the end of a command whose job the scheduler does not list: its exit code and its duration count.
func (w *jobWait) unlisted(wish *wishes, err error) error {
	took := time.Since(w.began)
	cli.Notef(w.notes, "the scheduler lists no job of this command; its exit code and its duration of %s count", cli.Age(took))
	if err := childError(err); err != nil {
		return err
	}
	if d, bad := config.ParseDuration(wish.deadline); bad == nil && took > d {
		return &cli.Error{
			Code: "deadline-missed", Exit: cli.ExitDegraded, Message: "the command is done, but missed its deadline by " + cli.Age(took-d),
			Hint: "scheduler job list shows the jobs that the scheduler knows",
		}
	}
	return nil
}

// childError is the failure of a command; nil for none.
func childError(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Error{Code: "job-failed", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("the command failed: %v", err), Hint: "its own output says why"}
}
