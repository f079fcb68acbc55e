// Claims: every alert uses metrics that the programs serve, and has a runbook.
package headroom_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"headroom/internal/testkit"
)

const (
	alertsFile = "deploy/prometheus/alerts.yaml"
	// installedRunbooks is where the packages install the pages.
	installedRunbooks = "file:///usr/share/doc/headroom/runbooks/"
)

// pageOf is the page of an alert in this tree.
func pageOf(a alertRule) string { return "docs/runbooks/" + a.Labels["code"] + ".md" }

// rules is alerts.yaml.
type rules struct {
	Groups []struct {
		Name     string `yaml:"name"`
		Interval string `yaml:"interval"`
		Rules    []alertRule
	} `yaml:"groups"`
}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readAlerts(t *testing.T) []alertRule {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var all rules
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var out []alertRule
	for _, g := range all.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// served returns the metrics of the generated pages, which other tests compare with
// the programs.
func served(t *testing.T) map[string]bool {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) ")
	out := map[string]bool{}
	for _, page := range []string{"docs/metrics.md", "docs/metrics-coordinator.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			out[m[1]] = true
			if m[2] == "histogram" {
				out[m[1]+"_bucket"] = true
			}
		}
	}
	return out
}

func TestAlertsAskForWhatIsServed(t *testing.T) {
	t.Parallel()
	name, metrics := regexp.MustCompile(`headroom_[a-z_]+`), served(t)
	pages := map[string]bool{"docs/runbooks/README.md": true, "docs/runbooks/lost-quorum.md": true}
	for _, a := range readAlerts(t) {
		asked := name.FindAllString(a.Expr, -1)
		if len(asked) == 0 {
			t.Errorf("%s uses no metric of Headroom", a.Alert)
		}
		for _, m := range asked {
			if !metrics[m] {
				t.Errorf("%s: no program serves %s", a.Alert, m)
			}
		}
		if s := a.Labels["severity"]; s != "warn" && s != "page" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Annotations["runbook_url"] != installedRunbooks+a.Labels["code"]+".md" {
			t.Errorf("%s: annotations %v", a.Alert, a.Annotations)
		}
		pages[pageOf(a)] = true
		checkRunbook(t, a)
	}
	found := slices.DeleteFunc(slices.Clone(tracked(t)), func(f string) bool { return !strings.HasPrefix(f, "docs/runbooks/") })
	if len(found) != len(pages) || len(pages) < 13 {
		t.Errorf("%d pages for %d alerts", len(found), len(pages)-2)
	}
}

// checkRunbook holds a page against its alert: the same name and the same rule.
func checkRunbook(t *testing.T, a alertRule) {
	t.Helper()
	text, err := os.ReadFile(pageOf(a))
	if err != nil {
		t.Error(err)
		return
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	for _, must := range []string{"# " + a.Alert, a.Expr, "## What it means", "## How to see it", "## What to do", "## When to page"} {
		if !strings.Contains(flat, must) {
			t.Errorf("%s does not say %q", pageOf(a), must)
		}
	}
}

// Prometheus' own checker accepts the rules, and its unit tests of them pass, where it is installed.
func TestAlertsAreRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		testkit.NotRun(t, "promtool is not installed")
	}
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", "deploy/prometheus/alerts_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
