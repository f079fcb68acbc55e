// Claim: a server gets a vote only where the group with it has a healthy majority.
package consensus

import (
	"errors"
	"testing"
	"time"
)

func TestPromotionKeepsAMajority(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		voters, sick int
		want         error
	}{
		"the second of a pair":   {1, 0, nil},
		"the fourth":             {3, 0, nil},
		"one of three is sick":   {3, 1, nil},
		"two of three are sick":  {3, 2, ErrLosesQuorum},
		"two of four are sick":   {4, 2, nil},
		"three of four are sick": {4, 3, ErrLosesQuorum},
		"half of an even group":  {2, 1, nil},
		"all are sick":           {2, 2, ErrLosesQuorum},
		"as many vote as may":    {maxVoters, 0, ErrTooManyServers},
	} {
		all := []Health{{Member: Member{ID: "new"}, Since: now.Add(-time.Hour)}}
		for i := range c.voters {
			h := Health{Member: Member{ID: string(rune('a' + i)), Voter: true}, Since: now.Add(-time.Hour)}
			if i < c.sick {
				h.Fault, h.Since = errors.New("its disk hangs"), time.Time{}
			}
			all = append(all, h)
		}
		if err := mayPromote(all, "new", now); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
