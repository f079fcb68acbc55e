package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"headroom/internal/each"
)

// CommandLine returns a command with the arguments and flags that it was given, as a shell
// takes them, without the named flags.
func CommandLine(cmd *cobra.Command, without ...string) string {
	parts := []string{cmd.CommandPath()}
	for _, arg := range cmd.Flags().Args() {
		parts = append(parts, shellWord(arg))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			switch {
			case slices.Contains(without, f.Name):
			case f.NoOptDefVal != "" && f.NoOptDefVal == v:
				parts = append(parts, "--"+f.Name)
			case f.NoOptDefVal != "":
				parts = append(parts, "--"+f.Name+"="+shellWord(v))
			default:
				parts = append(parts, "--"+f.Name, shellWord(v))
			}
		}
	})
	return strings.Join(parts, " ")
}

// ShellWords returns a command line as a shell takes it.
func ShellWords(argv []string) string {
	words := each.List(argv, shellWord)
	return strings.Join(words, " ")
}

// shellWord returns a text as one word of a shell's command line.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("%+,-./:=@_", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
