package spark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"headroom/internal/pause"
	"headroom/lab/cluster"

	"golang.org/x/sys/unix"
)

// The releases that are run: spark.version, spark4.version and spark.newest.version of hooks/versions.properties.
const (
	Version  = "3.5.9"
	Version4 = "4.1.4"
	Newest   = "4.2.0"
)

// fetchMost bounds what pip may take.
const fetchMost = 8 * time.Minute

// Release is an unmodified Spark, in the folder that its Python package brings.
type Release struct {
	// Version is its number.
	Version string
	// Home is its folder, with bin/spark-submit.
	Home string
	// Python is the program that PySpark applications run with.
	Python string
}

// Fetch returns the release in dir (a folder of the user's cache when it is empty). When it is not there
// yet, pip gets it into a virtual environment, some 400 MB on disk, which appears whole or
// not at all; say receives a notice and may be nil. Of several processes one fetches and the
// others wait. The error wraps ErrUnavailable when that is not possible here.
func Fetch(ctx context.Context, version, dir string, say func(string)) (Release, error) {
	dir, err := cluster.FetchDir(dir, "spark-"+version)
	if err != nil {
		return Release{}, fmt.Errorf("spark: folder for Spark: %w", err)
	}
	if r, err := open(dir, version); !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	if say == nil {
		say = func(string) {}
	}
	if err := download(ctx, version, dir, say); err != nil {
		return Release{}, err
	}
	return open(dir, version)
}

// open is the release in a folder; the error is os.ErrNotExist when there is no such folder.
func open(dir, version string) (Release, error) {
	if _, err := os.Stat(dir); err != nil {
		return Release{}, fmt.Errorf("spark: folder for Spark: %w", err)
	}
	homes, err := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages", "pyspark"))
	if err == nil && len(homes) == 1 {
		_, err = os.Stat(filepath.Join(homes[0], "bin", "spark-submit"))
	}
	if err != nil || len(homes) != 1 {
		return Release{}, fmt.Errorf("%w: %s holds no Spark: remove it or name another folder", errConfig, dir)
	}
	return Release{Version: version, Home: homes[0], Python: filepath.Join(dir, "bin", "python3")}, nil
}

// download has pip fill a folder beside dir, which then takes its name.
func download(ctx context.Context, version, dir string, say func(string)) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("%w: python3 is needed to fetch Spark %s (Debian packages python3 and python3-venv): %w", ErrUnavailable, version, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("spark: folder for Spark: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchMost)
	defer cancel()
	unlock, err := waitLock(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return nil // another process was quicker
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".part-")
	if err != nil {
		return fmt.Errorf("spark: folder for Spark: %w", err)
	}
	defer func() { _ = os.RemoveAll(part) }()
	began := time.Now()
	say(fmt.Sprintf("fetching Spark %s with pip into %s (some 400 MB, a minute or so)", version, dir))
	for _, argv := range [][]string{
		{python, "-m", "venv", part},
		{filepath.Join(part, "bin", "python3"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "-q", "pyspark==" + version},
	} {
		if err := fetchStep(ctx, version, argv); err != nil {
			return err
		}
	}
	if err := os.Rename(part, dir); err != nil {
		return fmt.Errorf("spark: folder for Spark: %w", err)
	}
	say(fmt.Sprintf("Spark %s is there after %v", version, time.Since(began).Round(time.Second)))
	return nil
}

func fetchStep(ctx context.Context, version string, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // what it started may hold the pipe
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s could not get Spark %s (Debian package python3-venv, and the network, are needed once): %w: %s",
		ErrUnavailable, strings.Join(argv[1:3], " "), version, errors.Join(err, ctx.Err()), firstError(out))
}

// firstError is the line in which pip or venv reports the error.
func firstError(out []byte) string {
	for line := range bytes.Lines(out) {
		if bytes.Contains(bytes.ToLower(line), []byte("error")) {
			return string(bytes.TrimSpace(line))
		}
	}
	return string(bytes.TrimSpace(out[:min(len(out), 200)]))
}

// waitLock holds the file's lock until the function that it returns is called.
func waitLock(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("spark: lock: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !pause.For(ctx, look) {
			return nil, errors.Join(fmt.Errorf("%w: another process is fetching it: %w", ErrUnavailable, ctx.Err()), f.Close())
		}
	}
}
