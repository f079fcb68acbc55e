package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// Sizes of the text. One part is one map task's input.
const (
	partSize = 2 << 20
	textSize = 256 << 20
	// textLeast is enough to keep both classes busy.
	textLeast = 16 << 20
	// spareDisk is what the demo leaves free on the cache's disk.
	spareDisk = 1 << 30
	// sourceMax bounds one file that is read: larger files are data, not prose.
	sourceMax = 4 << 20
	// foundLeast: below this much real text the input would be one page repeated.
	foundLeast = 256 << 10
)

// corpus is the text that the jobs read: files of about partSize.
type corpus struct{ parts []string }

// bytes is the size of the text.
func (c corpus) bytes() int64 { return int64(len(c.parts)) * partSize }

// findCorpus returns the text in the user's cache folder, which the first run makes.
func findCorpus(ctx context.Context, cache string, sources []string, say func(format string, args ...any)) (corpus, error) {
	if c, ok := openCorpus(filepath.Join(cache, corpusName(textSize))); ok {
		return c, nil
	}
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return corpus{}, cli.Failed("set XDG_CACHE_HOME to a writable folder", "cannot make the cache folder for the text: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(cache, &disk); err != nil {
		return corpus{}, fmt.Errorf("demo: free space of %s: %w", cache, err)
	}
	free := int64(disk.Bavail) * disk.Bsize
	size := min(textSize, (free-spareDisk)/2) / partSize * partSize
	if size < textLeast {
		return corpus{}, cli.Failed("free some space there, or set XDG_CACHE_HOME to a folder on another disk",
			"the disk of %s has %d MB free; the text needs %d MB beside %d MB to spare", cache, free>>20, 2*textLeast>>20, spareDisk>>20)
	}
	dir := filepath.Join(cache, corpusName(size))
	if c, ok := openCorpus(dir); ok {
		return c, nil
	}
	say("creating %d MB of text in %s from files of this machine (once)", size>>20, dir)
	return makeCorpus(ctx, dir, size, sources)
}

func corpusName(size int64) string { return fmt.Sprintf("text-%dMB", size>>20) }

// cacheDir is where the text is kept between runs: the user's cache folder, or
// the folder for temporary files where the user has none.
func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		if path := filepath.Join(dir, "headroom"); os.MkdirAll(path, 0o750) == nil && unix.Access(path, unix.W_OK) == nil {
			return path
		}
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("headroom-cache-%d", os.Getuid()))
}

// openCorpus is the text in dir; it was renamed into place, so it is whole or absent.
func openCorpus(dir string) (corpus, bool) {
	parts, err := filepath.Glob(filepath.Join(dir, "part-*.txt"))
	return corpus{parts}, err == nil && len(parts) > 0
}

// makeCorpus writes the text next to dir and renames it into place.
func makeCorpus(ctx context.Context, dir string, size int64, sources []string) (_ corpus, err error) {
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".text-")
	if err != nil {
		return corpus{}, fmt.Errorf("demo: make text: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	w := &partWriter{dir: temp, most: int(size / partSize)}
	if err := w.gather(ctx, sources); !errors.Is(err, errFull) {
		return corpus{}, fmt.Errorf("demo: make text: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		if c, ok := openCorpus(dir); ok {
			return c, nil // another demo was faster
		}
		return corpus{}, fmt.Errorf("demo: make text: %w", err)
	}
	c, _ := openCorpus(dir)
	return c, nil
}

// textSources are the folders where text is found, prose before program sources.
func textSources() []string {
	dirs := []string{"/usr/share/common-licenses", "/usr/share/dict", "/usr/share/doc", "/usr/share/man", "/usr/share/info", os.Getenv("GOROOT")}
	if tool, err := exec.LookPath("go"); err == nil {
		if tool, err = filepath.EvalSymlinks(tool); err == nil {
			dirs = append(dirs, filepath.Join(filepath.Dir(filepath.Dir(tool)), "src"))
		}
	}
	return append(dirs, "/usr/local/go/src", "/usr/share/perl", "/usr/lib/python3", "/usr/share")
}

// readText is the content of a file if it is text, plain or gzipped; else nothing.
func readText(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil
		}
	}
	data, err := io.ReadAll(io.LimitReader(r, sourceMax+1))
	if err != nil || len(data) > sourceMax || bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return nil
	}
	return data
}

// partWriter cuts a stream of text into parts, at line ends.
type partWriter struct {
	dir  string
	most int
	made int
	buf  bytes.Buffer
}

// errFull is the end of every gathering that comes to enough text.
var errFull = errors.New("demo: enough text")

// gather walks the sources in order and takes what is text, until all parts are written; it fills
// missing parts with copies. It ends with an error: errFull where all is well.
func (w *partWriter) gather(ctx context.Context, sources []string) error {
	for _, dir := range sources {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil && d != nil && d.IsDir():
				return fs.SkipDir // unreadable: there is text elsewhere
			case err == nil && d.Type().IsRegular():
				return w.add(readText(path))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if w.made == 0 {
		if w.buf.Len() < foundLeast {
			return &cli.Error{
				Code: "no-text", Exit: cli.ExitFailed, Err: errNoText, Message: "not enough readable text found on this machine",
				Hint: "the demo reads /usr/share/doc, man pages and the Go release; set GOROOT to a Go release",
			}
		}
		if err := w.flush(w.buf.Len()); err != nil {
			return err
		}
	}
	for unique := w.made; ; {
		data, err := os.ReadFile(w.part(w.made % unique))
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		w.buf = *bytes.NewBuffer(data)
		if err := w.flush(len(data)); err != nil {
			return err
		}
	}
}

// add takes text; it returns errFull when the last part is written.
func (w *partWriter) add(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	w.buf.Write(text)
	if text[len(text)-1] != '\n' {
		w.buf.WriteByte('\n')
	}
	for w.buf.Len() >= partSize {
		cut := bytes.LastIndexByte(w.buf.Bytes()[:partSize], '\n') + 1
		if cut == 0 {
			cut = partSize
		}
		if err := w.flush(cut); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the first n bytes as a part.
func (w *partWriter) flush(n int) error {
	if err := os.WriteFile(w.part(w.made), w.buf.Next(n), 0o644); err != nil {
		return err
	}
	if w.made++; w.made >= w.most {
		return errFull
	}
	return nil
}

func (w *partWriter) part(i int) string {
	return filepath.Join(w.dir, fmt.Sprintf("part-%04d.txt", i))
}
