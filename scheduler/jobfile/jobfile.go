// Package jobfile reads job files, finds the inputs and programs that they name, and creates the tasks.
//
// The one idea: what is committed is a job file too, the canonical one, in which every path is absolute and every
// default is filled in. So a job means the same on every machine and after every restart.
//
// Guarantees: a file is read strictly and within limits; every error states its place in the file and a hint.
//
// It never writes or runs anything.
package jobfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch"
	"headroom/scheduler/profiles"
	"headroom/scheduler/spark"
)

// Limits of a job file. They bound one job's share of the coordinators' log and of the scheduler's memory.
const (
	// SizeMax is the maximum size of a job file in bytes.
	SizeMax = 64 << 10
	// SlotsMax is the maximum number of slots of a job, and of a worker.
	SlotsMax    = 10_000
	attemptsMax = 100
	// attemptsDefault is the default of max_attempts.
	attemptsDefault = 3
)

// File is a job as written by its owner (YAML). Parse checks it.
type File struct {
	// Name has letters, digits, dots, dashes and underscores; the job's id starts with it.
	Name string `yaml:"name"`
	// Class is one of the scheduler's priority classes.
	Class string `yaml:"class"`
	// Slots is the maximum of concurrent tasks, from 1 to 10000. A job with Dispatch has none: then it is the maximum.
	Slots int `yaml:"slots"`
	// Dispatch is Pigeon for a job whose tasks masters dispatch; empty for the scheduler itself.
	Dispatch string `yaml:"dispatch,omitempty"`
	// Length is Short or Long; empty decides by TaskTime or the class. It needs Dispatch.
	Length string `yaml:"length,omitempty"`
	// TaskTime is the expected time of a task, "800ms". It needs Dispatch.
	TaskTime string `yaml:"task_time,omitempty"`
	// MinTasks is the minimum fraction of map tasks for a result: "75%" or 0.75, above 0 and at most 1. Empty is all.
	MinTasks string `yaml:"min_tasks,omitempty"`
	// Quality is the minimum accuracy of the result by the job's profile: "90%" or 0.9. Empty is none. It may require
	// more map tasks than MinTasks, never fewer.
	Quality string `yaml:"quality,omitempty"`
	// Profile is the name of that profile; the default is the job's name.
	Profile string `yaml:"profile,omitempty"`
	// Error is the fraction of the map tasks that the result may miss: "5%" or 0.05, at least 0 and below 1. The job
	// ends as soon as the others are done. Empty is no bound.
	Error string `yaml:"error,omitempty"`
	// Deadline is counted from its submission: "5m". Empty is the default of its class.
	Deadline string   `yaml:"deadline,omitempty"`
	Map      MapStage `yaml:"map,omitempty"`
	// Reduce is optional: without it the map outputs are the result.
	Reduce *ReduceStage `yaml:"reduce,omitempty"`
	// Spark makes the job a Spark application: then it has no map, reduce and output.
	Spark *spark.Spec `yaml:"spark,omitempty"`
	// Output is the folder for the results; a folder with the job's id is created in it.
	Output string `yaml:"output,omitempty"`
	// MaxAttempts is how often one task is tried, from 1 to 100; 0 is 3.
	MaxAttempts int `yaml:"max_attempts,omitempty"`
	// Folder is the working folder of the tasks, and the base of relative paths; the default is the folder of the job
	// file.
	Folder string `yaml:"folder,omitempty"`
	// Submitter is the authenticated submitter. The scheduler adds it to what is committed, and refuses a file that has
	// it.
	Submitter string `yaml:"submitter,omitempty"`

	text Source
}

// MapStage is the first phase: one task for each input file.
type MapStage struct {
	// Input is a glob; each file that it matches is one task.
	Input string `yaml:"input,omitempty"`
	// Tasks is the number of tasks of a job without input files.
	Tasks int `yaml:"tasks,omitempty"`
	// Command is the program and its arguments; {input}, {output} and {index} are replaced. Without {output}, the
	// task's output is its standard output.
	Command []string `yaml:"command"`
}

