package scale

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"headroom/internal/cli"
)

// print writes the answer as JSON or as tables: the verdict in words first, then parameters, measurements and predictions.
func (a *Answer) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, a)
	}
	if out.Format == "table" || out.IsWide() {
		if err := a.summary(w); err != nil {
			return err
		}
	}
	rows := make([][]string, 0, len(a.Parameters)+len(a.Predict))
	for _, name := range slices.Sorted(maps.Keys(a.Parameters)) {
		p := a.Parameters[name]
		rows = append(rows, []string{name, "", "", short(p.Value), short(p.Low), short(p.High), maybe(p.P)})
	}
	for i := range a.Measurements {
		m := &a.Measurements[i]
		rows = append(rows, []string{"measured", strconv.Itoa(m.N), strconv.Itoa(m.M), short(m.Speedup), "", "", ""})
	}
	for i := range a.Predict {
		p := &a.Predict[i]
		m := ""
		if p.M != nil {
			m = strconv.Itoa(*p.M)
		}
		rows = append(rows, []string{"speedup", strconv.Itoa(p.N), m, short(p.Speedup), short(p.Low), short(p.High), ""})
	}
	return out.Table(w, []string{"QUANTITY", "N", "M", "VALUE", "LOW", "HIGH", "P"}, rows)
}

// summary is a line each for the type, the peak and the advice.
func (a *Answer) summary(w io.Writer) error {
	text := ""
	if a.Type != nil {
		text += "type " + *a.Type + ": " + cmp.Or(map[string]string{
			"I": "linear", "II": "less than linear, without bound", "III,1": "bounded by the serial work", "III,2": "bounded by the cost of scaling out",
		}[*a.Type], "peaks, then falls") + "\n"
	}
	switch {
	case a.Peak == nil:
		text += "no peak\n"
	case a.Peak.M != nil:
		text += fmt.Sprintf("peak of size %d: %s at %d\n", a.Peak.N, short(a.Peak.Speedup), *a.Peak.M)
	default:
		text += fmt.Sprintf("peak: %s at %d\n", short(a.Peak.Speedup), a.Peak.N)
	}
	if v := a.Advice; v != nil {
		text += fmt.Sprintf("90 %% of the largest speed-up up to %d: at %d (%s)\n", v.Most, v.Ninety.N, short(v.Ninety.Speedup))
		wasted := fmt.Sprintf("none up to %d", v.Most)
		if v.Wasted != nil {
			wasted = "beyond " + strconv.Itoa(*v.Wasted)
		}
		text += "wasted containers: " + wasted + "\nrule: " + v.Rule + "\n"
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}

func short(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }

func maybe(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'g', 3, 64)
}
