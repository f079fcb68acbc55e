// Claims: a log that Spark has compressed reads as the plain one, and a damaged or cut one is refused; a rolling log is read
// whole or refused, whatever Spark has compacted; a log of 10 GB is read in constant memory, and a plan of 10,000 nodes
// in it does no harm; a history in Hadoop's default form is read.
package scale

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/usba"
)

// packedLogs are one log as Spark 4.1.4's codecs wrote it in small blocks, and as the usual programs do.
func packedLogs(t testing.TB) map[string][]byte {
	t.Helper()
	logs := map[string][]byte{}
	for _, codec := range []string{"zstd", "lz4"} {
		logs[codec] = testkit.Need(os.ReadFile("testdata/packed/app." + codec))(t)
	}
	plain := testkit.Need(io.ReadAll(testkit.Need(unpack(bytes.NewReader(logs["zstd"])))(t)))(t)
	var g, z, f bytes.Buffer
	for _, w := range []io.WriteCloser{gzip.NewWriter(&g), testkit.Need(zstd.NewWriter(&z))(t), lz4.NewWriter(&f)} {
		testkit.Need(w.Write(plain))(t)
		testkit.Check(t, w.Close())
	}
	logs["plain"], logs["gzip"], logs["zstd program"], logs["lz4 program"] = plain, g.Bytes(), z.Bytes(), f.Bytes()
	return logs
}

func TestPackedLogs(t *testing.T) {
	t.Parallel()
	logs, dir := packedLogs(t), t.TempDir()
	read := func(data []byte) (run, error) {
		file := filepath.Join(dir, "app")
		testkit.WriteFile(t, file, data)
		return readSpark(file)
	}
	want := testkit.Need(read(logs["plain"]))(t)
	if want.Tasks != 64 || want.Units != 1 || !bytes.HasPrefix(logs["plain"], []byte(`{"Event": "SparkListenerLogStart"`)) {
		t.Fatalf("%+v", want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for codec, data := range logs {
		if got, err := read(data); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", codec, got, err, want)
		}
		if _, err := read(data[:len(data)-40]); err == nil {
			t.Errorf("%s: a log whose end is missing is taken", codec)
		}
		if codec == "plain" || codec == "zstd" {
			continue // these have no checksum
		}
		for range 20 {
			damaged := bytes.Clone(data)
			damaged[20+random.IntN(len(damaged)-30)] ^= 1 << random.IntN(8)
			if got, err := read(damaged); err == nil && got != want {
				t.Errorf("%s: damaged, and read as %+v", codec, got)
			}
		}
	}
	for _, head := range []string{"\x82SNAPPY\x00", "ZV\x00", "ZV\x01"} {
		if _, err := unpack(strings.NewReader(head + "some data")); err == nil || !strings.Contains(err.Error(), "snappy or LZF") {
			t.Errorf("%q: %v", head, err)
		}
	}
	for _, codec := range []string{"lz4", "zstd"} { // Spark may write streams one after the other
		if text, err := io.ReadAll(testkit.Need(unpack(io.MultiReader(bytes.NewReader(logs[codec]), bytes.NewReader(logs[codec]))))(t)); err != nil || len(text) != 2*len(logs["plain"]) {
			t.Errorf("%s twice: %d bytes, %v", codec, len(text), err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	for _, data := range packedLogs(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		testkit.Cheap(t, len(data), func() {
			if text, err := unpack(bytes.NewReader(data)); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(text, 16<<20))
				_ = text.Close()
			}
		})
	})
}

func TestRollingLogs(t *testing.T) {
	t.Parallel()
	lines := strings.SplitAfter(eventLog(usba.Model{R: 1, Alpha: 1, Theta: 1}, 4, 2), "\n")
	parts := []string{strings.Join(lines[:4], ""), strings.Join(lines[4:6], ""), strings.Join(lines[6:], "")}
	compacted := lines[0] + lines[1] + lines[2]
	whole := map[string]string{"events_1_app-1": parts[0], "events_2_app-1": parts[1], "events_3_app-1": parts[2]}
	with := func(changes ...string) map[string]string { // NAME, TEXT; no text removes
		files := map[string]string{"appstatus_app-1": ""}
		maps.Copy(files, whole)
		for i := 0; i < len(changes); i += 2 {
			files[changes[i]] = changes[i+1]
			if changes[i+1] == "" {
				delete(files, changes[i])
			}
		}
		return files
	}
	read := func(files map[string]string) (run, error) {
		dir := filepath.Join(t.TempDir(), "eventlog_v2_[app]*")
		for name, text := range files {
			testkit.WriteFile(t, filepath.Join(dir, name), text)
		}
		return readSpark(dir)
	}
	want := testkit.Need(read(whole))(t)
	for name, x := range map[string]struct {
		files map[string]string
		err   string
	}{
		"compacted, and the parts are still there": {with("events_2_app-1.compact", compacted), ""},
		"no newline between parts":                 {with("events_1_app-1", strings.TrimSuffix(parts[0], "\n")), ""},
		"compacted":                                {with("events_2_app-1.compact", compacted, "events_1_app-1", "", "events_2_app-1", ""), "part 1: compacted by Spark"},
		"compacted, half removed":                  {with("events_2_app-1.compact", compacted, "events_1_app-1", ""), "part 1: compacted by Spark"},
		"compacted, compressed":                    {with("events_2_app-1.zstd.compact", compacted, "events_1_app-1", "", "events_2_app-1", ""), "part 1: compacted by Spark"},
		"first missing":                            {with("events_1_app-1", ""), "part 1 of 3 is missing"},
		"middle missing":                           {with("events_2_app-1", ""), "part 2 of 3 is missing"},
		"last missing":                             {with("events_3_app-1", ""), "no stage has ended"},
		"middle empty":                             {with("events_2_app-1", "\n"), "stage 0 has 4 tasks, and 2 of them ended"},
		"two with a number":                        {with("events_2_app-1.zstd", "x"), "not the next part"},
		"no number":                                {with("events_x_app-1", "x"), "not the next part"},
		"a mistake":                                {with("events_2_app-1", parts[1]+"{\n"), "events_2_app-1: line 3: not an event"},
	} {
		got, err := read(x.files)
		if x.err == "" && (err != nil || got != want) || x.err != "" && (err == nil || !strings.Contains(err.Error(), x.err)) {
			t.Errorf("%s: %+v, %v; want %s", name, got, err, x.err)
		}
	}
	file := filepath.Join(t.TempDir(), "events_2_app-1.compact")
	testkit.WriteFile(t, file, strings.Join(lines, ""))
	if _, err := readSpark(file); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("a compacted part alone: %v", err)
	}
}