// ReduceStage is the second phase: one task over all map outputs.
type ReduceStage struct {
	// Command receives the names of all map outputs as additional arguments; {output} is replaced.
	Command []string `yaml:"command"`
}

// nameRule restricts names to those valid in ids, file names and output.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidName reports whether name is valid in ids, file names and output.
func ValidName(name string) bool { return nameRule.MatchString(name) }

// Parse reads a job file strictly and checks everything that needs no disk access. file is its absolute path, for
// positions in errors and for relative paths, which become absolute. classes are those of the scheduler; nil accepts
// any, for a job that was accepted before. Errors are *cli.Error with exit code 2, position and hint.
func Parse(file string, data []byte, classes []string) (*File, error) {
	if len(data) > SizeMax {
		return nil, Source{file: file}.ErrorAt("", "a job file of %d bytes is too long; the maximum is %d", len(data), SizeMax).
			WithHint("name input files by a glob, not one by one")
	}
	if !utf8.Valid(data) {
		return nil, Source{file: file}.ErrorAt("", "the job file is not UTF-8 text").WithHint("save it as UTF-8; check that it is the right file")
	}
	f := &File{}
	if err := config.Decode(file, data, f); err != nil {
		return nil, err
	}
	f.text = Source{file, data}
	for _, check := range []func() error{f.checkName, func() error { return f.checkClass(classes) }, f.checkDispatch, f.checkNumbers, f.checkWork} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return f, f.makeAbsolute()
}

// Text returns the file's absolute path and contents, as Parse received them.
func (f *File) Text() (file string, data []byte) { return f.text.file, f.text.data }

func (f *File) checkName() error {
	if f.Name == "" {
		return f.missing("name", "a short name for the job, for example name: words")
	}
	if !ValidName(f.Name) {
		return f.ErrorAt("name", "name %q is invalid", f.Name).
			WithHint("use at most 63 letters, digits, dots, dashes and underscores, starting with a letter or digit")
	}
	return nil
}

func (f *File) checkClass(classes []string) error {
	known := "classes of this scheduler, highest first: " + strings.Join(classes, ", ")
	if f.Class == "" {
		return f.missing("class", known)
	}
	if classes != nil && !slices.Contains(classes, f.Class) {
		e := f.ErrorAt("class", "unknown class %q", f.Class).WithHint(known)
		e.Err = dispatch.ErrUnknownClass
		return e
	}
	return nil
}

func (f *File) checkNumbers() error {
	if f.Dispatch != "" {
		f.Slots = SlotsMax
	}
	if f.Slots < 1 || f.Slots > SlotsMax {
		if !f.text.Has("slots") {
			return f.missing("slots", "slots is the maximum number of concurrent tasks, for example slots: 4")
		}
		return f.ErrorAt("slots", "slots is %d; it must be from 1 to %d", f.Slots, SlotsMax).
			WithHint("slots is the maximum number of concurrent tasks of the job")
	}
	if f.MaxAttempts < 0 || f.MaxAttempts > attemptsMax || (f.MaxAttempts == 0 && f.text.Has("max_attempts")) {
		return f.ErrorAt("max_attempts", "max_attempts is %d; it must be from 1 to %d", f.MaxAttempts, attemptsMax).
			WithHint("max_attempts is how often a task is tried; the default is 3")
	}
	if f.MaxAttempts == 0 {
		f.MaxAttempts = attemptsDefault
	}
	if _, err := parseFraction(f.MinTasks); err != nil {
		return f.ErrorAt("min_tasks", "min_tasks %q: %v", f.MinTasks, err).
			WithHint("min_tasks is the minimum fraction of map tasks that a result needs: above 0 and at most 1, as 75% or 0.75")
	}
	if err := f.checkError(); err != nil {
		return err
	}
	if err := f.checkDeadline(); err != nil {
		return err
	}
	return f.checkQuality()
}

func (f *File) checkError() error {
	if f.Error == "" && !f.text.Has("error") {
		return nil
	}
	if _, ok := f.ErrorBound(); !ok {
		return f.ErrorAt("error", "error %q: must be at least 0 and below 1 (100%%)", f.Error).
			WithHint("error is the fraction of map tasks that the result may miss, as 5% or 0.05; omit it for none")
	}
	return nil
}

