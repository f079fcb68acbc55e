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
	// textLeast is the least that both classes can be kept busy with.
	textLeast = 16 << 20
	// spareDisk is what the demo leaves free on the cache's disk.
	spareDisk = 1 << 30
	// sourceMax bounds one file taken in: what is larger is data, not prose.
	sourceMax = 4 << 20
	// foundLeast: below this much real text the input would be one page repeated.
	foundLeast = 256 << 10
)

// corpus is the text that the jobs read: files of about partSize.
type corpus struct {
	dir   string
	parts []string
}

// bytes is how much text there is.
func (c corpus) bytes() int64 { return int64(len(c.parts)) * partSize }

// findCorpus is the text in the user's cache folder, made there on the first
// run. say is told what takes long or is made smaller.
func findCorpus(ctx context.Context, cache string, sources []string, say func(format string, args ...any)) (corpus, error) {
	if c, ok := openCorpus(filepath.Join(cache, corpusName(textSize))); ok {
		return c, nil
	}
	size, err := affordable(cache, say)
	if err != nil {
		return corpus{}, err
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

// affordable is how much text the disk has room for.
func affordable(cache string, say func(format string, args ...any)) (int64, error) {
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return 0, cli.Failed("set XDG_CACHE_HOME to a writable folder", "cannot make the cache folder for the text: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(cache, &disk); err != nil {
		return 0, fmt.Errorf("demo: free space of %s: %w", cache, err)
	}
	free := int64(disk.Bavail) * disk.Bsize
	size := min(textSize, (free-spareDisk)/2) / partSize * partSize
	if size < textLeast {
		return 0, cli.Failed("free some space there, or set XDG_CACHE_HOME to a folder on another disk",
			"the disk of %s has %d MB free; the text needs %d MB beside %d MB to spare", cache, free>>20, 2*textLeast>>20, spareDisk>>20)
	}
	if size < textSize {
		say("only %[2]d MB free on the disk of %[1]s: creating %[3]d MB of text instead of %[4]d MB", cache, free>>20, size>>20, textSize>>20)
	}
	return size, nil
}

// openCorpus is the text in dir when it is there; it was renamed into place, so
// it is whole or absent.
func openCorpus(dir string) (corpus, bool) {
	parts, err := filepath.Glob(filepath.Join(dir, "part-*.txt"))
	return corpus{dir: dir, parts: parts}, err == nil && len(parts) > 0
}

// makeCorpus writes the text beside dir and renames it into place.
func makeCorpus(ctx context.Context, dir string, size int64, sources []string) (_ corpus, err error) {
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".text-")
	if err != nil {
		return corpus{}, fmt.Errorf("demo: make text: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	w := &partWriter{dir: temp, most: int(size / partSize)}
	if err := gather(ctx, w, sources); err != nil {
		return corpus{}, err
	}
	if err := w.repeat(ctx); err != nil {
		return corpus{}, err
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
	dirs := []string{"/usr/share/common-licenses", "/usr/share/dict", "/usr/share/doc", "/usr/share/man", "/usr/share/info"}
	for _, root := range []string{os.Getenv("GOROOT"), goRoot(), "/usr/local/go", "/usr/lib/go"} {
		if root != "" {
			dirs = append(dirs, filepath.Join(root, "doc"), filepath.Join(root, "src"))
			break
		}
	}
	return append(dirs, "/usr/share/perl", "/usr/lib/python3", "/usr/share")
}

// goRoot is the folder of the Go release on the path, or "".
func goRoot() string {
	tool, err := exec.LookPath("go")
	if err != nil {
		return ""
	}
	if tool, err = filepath.EvalSymlinks(tool); err != nil {
		return ""
	}
	return filepath.Dir(filepath.Dir(tool))
}

// errFull ends a walk when there is enough text.
var errFull = errors.New("demo: enough text")

// gather walks the sources in order and takes in what is text, until w is full.
func gather(ctx context.Context, w *partWriter, sources []string) error {
	seen := map[string]bool{}
	for _, dir := range sources {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil && d != nil && d.IsDir():
				return fs.SkipDir // unreadable: there is text elsewhere
			case err != nil || d.IsDir() && path != dir && seen[path]:
				return nil
			case d.Type().IsRegular():
				return w.add(readText(path))
			}
			return nil
		})
		if errors.Is(err, errFull) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("demo: gather text: %w", err)
		}
	}
	return nil
}

// readText is the content of a file when it is text, plain or gzipped; else nothing.
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
	if err != nil || len(data) > sourceMax || !looksLikeText(data) {
		return nil
	}
	return data
}

func looksLikeText(data []byte) bool {
	return len(data) > 0 && bytes.IndexByte(data, 0) < 0 && utf8.Valid(data)
}

// partWriter cuts a stream of text into parts, at line ends.
type partWriter struct {
	dir  string
	most int
	made int
	buf  bytes.Buffer
}

// add takes in text; it returns errFull when the last part is written.
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
		return fmt.Errorf("demo: make text: %w", err)
	}
	if w.made++; w.made >= w.most {
		return errFull
	}
	return nil
}

func (w *partWriter) part(i int) string {
	return filepath.Join(w.dir, fmt.Sprintf("part-%04d.txt", i))
}

// repeat fills the missing parts with copies of those that are there.
func (w *partWriter) repeat(ctx context.Context) error {
	if w.made == 0 {
		if w.buf.Len() < foundLeast {
			return &cli.Error{
				Code: "no-text", Exit: cli.ExitFailed, Err: errNoText, Message: "not enough readable text found on this machine",
				Hint: "the demo reads /usr/share/doc, man pages and the Go release; set GOROOT to a Go release",
			}
		}
		if err := w.flush(w.buf.Len()); err != nil {
			return ignoreFull(err)
		}
	}
	for unique := w.made; w.made < w.most; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		data, err := os.ReadFile(w.part(w.made % unique))
		if err != nil {
			return fmt.Errorf("demo: make text: %w", err)
		}
		w.buf.Reset()
		w.buf.Write(data)
		if err := w.flush(w.buf.Len()); err != nil {
			return ignoreFull(err)
		}
	}
	return nil
}

func ignoreFull(err error) error {
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}
