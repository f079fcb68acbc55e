// Claims: the release is the one that the hooks are built against; a Config that cannot
// be is refused with the reason; clusters do not share addresses; a folder without jars
// is not taken.
package hadoop

import (
	"encoding/xml"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

func TestReleaseIsThatOfTheHooks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "hooks", "versions.properties"))
	for key, version := range map[string]string{"hadoop.version": Version, "hadoop35.version": Newest} {
		if err != nil || !strings.Contains("\n"+string(text), "\n"+key+"="+version+"\n") {
			t.Errorf("hooks/versions.properties does not say %s=%s: %q, %v", key, version, text, err)
		}
	}
}

func TestBadFolderIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Config{Dir: "/tmp/a b", Jars: Jars{dir: "/jars", classPath: "/jars/a.jar"}, Nodes: Nodes(1)})
	if !errors.Is(err, errConfig) || !strings.Contains(err.Error(), "blanks") {
		t.Errorf("%v, want one that says blanks", err)
	}
}

func TestClustersDoNotShareAddresses(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 5 {
		a := testkit.Need(claimAddresses())(t)
		if seen[a.server(0)] {
			t.Errorf("%s twice", a.server(0))
		}
		seen[a.server(0)] = true
	}
}

func TestTakenPortsAreNotClaimed(t *testing.T) {
	t.Parallel()
	a := testkit.Need(claimAddresses())(t)
	if err := a.probe(); err != nil {
		t.Fatalf("free ports: %v", err)
	}
	taken := testkit.Need((&net.ListenConfig{}).Listen(t.Context(), "tcp4", a.server(portRMWeb)))(t)
	t.Cleanup(func() { _ = taken.Close() })
	if err := a.probe(); err == nil {
		t.Error("a port that somebody listens on counts as free")
	}
}

func TestFolderOfJars(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := openJars(Version, dir); !errors.Is(err, errConfig) {
		t.Errorf("an empty folder: %v, want ErrConfig", err)
	}
	for _, name := range []string{"b.jar", "a.jar", "c-tests.jar", "classes-1.jsa"} {
		testkit.WriteFile(t, filepath.Join(dir, name), name)
	}
	jars, err := Fetch(t.Context(), dir)
	if want := filepath.Join(dir, "a.jar") + ":" + filepath.Join(dir, "b.jar"); err != nil || jars.classPath != want {
		t.Errorf("class path %q, want %q; %v", jars.classPath, want, err)
	}
}

func TestAllocationFile(t *testing.T) {
	t.Parallel()
	var file struct {
		Queues []struct {
			Name   string  `xml:"name,attr"`
			Weight float64 `xml:"weight"`
			Max    string  `xml:"maxResources"`
		} `xml:"queue"`
	}
	text := allocations([]Queue{{Name: "a&b", Weight: 2, MaxVCores: 4}, {Name: "c"}})
	testkit.Check(t, xml.Unmarshal([]byte(text), &file))
	if len(file.Queues) != 2 {
		t.Fatalf("queues %+v", file.Queues)
	}
	a, c := file.Queues[0], file.Queues[1]
	if a.Name != "a&b" || a.Weight != 2 || a.Max != "1073741824 mb, 4 vcores" {
		t.Errorf("first queue %+v", a)
	}
	if c.Name != "c" || c.Weight != 1 || c.Max != "" {
		t.Errorf("second queue %+v", c)
	}
}

func TestCapacities(t *testing.T) {
	t.Parallel()
	p := capacities(Queues3())
	for name, want := range map[string]string{"queues": "q1,q2,q3", "q1.capacity": "33", "q2.capacity": "33", "q3.capacity": "34"} {
		if got := p["yarn.scheduler.capacity.root."+name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// The script of Shell passes arguments on as they are, whatever is in its own words.
func TestShell(t *testing.T) {
	t.Parallel()
	c := &Cluster{config: Config{Dir: "/it's here"}, java: "/bin/echo", classes: "-Dclasses"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", c.Shell(), "shell", "Main", "two  words").Output()
	if err != nil || !strings.HasSuffix(string(out), "/it's here/conf Main two  words\n") {
		t.Errorf("%q, %v", out, err)
	}
}

// A job's own properties win over the hooks', and its own maps are left alone.
func TestHooks(t *testing.T) {
	t.Parallel()
	h := Hooks{Jar: "/opt/headroom-hadoop.jar", Address: "127.0.0.1:7411", MasterMB: 384}
	own := map[string]string{"mapreduce.job.reduce.slowstart.completedmaps": "0.5", "headroom.deadline": "1m"}
	j := h.Into(Job{Program: "wordcount", Properties: own})
	want := map[string]string{
		"headroom.url": "http://127.0.0.1:7411", "mapreduce.framework.name": "yarn-headroom", "headroom.early-stop": "speculator",
		"mapreduce.job.reduce.slowstart.completedmaps": "0.5", "yarn.app.mapreduce.am.resource.mb": "384", "headroom.deadline": "1m",
	}
	if !maps.Equal(j.Properties, want) || len(own) != 2 || !slices.Equal(j.LibJars, []string{h.Jar}) {
		t.Errorf("%+v", j)
	}
	var c Config
	if h.Plug(&c); c.Scheduler != "headroom.hadoop.LiveFairScheduler" || !slices.Equal(c.Plugins, j.LibJars) || c.Properties["headroom.url"] != want["headroom.url"] {
		t.Errorf("%+v", c)
	}
}
