package cli_test

import (
	"encoding/json"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

func scalingMessage(speedups ...float64) *headroomv1.Scaling {
	s := &headroomv1.Scaling{Runs: 6}
	for i, x := range speedups {
		s.Points = append(s.Points, &headroomv1.ScalingPoint{Containers: 1 + 4*uint32(i), Speedup: x})
	}
	return s
}

// Claim: a curve has one form in JSON and one in words, whichever program shows it.
func TestScaling(t *testing.T) {
	t.Parallel()
	peaked, rising, exploring := scalingMessage(1, 3.5, 3), scalingMessage(1, 3.5), scalingMessage(1, 3.5, 3)
	peaked.Type, peaked.Error, exploring.Exploring = "IV", 0.04, true
	for name, x := range map[string]struct {
		message    *headroomv1.Scaling
		text, json string
	}{
		"none": {nil, "", `null`},
		"with a peak": {
			peaked, "more than 5 slots slow it down; learned from 6 runs, type IV, mean error 4 %",
			`{"peak":5,"runs":6,"type":"IV","error":0.04,"exploring":false,"points":[{"containers":1,"speedup":1},{"containers":5,"speedup":3.5},{"containers":9,"speedup":3}]}`,
		},
		"that only rises": {
			rising, "no number of slots is known that slows it down; learned from 6 runs",
			`{"peak":null,"runs":6,"type":null,"error":0,"exploring":false,"points":[{"containers":1,"speedup":1},{"containers":5,"speedup":3.5}]}`,
		},
		"to learn from": {
			exploring, "at most 5 slots in this run, to learn how it scales; learned from 6 runs",
			`{"peak":5,"runs":6,"type":null,"error":0,"exploring":true,"points":[{"containers":1,"speedup":1},{"containers":5,"speedup":3.5},{"containers":9,"speedup":3}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := json.Marshal(cli.ScalingOf(x.message)); err != nil || string(got) != x.json {
				t.Errorf("%s, %v; want %s", got, err, x.json)
			}
			if x.message == nil {
				return
			}
			if got := cli.ScalingText(x.message, "slots"); got != x.text {
				t.Errorf("%s, want %s", got, x.text)
			}
		})
	}
}
