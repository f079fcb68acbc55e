// Claims: the packages hold exactly the files that are listed in testdata, owned by root
// and writable by nobody else, as deb and as rpm; two builds of one source are the same
// bytes; installing makes users and folders and enables nothing; systemd accepts the
// units as installed; a changed configuration outlives an upgrade; a purge deletes the
// state, but never originals that were not put back.
package nfpm

import (
	"archive/tar"
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headroom/agent"
	"headroom/internal/testkit"
)

// epoch is the moment at which the packages say that they were made.
const epoch = "SOURCE_DATE_EPOCH=1700000000"

func names() []string {
	return []string{"headroom", "headroom-coordinator", "headroom-hadoop", "headroom-powerd", "headroom-spark", "headroom-tools"}
}

func TestPackages(t *testing.T) {
	t.Parallel()
	needNFPM(t)
	dir := t.TempDir()
	build(t, "../../bin", dir)
	for _, name := range names() {
		t.Run(name+" deb", func(t *testing.T) {
			t.Parallel()
			testkit.Golden(t, name+".deb.txt", describeDeb(t, find(t, dir, name+"_*.deb")))
		})
		t.Run(name+" rpm", func(t *testing.T) {
			t.Parallel()
			testkit.Golden(t, name+".rpm.txt", describeRPM(t, find(t, dir, name+"-[0-9]*.rpm")))
		})
	}
	t.Run("the same bytes again", func(t *testing.T) {
		t.Parallel()
		again, bin := t.TempDir(), t.TempDir()
		run(t, "cp", "../../bin/headroom", "../../bin/coordinator", "../../bin/scheduler", "../../bin/powerlab", bin) // powerd alone is linked again
		build(t, bin, again, "headroom-powerd")
		for _, pattern := range []string{"headroom-powerd_*.deb", "headroom-powerd-*.rpm"} {
			if !bytes.Equal(read(t, find(t, dir, pattern)), read(t, find(t, again, pattern))) {
				t.Errorf("two builds of %s differ", pattern)
			}
		}
	})
	t.Run("the product's own dependencies", func(t *testing.T) {
		t.Parallel()
		testDependencies(t)
	})
	t.Run("installed", func(t *testing.T) {
		t.Parallel()
		testInstalled(t, dir)
	})
}

// testDependencies compares what is linked into the product's programs with its own go.mod: the lab's
// requirements, which a workspace would mix in, are in none of them.
func testDependencies(t *testing.T) {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all")
	list.Dir, list.Env = "../..", append(os.Environ(), "GOWORK=off")
	required := strings.Split(string(testkit.Need(list.Output())(t)), "\n")
	for _, program := range []string{"headroom", "powerd", "coordinator", "scheduler"} {
		info := testkit.Need(buildinfo.ReadFile("../../bin/" + program))(t)
		if info.Main.Path != "headroom" {
			t.Errorf("%s is of module %s", program, info.Main.Path)
		}
		for _, d := range info.Deps {
			if !slices.Contains(required, d.Path+" "+d.Version) {
				t.Errorf("%s links %s %s, which the product's go.mod does not require", program, d.Path, d.Version)
			}
		}
	}
}

// needNFPM leaves the test where nfpm is neither built nor can be from modules that
// are there: a test run does not fetch it.
func needNFPM(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../../lab/go.mod"); err != nil {
		testkit.NotRun(t, "needs lab/: headroom-tools contains powerlab")
	}
	cmd := exec.Command("env", "GOWORK=off", "go", "tool", "-modfile=../../tools/nfpm.mod", "-n", "nfpm")
	cmd.Env = append(os.Environ(), "GOPROXY=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		testkit.NotRun(t, "nfpm is not built here and its modules are not there (make packages fetches them): "+first)
	}
	for _, tool := range []string{"sh", "gzip", "touch"} {
		need(t, tool)
	}
}

func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		testkit.NotRun(t, tool+" is not installed")
	}
}

