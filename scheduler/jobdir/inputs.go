package jobdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"headroom/internal/durable"
)

// Inputs is the list of the input files of a job's map tasks, in their order, with their sizes when the job was accepted:
// a file that appears or grows later must change neither the indexes nor the order of the tasks.
type Inputs struct {
	Names []string `json:"inputs"`
	// Sizes are in bytes, 0 while unknown; as many as names.
	Sizes []int64 `json:"sizes"`
}

// listMost bounds a list of inputs as a file, bytes. A job file's own bounds are far below.
const listMost = 64 << 20

// listName is the list's name in the job's folder.
const listName = "job.json"

// listFile is the list as a file.
type listFile struct {
	ID string `json:"id"`
	Inputs
}

// Digest is the SHA-256 of the list: every name and size, with their lengths.
func (x Inputs) Digest() []byte {
	h := sha256.New()
	for i, name := range x.Names {
		size := int64(0)
		if i < len(x.Sizes) {
			size = x.Sizes[i]
		}
		head := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(len(name))), uint64(size))
		_, _ = h.Write(append(head, name...)) // writing to a hash never fails
	}
	return h.Sum(nil)
}

// errOther is a list that is not the committed one.
var errOther = errors.New("is not the list of inputs with which the job was accepted")

func (x Inputs) encode(id string) ([]byte, error) {
	data, err := json.Marshal(listFile{id, x})
	return append(data, '\n'), err
}

// decode reads a list and checks that it is the one with the digest.
func decode(data []byte, id string, digest []byte) (Inputs, error) {
	var l listFile
	if err := json.Unmarshal(data, &l); err != nil || l.ID != id || len(l.Names) != len(l.Sizes) || !bytes.Equal(l.Digest(), digest) {
		return Inputs{}, errOther
	}
	return l.Inputs, nil
}

// WriteList writes the list of inputs into the folder, for a scheduler with another state folder that takes over.
func (d *Dir) WriteList(x Inputs) error {
	data, err := x.encode(d.id)
	if err != nil {
		return err
	}
	temp := "." + listName + ".new"
	if err := IgnoreMissing(d.root.Remove(temp)); err != nil {
		return err
	}
	file, err := d.openOwn(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return d.root.Rename(temp, listName)
}

// ReadList reads the list of inputs in the folder and believes it only with the committed digest.
func (d *Dir) ReadList(digest []byte) (Inputs, error) {
	file, err := d.openOwn(listName, os.O_RDONLY)
	if err != nil {
		return Inputs{}, err
	}
	defer file.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(file, listMost+1))
	if err != nil {
		return Inputs{}, err
	}
	if len(data) > listMost {
		return Inputs{}, fmt.Errorf("%s has more than %d bytes", listName, listMost)
	}
	return decode(data, d.id, digest)
}

// Lists are the lists of inputs in the scheduler's own folder, one file for each job.
type Lists struct {
	Dir string
	FS  durable.FS
}

func (l Lists) path(id string) string { return filepath.Join(l.Dir, id+".json") }

// Write stores a list durably.
func (l Lists) Write(id string, x Inputs) error {
	data, err := x.encode(id)
	if err != nil {
		return err
	}
	return durable.Write(l.FS, l.path(id), data, 0o600)
}

// Read returns the list of a job. The error is fs.ErrNotExist if there is none.
func (l Lists) Read(id string) (Inputs, error) {
	data, err := l.FS.ReadFile(l.path(id))
	if err != nil {
		return Inputs{}, err
	}
	var x listFile
	if err := json.Unmarshal(data, &x); err != nil || x.ID != id || len(x.Names) != len(x.Sizes) {
		return Inputs{}, fmt.Errorf("%s is not the list of inputs of job %s", l.path(id), id)
	}
	return x.Inputs, nil
}

// Remove removes the list of a job that is no longer listed.
func (l Lists) Remove(id string) error {
	err := l.FS.Remove(l.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Old returns the ids of the jobs whose lists have not changed since a time.
func (l Lists) Old(since time.Time) (ids []string, err error) {
	entries, err := os.ReadDir(l.Dir)
	for _, e := range entries {
		id, isList := strings.CutSuffix(e.Name(), ".json")
		if info, gone := e.Info(); gone == nil && isList && info.ModTime().Before(since) {
			ids = append(ids, id)
		}
	}
	return ids, IgnoreMissing(err)
}
