package hadoop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// manifest is the file, beside the jars, that lists them with their sizes. A folder
// without it, or one that does not match it, is not complete.
const manifest = "jars.list"

// How long Maven may take.
const (
	offlineMost = time.Minute
	onlineMost  = 5 * time.Minute
)

// Jars is a folder with all jars of one Hadoop release.
type Jars struct {
	version string
	dir     string   // absolute
	names   []string // sorted
}

// Fetch returns the jars of Version; see FetchRelease.
func Fetch(ctx context.Context, dir string) (Jars, error) { return FetchRelease(ctx, Version, dir) }

// FetchRelease returns the jars of a release in dir (a folder of the user's cache when it is empty). When they are not there
// yet, Maven gets them, without the network if it can, and the folder appears whole or
// not at all. The error wraps ErrUnavailable when neither is possible.
func FetchRelease(ctx context.Context, version, dir string) (Jars, error) {
	dir, err := cluster.FetchDir(dir, "hadoop-"+version)
	if err != nil {
		return Jars{}, fmt.Errorf("hadoop: folder for the jars: %w", err)
	}
	jars, err := openJars(version, dir)
	if !errors.Is(err, os.ErrNotExist) {
		return jars, err
	}
	if err := download(ctx, version, dir); err != nil {
		return Jars{}, err
	}
	return openJars(version, dir)
}

// openJars reads the manifest and holds the folder against it. The error is
// os.ErrNotExist when there is no such folder.
func openJars(version, dir string) (Jars, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifest))
	if errors.Is(err, os.ErrNotExist) {
		if _, found := os.Stat(dir); found == nil {
			return Jars{}, fmt.Errorf("%w: %s holds no %s: it is not a folder of jars, remove it or name another one", errConfig, dir, manifest)
		}
	}
	if err != nil {
		return Jars{}, fmt.Errorf("hadoop: jars: %w", err)
	}
	jars := Jars{version: version, dir: dir}
	for line := range strings.Lines(string(text)) {
		var name string
		var size int64
		if _, err := fmt.Sscanf(line, "%s %d", &name, &size); err != nil {
			return Jars{}, fmt.Errorf("%w: %s in %s is damaged: remove the folder, it is fetched again", errConfig, manifest, dir)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() != size {
			return Jars{}, fmt.Errorf("%w: %s in %s is missing or damaged: remove the folder, it is fetched again", errConfig, name, dir)
		}
		jars.names = append(jars.names, name)
	}
	return jars, nil
}

// download has Maven fill a folder beside dir, which then takes its name.
func download(ctx context.Context, version, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: Maven is needed to fetch the jars of Hadoop %s (Debian package maven): %w", ErrUnavailable, version, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("hadoop: folder for the jars: %w", err)
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".part-")
	if err != nil {
		return fmt.Errorf("hadoop: folder for the jars: %w", err)
	}
	defer func() { _ = os.RemoveAll(part) }()
	if err := os.WriteFile(filepath.Join(part, "pom.xml"), pom, 0o644); err != nil {
		return fmt.Errorf("hadoop: folder for the jars: %w", err)
	}
	jars := filepath.Join(part, "jars")
	if err := maven(ctx, mvn, version, part, jars, offlineMost, "-o"); err != nil {
		if err := maven(ctx, mvn, version, part, jars, onlineMost); err != nil {
			return err
		}
	}
	if err := writeManifest(jars); err != nil {
		return err
	}
	// Another process may have been quicker: then its folder is as good.
	if err := os.Rename(jars, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("hadoop: folder for the jars: %w", err)
	}
	return nil
}

// maven copies what the pom names, and what that needs, into jars.
func maven(ctx context.Context, mvn, version, dir, jars string, most time.Duration, flags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	argv := append(flags, "-B", "-q", "-f", filepath.Join(dir, "pom.xml"), "-Dhadoop.version="+version, "-Dexamples.version="+Version,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+jars)
	cmd := exec.CommandContext(ctx, mvn, argv...)
	cmd.WaitDelay = time.Second // its JVM may hold the pipe
	out, err := cmd.CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(jars) // what an interrupted run left
		return fmt.Errorf("%w: Maven could not get Hadoop %s: %w: %s", ErrUnavailable, version, errors.Join(err, ctx.Err()), firstError(string(out)))
	}
	return nil
}

// firstError is the line in which Maven reports the error.
func firstError(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ERROR") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(out)
}

func writeManifest(dir string) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return fmt.Errorf("hadoop: jars: %w", err)
	}
	var list strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("hadoop: jars: %w", err)
		}
		fmt.Fprintf(&list, "%s %d\n", e.Name(), info.Size())
	}
	if err := os.WriteFile(filepath.Join(dir, manifest), []byte(list.String()), 0o644); err != nil {
		return fmt.Errorf("hadoop: jars: %w", err)
	}
	return nil
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

// classPath is the class path of all daemons, clients and containers: every jar by its
// name and in order, but for those that only hold tests.
func (j Jars) classPath() string {
	var parts []string
	for _, name := range j.names {
		if !strings.HasSuffix(name, "-tests.jar") {
			parts = append(parts, filepath.Join(j.dir, name))
		}
	}
	return strings.Join(parts, ":")
}
