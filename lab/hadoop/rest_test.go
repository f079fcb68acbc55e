// Claims: what a node offers is what is used and what is free of it, as the
// ResourceManager's answer has both.
package hadoop

import (
	"encoding/json"
	"testing"

	"headroom/internal/testkit"
)

func TestNodeOffers(t *testing.T) {
	t.Parallel()
	var n NodeState
	testkit.Check(t, json.Unmarshal([]byte(`{"id":"n1:9005","nodeHostName":"n1","state":"RUNNING","numContainers":1,
		"usedMemoryMB":256,"availMemoryMB":512,"usedVirtualCores":1,"availableVirtualCores":2}`), &n))
	if n.ID != "n1:9005" || !n.offers(3, 768) || n.offers(1, 256) || n.offers(3, 256) || n.offers(1, 768) {
		t.Errorf("%+v", n)
	}
	full := NodeState{UsedMB: 256, UsedVCores: 1}
	if !full.offers(1, 256) {
		t.Errorf("%+v", full)
	}
}
