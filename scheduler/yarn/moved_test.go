package yarn

// What an earlier version left in the fair scheduler's allocation file is not passed over: the engine does not start
// before the operator's maxima are back, and says what they were.

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

func TestOldMaximaAreNotPassedOver(t *testing.T) {
	t.Parallel()
	const left = `{"allocation_file": "/etc/hadoop/conf/fair-scheduler.xml", "queues": {
		"root.q1": {"element": "<maxResources>memory-mb=81920, vcores=20, yarn.io/gpu=4</maxResources>", "written": ["<maxResources>1 mb, 1 vcores</maxResources>"]},
		"root.q2": {"element": "", "tag": "<queue name=\"q2\"/>", "written": []}}}`
	for name, c := range map[string]struct {
		notes string
		want  []string
	}{
		"killed": {left, []string{
			"/etc/hadoop/conf/fair-scheduler.xml", "write <maxResources>memory-mb=81920, vcores=20, yarn.io/gpu=4</maxResources> for root.q1",
			"remove maxResources of root.q2", "yarn rmadmin -refreshQueues", "remove ", "yarn-queues.json",
		}},
		"damaged": {"{", []string{"check maxResources of its queues", "yarn-queues.json"}},
		"stopped": {`{"allocation_file": "/etc/hadoop/conf/fair-scheduler.xml", "queues": {}}`, nil},
		"never":   {"", nil},
	} {
		dir := t.TempDir()
		if c.notes != "" {
			testkit.WriteFile(t, filepath.Join(dir, "yarn-queues.json"), c.notes)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		cfg := testConfig()
		cfg.Shares = sharesNone
		err := New(cfg, dir, nil, nil, newLog(), slog.New(slog.DiscardHandler)).Run(ctx)
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q", name, err, w)
			}
		}
	}
}
