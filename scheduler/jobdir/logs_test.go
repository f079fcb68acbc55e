package jobdir

// Logs are read in parts, in their order, and nothing but plain files of the job's own folder is: no link, no second name of
// somebody else's file, no pipe.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"headroom/internal/testkit"
)

func TestLogsAreReadInParts(t *testing.T) {
	t.Parallel()
	f := Folder{Output: t.TempDir(), ID: "words-1"}
	made := testkit.Need(Make(f))(t)
	testkit.Check(t, made.Close())
	secret := filepath.Join(f.Output, "secret")
	testkit.WriteFile(t, secret, "of somebody else")
	log := func(name, text string) { testkit.WriteFile(t, f.Path(name), text) }
	log("log-map-00001-0000002a", "two\n")
	log("log-map-00000-00000007", "one\n")
	log("log-result-00000001", strings.Repeat("r", 100))
	log("map-00000", "an output")
	log("log-map-00000-7", "not a log")
	testkit.Check(t, os.Symlink(secret, f.Path("log-map-00002-00000001")))
	testkit.Check(t, os.Link(secret, f.Path("log-map-00003-00000001")))
	testkit.Check(t, unix.Mkfifo(f.Path("log-map-00004-00000001"), 0o600))

	d := testkit.Need(Open(f))(t)
	defer d.Close() //nolint:errcheck // only read
	root, names, err := d.Logs(0, 5, -1)
	testkit.Check(t, err)
	read, got, rounds := map[string]uint64{}, "", 0
	for more := true; more && rounds < 100; rounds++ {
		var parts []Log
		parts, more = ReadLogs(root, names, read, 10)
		for _, p := range parts {
			read[p.Name], got = uint64(p.From)+uint64(len(p.Text)), got+string(p.Text)
		}
	}
	if want := "one\ntwo\n" + strings.Repeat("r", 100); got != want || rounds != 11 {
		t.Errorf("read %q in %d rounds, want %q", got, rounds, want)
	}
	if _, names, _ = d.Logs(0, 5, 1); !slices.Equal(names, []string{"log-map-00001-0000002a"}) {
		t.Errorf("of task 1: %v", names)
	}
	log("log-map-00001-0000002a", "n") // a new one in its place is read from its beginning
	if parts, _ := ReadLogs(root, names, read, 10); len(parts) != 1 || parts[0].From != 0 || string(parts[0].Text) != "n" {
		t.Errorf("of a new file: %v", parts)
	}
	if _, err := Open(Folder{Output: f.Output, ID: "words-2"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is missing: %v", err)
	}
}
