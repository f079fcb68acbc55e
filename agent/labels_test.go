// Claims: labels of firmware reach status in words that every message can carry, whatever bytes
// they are made of.
package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLabelsThatNobodyCanRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for path, text := range map[string]string{
		"sys/class/hwmon/hwmon7/name":          "scmi\xc0\xc0",
		"sys/class/hwmon/hwmon7/temp1_label":   "CPU \xc0\x1c[\x87",
		"sys/class/hwmon/hwmon7/temp1_input":   "41000",
		"sys/class/thermal/thermal_zone7/type": "LNV\xff",
		"sys/class/thermal/thermal_zone7/temp": "39000",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(l.dir, "root", path)), 0o755); err != nil {
			t.Fatal(err)
		}
		l.write(path, text)
	}
	run(t, l.config())
	found := map[string]bool{}
	for _, s := range l.status(t).GetSensors() {
		if !utf8.ValidString(s.GetName()) || strings.ContainsRune(s.GetName(), 0x1c) {
			t.Errorf("sensor %q", s.GetName())
		}
		found[s.GetName()] = true
	}
	for _, want := range []string{"scmi?? CPU ??[?", "thermal_zone7 LNV?"} {
		if !found[want] {
			t.Errorf("no sensor %q in %v", want, found)
		}
	}
}