// endless is a reader that repeats a text a number of times, between a head and a tail.
func endless(head, text string, times int64, tail string) io.Reader {
	return io.MultiReader(strings.NewReader(head), &repeated{text: text, left: times}, strings.NewReader(tail))
}

type repeated struct {
	text string
	at   int
	left int64
}

func (r *repeated) Read(p []byte) (n int, err error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n = copy(p, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at, r.left = 0, r.left-1
	}
	return n, nil
}

// 10 GB of events that Spark writes most of: updates of metrics and plans, one of 10,000 nodes, a MB long.
func TestLogOf10GB(t *testing.T) {
	t.Parallel()
	good := eventLog(usba.Model{R: 1, Alpha: 1, Theta: 1}, 4, 2)
	want := testkit.Need(readSparkLog(strings.NewReader(good)))(t)
	plan := `{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart","executionId":0,"sparkPlanInfo":` +
		strings.Repeat(`{"nodeName":"Project","children":[`, 10_000) + strings.Repeat("]}", 10_000) + strings.Repeat(" ", 1<<20) + "}\n"
	cut := strings.Index(good, "\n") + 1
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := readSparkLog(endless(good[:cut], plan, 10<<30/int64(len(plan)), good[cut:]))
	runtime.ReadMemStats(&after)
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 256<<20 { // other tests run too
		t.Errorf("%d MB were allocated", taken>>20)
	}
	if _, err := readSparkLog(strings.NewReader(good[:cut] + plan + good[cut:] + "x")); err == nil || !strings.Contains(err.Error(), "line 12:") {
		t.Errorf("a mistake after a long line: %v", err)
	}
}

// What tasks cost stays bounded by the executors and the stages, not by the tasks.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	task := `{"Event":"SparkListenerTaskEnd","Stage ID":0,"Stage Attempt ID":0,"Task End Reason":{"Reason":"Success"},"Task Info":{"Executor ID":"1","Launch Time":2000,"Finish Time":3000},"Task Metrics":{"Executor Run Time":900}}` + "\n"
	l := newSparkLog()
	if err := l.read(endless("", task, 20_000, "")); err != nil || len(l.byID) != 1 || len(l.seen) != 1 || l.byID[0].done != 20_000 {
		t.Errorf("%+v, %v", l, err)
	}
	l.events = eventsMost
	if err := l.read(strings.NewReader(task)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a task too many: %v", err)
	}
}

// A history as Hadoop writes it by default: three maps, one of them killed once, and a reduce.
func TestBinaryHistory(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"binary", "json"} {
		r, err := readMapReduce(filepath.Join("..", "hadoop", "testdata", form+".jhist"))
		if got := fmt.Sprintf("%d %d %.1f %.1f %.1f", r.Tasks, r.Units, r.Parallel, r.Launch, r.Serial); err != nil || got != "3 3 26.1 1.0 3.8" {
			t.Errorf("%s: %s, %v", form, got, err)
		}
	}
}
