package profiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"headroom/internal/config"
	"headroom/jobs/quality"
	"headroom/units"
)

const (
	// readEvery is how often the folder is checked; a job's request checks it too.
	readEvery = 5 * time.Second
	// fileMax bounds one profile, in bytes: a point is a line or six.
	fileMax = 1 << 20
	// filesMax bounds the folder.
	filesMax = 1000
	// suffix ends the name of a profile's file.
	suffix = ".json"
)

var (
	// errLarge states that there is more than is read.
	errLarge = errors.New("too large")

	errNoFile = errors.New("is not a regular file")
)

// Folder is a folder of profiles. A nil Folder means that none is configured. It is
// safe for concurrent use.
type Folder struct {
	dir    string
	logger *slog.Logger

	mu    sync.Mutex
	known map[string]entry
	// failed is the error of reading the folder; nil if it is readable.
	failed error
}

// entry is what a file holds.
type entry struct {
	modified time.Time
	bytes    int64
	profile  quality.Profile
	err      error
}

// Open reads the folder. No dir gives nil. Errors are logged.
func Open(dir string, logger *slog.Logger) *Folder {
	if dir == "" {
		return nil
	}
	f := &Folder{dir: dir, logger: logger}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f
}

// Run looks at the folder from time to time until ctx ends, so that a mistake in a
// new file is logged before a job needs it.
func (f *Folder) Run(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.mu.Lock()
			f.refresh()
			f.mu.Unlock()
		}
	}
}

// refresh reads what has changed. The caller holds the lock.
func (f *Folder) refresh() {
	names, err := f.names()
	if err != nil {
		if f.failed == nil || f.failed.Error() != err.Error() {
			f.logger.Error("profiles unreadable; running all tasks of jobs with quality; make the folder readable for the scheduler, "+
				"or correct profiles in scheduler.yaml", slog.Any("error", err))
		}
		f.failed = err
		return
	}
	if f.failed != nil {
		f.logger.Info("profiles readable again", slog.String("folder", f.dir))
	}
	f.failed = nil
	before := f.known
	f.known = make(map[string]entry, len(names))
	for _, name := range names {
		f.known[name] = f.again(name, before)
	}
}

// names returns the profiles that the folder has files for.
func (f *Folder) names() ([]string, error) {
	files, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, x := range files {
		if name, ok := strings.CutSuffix(x.Name(), suffix); ok && name != "" && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	if len(names) > filesMax {
		return nil, fmt.Errorf("%s: %w: %d profiles; the maximum is %d", f.dir, errLarge, len(names), filesMax)
	}
	return names, nil
}

// again returns the entry of a file: the one of before unless it has changed.
func (f *Folder) again(name string, before map[string]entry) entry {
	path := filepath.Join(f.dir, name+suffix)
	old, known := before[name]
	info, err := os.Stat(path)
	if err == nil && known && old.modified.Equal(info.ModTime()) && old.bytes == info.Size() && (old.err == nil || !errors.Is(old.err, fs.ErrPermission)) {
		return old
	}
	e := entry{err: err}
	var warnings []string
	if err == nil {
		e.modified, e.bytes = info.ModTime(), info.Size()
		e.profile, warnings, e.err = read(path, info)
	}
	switch {
	case e.err != nil && (!known || old.err == nil || old.err.Error() != e.err.Error()):
		f.logger.Error("profile invalid; running all tasks of jobs that use it", slog.String("profile", name), slog.Any("error", e.err))
	case e.err == nil:
		f.logger.Info("profile read", slog.String("profile", name), slog.Int("points", len(e.profile.Points)))
		for _, w := range warnings {
			f.logger.Warn("profile not monotone", slog.String("profile", name), slog.String("what", w))
		}
	}
	return e
}

func read(path string, info fs.FileInfo) (p quality.Profile, warnings []string, err error) {
	if !info.Mode().IsRegular() { // a pipe would hold the reader for ever
		return p, nil, fmt.Errorf("%s: %w", path, errNoFile)
	}
	data, err := config.ReadFile(path, fileMax+1)
	if err != nil {
		return p, nil, err
	}
	if len(data) > fileMax {
		err = fmt.Errorf("%w: more than %d bytes", errLarge, fileMax)
	}
	if err == nil {
		p, warnings, err = quality.Parse(data)
	}
	if err != nil {
		return p, nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, warnings, nil
}

// Profile returns the profile of that name as it is now; the error says why there is none.
func (f *Folder) Profile(name string) (quality.Profile, error) {
	if f == nil {
		return quality.Profile{}, errors.New("profiles is not set in scheduler.yaml")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	if f.failed != nil {
		return quality.Profile{}, f.failed
	}
	e, ok := f.known[name]
	if !ok {
		return quality.Profile{}, fmt.Errorf("there is no %s in %s", quoted(name+suffix), f.dir)
	}
	return e.profile, e.err
}

// Accuracy is what a job's owner asks for, in texts: they come from people.
type Accuracy struct {
	// Key is where it stands, for words: headroom.quality=90%.
	Key string
	// Least is the accuracy, 90% or 0.9.
	Least string
	// Profile is the name of the job's profile.
	Profile string
}

// quoted returns a text of people, short enough for a sentence.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.Quote(s)
}

// Unusable stands in the reason of a bound whose accuracy cannot be translated into tasks.
const Unusable = ": running all tasks, because "

// Bound returns the least part of the map tasks that the accuracy needs, at most 1.
func (f *Folder) Bound(a Accuracy) Bound {
	all := func(format string, args ...any) Bound {
		return Bound{1, a.Key + Unusable + fmt.Sprintf(format, args...)}
	}
	accuracy, err := config.ParseFraction(a.Least)
	if err != nil {
		return all("%s is not an accuracy; write 90%% or 0.9", quoted(a.Least))
	}
	p, err := f.Profile(a.Profile)
	if err != nil {
		return all("profile %s cannot be used: %v", quoted(a.Profile), err)
	}
	if _, low, _ := p.Accuracy(1); low < accuracy {
		return all("profile %s never reaches %s: its worst run on all tasks reached %s", quoted(a.Profile), units.Percent(accuracy), units.Percent(low))
	}
	fraction, ok := p.Fraction(accuracy)
	if !ok || !(fraction > 0 && fraction <= 1) {
		return all("profile %s gives no fraction for it", quoted(a.Profile))
	}
	return Bound{fraction, fmt.Sprintf("%s needs %s of the tasks by profile %s", a.Key, units.Percent(fraction), quoted(a.Profile))}
}

// Bound is a least part of a job's map tasks, with where it comes from.
type Bound struct {
	// Fraction is above 0 and at most 1.
	Fraction float64
	// Why is the reason in words.
	Why string
}

// Strictest returns the highest bound, the first of equal ones, and in words what it
// follows from and what else was asked. There is at least one.
func Strictest(bounds ...Bound) Bound {
	most := bounds[0]
	for _, b := range bounds[1:] {
		if b.Fraction > most.Fraction {
			most = b
		}
	}
	var others []string
	for _, b := range bounds {
		if b != most {
			others = append(others, b.Why)
		}
	}
	if len(others) > 0 {
		most.Why += " (beside " + strings.Join(others, "; ") + ")"
	}
	return most
}