// ErrorBound returns the fraction of the map tasks that the result may miss; the job ends as soon as the others are
// done. It returns false for a file without one.
func (f *File) ErrorBound() (part float64, ok bool) {
	part, err := config.ParsePart(f.Error)
	return part, err == nil && part < 1
}

func (f *File) checkDeadline() error {
	if f.Deadline == "" && !f.text.Has("deadline") {
		return nil
	}
	d, err := config.ParseDuration(f.Deadline)
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return f.ErrorAt("deadline", "deadline %s", e.Message).WithHint(cmp.Or(e.Hint, "for example 30s, 5m or 1h30m"))
	}
	if d <= 0 {
		return f.ErrorAt("deadline", "deadline is %v; it must be above 0", d).WithHint("deadline is counted from the submission; omit it for none")
	}
	return nil
}

// Due returns the file's own deadline, from the submission; false for none.
func (f *File) Due() (time.Duration, bool) {
	if f.Deadline == "" {
		return 0, false
	}
	d, err := config.ParseDuration(f.Deadline)
	return d, err == nil
}

// checkWork checks what the job runs: its own tasks, or a Spark application.
func (f *File) checkWork() error {
	if f.Spark != nil {
		return f.checkSpark()
	}
	return f.checkCommands()
}

func (f *File) checkSpark() error {
	for _, key := range []string{"map", "reduce", "output"} {
		if f.text.Has(key) {
			return f.ErrorAt(key, "%s and spark exclude each other", key).WithHint("a job has either a spark section, or map, reduce and output")
		}
	}
	if p := f.Spark.Check(); p != nil {
		key := "spark." + p.Key
		if !f.text.Has(key) {
			key = "spark"
		}
		return f.ErrorAt(key, "%s", p.Message).WithHint(p.Hint)
	}
	return nil
}

func (f *File) checkQuality() error {
	if f.text.Has("quality") || f.Quality != "" {
		if _, err := config.ParseFraction(f.Quality); err != nil {
			return f.ErrorAt("quality", "quality %q: %v", f.Quality, err).
				WithHint("quality is the minimum accuracy of the result by the job's profile: above 0 and at most 1, as 90% or 0.9")
		}
	}
	switch {
	case f.Profile == "" && f.Quality != "":
		f.Profile = f.Name
	case f.Profile == "":
	case f.Quality == "":
		return f.ErrorAt("profile", "profile %q needs quality", f.Profile).WithHint("add quality, for example 90%, or remove profile")
	case !ValidName(f.Profile):
		return f.ErrorAt("profile", "profile name %q is invalid", f.Profile).
			WithHint("use the name of a file in the scheduler's profiles folder, without .json")
	}
	return nil
}

func (f *File) checkCommands() error {
	if len(f.Map.Command) == 0 {
		return f.missing("map.command", `command is a program and its arguments, for example command: [powerlab, app, wordcount, "{input}"]`)
	}
	if f.Reduce != nil && len(f.Reduce.Command) == 0 {
		return f.missing("reduce.command", "command is a program and its arguments, for example command: [powerlab, app, merge]; or remove reduce")
	}
	if err := f.checkCount(); err != nil {
		return err
	}
	if err := f.checkWords("map.command", f.Map.Command); err != nil || f.Reduce == nil {
		return err
	}
	return f.checkWords("reduce.command", f.Reduce.Command)
}

func (f *File) checkWords(key string, words []string) error {
	if words[0] == "" {
		return f.ErrorAt(key+"[0]", "the program of %s is empty", key).WithHint("name a program")
	}
	for i, w := range words {
		if strings.ContainsRune(w, 0) {
			return f.ErrorAt(fmt.Sprintf("%s[%d]", key, i), "%s contains a NUL character", key).WithHint("arguments cannot contain NUL")
		}
	}
	return nil
}

