package cab

import (
	"embed"
	"fmt"

	"headroom/jobs/containers"
	"headroom/jobs/quality"
	"headroom/lab/report"
)

// profiles are the quality profiles of our own programs, as `scheduler profile` measured
// them; profiles/README.md describes how.
//
//go:embed profiles/*.json
var profiles embed.FS

// profileOf reads the profile of an application.
func profileOf(a app) (quality.Profile, error) {
	data, err := profiles.ReadFile("profiles/" + a.profile + ".json")
	if err != nil {
		return quality.Profile{}, fmt.Errorf("cab: the profile of %s: %w", a.name, err)
	}
	p, _, err := quality.Parse(data)
	if err != nil {
		return quality.Profile{}, fmt.Errorf("cab: the profile of %s: %w", a.name, err)
	}
	return p, nil
}

// queueFor is the least sensitive queue whose guarantee keeps an accuracy, in percent, in
// the worst run of the profile.
func queueFor(p quality.Profile, percent int) int {
	need, ok := p.Fraction(float64(percent) / 100)
	queue := 1
	for i, floor := range containers.QueueFloors() {
		if ok && floor >= need {
			queue = i + 1
		}
	}
	return queue
}

// profiled is Table I with the queues that profiles give.
func profiled(profile func(app) (quality.Profile, error)) ([]set, error) {
	all := sets()
	for i := range all {
		w := &all[i]
		w.queues = nil
		for _, a := range w.apps {
			p, err := profile(a)
			if err != nil {
				return nil, err
			}
			var row []int
			for _, q := range qualities() {
				row = append(row, queueFor(p, q))
			}
			w.queues = append(w.queues, row)
		}
	}
	return all, nil
}

// agreed is how many entries of Table I are the same by profiles, of how many, and by
// how many queues the others differ at most.
func agreed(measured []set) (same, all, most int) {
	for i, w := range sets() {
		for row := range w.queues {
			for column := range w.queues[row] {
				by := measured[i].queues[row][column] - w.queues[row][column]
				all, most = all+1, max(most, by, -by)
				if by == 0 {
					same++
				}
			}
		}
	}
	return same, all, most
}

// table1 is T1 and T2: Table I by measured profiles, and the gains under its queues.
func (f *figures) table1() []report.Target {
	const what = "Table I: entries that the measured profiles of our programs give too"
	all := []report.Target{report.Judge("T1", what, "of 36", report.Stat{}, false, "")}
	if len(f.measured) > 0 {
		same, of, most := agreed(f.measured)
		all[0] = report.From(float64(of), report.Around(float64(of), agreeing*float64(of)), report.Judge("T1", what, "of 36",
			report.Once(float64(same)), 2*same > of, fmt.Sprintf("more than half are to agree; others are off by up to %d queues", most)))
	}
	keys := with(experiments(ours, figure4, fixed), func(k *key) { k.measured = true })
	for _, x := range []struct {
		id, what, than string
		number         float64
		within         report.Range
	}{
		{"T2/capped", "Fig. 4 with the queues of measured profiles: ours against capped, mean", capped, -19.18, report.Range{Low: -30, High: -14}},
		{"T2/approxhadoop", "Fig. 4 with the queues of measured profiles: ours against ApproxHadoop, mean", approx, -5.26, report.Range{Low: -12, High: -2}},
	} {
		got := f.changes(keys, x.than)
		all = append(all, report.From(x.number, x.within, report.Judge(x.id, x.what, "%", got, got.Mean < 0, "")))
	}
	return all
}

// agreeing is the part of Table I's entries that may differ: other programs on other data.
const agreeing = 0.25
