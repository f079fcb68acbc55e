package record

import (
	"bytes"
	"encoding/csv"
	"fmt"
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

// rowsOfLook are the rows of a look.
func rowsOfLook(l look) (rows [][]string) {
	row := func(kind, name string, fields map[string]string) {
		out := []string{number(new(l.at.Seconds())), kind, name}
		for _, c := range columns()[3:] {
			out = append(out, fields[c])
		}
		rows = append(rows, out)
	}
	for _, d := range l.domains {
		row("domain", d.name, map[string]string{"budget_w": watts(&d.budget), "reserved_w": watts(&d.reserved), "power_w": watts(d.measured)})
	}
	for _, n := range l.nodes {
		row("node", n.name, map[string]string{"cap_w": watts(&n.cap), "held_w": watts(n.held), "power_w": watts(n.power), "containers": count(&n.containers)})
	}
	for _, j := range l.jobs {
		row("job", j.id, map[string]string{
			"containers": count(j.containers), "given": count(j.given), "tasks": count(&j.tasks), "done": count(&j.done), "dropped": count(&j.dropped),
			"cap_share": number(j.share), "elapsed_s": number(j.elapsed), "finish_s": number(j.finish), "uncapped_s": number(j.uncapped),
		})
	}
	return rows
}

// add writes rows to a file, all at once; nil takes none.
func add(file *os.File, rows [][]string) error {
	if file == nil {
		return nil
	}
	var b bytes.Buffer
	err := csv.NewWriter(&b).WriteAll(rows)
	if err == nil {
		_, err = file.Write(b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("record: csv: %w", err)
	}
	return nil
}

func watts(p *units.Power) string {
	if p == nil {
		return ""
	}
	return number(new(p.Watts()))
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
