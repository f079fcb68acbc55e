package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/each"
	"headroom/jobs/buffers"
	"headroom/scheduler/jobfile"
)

// auto as the value of theta or sprint_after lets the scheduler choose it.
const auto = "auto"

// Class is a priority class in scheduler.yaml: its name, or a mapping.
type Class struct {
	// Name has letters, digits, dots, dashes and underscores.
	Name string `yaml:"name"`
	// Theta is the drop ratio of its jobs at their start, "20%", 0.2 or "auto"; empty is 0.
	Theta string `yaml:"theta"`
	// SprintAfter is the sprint timer, from the dispatch, "65s" or "auto"; empty is never.
	SprintAfter string `yaml:"sprint_after"`
	// Deadline is the default for jobs without one, from their submission; empty is none.
	Deadline string `yaml:"deadline"`
	// QualityPrice is how many seconds earlier a job must end for one percent of its tasks to be dropped; empty is the
	// arbiter's default.
	QualityPrice string `yaml:"quality_price"`
	// MaxError, Profile and Latency are the bounds for "auto".
	MaxError string  `yaml:"max_error"`
	Profile  string  `yaml:"profile"`
	Latency  Latency `yaml:"latency"`
}

// Latency bounds the time from a job's submission to its end; empty is no bound.
type Latency struct {
	Mean string `yaml:"mean"`
	P95  string `yaml:"p95"`
}

// Short returns the short form of a class for the documentation.
func (Class) Short() string { return "the name alone" }

// UnmarshalYAML reads a mapping, or only the name.
func (k *Class) UnmarshalYAML(unmarshal func(any) error) error {
	var name string
	if unmarshal(&name) == nil {
		k.Name = name
		return nil
	}
	type mapping Class
	return unmarshal((*mapping)(k))
}

// names returns the names of the classes, highest first.
func (c *Config) names() []string {
	return each.List(c.Classes, func(k Class) string { return k.Name })
}

// settings returns the settings of the dispatcher. Values that are to be found start at their safest: no drops, no
// sprints.
func (c *Config) settings() buffers.Settings {
	s := buffers.Settings{Discipline: buffers.Discipline(c.Discipline), Width: c.Width}
	for _, k := range c.Classes {
		s.Classes = append(s.Classes, k.point())
	}
	return s
}

// point returns the configured operating point of a class.
func (k Class) point() buffers.Class {
	p := buffers.Class{Name: k.Name}
	p.Theta, _ = parseTheta(k.Theta)
	if k.SprintAfter != "" && k.SprintAfter != auto {
		if after, err := config.ParseDuration(k.SprintAfter); err == nil {
			p.Sprint, p.SprintAfter = true, after
		}
	}
	return p
}

// deadline returns the class's deadline; 0 for none.
func (k Class) deadline() time.Duration {
	if k.Deadline == "" {
		return 0
	}
	d, _ := config.ParseDuration(k.Deadline) // it was checked at load
	return d
}

// prices returns the quality prices of the classes, 0 for the arbiter's default.
func (c *Config) prices() []time.Duration {
	out := make([]time.Duration, len(c.Classes))
	for i, k := range c.Classes {
		if k.QualityPrice != "" {
			out[i], _ = config.ParseDuration(k.QualityPrice)
		}
	}
	return out
}

// deadlineFor returns the deadline of a job: its own, or its class's; 0 for none.
func (c *Config) deadlineFor(file *jobfile.File) time.Duration {
	if d, ok := file.Due(); ok {
		return d
	}
	for _, k := range c.Classes {
		if k.Name == file.Class {
			return k.deadline()
		}
	}
	return 0
}

// errTheta is returned for an invalid drop ratio.
var errTheta = errors.New("must be from 0 to 1 (100%), or auto")

// parseTheta reads "20%", 0.2, "auto" or nothing; the latter two are 0.
func parseTheta(text string) (float64, error) {
	if text == "" || text == auto {
		return 0, nil
	}
	x, err := config.ParsePart(text)
	if err != nil {
		return 0, errTheta
	}
	return x, nil
}

// checkClasses returns the first error in the classes, with its place in the file.
func (c *Config) checkClasses(file jobfile.Source) error {
	seen := make(map[string]bool)
	for i, k := range c.Classes {
		at := "classes[" + strconv.Itoa(i) + "]"
		if err := c.checkClass(file, at, k, seen[k.Name]); err != nil {
			return err
		}
		seen[k.Name] = true
	}
	return nil
}

