package command

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// sized is text for a screen of that size.
type sized struct {
	bytes.Buffer

	cols, rows int
}

// Screen is the size, see cli.Screen.
func (s *sized) Screen() (cols, rows int) { return s.cols, s.rows }

// alarmGroup are the alarms of one code and severity.
type alarmGroup struct {
	*headroomv1.HealthItem // the worst

	subjects []string
}

// grouped are alarms by code, in their order: the worst first.
func grouped(alarms []*headroomv1.HealthItem) (out []alarmGroup) {
	for _, a := range alarms {
		i := slices.IndexFunc(out, func(g alarmGroup) bool { return g.GetCode() == a.GetCode() && g.GetSeverity() == a.GetSeverity() })
		if i < 0 {
			i, out = len(out), append(out, alarmGroup{HealthItem: a})
		}
		if a.GetSubject() != "" {
			out[i].subjects = append(out[i].subjects, a.GetSubject())
		}
	}
	return out
}

func (g alarmGroup) text() string {
	if len(g.subjects) < 2 {
		return g.GetText()
	}
	return fmt.Sprintf("%d: %s; the first: %s", len(g.subjects), cli.NodeSet(g.subjects), g.GetText())
}

// alarmLines writes the alarms of a status. On a terminal they are counted by code and fit below the lines
// that stand above: first the hints are left out, then the ends of long lines, then the last codes.
func alarmLines(w io.Writer, alarms []*headroomv1.HealthItem, above int) error {
	cols, rows := cli.Screen(w)
	var b strings.Builder
	if cols == 0 {
		for _, a := range alarms {
			fmt.Fprintf(&b, "alarm:   %s %s: %s\n         hint: %s\n", severityWord(a), a.GetCode(), a.GetText(), a.GetHint())
		}
	} else if len(alarms) > 0 {
		c := newCheck(&headroomv1.ListAlarmsResponse{})
		for _, a := range alarms {
			c.count(a)
		}
		b.WriteString(cli.Hanging(w, "alarms:  ", c.String()+"; coordinator alarm list has each"))
		above += strings.Count(b.String(), "\n")
		b.WriteString(groupLines(w, grouped(alarms), cols, rows-above-1)) // below is the prompt
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func groupLines(w io.Writer, groups []alarmGroup, cols, room int) string {
	for _, hints := range []bool{true, false} {
		var b strings.Builder
		for _, g := range groups {
			b.WriteString(cli.Hanging(w, fmt.Sprintf("%-4s  %s  ", severityWord(g.HealthItem), g.GetCode()), g.text()))
			if hints {
				b.WriteString(cli.Hanging(w, "      hint: ", g.GetHint()))
			}
		}
		if text := b.String(); strings.Count(text, "\n") <= room {
			return text
		}
	}
	var lines []string
	for _, g := range groups {
		line := []rune(fmt.Sprintf("%-4s  %s  %s", severityWord(g.HealthItem), g.GetCode(), g.text()))
		if len(line) > cols {
			line = append(line[:cols-1], '~')
		}
		lines = append(lines, string(line))
	}
	if room = max(room, 2); len(lines) > room {
		lines = append(lines[:room-1], fmt.Sprintf("and %s more", cli.Count(len(groups)-room+1, "code")))
	}
	return strings.Join(lines, "\n") + "\n"
}
