package hadoop

import (
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
func (j Jars) archive(java string) (path string, there bool) {
	var build string
	if info, err := os.Stat(java); err == nil {
		build = fmt.Sprintf("%x-%x", info.Size(), info.ModTime().UnixNano())
	}
	path = filepath.Join(j.dir, "classes-"+build+".jsa")
	_, err := os.Stat(path)
	return path, err == nil
}

// archiveOption is the option of a cluster's JVMs: to list their classes in the folder
// lists, or to take them from the archive if there is one.
func (j Jars) archiveOption(java, lists string) string {
	archive, there := j.archive(java)
	switch {
	case lists != "":
		return "-XX:DumpLoadedClassList=" + filepath.Join(lists, "%p")
	case there:
		return "-XX:SharedArchiveFile=" + archive
	}
	return "-Xshare:auto"
}

// Prepare makes an archive of the classes that a cluster's JVMs load, if there is none yet.
// Every JVM of a cluster that is started afterwards takes them from there, which saves about
// a third of the work of a small job. It runs one such job to learn which classes these are.
func (j Jars) Prepare(ctx context.Context) error {
	java, err := cluster.Java()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	archive, there := j.archive(java)
	if there {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, archiveMost)
	defer cancel()
	dir, err := os.MkdirTemp("", "headroom-classes-")
	if err != nil {
		return fmt.Errorf("hadoop: archive of classes: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err = j.learn(ctx, dir); err == nil {
		err = j.dump(ctx, java, dir, archive)
	}
	if err != nil {
		return fmt.Errorf("hadoop: archive of classes: %w", err)
	}
	return nil
}

// learn runs a word count whose JVMs list the classes that they load in dir/lists.
func (j Jars) learn(ctx context.Context, dir string) error {
	in, lists := filepath.Join(dir, "in"), filepath.Join(dir, "lists")
	if err := os.Mkdir(lists, 0o755); err != nil {
		return err
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
func (j Jars) dump(ctx context.Context, java, dir, archive string) error {
	paths, _ := filepath.Glob(filepath.Join(dir, "lists", "*")) // the pattern is valid
	var classes []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		classes = append(classes, listed(string(text))...)
	}
	slices.Sort(classes) // '@', which marks what a class needs to run lambdas, is before all letters
	slices.Reverse(classes)
	list, part := filepath.Join(dir, "list"), archive+fmt.Sprintf(".part-%d", os.Getpid())
	if err := os.WriteFile(list, []byte(strings.Join(slices.Compact(classes), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	defer func() { _ = os.Remove(part) }()
	cmd := exec.CommandContext(ctx, java, "-Xshare:dump", "-Xmx512m", "-XX:+UseSerialGC",
		"-XX:SharedClassListFile="+list, "-XX:SharedArchiveFile="+part, "-cp", j.classPath)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out[max(0, len(out)-1000):])
	}
	return os.Rename(part, archive)
}

// listed are the classes of one JVM's list: those that come from the class path, without
// the numbers that the list gives them. A JVM that was killed has left its last line cut.
func listed(text string) (classes []string) {
	for line := range strings.Lines(text) {
		name, whole := strings.CutSuffix(line, "\n")
		if !whole || strings.HasPrefix(name, "#") || strings.Contains(name, "source:") {
			continue
		}
		name, _, _ = strings.Cut(name, " id:")
		classes = append(classes, name)
	}
	return classes
}
