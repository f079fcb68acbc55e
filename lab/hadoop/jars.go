package hadoop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"headroom/lab/cluster"
)

// The Hadoop releases that are run, as hooks/versions.properties names them.
const (
	// Version is the one that the hooks are compiled against: hadoop.version.
	Version = "3.4.2"
	// Newest is hadoop35.version.
	Newest = "3.5.0"
)

//go:embed pom.xml
var pom []byte

// How long Maven may take without and with the network.
const offlineMost, onlineMost = time.Minute, 5 * time.Minute

// Jars is a folder with all jars of one Hadoop release.
type Jars struct {
	version   string
	dir       string // absolute
	classPath string // of all daemons, clients and containers
}

// Fetch returns the jars of Version; see FetchRelease.
func Fetch(ctx context.Context, dir string) (Jars, error) { return FetchRelease(ctx, Version, dir) }

// FetchRelease returns the jars of a release in dir (a folder of the user's cache when it is empty). When they are not there
// yet, Maven gets them, without the network if it can, and the folder appears whole or
// not at all. The error wraps ErrUnavailable when neither is possible.
func FetchRelease(ctx context.Context, version, dir string) (Jars, error) {
	dir, err := cluster.FetchDir(dir, "hadoop-"+version)
	if err == nil {
		err = cluster.Fetch(ctx, dir, func(part string) error { return maven(ctx, version, dir+".pom.xml", part) })
	}
	if err != nil {
		return Jars{}, fmt.Errorf("%w: Hadoop %s is fetched with Maven (Debian package maven): %w", ErrUnavailable, version, err)
	}
	return openJars(version, dir)
}

func openJars(version, dir string) (Jars, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jar")) // sorted
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%w: %s holds no jars: remove it or name another folder", errConfig, dir)
	}
	// Every jar by its name and in order, but for those that only hold tests.
	paths = slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "-tests.jar") })
	return Jars{version, dir, strings.Join(paths, ":")}, err
}

// maven copies what the pom names, and what that needs, into jars: first without the network.
func maven(ctx context.Context, version, file, jars string) error {
	defer func() { _ = os.Remove(file) }()
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return err
	}
	argv := []string{
		"mvn", "-B", "-q", "-f", file, "-Dhadoop.version=" + version, "-Dexamples.version=" + Version,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=" + jars,
	}
	offline, cancel := context.WithTimeout(ctx, offlineMost)
	defer cancel()
	if cluster.Step(offline, append(argv, "-o")...) == nil {
		return nil
	}
	online, cancel := context.WithTimeout(ctx, onlineMost)
	defer cancel()
	return errors.Join(os.RemoveAll(jars), cluster.Step(online, argv...))
}

// Examples is the jar with Hadoop's example programs: wordcount, pi, grep and more. It is that of Version: the newest
// release has none on Maven Central.
func (j Jars) Examples() string {
	return filepath.Join(j.dir, "hadoop-mapreduce-examples-"+Version+".jar")
}

// tests is the jar with SleepJob (org.apache.hadoop.mapreduce.SleepJob): maps and
// reduces of a given length that use almost no CPU.
func (j Jars) tests() string {
	return filepath.Join(j.dir, "hadoop-mapreduce-client-jobclient-"+j.version+"-tests.jar")
}
