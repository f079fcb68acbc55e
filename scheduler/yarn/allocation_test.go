// Claims: of the allocation file only the maxima of the named queues change, byte
// for byte, and come back; the operator's edits win; a file with errors is refused
// in words and stays as it is; a kill at any moment leaves the way back.
package yarn

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

const operators = `<?xml version="1.0"?>
<!-- queues of the lab; ask ann -->
<allocations>
  <queueMaxAppsDefault>100</queueMaxAppsDefault>
  <queue name="q1">
    <!-- the <maxResources> of the report's queue -->
    <weight>2.0</weight>
    <maxResources>8192 mb, 8 vcores</maxResources>
  </queue>
  <queue name='q2'/>
  <pool name="q3"><weight>1.0</weight></pool>
  <queue name="teams" type="parent">
    <queue name="a"><fancy kind="x"><maxResources>1 mb, 1 vcores</maxResources></fancy></queue>
  </queue>
  <queuePlacementPolicy><rule name="specified" create="false"/><rule name="reject"/></queuePlacementPolicy>
</allocations>
`

// file is an allocation file of an operator, and the engine's part of it.
func file(t *testing.T, text string) (*allocation, func() string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "fair-scheduler.xml")
	testkit.Check(t, os.WriteFile(path, []byte(text), 0o644))
	return newAllocation(path, dir), func() string { return string(testkit.Need(os.ReadFile(path))(t)) }
}

func set(t *testing.T, a *allocation, want map[string]string) {
	t.Helper()
	if _, err := a.set(want); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheMaximaChange(t *testing.T) {
	t.Parallel()
	a, now := file(t, operators)
	set(t, a, map[string]string{"root.q1": "5120 mb, 5 vcores", "root.q2": "1024 mb, 1 vcores", "root.q3": "1 mb, 1 vcores", "root.teams.a": "2 mb, 2 vcores"})
	want := strings.NewReplacer(
		"<maxResources>8192 mb, 8 vcores</maxResources>", "<maxResources>5120 mb, 5 vcores</maxResources>",
		"<queue name='q2'/>", "<queue name='q2'><maxResources>1024 mb, 1 vcores</maxResources></queue>",
		`<pool name="q3">`, `<pool name="q3"><maxResources>1 mb, 1 vcores</maxResources>`,
		`<queue name="a">`, `<queue name="a"><maxResources>2 mb, 2 vcores</maxResources>`,
	).Replace(operators)
	if now() != want {
		t.Errorf("got\n%s\nwant\n%s", now(), want)
	}
	if changed, err := a.set(map[string]string{"root.q1": "5120 mb, 5 vcores", "root.q2": "1024 mb, 1 vcores", "root.q3": "1 mb, 1 vcores", "root.teams.a": "2 mb, 2 vcores"}); changed || err != nil {
		t.Errorf("the same again: changed %v, %v", changed, err)
	}
	set(t, a, map[string]string{"root.q2": "2048 mb, 2 vcores"})
	if want := strings.Replace(operators, "<queue name='q2'/>", "<queue name='q2'><maxResources>2048 mb, 2 vcores</maxResources></queue>", 1); now() != want {
		t.Errorf("with q2 only:\n%s", now())
	}
	set(t, a, nil)
	if now() != operators {
		t.Errorf("put back:\n%s", now())
	}
	if info, err := os.Stat(a.path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Whatever is set, in whatever order: letting go gives the operator's file back.
func TestLettingGoGivesTheFileBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(operators)
		before := map[string]own{}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			want := map[string]string{}
			for _, q := range []string{"root.q1", "root.q2", "root.q3", "root.teams.a", "root.teams"} {
				if rapid.Bool().Draw(t, q) {
					want[q] = fmt.Sprintf("%d mb, 1 vcores", rapid.IntRange(1, 9).Draw(t, "mb"))
				}
			}
			m := testkit.Need(merge(doc, want, before))(t)
			// A kill before the file is written, or right after, remembers during.
			switch rapid.IntRange(0, 2).Draw(t, "kill") {
			case 0:
				before = m.during
			case 1:
				doc, before = m.doc, m.during
			default:
				doc, before = m.doc, m.after
			}
		}
		m := testkit.Need(merge(doc, nil, before))(t)
		if !bytes.Equal(m.doc, []byte(operators)) {
			t.Fatalf("left behind:\n%s", m.doc)
		}
	})
}

