package papers

import (
	"io"

	"headroom/lab/report"
)

// Names of package report that other packages still use by this one.
type (
	Target  = report.Target
	Verdict = report.Verdict
	Stat    = report.Stat
	Files   = report.Files
	Report  = report.Report
)

// The verdicts, and the confidence of bounds.
const (
	Met        = report.Met
	Order      = report.Order
	Short      = report.Short
	NotRun     = report.NotRun
	Confidence = report.Confidence
)

// Of is report.Of.
func Of(values []float64) Stat { return report.Of(values) }

// Within is report.Within.
func Within(values []float64, confidence float64) Stat { return report.Within(values, confidence) }

// Judge is report.Judge.
func Judge(id, what, unit string, got Stat, ordered bool, note string) Target {
	return report.Judge(id, what, unit, got, ordered, note)
}

// WriteCSV is report.CSV.
func WriteCSV(w io.Writer, rows [][]string) error { return report.CSV(w, rows) }

// WriteMarkdown is report.Markdown.
func WriteMarkdown(w io.Writer, rows [][]string) error { return report.Markdown(w, rows) }

// Once is report.Once.
func Once(x float64) Stat { return report.Once(x) }