// build makes packages in dir of programs that are built into bin.
func build(t *testing.T, bin, dir string, packages ...string) {
	t.Helper()
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"build.sh", dir}, packages...)...)
	cmd.Env = append(os.Environ(), epoch, "HOOKS="+jars(t), "BIN="+bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
}

// jars is a folder that stands for the built hooks: Maven and the hooks' own tests are
// not needed to see where a jar goes.
func jars(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, jar := range []string{"headroom-hadoop.jar", "headroom-spark.jar"} {
		if err := os.WriteFile(filepath.Join(dir, jar), []byte("PK"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// find is the one file of a pattern.
func find(t *testing.T, dir, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %v, %v", pattern, all, err)
	}
	return all[0]
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// describeDeb is a deb in text, as dpkg-deb reads it.
func describeDeb(t *testing.T, path string) string {
	t.Helper()
	need(t, "dpkg-deb")
	field := func(name string) string { return strings.TrimSpace(string(run(t, "dpkg-deb", "--field", path, name))) }
	if got := field("Version"); got != agent.Version {
		t.Errorf("version %s, powerd's is %s", got, agent.Version)
	}
	var text strings.Builder
	for _, name := range []string{"Package", "Depends", "Recommends", "Suggests"} {
		fmt.Fprintf(&text, "%s: %s\n", name, cmp.Or(field(name), "-"))
	}
	control := untar(t, run(t, "dpkg-deb", "--ctrl-tarfile", path))
	config := strings.Fields(control["conffiles"].text)
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		fmt.Fprintf(&text, "%s: %s\n", name, script(t, control[name].text))
	}
	var lines []string
	for name, f := range untar(t, run(t, "dpkg-deb", "--fsys-tarfile", path)) {
		line := fmt.Sprintf("%04o %s /%s", f.mode, f.owner, name)
		if slices.Contains(config, "/"+name) {
			line += " config, never replaced" // dpkg asks before it replaces one
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, byPath)
	return text.String() + strings.Join(lines, "\n") + "\n"
}

// describeRPM is an rpm in text.
func describeRPM(t *testing.T, path string) string {
	t.Helper()
	h, err := readRPM(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if got := h.word(tagVersion); got != agent.Version {
		t.Errorf("version %s, powerd's is %s", got, agent.Version)
	}
	if got := h.word(tagBuildHost); got != "headroom" {
		t.Errorf("built on %q: not the same bytes on another machine", got)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Package: %s\nRequires: %s\n", h.word(tagName), cmp.Or(strings.Join(ours(h.words[tagRequires]), " "), "-"))
	for _, s := range []struct {
		name string
		tag  uint32
	}{{"postin", tagPostIn}, {"preun", tagPreUn}, {"postun", tagPostUn}} {
		fmt.Fprintf(&text, "%s: %s\n", s.name, script(t, h.word(s.tag)))
	}
	return text.String() + strings.Join(h.files(), "\n") + "\n"
}

// ours are the requirements but those that every rpm has, for rpm's own abilities.
func ours(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(r string) bool { return strings.HasPrefix(r, "rpmlib(") })
}

// script is the name of the file beside this one that is the script, "-" for none.
func script(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return "-"
	}
	for _, pattern := range []string{"*.postinst", "*.prerm", "*.postrm"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.TrimSpace(string(read(t, f))) == strings.TrimSpace(text) {
				return f
			}
		}
	}
	return "another script"
}

// packed is one file of an archive.
type packed struct {
	mode  fs.FileMode
	owner string
	text  string
}

// untar are the files of an archive by name; folders are checked and left out.
func untar(t *testing.T, data []byte) map[string]packed {
	t.Helper()
	files := map[string]packed{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		owner := h.Uname + ":" + h.Gname
		if h.FileInfo().IsDir() {
			if h.FileInfo().Mode().Perm() != 0o755 || owner != "root:root" {
				t.Errorf("folder %s is %v of %s", h.Name, h.FileInfo().Mode(), owner)
			}
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "./")] = packed{h.FileInfo().Mode().Perm(), owner, string(text)}
	}
}

// run is what a command writes to stdout; it must work.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out
}
