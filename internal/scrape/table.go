package scrape

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"headroom/internal/cli"
	"headroom/internal/each"
)

// Metric is one metric: what it is called, what it means, how it is labelled.
type Metric struct {
	Name string
	// Kind as the exposition format names it: counter, gauge or histogram.
	Kind   string
	Help   string
	Labels []Label
}

// Label is a label with the values that it takes, in words; "" where they need none.
type Label struct{ Name, Values string }

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Counter is a metric that only grows.
func Counter(name, help string, labels ...Label) Metric { return Metric{name, counter, help, labels} }

// Gauge is a metric that goes up and down.
func Gauge(name, help string, labels ...Label) Metric { return Metric{name, gauge, help, labels} }

// Histogram is a metric that counts observations in buckets.
func Histogram(name, help string, labels ...Label) Metric {
	return Metric{name, histogram, help, labels}
}

// Of is a label with its values in words, "" where they need none.
func Of(label, values string) Label { return Label{label, values} }

// Words are the values of a label, in a row.
func Words[S ~string](all []S) string {
	return strings.Join(each.List(all, func(s S) string { return string(s) }), ", ")
}

// Table is what a program tells, in the order of the page that lists it.
type Table []Metric

// Find is the metric of that name; one without a help when there is none.
func (t Table) Find(name string) Metric {
	for _, m := range t {
		if m.Name == name {
			return m
		}
	}
	return Metric{Name: name}
}

// Rows are the lines of the page that lists the metrics.
func (t Table) Rows() string {
	var b strings.Builder
	for _, m := range t {
		labels := make([]string, 0, len(m.Labels))
		for _, l := range m.Labels {
			text := "`" + l.Name + "`"
			if l.Values != "" {
				text += ": " + l.Values
			}
			labels = append(labels, text)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, cmp.Or(strings.Join(labels, "; "), "-"), m.Help)
	}
	return b.String()
}

// LabelNames are the names of the labels, in order.
func (m Metric) LabelNames() []string {
	return each.List(m.Labels, func(l Label) string { return l.Name })
}

// desc is a metric that is made of a value.
type desc struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Descs are the metrics of a table that are made of a value in each scrape.
type Descs map[string]desc

// Descs leaves out histograms and the metrics of those names: they fill themselves.
func (t Table) Descs(own ...string) Descs {
	kinds := map[string]prometheus.ValueType{counter: prometheus.CounterValue, gauge: prometheus.GaugeValue}
	all := Descs{}
	for _, m := range t {
		if m.Kind != histogram {
			all[m.Name] = desc{prometheus.NewDesc(m.Name, m.Help, m.LabelNames(), nil), kinds[m.Kind]}
		}
	}
	for _, name := range own {
		delete(all, name)
	}
	return all
}

// Describe tells each of them.
func (d Descs) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range d {
		ch <- one.desc
	}
}

// Points are the metrics of one scrape. Invariant: no two have the same name and
// the same labels, for those would spoil the whole scrape.
type Points struct {
	ch    chan<- prometheus.Metric
	descs Descs
	seen  map[string]bool
}

// Points is a scrape that goes to ch.
func (d Descs) Points(ch chan<- prometheus.Metric) Points {
	return Points{ch: ch, descs: d, seen: map[string]bool{}}
}

const (
	// LabelMost bounds a label's value in bytes: names come from machines and operators.
	LabelMost = 128
	// PointsMost bounds one scrape: a thousand sensors of each kind and as many
	// policies, or a thousand domains, make less.
	PointsMost = 1 << 14
)

// Add tells a value, and reports whether it did. One that is no number is left out:
// unknown is absent. Of two with the same labels the first counts.
func (p *Points) Add(name string, value float64, labels ...string) bool {
	if math.IsNaN(value) || math.IsInf(value, 0) || len(p.seen) >= PointsMost {
		return false
	}
	clean := each.List(labels, func(l string) string { return cli.Clean(l[:min(len(l), LabelMost)]) })
	key := name + "\xff" + strings.Join(clean, "\xff") // no label holds that byte
	if p.seen[key] {
		return false
	}
	p.seen[key] = true
	d := p.descs[name]
	m, err := prometheus.NewConstMetric(d.desc, d.kind, value, clean...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d.desc, err) // told as an error; the others are served
	}
	p.ch <- m
	return true
}

// Has tells 1 for the one of several that is the case, and 0 for the others.
func (p *Points) Has(name, is string, of []string) {
	for _, one := range of {
		p.Add(name, OneIf(one == is), one)
	}
}

// OneIf is 1 for what is the case, else 0.
func OneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
