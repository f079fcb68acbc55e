package command

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// Only those that vote count towards what the group tolerates.
func TestServersLine(t *testing.T) {
	t.Parallel()
	m := func(id, role string, voter bool) *headroomv1.Member {
		return &headroomv1.Member{Id: id, Role: role, Voter: voter}
	}
	for want, members := range map[string][]*headroomv1.Member{
		"(tolerates 1 failure)":  {m("c1", "leader", true), m("c2", "follower", true), m("c3", "follower", true), m("c4", roleAway, false)},
		"(tolerates 0 failures)": {m("c1", "leader", true), m("c2", "follower", true), m("c3", roleAway, true), m("c4", "follower", false)},
		"(no majority)":          {m("c1", "follower", true), m("c2", roleAway, true), m("c3", roleAway, true), m("c4", "follower", false)},
	} {
		if got := serversLine(members); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

// An id of a token is typed after a command: it never looks like a flag.
func TestTokenIDsAreNoFlags(t *testing.T) {
	t.Parallel()
	for range 500 {
		id, secret := newSecret()
		if strings.Trim(id, "0123456789abcdef") != "" || len(id) != 12 || len(secret) < 40 {
			t.Fatalf("token %q with a secret of %d letters", id, len(secret))
		}
	}
}

// A node without a cap, one that observes for example, has an unknown cap, never 0.
func TestUnknownCapIsNotZero(t *testing.T) {
	t.Parallel()
	n := &headroomv1.Node{Name: "n01", State: "observing", FailSafeUw: 95e6}
	var table bytes.Buffer
	if err := (&operator{}).nodeTable(&table, []*headroomv1.Node{n}, false); err != nil {
		t.Fatal(err)
	}
	if text := table.String(); !regexp.MustCompile(`n01 +observing +- +- +- +95\.0 W`).MatchString(text) {
		t.Errorf("the table is\n%s", text)
	}
	for _, item := range []any{cli.Filled[nodeItem]([]*headroomv1.Node{n}), cli.Filled[nodeLeaseItem]([]*headroomv1.Node{n})} {
		if data, err := json.Marshal(item); err != nil || !strings.Contains(string(data), `"cap_w":null`) {
			t.Errorf("%s, %v", data, err)
		}
	}
}
