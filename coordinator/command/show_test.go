package command

import (
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
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
