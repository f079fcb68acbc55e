// Claims: what a table lists is what its page and its scrapes tell; what is no number, or
// has the labels of another point, is not told; labels and points are bounded.
package scrape

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func watts() Table {
	return Table{
		Gauge("w_watts", "Power.", Of("zone", "any")),
		Counter("n_total", "Events."),
		Histogram("s_seconds", "Times."),
	}
}

// told are the points that tell makes, by their labels.
func told(tell func(p *Points)) []prometheus.Metric {
	ch := make(chan prometheus.Metric, 2*PointsMost)
	p := watts().Descs().Points(ch)
	tell(&p)
	close(ch)
	var all []prometheus.Metric
	for m := range ch {
		all = append(all, m)
	}
	return all
}

func TestTable(t *testing.T) {
	t.Parallel()
	if got, want := watts().Rows(), "| `w_watts` | gauge | `zone`: any | Power. |\n| `n_total` | counter | - | Events. |\n| `s_seconds` | histogram | - | Times. |\n"; got != want {
		t.Errorf("rows\n%s", got)
	}
	if d := watts().Descs("n_total"); len(d) != 1 || d["w_watts"].desc == nil {
		t.Errorf("made of values: %v", d)
	}
	if m := watts().Find("other"); m.Name != "other" || m.Help != "" {
		t.Errorf("found %+v", m)
	}
}

func TestPoints(t *testing.T) {
	t.Parallel()
	all := told(func(p *Points) {
		for i, ok := range []bool{
			p.Add("w_watts", 1, "a"), !p.Add("w_watts", 2, "a"), !p.Add("w_watts", math.NaN(), "b"), !p.Add("w_watts", math.Inf(1), "b"),
			p.Add("w_watts", 3, strings.Repeat("x", 2*LabelMost)), !p.Add("w_watts", 3, strings.Repeat("x", LabelMost)), p.Add("n_total", 0),
		} {
			if !ok {
				t.Errorf("point %d", i)
			}
		}
	})
	if len(all) != 3 {
		t.Errorf("%d points", len(all))
	}
	all = told(func(p *Points) {
		for i := range PointsMost + 10 {
			p.Add("w_watts", 1, string(rune('a'+i)))
		}
	})
	if len(all) > PointsMost {
		t.Errorf("%d points", len(all))
	}
}
