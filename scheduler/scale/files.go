package scale

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"headroom/internal/cli"
)

// filesMost bounds the logs of one fit, and the parts of a rolling log.
const filesMost = 10_000

// bytesMost bounds a log after decompression: it is read in constant memory, at about 100 MB/s.
const bytesMost = 64 << 30

// measured reads logs, and returns the means of their runs.
func measured(names []string, readOne func(name string) (run, error)) ([]measurement, error) {
	if len(names) > filesMost {
		return nil, cli.Usage("%d logs: at most %d are allowed", len(names), filesMost)
	}
	runs := make([]run, 0, len(names))
	for _, name := range names {
		r, err := readOne(name)
		if err != nil {
			return nil, &cli.Error{
				Code: "input", Exit: cli.ExitUsage, Message: fmt.Sprintf("%s: %v", name, err), Err: err,
				Hint: "use the log of a run that has ended; see --help for the formats",
			}
		}
		runs = append(runs, r)
	}
	return group(runs), nil
}

// readSpark reads the event log of one application: a file, or the folder of a rolling one.
func readSpark(name string) (run, error) {
	parts, err := partsOf(name)
	if err != nil {
		return run{}, err
	}
	l, left := newSparkLog(), int64(bytesMost)
	for _, part := range parts {
		if err := readFile(part, &left, l.read); err != nil {
			if len(parts) > 1 {
				err = fmt.Errorf("%s: %w", filepath.Base(part), err)
			}
			return run{}, err
		}
	}
	return l.run()
}

// readMapReduce reads the history of one job.
func readMapReduce(name string) (r run, err error) {
	err = readFile(name, new(int64(bytesMost)), func(from io.Reader) (err error) {
		r, err = readHistory(from)
		return err
	})
	return r, err
}

// readFile reads the text of a file. left is how many bytes of text may still be read.
func readFile(name string, left *int64, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	text, err := unpack(f)
	if err != nil {
		return err
	}
	defer func() { _ = text.Close() }()
	bounded := &io.LimitedReader{R: text, N: *left}
	err = read(bounded)
	if *left = bounded.N; *left == 0 {
		err = fmt.Errorf("larger than %d bytes", int64(bytesMost))
	}
	return err
}

// compactedEnd ends the name of a part in which Spark has put together what it keeps of the parts before.
const compactedEnd = ".compact"

// partsOf are the files of a log: itself, or in the folder of a rolling log its events_1_..., events_2_..., in order. None
// may be missing. A compacted part lacks the tasks of jobs that were over, so it does not stand for others.
func partsOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if strings.HasSuffix(name, compactedEnd) {
			return nil, errCompacted
		}
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	found := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), "events_") })
	switch {
	case err != nil || len(found) == 0:
		return nil, errors.Join(errors.New("folder without events_* files: use an event log, or the folder of a rolling event log"), err)
	case len(found) > filesMost:
		return nil, fmt.Errorf("more than %d parts", filesMost)
	}
	parts := map[int]string{}
	last, compacted := 0, 0
	for _, e := range found {
		n := 0
		if _, err := fmt.Sscanf(e.Name(), "events_%d_", &n); err != nil {
			n = 0
		}
		last = max(last, n)
		switch {
		case strings.HasSuffix(e.Name(), compactedEnd):
			compacted = max(compacted, n)
		case n < 1 || parts[n] != "":
			return nil, fmt.Errorf("%s: not the next part of the log", e.Name())
		default:
			parts[n] = filepath.Join(name, e.Name())
		}
	}
	whole := make([]string, 0, len(parts))
	for n := 1; n <= last; n++ {
		switch {
		case parts[n] != "":
			whole = append(whole, parts[n])
		case n <= compacted:
			return nil, fmt.Errorf("part %d: %w", n, errCompacted)
		default:
			return nil, fmt.Errorf("part %d of %d is missing", n, last)
		}
	}
	return whole, nil
}

var errCompacted = errors.New("compacted by Spark, which has removed the tasks of ended jobs; " +
	"keep the whole log (do not set spark.history.fs.eventLog.rolling.maxFilesToRetain)")
