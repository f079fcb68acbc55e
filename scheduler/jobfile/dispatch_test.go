// Claims: a job that masters dispatch may have 60000 tasks, and is short by its own report, else by its tasks' time, else by its class.
package jobfile

import (
	"errors"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

const fanOut = `name: burst
class: low
dispatch: pigeon
map:
  tasks: 60000
  command: [/bin/true, "{index}"]
output: /out
`

func TestFanOut(t *testing.T) {
	t.Parallel()
	f := testkit.Need(Parse("/f", []byte(fanOut), classes))(t)
	names := testkit.Need(f.Find())(t).Inputs
	if len(names) != 60000 || f.Engine() != Pigeon {
		t.Errorf("%d tasks on %q", len(names), f.Engine())
	}
	for from, to := range map[string]string{
		"60000": "60001",
		"output": `reduce:
  command: [/bin/true]
output`, // 60000 names are more than a command takes
	} {
		f, err := Parse("/f", []byte(strings.Replace(fanOut, from, to, 1)), classes)
		if err == nil {
			_, err = f.Find()
		}
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Hint == "" {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestShortOrLong(t *testing.T) {
	t.Parallel()
	for keys, short := range map[string]bool{
		"class: high": true, "class: low": false,
		"class: low\ntask_time: 2s": true, "class: high\ntask_time: 3s": false,
		"class: high\ntask_time: 1s\nlength: long": false, "class: low\ntask_time: 1h\nlength: short": true,
	} {
		f := testkit.Need(Parse("/f", []byte(strings.Replace(fanOut, "class: low", keys, 1)), classes))(t)
		if got := f.IsShort(3*time.Second, "high"); got != short {
			t.Errorf("%q: short is %v", keys, got)
		}
	}
}
