package command

// Claims: the help of submit has a line for each key of a job file, and for nothing else; an accuracy that no profile backs is
// said when the job is submitted.

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/scheduler/jobfile"
)

// keysOf lists the keys of a part of a job file.
func keysOf(part reflect.Type, prefix string) (keys []string) {
	for field := range part.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		of := field.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case name == "":
		case of.Kind() == reflect.Struct:
			keys = append(keys, keysOf(of, prefix+name+".")...)
		default:
			keys = append(keys, prefix+name)
		}
	}
	return keys
}

func TestHelpHasEachKeyOfAJobFile(t *testing.T) {
	t.Parallel()
	want := keysOf(reflect.TypeFor[jobfile.File](), "")
	want = slices.DeleteFunc(want, func(key string) bool { return key == "submitter" }) // the scheduler adds it
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z_.]+)  +\S`).FindAllStringSubmatch(submitCommand("scheduler submit").Long, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the help has the keys\n%v, a job file\n%v", got, want)
	}
}

func TestUnusableQualityIsSaid(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.texts(2)
	c.scheduler()
	c.ready(0)
	job := c.write("job.yaml", wordsJob(1)+"quality: 90%\n")
	const said = "quality: 90%: running all tasks, because"
	for _, args := range [][]string{{"--dry-run"}, {"--dry-run", "-o", "json"}, {}} {
		out, errs, exit := c.run(append([]string{"submit", job}, args...)...)
		word := map[bool]string{true: `"notes": [`, false: "settings  "}[slices.Contains(args, "json")]
		if exit != cli.ExitOK || !strings.Contains(out, said) || !strings.Contains(out, word) {
			t.Errorf("%v: exit %d, %q, %q", args, exit, out, errs)
		}
	}
	for line, want := range map[string]string{
		"quality: 130%\n": "quality \"130%\": ", "deadline: 10\n": "deadline ", "error: 100%\n": "must be at least 0 and below 1", "min_tasks: 0\n": "min_tasks \"0\"",
	} {
		if _, errs, exit := c.run("submit", c.write("bad.yaml", wordsJob(1)+line), "--wait"); exit != cli.ExitUsage || !strings.Contains(errs, want) || !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%q: exit %d, %q", line, exit, errs)
		}
	}
}
