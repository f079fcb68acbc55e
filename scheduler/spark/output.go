package spark

import (
	"errors"
	"os"
	"path/filepath"
)

// outputMax bounds one of the two files that hold a driver's output, and as many its errors.
const outputMax = 4 << 20

// output is the standard output or error of a driver. It arrives through a pipe: the driver has no handle on a file in
// the scheduler's folder. The newest outputMax bytes at least are kept, in the file and in the one that it replaced.
type output struct {
	path string
	file *os.File
	size int
}

func newOutput(folder, name string) (*output, error) {
	o := &output{path: filepath.Join(folder, name)}
	return o, o.open()
}

func (o *output) open() (err error) {
	o.size = 0
	o.file, err = os.OpenFile(o.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	return err
}

// Write never fails: a driver must not end because its output cannot be kept.
func (o *output) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if o.size == outputMax && errors.Join(o.file.Close(), os.Rename(o.path, o.path+replaced), o.open()) != nil {
			return len(p), nil // what follows is lost
		}
		n := min(len(rest), outputMax-o.size)
		_, _ = o.file.Write(rest[:n])
		o.size, rest = o.size+n, rest[n:]
	}
	return len(p), nil
}

// Close ends it. What the driver's processes write later is lost.
func (o *output) Close() error { return o.file.Close() }
