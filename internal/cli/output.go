package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output is how a command prints what it was asked for. The zero value prints a
// table.
type Output struct {
	// Format is one of table, wide, json, yaml, csv, name; empty stands for table.
	Format string
	// NoHeaders leaves out the first line of tables and CSV.
	NoHeaders bool

	columns []string
	sortBy  string
	color   string
	// cmd is the command that has the flags; its stderr takes the notes.
	cmd *cobra.Command
	// headed is set once CSV has its header, so that a watch prints it once.
	headed bool
}

// Flags adds the flags of output to cmd and to the commands below it: -o/--output,
// --columns, --sort-by, --no-headers and --color.
func (o *Output) Flags(cmd *cobra.Command) {
	if o.Format == "" {
		o.Format = "table"
	}
	o.cmd = cmd
	f := cmd.PersistentFlags()
	f.VarP((*formatValue)(&o.Format), "output", "o", "output format: "+strings.Join(formats(), "|"))
	f.StringSliceVar(&o.columns, "columns", nil, "print only these columns, comma separated; with -o csv, names of JSON fields")
	f.StringVar(&o.sortBy, "sort-by", "", "sort by this column; with -o csv, the name of a JSON field")
	f.BoolVar(&o.NoHeaders, "no-headers", o.NoHeaders, "omit the header line")
	o.colorFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that is not there
}

// checkOutput returns a usage error for flags of output that do not go together,
// before a command does anything.
func checkOutput(cmd *cobra.Command) error {
	for _, name := range []string{"columns", "sort-by"} {
		f, format := cmd.Flags().Lookup(name), cmd.Flags().Lookup("output")
		switch {
		case f == nil || !f.Changed || format == nil:
		case cmd.Flags().Lookup("dry-run") != nil:
			return Usage("--%s is for lists; %s changes something", name, cmd.CommandPath())
		case slices.Contains([]string{"json", "yaml", "name"}, format.Value.String()):
			e := Usage("--%s needs -o table, wide or csv, not %s", name, format.Value)
			e.Hint = "-o csv takes the names of JSON fields"
			return e
		}
	}
	return nil
}

// IsJSON reports whether the answer is printed from its JSON document: as JSON,
// as YAML, or as CSV. Output.JSON writes each of them.
func (o *Output) IsJSON() bool { return o.Format == "json" || o.Format == "yaml" || o.Format == "csv" }

// IsWide reports whether the table has its additional columns.
func (o *Output) IsWide() bool { return o.Format == "wide" || len(o.columns) > 0 || o.sortBy != "" }

// IsTable reports whether the answer is printed for people, as a table with what
// stands around it.
func (o *Output) IsTable() bool { return o.Format == "table" || o.Format == "wide" || o.Format == "" }

// formats are the values of -o, the default first.
func formats() []string { return []string{"table", "wide", "json", "yaml", "csv", "name"} }

// formatValue is Output.Format as a flag that refuses what it does not know.
type formatValue string

// String is the chosen format.
func (f *formatValue) String() string { return string(*f) }

// Type is the word for the value in help texts.
func (f *formatValue) Type() string { return "format" }

// Set chooses a format, or returns a usage error with a proposal.
func (f *formatValue) Set(s string) error {
	if !slices.Contains(formats(), s) {
		e := Usage("unknown output format %q", s)
		e.Hint = didYouMean(nearest(s, formats()), "one of "+strings.Join(formats(), ", "))
		return e
	}
	*f = formatValue(s)
	return nil
}