// makeAbsolute makes every path absolute, so that the job means the same on every machine and after every restart.
func (f *File) makeAbsolute() error {
	folder := filepath.Dir(f.text.file)
	f.Folder = absolute(folder, f.Folder)
	if !filepath.IsAbs(f.Folder) {
		return f.ErrorAt("folder", "folder %q is not an absolute path", f.Folder).WithHint("submit the job file by its absolute path")
	}
	if f.Spark != nil {
		*f.Spark = f.Spark.Absolute(f.Folder)
		return nil
	}
	for _, p := range []struct {
		key, WithHint string
		path          *string
	}{
		{"map.input", "input is a glob of text files, for example input: data/*.txt", &f.Map.Input},
		{"output", "output is a folder for the results, for example output: out", &f.Output},
	} {
		if p.path == &f.Map.Input && f.Map.Tasks > 0 {
			continue
		}
		if *p.path == "" {
			return f.missing(p.key, p.WithHint)
		}
		if strings.ContainsRune(*p.path, 0) {
			return f.ErrorAt(p.key, "%s contains a NUL character", p.key).WithHint("file names cannot contain NUL")
		}
		*p.path = absolute(f.Folder, *p.path)
	}
	return nil
}

func absolute(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

// ErrorAt returns an error about a key of the file, such as "map.input"; the empty key is the whole file.
func (f *File) ErrorAt(key, format string, args ...any) Problem {
	return f.text.ErrorAt(key, format, args...)
}

// Engine returns the engine of a job file; empty for our own workers.
func (f *File) Engine() string {
	if f.Spark != nil {
		return spark.Name
	}
	return f.Dispatch
}

func (f *File) missing(key, hint string) error {
	return f.ErrorAt("", "%s is missing", key).WithHint(hint)
}

// Fraction returns the minimum fraction of map tasks for a result, above 0 and at most 1, by the file alone: all if it
// depends on a profile. It is the maximum of what its keys require.
func (f *File) Fraction() float64 {
	x, err := parseFraction(f.MinTasks)
	if err != nil || f.Quality != "" {
		return 1 // Parse has refused it; the strictest value is the safe one
	}
	if part, ok := f.ErrorBound(); ok {
		if f.MinTasks == "" {
			return 1 - part
		}
		return max(x, 1-part)
	}
	return x
}

// Floor returns the minimum fraction of map tasks for a result, by the current profiles, with the reason.
func (f *File) Floor(known *profiles.Folder) profiles.Bound {
	if f.Quality == "" && (f.MinTasks == "" || f.Error == "") {
		return profiles.Bound{Fraction: f.Fraction()}
	}
	var bounds []profiles.Bound
	if f.Quality != "" {
		bounds = append(bounds, known.Bound(profiles.Accuracy{Key: "quality: " + f.Quality, Least: f.Quality, Profile: f.Profile}))
	}
	if f.MinTasks != "" {
		least, err := parseFraction(f.MinTasks)
		if err != nil {
			least = 1
		}
		bounds = append(bounds, profiles.Bound{Fraction: least, Why: "min_tasks: " + f.MinTasks})
	}
	if part, ok := f.ErrorBound(); ok {
		bounds = append(bounds, profiles.Bound{Fraction: 1 - part, Why: "error: " + f.Error})
	}
	return profiles.Strictest(bounds...)
}

// floorMark starts the first line of the specification of a job with quality: the reason of its floor.
const floorMark = "# quality floor: "

// Specification returns what the log stores of a job: the canonical file, and the reason of its floor.
func (f *File) Specification(floor profiles.Bound) ([]byte, error) {
	spec, err := f.canonical()
	if err != nil || floor.Why == "" {
		return spec, err
	}
	return append([]byte(floorMark+strings.Join(strings.Fields(floor.Why), " ")+"\n"), spec...), nil
}

// FloorReason returns the reason of a job's floor, "" if its specification has none.
func FloorReason(spec []byte) string {
	if rest, ok := strings.CutPrefix(string(spec), floorMark); ok {
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	var description struct { // an engine's
		Reason string `json:"floor_reason"`
	}
	if json.Unmarshal(spec, &description) != nil {
		return ""
	}
	return description.Reason
}

// Notes returns the ignored settings of a job, in words: those of an engine's job, and an accuracy without a usable profile.
func Notes(spec []byte) []string {
	var description struct {
		Notes []string `json:"notes"`
	}
	if json.Unmarshal(spec, &description) != nil {
		description.Notes = nil // not an engine's
	}
	if why := FloorReason(spec); strings.Contains(why, profiles.Unusable) {
		description.Notes = append(description.Notes, why)
	}
	return description.Notes
}

// WithoutReason returns a specification without the reason of the floor: profiles may have changed since.
func WithoutReason(spec []byte) []byte {
	if !bytes.HasPrefix(spec, []byte(floorMark)) {
		return spec
	}
	_, rest, _ := bytes.Cut(spec, []byte("\n"))
	return rest
}

// parseFraction reads "75%" or "0.75"; empty is 1.
func parseFraction(s string) (float64, error) {
	if s == "" {
		return 1, nil
	}
	return config.ParseFraction(s)
}

// canonical returns the job file with all paths absolute and all defaults filled in, for the coordinators' log.
// Reading it gives the same job.
//
// Every text is quoted as in JSON, which is valid YAML, so that no text is read as something else, whatever
// characters it contains.
func (f *File) canonical() ([]byte, error) {
	var b bytes.Buffer
	quote := json.NewEncoder(&b)
	quote.SetEscapeHTML(false)
	var failed error
	line := func(key string, value any) {
		b.WriteString(key + ": ")
		failed = errors.Join(failed, quote.Encode(value)) // with a line break
	}
	if f.Submitter != "" {
		line(submitterKey, f.Submitter)
	}
	line("name", f.Name)
	line("class", f.Class)
	f.writeDispatch(line)
	switch {
	case f.Quality == "" && f.Error == "":
		line("min_tasks", cmp.Or(f.MinTasks, "100%"))
	case f.MinTasks != "":
		line("min_tasks", f.MinTasks)
	}
	if f.Error != "" {
		line("error", f.Error)
	}
	if f.Quality != "" {
		line("quality", f.Quality)
		line("profile", f.Profile)
	}
	if f.Deadline != "" {
		line("deadline", f.Deadline)
	}
	if f.Spark != nil {
		line("spark", f.Spark)
		line("folder", f.Folder)
		if failed != nil {
			return nil, fmt.Errorf("scheduler: write job %s: %w", f.Name, failed)
		}
		return b.Bytes(), nil
	}
	b.WriteString("map:\n")
	if f.Map.Tasks > 0 {
		line("  tasks", f.Map.Tasks)
	} else {
		line("  input", f.Map.Input)
	}
	line("  command", f.Map.Command)
	if f.Reduce != nil {
		b.WriteString("reduce:\n")
		line("  command", f.Reduce.Command)
	}
	line("output", f.Output)
	line("max_attempts", f.MaxAttempts)
	line("folder", f.Folder)
	if failed != nil {
		return nil, fmt.Errorf("scheduler: write job %s: %w", f.Name, failed)
	}
	return b.Bytes(), nil
}

// writeDispatch writes who dispatches the tasks, and the number of slots.
func (f *File) writeDispatch(line func(key string, value any)) {
	if f.Dispatch == "" {
		line("slots", f.Slots)
		return
	}
	line("dispatch", f.Dispatch)
	if f.Length != "" {
		line("length", f.Length)
	}
	if f.TaskTime != "" {
		line("task_time", f.TaskTime)
	}
}

// submitterKey is the key of the submitter in the committed file.
const submitterKey = "submitter"

// SubmitterOf returns the submitter in a committed specification, which has one key per line with its value in JSON;
// empty for none. It needs no full parser, because listings call it for every job.
func SubmitterOf(spec []byte) (name string) {
	for line := range bytes.Lines(spec) {
		if value, ok := bytes.CutPrefix(line, []byte(submitterKey+": ")); ok && json.Unmarshal(value, &name) == nil {
			return name
		}
	}
	return ""
}