func TestKilledEngineLeavesTheWayBack(t *testing.T) {
	t.Parallel()
	a, now := file(t, operators)
	set(t, a, map[string]string{"root.q1": "5120 mb, 5 vcores", "root.q2": "1 mb, 1 vcores"})
	again := newAllocation(a.path, filepath.Dir(a.notes)) // after kill -9
	set(t, again, map[string]string{"root.q1": "4096 mb, 4 vcores"})
	set(t, again, nil)
	if now() != operators {
		t.Errorf("put back:\n%s", now())
	}
}

func TestOperatorsEditsWin(t *testing.T) {
	t.Parallel()
	a, now := file(t, operators)
	set(t, a, map[string]string{"root.q1": "5120 mb, 5 vcores"})
	// A new value of the operator's own, and another setting.
	edited := strings.NewReplacer("8192 mb, 8 vcores", "6000 mb, 6 vcores", "<weight>2.0", "<weight>3.0").Replace(operators)
	testkit.WriteFile(t, a.path, edited)
	set(t, a, map[string]string{"root.q1": "5120 mb, 5 vcores"})
	if want := strings.Replace(edited, "6000 mb, 6 vcores", "5120 mb, 5 vcores", 1); now() != want {
		t.Errorf("merged anew:\n%s", now())
	}
	set(t, a, nil)
	if now() != edited {
		t.Errorf("put back:\n%s", now())
	}
}

