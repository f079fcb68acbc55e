// Claims: a profile that is put into the folder, changed or taken away counts from then
// on; what is wrong with one is said once, with its place, and what it is needed for
// has the strictest answer.
package profiles

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/testkit"
)

const words = `{"name":"words","engine":"local","points":[{"fraction":0.5,"accuracy":0.9,"low":0.8,"high":0.95,"runs":3}]}`

// place is a folder of profiles under test.
type place struct {
	*testing.T
	dir  string
	said bytes.Buffer
	*Folder
}

func newPlace(t *testing.T, files map[string]string) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir()}
	for name, text := range files {
		p.write(name, text)
	}
	p.Folder = Open(p.dir, slog.New(slog.NewTextHandler(&p.said, nil)))
	return p
}

func (p *place) write(name, text string) {
	p.Helper()
	testkit.WriteFile(p, filepath.Join(p.dir, name), text)
}

func (p *place) ask(least, profile string) Bound {
	return p.Bound(Accuracy{Key: "quality " + least, Least: least, Profile: profile})
}

func (p *place) want(b Bound, fraction float64, words string) {
	p.Helper()
	if math.Abs(b.Fraction-fraction) > 1e-9 || !strings.Contains(b.Why, words) {
		p.Errorf("got %v, want %v with %q", b, fraction, words)
	}
}

func TestChangesCount(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"words.json": words, "notes.txt": "{", ".hidden.json": "{"})
	p.want(p.ask("80%", "words"), 0.5, "needs 50 % of the tasks")
	p.want(p.ask("90%", "words"), 0.75, "needs 75 % of the tasks") // between the worst run at a half and all at all
	p.want(p.ask("90%", "top"), 1, `there is no "top.json" in `)
	p.write("top.json", words)
	p.want(p.ask("80%", "top"), 0.5, "50 %")
	p.write("top.json", strings.Replace(words, "0.5", "0.25", 1))
	p.want(p.ask("80%", "top"), 0.25, "25 %")
	testkit.Check(t, os.Remove(filepath.Join(p.dir, "top.json")))
	p.want(p.ask("80%", "top"), 1, "all tasks")
	p.want(p.ask("80%", ".hidden"), 1, "all tasks")
	p.want(p.ask("80%", "../words"), 1, "all tasks")
	if got := p.said.String(); strings.Contains(got, "ERROR") {
		t.Errorf("said %s", got)
	}
}

func TestBrokenIsSaidOnce(t *testing.T) {
	t.Parallel()
	point := func(text string) string { return `{"name":"a","engine":"local","points":[` + text + `]}` }
	for about, c := range map[string]struct{ text, want string }{
		"half":          {"{\n  \"name\": \"a\",", "a.json: quality: bad profile: 2:"},
		"unknown key":   {"{\"nam\": \"a\"}", "a.json: quality: bad profile: 1:"},
		"no points":     {point(""), "a.json: quality: bad profile"},
		"beyond all":    {point(`{"fraction":1.5,"accuracy":0.9,"low":0.8,"high":0.95,"runs":3}`), "fraction 1.5"},
		"low above":     {point(`{"fraction":0.5,"accuracy":0.7,"low":0.8,"high":0.95,"runs":3}`), "at fraction 0.5"},
		"two documents": {words + words, "more than one document"},
		"too long":      {words + strings.Repeat(" ", fileMax), "more than 1048576 bytes"},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, map[string]string{"a.json": c.text, "words.json": words})
			for range 3 {
				p.want(p.ask("90%", "a"), 1, c.want)
			}
			if n := strings.Count(p.said.String(), "level=ERROR"); n != 1 || !strings.Contains(p.said.String(), c.want) {
				t.Errorf("said %d times: %s", n, p.said.String())
			}
			p.want(p.ask("80%", "words"), 0.5, "50 %") // the others count
			p.write("a.json", words)
			p.want(p.ask("80%", "a"), 0.5, "50 %")
		})
	}
}

// More tasks that seem worse are pooled with what is below, and it is said which.
func TestNotMonotone(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.json": `{"name":"a","engine":"local","points":[
		{"fraction":0.25,"accuracy":0.9,"low":0.9,"high":0.9,"runs":1},{"fraction":0.5,"accuracy":0.7,"low":0.7,"high":0.7,"runs":1}]}`})
	p.want(p.ask("80%", "a"), 0.25, "25 %")
	p.want(p.ask("90%", "a"), 0.75, "75 %") // not at a quarter, where one run alone was good
	if got := p.said.String(); strings.Count(got, "fractions 0.25, 0.5 were pooled to accuracy 0.8") != 1 {
		t.Errorf("said %s", got)
	}
}

func TestFolderAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"words.json": words})
	aside := p.dir + ".aside"
	testkit.Check(t, os.Rename(p.dir, aside))
	for range 3 {
		p.want(p.ask("90%", "words"), 1, "no such file or directory")
	}
	if n := strings.Count(p.said.String(), "profiles unreadable"); n != 1 || !strings.Contains(p.said.String(), "make the folder readable") {
		t.Errorf("said %d times: %s", n, p.said.String())
	}
	testkit.Check(t, os.Rename(aside, p.dir))
	p.want(p.ask("80%", "words"), 0.5, "50 %")
	if !strings.Contains(p.said.String(), "profiles readable again") {
		t.Errorf("said %s", p.said.String())
	}
}

func TestNoFolder(t *testing.T) {
	t.Parallel()
	f := Open("", slog.New(slog.DiscardHandler))
	if b := f.Bound(Accuracy{Key: "quality: 90%", Least: "90%", Profile: "words"}); b.Fraction != 1 || !strings.Contains(b.Why, "profiles is not set in scheduler.yaml") {
		t.Errorf("got %v", b)
	}
}

// A mistake is said before a job asks.
func TestLooksByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		f := Open(dir, slog.New(slog.NewTextHandler(&said, nil)))
		go func() { _ = f.Run(t.Context()) }()
		testkit.WriteFile(t, filepath.Join(dir, "a.json"), "{")
		time.Sleep(2 * readEvery)
		synctest.Wait()
		if !strings.Contains(said.String(), "a.json: quality: bad profile: 1:") {
			t.Errorf("said %q", said.String())
		}
	})
}

func TestStrictest(t *testing.T) {
	t.Parallel()
	got := Strictest(Bound{0.5, "queue"}, Bound{0.8, "owner"}, Bound{0.8, "profile"})
	if got.Fraction != 0.8 || got.Why != "owner (beside queue; profile)" {
		t.Errorf("got %v", got)
	}
	if got := Strictest(Bound{0.5, "queue"}); got.Why != "queue" {
		t.Errorf("got %v", got)
	}
}
