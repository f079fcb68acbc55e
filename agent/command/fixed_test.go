// Claims: P10: a check counts no control that has one value only, as powerd does not.
package command

import (
	"maps"
	"strings"
	"testing"
)

func TestCheckPassesControlsWithOneValue(t *testing.T) {
	t.Parallel()
	policy := func(name, lowest string) map[string]string {
		files := map[string]string{}
		for file, text := range map[string]string{
			"scaling_driver": "acpi-cpufreq", "cpuinfo_min_freq": lowest, "cpuinfo_max_freq": "2300000", "scaling_min_freq": lowest,
			"scaling_max_freq": "2300000", "affected_cpus": "0",
		} {
			files["sys/devices/system/cpu/cpufreq/"+name+"/"+file] = text
		}
		return files
	}
	fixed := limitFiles()
	fixed["constraint_0_min_power_uw"] = fixed["constraint_0_max_power_uw"]
	for name, c := range map[string]struct {
		files []map[string]string
		want  string
	}{
		"one frequency": {[]map[string]string{policy("policy0", "2300000")}, "warn no control can enforce a cap: no package limits, no cpufreq, no slices; no CPU has more than one frequency"},
		"one of two":    {[]map[string]string{policy("policy0", "2300000"), policy("policy1", "800000")}, "ok cpufreq: 2 policies"},
		"one limit":     {[]map[string]string{zoneFiles(powercap+"intel-rapl:0", "package-0", fixed)}, "warn no control can enforce a cap: no package limits, no cpufreq, no slices; the lowest limit of each package is its highest"},
		"a range below": {[]map[string]string{zoneFiles(powercap+"intel-rapl:0", "package-0", fixed), policy("policy0", "800000")}, "ok cpufreq: 1 policy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for _, part := range c.files {
				maps.Copy(files, part)
			}
			found := checkAll(t.Context(), &place{config: "none.yaml", root: tree(t, files)}, false)
			for _, f := range found {
				if got := f.State + " " + f.Text; f.Check == "ladder" && !strings.HasPrefix(got, c.want) {
					t.Errorf("%s, want %s", got, c.want)
				}
			}
		})
	}
}
