package record

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/chart"
	"headroom/units"
)

const (
	// maxPoints bounds the looks of a picture; more are indistinguishable.
	maxPoints = 800
	// maxNames bounds the names beside a strip.
	maxNames = 9
)

// strip is one diagram of what was seen.
type strip struct {
	*chart.Plot

	looks []look
}

// newStrip is a strip whose scale reaches at least to most.
func newStrip(looks []look, title, unit string, most float64) *strip {
	s := &strip{chart.New(title, "time (s)", unit), looks}
	s.X.Min, s.X.Max, s.Y.Min, s.Y.Max = 0, 1, 0, most
	if n := len(looks); n > 0 {
		s.X.Max = max(1, looks[n-1].at.Seconds())
	}
	return s
}

// line adds a value of each look, nil where it is unknown: a gap.
func (s *strip) line(style chart.Series, of func(look) *float64) error {
	for _, l := range s.looks {
		y := of(l)
		if y == nil {
			y = new(math.NaN())
		}
		style.Points = append(style.Points, plotter.XY{X: l.at.Seconds(), Y: *y})
	}
	return s.Line(style)
}

// draw is the picture of all looks so far.
func draw(looks []look) ([]byte, error) {
	looks = thinned(looks)
	power := newStrip(looks, "power of the cluster", "power (W)", 1)
	err := errors.Join(
		power.line(chart.Series{Name: "budget", Colour: chart.Black, Steps: true}, site((*headroomv1.Domain).GetBudgetUw)),
		power.line(chart.Series{Name: "reserved", Colour: chart.Orange, Steps: true}, site((*headroomv1.Domain).GetReservedUw)),
		power.line(chart.Series{Name: "caps", Colour: chart.Green, Dashes: []float64{2, 4}, Steps: true}, sum(func(n *headroomv1.Node) *int64 { return n.TargetUw })),
		power.line(chart.Series{Name: "nodes draw", Colour: chart.Blue, Steps: true}, sum(func(n *headroomv1.Node) *int64 { return n.PowerUw })),
	)
	containers := newStrip(looks, "containers that each job holds", "containers", 1)
	progress := newStrip(looks, "map tasks done or dropped", "progress (%)", 100)
	ends := newStrip(looks, "predicted end after its start; dashed: without a cap", "predicted end (s)", 1)
	for i, id := range idsOf(looks) {
		style := chart.Series{Name: short(id), Colour: chart.LineColours()[i%len(chart.LineColours())]}
		if i >= maxNames {
			style.Name = ""
		}
		stepped, dashed := style, style
		stepped.Steps, dashed.Name, dashed.Dashes = true, "", []float64{3, 4}
		err = errors.Join(err, containers.line(stepped, job(id, holds)), progress.line(style, job(id, done)),
			ends.line(style, job(id, func(j *headroomv1.Job) *float64 { return j.GetOutlook().FinishS })), ends.line(dashed, job(id, uncapped)))
	}
	var b bytes.Buffer
	err = errors.Join(err, chart.SaveStrips([]*chart.Plot{power.Plot, containers.Plot, progress.Plot, ends.Plot}, &b))
	return b.Bytes(), err
}

// thinned are at most maxPoints looks, the first and the last among them.
func thinned(looks []look) []look {
	if len(looks) <= maxPoints {
		return looks
	}
	out := make([]look, 0, maxPoints)
	for i := range maxPoints {
		out = append(out, looks[i*(len(looks)-1)/(maxPoints-1)])
	}
	return out
}

// site is a value in watts of the domain that has no parent.
func site(of func(*headroomv1.Domain) int64) func(look) *float64 {
	return func(l look) *float64 {
		i := slices.IndexFunc(l.domains, func(d *headroomv1.Domain) bool { return d.GetParent() == "" })
		if i < 0 {
			return nil
		}
		return new(units.Power(of(l.domains[i])).Watts())
	}
}

// sum is a value in watts of all nodes together, unknown where that of one is.
func sum(of func(*headroomv1.Node) *int64) func(look) *float64 {
	return func(l look) *float64 {
		sum := units.Power(0)
		for _, n := range l.nodes {
			p := of(n)
			if p == nil {
				return nil
			}
			sum += units.Power(*p)
		}
		if len(l.nodes) == 0 {
			return nil
		}
		return new(sum.Watts())
	}
}

// idsOf are the jobs, in the order in which they were first seen.
func idsOf(looks []look) (ids []string) {
	for _, l := range looks {
		for _, j := range l.jobs {
			if !slices.Contains(ids, j.GetId()) {
				ids = append(ids, j.GetId())
			}
		}
	}
	return ids
}

// job is a value of a job.
func job(id string, of func(*headroomv1.Job) *float64) func(look) *float64 {
	return func(l look) *float64 {
		i := slices.IndexFunc(l.jobs, func(j *headroomv1.Job) bool { return j.GetId() == id })
		if i < 0 {
			return nil
		}
		return of(l.jobs[i])
	}
}

// holds are the containers of a job.
func holds(j *headroomv1.Job) *float64 {
	p := j.GetProgress()
	if p == nil {
		return nil
	}
	return new(float64(cmp.Or(p.GetContainers(), p.GetRunning())))
}

// done is how many percent of its tasks are done or will never run.
func done(j *headroomv1.Job) *float64 {
	p := j.GetProgress()
	if p.GetTasks() == 0 {
		return nil
	}
	return new(100 * float64(p.GetDone()+p.GetDropped()) / float64(p.GetTasks()))
}

// uncapped is when a job would end without a cap.
func uncapped(j *headroomv1.Job) *float64 {
	if o := j.GetOutlook(); o != nil {
		return cmp.Or(j.UncappedS, o.UncappedS)
	}
	return j.UncappedS
}

// short is a name as long as the margin holds: the end of a job's id identifies more than its beginning.
func short(name string) string {
	const most = 16
	if r := []rune(name); len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return name
}