func TestEditedMeanwhile(t *testing.T) {
	t.Parallel()
	a, now := file(t, operators)
	edited := strings.Replace(operators, "<weight>2.0", "<weight>3.0", 1)
	times := 0
	a.between = func() {
		if times++; times == 1 {
			if err := os.WriteFile(a.path, []byte(edited), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	set(t, a, map[string]string{"root.q1": "5120 mb, 5 vcores"})
	if want := strings.Replace(edited, "8192 mb, 8 vcores", "5120 mb, 5 vcores", 1); now() != want || times != 2 {
		t.Errorf("after %d merges:\n%s", times, now())
	}
	a.between = func() {
		times++
		if err := os.WriteFile(a.path, fmt.Appendf(nil, "%s<!-- %d -->\n", edited, times), 0o644); err != nil {
			t.Error(err)
		}
	}
	_, err := a.set(map[string]string{"root.q1": "4096 mb, 4 vcores"})
	if !errors.Is(err, errAllocation) || !strings.Contains(err.Error(), "edited 5 times") || !strings.Contains(now(), "8192 mb, 8 vcores") {
		t.Errorf("got %v and\n%s", err, now())
	}
}

func TestAllocationFileRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no end":          {"<allocations><queue name=\"q1\">", "unexpected EOF"},
		"wrong end":       {"<allocations>\n<queue name=\"q1\"></pool></allocations>", "line 2"},
		"no file of ours": {"<configuration></configuration>", "<configuration> instead of <allocations>"},
		"empty":           {"", "no element <allocations>"},
		"text":            {"hello", "no element <allocations>"},
		"twice":           {`<allocations><queue name="q1"/><queue name="q1"/></allocations>`, `duplicate queue "root.q1"`},
		"twice maximum":   {`<allocations><queue name="q1"><maxResources>1 mb</maxResources><maxResources>2 mb</maxResources></queue></allocations>`, "duplicate maxResources of queue \"root.q1\""},
		"no such queue":   {`<allocations><queue name="q2"/></allocations>`, "no queue root.q1: no such queue"},
		"two roots":       {`<allocations><queue name="q1"/></allocations><allocations/>`, "instead of <allocations>"},
		"deep":            {`<allocations><queue name="q1"/>` + strings.Repeat("<x>", 100), "nested deeper than 64"},
		"entity":          {`<!DOCTYPE a [<!ENTITY x "y">]><allocations><queue name="q1">&x;</queue></allocations>`, "invalid character entity"},
		"Latin-1":         {`<?xml version="1.0" encoding="ISO-8859-1"?><allocations><queue name="q1"/></allocations>`, "ISO-8859-1"},
	} {
		a, now := file(t, c.text)
		_, err := a.set(map[string]string{"root.q1": "5120 mb, 5 vcores"})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), a.path) || now() != c.text {
			t.Errorf("%s: got %v, want %s; the file:\n%s", name, err, c.want, now())
		}
	}
	a, _ := file(t, operators)
	testkit.Check(t, os.Remove(a.path))
	if _, err := a.set(map[string]string{"root.q1": "5120 mb, 5 vcores"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

// A file that nobody's job needs is not even read.
// What is wrong with the file is said before the first share is to be written, with the
// way out, and not any more once it is mended.
func TestFileIsCheckedBeforeItIsNeeded(t *testing.T) {
	t.Parallel()
	queues := []Queue{{Name: "root.q1"}, {Name: "root.q2"}}
	const sound = `<allocations><queue name="q1"/><queue name="q2"/></allocations>`
	for about, c := range map[string]struct{ doc, want string }{
		"sound":   {sound, ""},
		"broken":  {"<allocations>", "invalid allocation file"},
		"another": {"<configuration/>", "instead of <allocations>"},
		"queue":   {`<allocations><queue name="q1"/></allocations>`, "no queue root.q2: no such queue; add it there, or remove it from yarn.queues"},
	} {
		path := filepath.Join(t.TempDir(), "fair-scheduler.xml")
		testkit.WriteFile(t, path, c.doc)
		err := newAllocation(path, t.TempDir()).check(queues)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", about, err, c.want)
		}
	}
	a := newAllocation(filepath.Join(t.TempDir(), "none.xml"), t.TempDir())
	if err := a.check(queues); err == nil || !strings.Contains(err.Error(), "to the file of yarn.scheduler.fair.allocation.file") {
		t.Errorf("no file: %v", err)
	}
	for _, cause := range []error{fs.ErrPermission, syscall.EACCES, syscall.EROFS} {
		if err := a.failed(&fs.PathError{Op: "open", Path: "/f", Err: cause}); !errors.Is(err, cause) || !strings.Contains(err.Error(), "ReadWritePaths=") {
			t.Errorf("%v: said %v", cause, err)
		}
	}
	dir := t.TempDir()
	inLab(t, func(l *lab) {
		l.cfg.Shares, l.cfg.AllocationFile = sharesFile, filepath.Join(dir, "fair-scheduler.xml")
		l.start()
		l.pass(3 * time.Second)
		if got := l.trouble(); !strings.Contains(got, "no such file") || strings.Count(l.said.String(), "yarn: shares not written") != 1 {
			l.Errorf("trouble %q, said %s", got, l.said.String())
		}
		testkit.WriteFile(l, l.cfg.AllocationFile, sound)
		l.pass(2 * time.Second)
		if got := l.trouble(); got != "" {
			l.Errorf("mended, and trouble %q", got)
		}
	})
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	a, now := file(t, "hello")
	if changed, err := a.set(nil); changed || err != nil || now() != "hello" {
		t.Errorf("changed %v, %v", changed, err)
	}
}

func TestRootIsNamed(t *testing.T) {
	t.Parallel()
	text := `<allocations><queue name="root"><queue name="q1"><maxResources>1 mb, 1 vcores</maxResources></queue></queue></allocations>`
	a, now := file(t, text)
	set(t, a, map[string]string{"root.q1": "2 mb, 2 vcores"})
	if want := strings.Replace(text, "1 mb, 1 vcores", "2 mb, 2 vcores", 1); now() != want {
		t.Errorf("got %s", now())
	}
}

func TestLinkStaysALink(t *testing.T) {
	t.Parallel()
	a, now := file(t, operators)
	link := filepath.Join(filepath.Dir(a.path), "link.xml")
	testkit.Check(t, os.Symlink(a.path, link))
	a.path = link
	set(t, a, map[string]string{"root.q2": "2 mb, 2 vcores"})
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 || !strings.Contains(now(), "2 mb, 2 vcores") {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(operators), "q1", "1 mb, 1 vcores")
	f.Add([]byte(`<allocations><queue name="q1"  /></allocations>`), "q1", "x")
	f.Add([]byte("<allocations>"+strings.Repeat(`<queue name="q1">`, 3500)), "q1", "x")
	f.Fuzz(func(t *testing.T, doc []byte, queue, value string) {
		if strings.ContainsAny(value, "<>&\r") {
			t.Skip("values are numbers")
		}
		var m merged
		var err error
		testkit.Cheap(t, len(doc), func() { m, err = merge(doc, map[string]string{"root." + queue: value}, nil) })
		if err != nil {
			return
		}
		back, err := merge(m.doc, nil, m.after)
		if err != nil || !bytes.Equal(back.doc, doc) {
			t.Fatalf("from %q over %q back to %q: %v", doc, m.doc, back.doc, err)
		}
	})
}

// The whole way: a directive ends in the file, the end of the job and of the engine
// put the operator's own back.
func TestSharesByFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fair-scheduler.xml")
	text := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	testkit.WriteFile(t, path, operators)
	inLab(t, func(l *lab) {
		l.cfg.Shares, l.cfg.AllocationFile = sharesFile, path
		_, id, _ := started(l, 12)
		share := &headroomv1.ShareDirective{Engine: "yarn", Jobs: []*headroomv1.JobShare{{Id: id, Containers: 5}}}
		if err := l.engine.Share(share); err != nil || !strings.Contains(text(), "<maxResources>2560 mb, 5 vcores</maxResources>") || l.trouble() != "" {
			l.Errorf("%v, trouble %q\n%s", err, l.trouble(), text())
		}
		l.pass(25 * time.Second)
		if text() != operators {
			l.Errorf("after the job:\n%s", text())
		}
		second := l.plant.submit("root.q2", 40, 0)
		l.pass(6 * time.Second)
		share.Jobs[0].Id = l.plant.id(second)
		if err := l.engine.Share(share); err != nil || text() == operators {
			l.Errorf("%v\n%s", err, text())
		}
		l.stop()
		if text() != operators {
			l.Errorf("after the engine:\n%s", text())
		}
		l.start()
		l.pass(2 * time.Second)
		testkit.WriteFile(l, path, "<allocations>")
		if err := l.engine.Share(share); err == nil || !strings.Contains(l.trouble(), "unexpected EOF") {
			l.Errorf("a file with errors: %v, trouble %q", err, l.trouble())
		}
		l.pass(5 * time.Second)
		if n := strings.Count(l.said.String(), "shares not written"); n != 1 {
			l.Errorf("said %d times", n)
		}
	})
}

