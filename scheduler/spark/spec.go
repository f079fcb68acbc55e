package spark

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Spec is the section "spark" of a job file: an application as spark-submit takes it.
type Spec struct {
	// Application is a jar or a Python program, absolute once the job is accepted.
	Application string `yaml:"application" json:"application"`
	// Main is the jar's main class; empty stands for the one that its manifest names.
	Main string `yaml:"main,omitempty" json:"main,omitempty"`
	// Args are the application's arguments.
	Args []string `yaml:"args,omitempty" json:"args,omitempty"`
	// Conf are Spark's properties, spark.NAME.
	Conf map[string]string `yaml:"conf,omitempty" json:"conf,omitempty"`
	// Jars are further jars, absolute once the job is accepted.
	Jars []string `yaml:"jars,omitempty" json:"jars,omitempty"`
}

// python reports whether the application is a Python program.
func (s Spec) python() bool { return strings.HasSuffix(s.Application, ".py") }

// Problem states what is wrong with a Spec: the key below "spark", what, and the way out.
type Problem struct{ Key, Message, Hint string }

// reserved are the properties that the engine sets, with the settings to use instead.
var reserved = map[string]string{
	"spark.master":            "use spark.master in scheduler.yaml",
	"spark.submit.deployMode": "use spark.deploy_mode in scheduler.yaml",
	"spark.shuffle.manager":   "the hook is the shuffle manager",
	"spark.cores.max":         "use slots for the maximum number of cores",
	"spark.jars":              "use jars for additional jars",

	"spark.headroom.deadline":  "use deadline in the job file",
	"spark.headroom.error":     "use error in the job file",
	"spark.headroom.min-tasks": "use min_tasks in the job file",

	"spark.yarn.submit.waitAppCompletion": "the scheduler waits for a driver's end",
	"spark.yarn.maxAppAttempts":           "the scheduler restarts jobs, not YARN",
}

// ownPrefix begins the hook's properties, which are the engine's; ownKept may be set.
const (
	ownPrefix = "spark.headroom."
	ownKept   = "spark.headroom.stages"
)

// Check returns an error in the specification, or nil. It does not look at the disk.
func (s Spec) Check() *Problem {
	switch {
	case s.Application == "":
		return &Problem{"application", "spark.application is missing", "application is a jar or a Python program, for example application: words.jar"}
	case !s.python() && !strings.HasSuffix(s.Application, ".jar"):
		return &Problem{"application", fmt.Sprintf("spark.application %q is neither a .jar nor a .py", s.Application), "name a jar or a Python program"}
	case s.python() && s.Main != "":
		return &Problem{"main", fmt.Sprintf("spark.main %q does not apply to a Python program", s.Main), "remove main"}
	case strings.HasPrefix(s.Main, "-"):
		return &Problem{"main", fmt.Sprintf("spark.main %q is not a valid name of a class", s.Main), "for example main: org.example.Words"}
	}
	for key, words := range map[string][]string{"application": {s.Application}, "main": {s.Main}, "args": s.Args, "jars": s.Jars} {
		if slices.ContainsFunc(words, hasNUL) {
			return &Problem{key, "spark." + key + " contains a NUL character", "arguments cannot contain NUL"}
		}
	}
	for _, jar := range s.Jars {
		if !strings.HasSuffix(jar, ".jar") || strings.ContainsRune(jar, ',') {
			return &Problem{"jars", fmt.Sprintf("spark.jars: %q is not one jar", jar), "list each jar separately"}
		}
	}
	return s.checkConf()
}

func (s Spec) checkConf() *Problem {
	for _, key := range slices.Sorted(maps.Keys(s.Conf)) {
		value := s.Conf[key]
		switch where, taken := reserved[key]; {
		case !strings.HasPrefix(key, "spark.") || strings.ContainsAny(key, "= \t\n"):
			return &Problem{"conf", fmt.Sprintf("spark.conf: %q is not a property of Spark", key), "Spark accepts only properties that start with spark."}
		case taken:
			return &Problem{"conf", fmt.Sprintf("spark.conf: %s is set by the scheduler", key), "remove it: " + where}
		case key == ownKept && !slices.Contains([]string{stagesInput, stagesAll, stagesNone}, value):
			return &Problem{"conf", fmt.Sprintf("spark.conf: %s is %q", key, value), "want input, all or none"}
		case strings.HasPrefix(key, ownPrefix) && key != ownKept:
			return &Problem{"conf", fmt.Sprintf("spark.conf: %s is set by the scheduler", key), "remove it; the job's class decides how much is dropped"}
		case hasNUL(value):
			return &Problem{"conf", fmt.Sprintf("spark.conf: %s contains a NUL character", key), "arguments cannot contain NUL"}
		}
	}
	return nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }

// Absolute returns the Spec with its files below folder where they are relative.
func (s Spec) Absolute(folder string) Spec {
	s.Application = below(folder, s.Application)
	s.Jars = slices.Clone(s.Jars)
	for i := range s.Jars {
		s.Jars[i] = below(folder, s.Jars[i])
	}
	return s
}

func below(folder, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}
