package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"headroom/internal/cli"
)

// A build with sabotages has every one of them, by go build -overlay, and chooses by name. What is shipped has none.

const (
	chooserSource = `// Package sabotage chooses which rule of the design is broken in this build.
package sabotage

// Chosen is the name of the rule.
var Chosen string

// On reports whether a rule is broken.
func On(name string) bool { return Chosen == name }
`
	choosingSource = `package simulation

import "headroom/internal/sabotage"

func choose(name string) bool {
	sabotage.Chosen = name
	return true
}
`
)

// sourceTree is the folder of the module that the working folder belongs to.
func sourceTree(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "headroom").Output()
	if err != nil {
		return "", fmt.Errorf("sabotages need the source tree and a Go toolchain: run inside a checkout (%w)", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// writeOverlay writes the changed files and overlay.json into dir, and gives the latter's path.
func writeOverlay(root, dir string) (string, error) {
	changed := map[string]string{}
	for _, s := range append(sabotages(), hiddenSabotage()) {
		for _, e := range s.edits {
			if _, ok := changed[e.file]; !ok {
				data, err := os.ReadFile(filepath.Join(root, filepath.Clean(e.file)))
				if err != nil {
					return "", fmt.Errorf("simulation: sabotage %s: %w", s.Name, err)
				}
				changed[e.file] = string(data)
			}
			text, err := e.apply(s.Name, changed[e.file])
			if err != nil {
				return "", err
			}
			changed[e.file] = text
		}
	}
	for file, text := range changed {
		changed[file] = strings.Replace(text, "\nimport ", "\nimport \"headroom/internal/sabotage\"\nimport ", 1)
	}
	changed["internal/sabotage/sabotage.go"], changed["lab/simulation/choose.go"] = chooserSource, choosingSource
	replace := map[string]string{}
	for file, text := range changed {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("simulation: overlay: %w", err)
		}
		replace[filepath.Join(root, file)] = at
	}
	data, _ := json.Marshal(map[string]any{"Replace": replace}) // strings always have a form in JSON
	at := filepath.Join(dir, "overlay.json")
	return at, os.WriteFile(at, data, 0o600)
}

// apply makes the edit in a text, in which what it replaces must stand once.
func (e edit) apply(name, text string) (string, error) {
	if n := strings.Count(text, e.old); n != 1 {
		return "", fmt.Errorf("simulation: sabotage %s: text to change found %d times in %s: %q", name, n, e.file, e.old)
	}
	return strings.Replace(text, e.old, strings.ReplaceAll(e.new, "BROKEN", fmt.Sprintf("sabotage.On(%q)", name)), 1), nil
}

// runSabotaged runs this command in a build with all sabotages; its output is the command's.
func runSabotaged(cmd *cobra.Command) error {
	dir, err := os.MkdirTemp("", "powerlab-sabotage-*")
	if err != nil {
		return fmt.Errorf("simulation: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cli.Notef(cmd.ErrOrStderr(), "building the programs with sabotages")
	root, err := sourceTree(cmd.Context())
	if err != nil {
		return &cli.Error{Code: "no-sources", Message: err.Error(), Hint: "run it in the source tree with a Go toolchain", Err: err}
	}
	overlay, err := writeOverlay(root, dir)
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "powerlab")
	build := exec.CommandContext(cmd.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "headroom/lab/cmd/powerlab")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("simulation: build with sabotages: %w: %s", err, out)
	}
	args := []string{"simulate"}
	cmd.Flags().Visit(func(f *pflag.Flag) { args = append(args, "--"+f.Name+"="+f.Value.String()) })
	child := exec.CommandContext(cmd.Context(), program, args...)
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.WaitDelay = 5 * time.Second
	child.Stdout, child.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = child.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &cli.Error{Exit: exit.ExitCode(), Message: "the build with sabotages ended with an error; see above"}
	}
	return err
}
