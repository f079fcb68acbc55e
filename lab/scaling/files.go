package scaling

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"headroom/internal/cli"
)

// filesMost bounds the logs of one fit, and the parts of a rolling log.
const filesMost = 10_000

// bytesMost bounds a log after decompression.
const bytesMost = 8 << 30

// readAll reads logs.
func readAll(names []string, read func(io.Reader) (run, error)) ([]run, error) {
	if len(names) > filesMost {
		return nil, cli.Usage("%d logs: at most %d are allowed", len(names), filesMost)
	}
	runs := make([]run, 0, len(names))
	for _, name := range names {
		r, err := readOne(name, read)
		if err != nil {
			return nil, &cli.Error{
				Code: "input", Exit: cli.ExitUsage, Message: fmt.Sprintf("%s: %v", name, err), Err: err,
				Hint: "use the log of a run that has ended; see --help for the formats",
			}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// readOne reads a log, or the folder of a rolling one.
func readOne(name string, read func(io.Reader) (run, error)) (run, error) {
	parts, err := partsOf(name)
	if err != nil {
		return run{}, err
	}
	var readers []io.Reader
	for _, part := range parts {
		f, err := os.Open(part)
		if err != nil {
			return run{}, err
		}
		defer func() { _ = f.Close() }()
		plain, err := plainText(f, part)
		if err != nil {
			return run{}, err
		}
		readers = append(readers, plain)
	}
	bounded := &io.LimitedReader{R: io.MultiReader(readers...), N: bytesMost}
	r, err := read(bounded)
	if err == nil && bounded.N == 0 {
		err = fmt.Errorf("larger than %d bytes", int64(bytesMost))
	}
	return r, err
}

// errPacked says what to do about a codec that is not read here.
var errPacked = errors.New("unsupported compression; decompress the log, or run with spark.eventLog.compress=false")

// plainText unpacks gzip.
func plainText(r io.Reader, name string) (io.Reader, error) {
	var head [4]byte
	n, err := io.ReadFull(r, head[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	whole := io.MultiReader(bytes.NewReader(head[:n]), r)
	switch {
	case bytes.HasPrefix(head[:n], []byte{0x1f, 0x8b}):
		return gzip.NewReader(whole)
	case slices.Contains([]string{".zstd", ".zst", ".lz4", ".snappy", ".lzf"}, filepath.Ext(name)), bytes.Equal(head[:n], []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errPacked
	}
	return whole, nil
}

// partsOf are the files of a log: itself, or in the folder of a rolling log its events_1_..., events_2_..., in order.
func partsOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	found, err := filepath.Glob(filepath.Join(name, "events_*"))
	if err != nil || len(found) == 0 {
		return nil, errors.Join(errors.New("folder without events_* files: use an event log, or the folder of a rolling event log"), err)
	}
	if len(found) > filesMost {
		return nil, fmt.Errorf("more than %d parts", filesMost)
	}
	slices.SortFunc(found, func(a, b string) int {
		if i, j := partNumber(a), partNumber(b); i != j {
			return i - j
		}
		return strings.Compare(a, b)
	})
	return found, nil
}

// partNumber is the number in events_NUMBER_application; 0 where there is none.
func partNumber(name string) int {
	_, after, _ := strings.Cut(filepath.Base(name), "_")
	digits, _, _ := strings.Cut(after, "_")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}
