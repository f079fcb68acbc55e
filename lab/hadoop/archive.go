package hadoop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"headroom/lab/cluster"
)

// archiveMost bounds the making of an archive: half a minute on a machine that is not busy.
const archiveMost = 5 * time.Minute

// archive is the file of the classes that the JVMs share (class data sharing), beside the
// jars. An archive belongs to one build of the JVM, so its name has that JVM's date.
func (j Jars) archive(java string) (string, error) {
	info, err := os.Stat(java)
	if err != nil {
		return "", fmt.Errorf("hadoop: java: %w", err)
	}
	return filepath.Join(j.dir, fmt.Sprintf("classes-%x-%x.jsa", info.Size(), info.ModTime().UnixNano())), nil
}

// archiveOption is the option of a cluster's JVMs: to list their classes in the folder
// lists, or to take them from the archive if there is one.
func (j Jars) archiveOption(java, lists string) (string, error) {
	if lists != "" {
		return "-XX:DumpLoadedClassList=" + filepath.Join(lists, "%p"), nil
	}
	archive, err := j.archive(java)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(archive); err != nil {
		return "-Xshare:auto", nil
	}
	return "-XX:SharedArchiveFile=" + archive, nil
}

// Prepare makes an archive of the classes that a cluster's JVMs load, if there is none yet.
// Every JVM of a cluster that is started afterwards takes them from there, which saves about
// a third of the work of a small job. It runs one such job to learn which classes these are.
func (j Jars) Prepare(ctx context.Context) error {
	java, err := cluster.Java()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	archive, err := j.archive(java)
	if err != nil {
		return err
	}
	if _, err := os.Stat(archive); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, archiveMost)
	defer cancel()
	dir, err := os.MkdirTemp("", "headroom-classes-")
	if err != nil {
		return fmt.Errorf("hadoop: archive of classes: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := j.learn(ctx, dir); err != nil {
		return err
	}
	return j.dump(ctx, java, dir, archive)
}

// learn runs a word count whose JVMs list the classes that they load in dir/lists.
func (j Jars) learn(ctx context.Context, dir string) error {
	in, lists := filepath.Join(dir, "in"), filepath.Join(dir, "lists")
	if err := os.Mkdir(lists, 0o755); err != nil {
		return fmt.Errorf("hadoop: archive of classes: %w", err)
	}
	if _, err := (Text{Files: 1, Bytes: 1000, Seed: 1}).Write(in); err != nil {
		return err
	}
	c, err := Start(ctx, Config{Dir: filepath.Join(dir, "cluster"), Jars: j, Nodes: Nodes(1), HDFS: true, classLists: lists})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.Put(ctx, "/data", in); err != nil {
		return err
	}
	r, err := c.Run(ctx, Job{Program: "wordcount", Queue: "q1", Args: []string{"/data/in", "/out"}})
	if err == nil && !r.Succeeded() {
		err = fmt.Errorf("%w: the word count that loads the classes: %s", cluster.ErrEnded, r.Diagnostics)
	}
	return err
}

// dump makes the archive out of the lists. It appears whole or not at all.
func (j Jars) dump(ctx context.Context, java, dir, archive string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("hadoop: archive of classes: %w", err)
		}
	}()
	paths, err := filepath.Glob(filepath.Join(dir, "lists", "*"))
	if err != nil {
		return err
	}
	var classes []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		classes = append(classes, listed(text)...)
	}
	slices.Sort(classes) // '@', which marks what a class needs to run lambdas, is before all letters
	slices.Reverse(classes)
	list, part := filepath.Join(dir, "list"), archive+fmt.Sprintf(".part-%d", os.Getpid())
	if err := os.WriteFile(list, []byte(strings.Join(slices.Compact(classes), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	defer func() { _ = os.Remove(part) }()
	cmd := exec.CommandContext(ctx, java, "-Xshare:dump", "-Xmx512m", "-XX:+UseSerialGC",
		"-XX:SharedClassListFile="+list, "-XX:SharedArchiveFile="+part, "-cp", j.classPath())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out[max(0, len(out)-1000):])
	}
	return os.Rename(part, archive)
}

// listed are the classes of one JVM's list: those that come from the class path, without
// the numbers that the list gives them. A JVM that was killed has left its last line cut.
func listed(text []byte) []string {
	var classes []string
	for line := range bytes.Lines(text) {
		name, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole || bytes.HasPrefix(name, []byte("#")) || bytes.Contains(name, []byte("source:")) {
			continue
		}
		name, _, _ = bytes.Cut(name, []byte(" id:"))
		classes = append(classes, string(name))
	}
	return classes
}