// checkQueues returns the first error in the queues of YARN, with its place in the file.
func (c *Config) checkQueues(file jobfile.Source) error {
	if !c.Yarn.On() {
		return nil // the queues are checked later
	}
	for i, q := range c.Yarn.Queues {
		at := fmt.Sprintf("yarn.queues[%d]", i)
		bad := func(key, hint, format string, args ...any) error {
			e := file.ErrorAt(at+key, format, args...)
			e.Code = "config"
			return e.WithHint(hint)
		}
		if q.Class != "" && !slices.Contains(c.names(), q.Class) {
			return bad(".class", "want one of "+strings.Join(c.names(), ", ")+"; or add it to classes", "class %q of queue %s is unknown", q.Class, q.Name)
		}
		if _, err := q.Timer(); err != nil {
			e, _ := errors.AsType[*cli.Error](err)
			return bad(".sprint_after", e.Hint, "sprint_after of queue %s: %s", q.Name, e.Message)
		}
	}
	return nil
}

func (c *Config) checkClass(file jobfile.Source, at string, k Class, twice bool) error {
	bad := func(key, hint, format string, args ...any) error {
		if !file.Has(at + key) {
			key = ""
		}
		e := file.ErrorAt(at+key, format, args...)
		e.Code = "config"
		return e.WithHint(hint)
	}
	switch {
	case k.Name == "":
		return bad("", "use name: high, or only the name", "a class has no name")
	case !classRule.MatchString(k.Name):
		return bad(".name", "use at most 32 letters, digits, dots, dashes and underscores", "class name %q is invalid", k.Name)
	case twice:
		return bad(".name", "list each class once, highest first", "class %q appears twice", k.Name)
	}
	if _, err := parseTheta(k.Theta); err != nil {
		return bad(".theta", "theta is the fraction of map tasks that jobs drop: 20%, 0.2 or auto", "theta %q of class %s %v", k.Theta, k.Name, err)
	}
	if _, err := config.ParsePart(k.MaxError); err != nil && k.MaxError != "" {
		return bad(".max_error", "max_error is the maximum error of a result: 15% or 0.15", "max_error %q of class %s must be from 0 to 1 (100%%)", k.MaxError, k.Name)
	}
	for _, t := range []struct{ key, text string }{
		{".sprint_after", k.SprintAfter}, {".deadline", k.Deadline}, {".quality_price", k.QualityPrice}, {".latency.mean", k.Latency.Mean}, {".latency.p95", k.Latency.P95},
	} {
		if t.text == "" || (t.text == auto && t.key == ".sprint_after") {
			continue
		}
		d, err := config.ParseDuration(t.text)
		if e, ok := errors.AsType[*cli.Error](err); ok {
			return bad(t.key, e.Hint, "%s of class %s: %s", t.key[1:], k.Name, e.Message)
		}
		if d == 0 && t.key != ".sprint_after" {
			return bad(t.key, "write a duration, for example 10m, or leave it empty", "%s of class %s is 0", t.key[1:], k.Name)
		}
	}
	return c.checkAuto(bad, k)
}

// checkAuto returns what is missing for values that are to be found.
func (c *Config) checkAuto(bad func(key, hint, format string, args ...any) error, k Class) error {
	bounded := k.Latency != Latency{}
	switch {
	case k.Theta == auto && k.Profile == "":
		return bad(".theta", "add profile: NAME; measure one with scheduler profile", "theta auto of class %s without a profile", k.Name)
	case k.Theta == auto && c.Profiles == "":
		return bad(".theta", "the usual folder is profiles: /etc/headroom/profiles", "theta auto of class %s needs profiles", k.Name)
	case k.Theta == auto && k.MaxError == "":
		return bad(".theta", "add max_error, for example 15%", "theta auto of class %s without max_error", k.Name)
	case (k.Theta == auto || k.SprintAfter == auto) && !bounded && !slices.ContainsFunc(c.Classes, func(o Class) bool { return o.Latency != Latency{} }):
		return bad("", "set latency: {mean: 100s} for at least one class", "auto of class %s needs a class with a latency bound", k.Name)
	case k.Profile != "" && !jobfile.ValidName(k.Profile):
		return bad(".profile", "use the name of a file in the profiles folder, without .json", "profile name %q of class %s is invalid", k.Profile, k.Name)
	}
	return nil
}
