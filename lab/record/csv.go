package record

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"

	"headroom/units"
)

// columns of the CSV: a row for each domain, node and job of each look. What a kind
// does not have, and what was not known, is empty.
func columns() []string {
	return []string{
		"time_s", "kind", "name", "budget_w", "reserved_w", "cap_w", "held_w", "power_w", "containers", "given", "tasks", "done", "dropped", "cap_share",
		"elapsed_s", "finish_s", "uncapped_s",
	}
}

// table is the CSV file.
type table struct {
	file *os.File
	buf  *bufio.Writer
	rows *csv.Writer
}

func createTable(path string) (*table, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	t := newTable(f)
	t.file = f
	if err := t.header(); err != nil {
		return nil, err
	}
	return t, nil
}

func newTable(w io.Writer) *table {
	buf := bufio.NewWriter(w)
	return &table{buf: buf, rows: csv.NewWriter(buf)}
}

func (t *table) header() error {
	_ = t.rows.Write(columns()) // an error is kept, and returned by flush
	return t.flush()
}

// add appends one look and writes it out, whole lines only.
func (t *table) add(l look) error {
	at := number(new(l.at.Seconds()))
	for _, d := range l.domains {
		t.row(at, "domain", d.name, map[string]string{"budget_w": watts(&d.budget), "reserved_w": watts(&d.reserved), "power_w": watts(d.measured)})
	}
	for _, n := range l.nodes {
		t.row(at, "node", n.name, map[string]string{
			"cap_w": watts(&n.cap), "held_w": watts(n.held), "power_w": watts(n.power), "containers": strconv.Itoa(n.containers),
		})
	}
	for _, j := range l.jobs {
		t.row(at, "job", j.id, map[string]string{
			"containers": count(j.containers), "given": count(j.given), "tasks": strconv.Itoa(j.tasks), "done": strconv.Itoa(j.done), "dropped": strconv.Itoa(j.dropped),
			"cap_share": number(j.share), "elapsed_s": number(j.elapsed), "finish_s": number(j.finish), "uncapped_s": number(j.uncapped),
		})
	}
	return t.flush()
}

func (t *table) row(at, kind, name string, fields map[string]string) {
	out := []string{at, kind, name}
	for _, c := range columns()[3:] {
		out = append(out, fields[c])
	}
	_ = t.rows.Write(out) // as above
}

func (t *table) flush() error {
	t.rows.Flush()
	if err := t.rows.Error(); err != nil {
		return fmt.Errorf("record: csv: %w", err)
	}
	if err := t.buf.Flush(); err != nil {
		return fmt.Errorf("record: csv: %w", err)
	}
	return nil
}

func (t *table) close() error {
	if t == nil || t.file == nil {
		return nil
	}
	return t.file.Close()
}

func watts(p *units.Power) string {
	if p == nil {
		return ""
	}
	return strconv.FormatFloat(p.Watts(), 'f', 3, 64)
}

func number(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'f', 3, 64)
}

func count(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