// Shares that are switched off, or to another file, leave nothing behind.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	for _, shares := range []string{sharesNone, sharesHook, sharesFile} {
		a, now := file(t, operators)
		set(t, a, map[string]string{"root.q1": "1 mb, 1 vcores"})
		inLab(t, func(l *lab) {
			l.dir, l.cfg.Shares = filepath.Dir(a.notes), shares
			if shares == sharesFile {
				l.cfg.AllocationFile = filepath.Join(l.dir, "other.xml")
				testkit.WriteFile(l, l.cfg.AllocationFile, operators)
			}
			l.start()
			l.pass(2 * time.Second)
			if now() != operators {
				l.Errorf("%s:\n%s", shares, now())
			}
		})
	}
}

func TestNotesDamaged(t *testing.T) {
	t.Parallel()
	a, now := file(t, operators)
	testkit.WriteFile(t, a.notes, "{")
	if _, err := a.set(map[string]string{"root.q1": "1 mb, 1 vcores"}); err == nil || !strings.Contains(err.Error(), a.notes) || now() != operators {
		t.Errorf("got %v", err)
	}
}

// Not in a bubble: the command is a process.
func TestRefresh(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	mark := filepath.Join(t.TempDir(), "mark")
	logger := slog.New(slog.NewTextHandler(&said, nil))
	newRefresher([]string{"touch", mark}, logger).refresh(t.Context())
	if _, err := os.Stat(mark); err != nil || said.Len() > 0 {
		t.Errorf("%v: %s", err, said.String())
	}
	newRefresher(nil, logger).refresh(t.Context())
	newRefresher([]string{"sh", "-c", "echo no such RM >&2; exit 3"}, logger).refresh(t.Context())
	if !strings.Contains(said.String(), "exit status 3") || !strings.Contains(said.String(), "no such RM") {
		t.Errorf("said %s", said.String())
	}
}
