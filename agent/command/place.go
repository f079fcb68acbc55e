package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// defaultConfig is where powerd looks for its configuration.
const defaultConfig = "/etc/headroom/powerd.yaml"

// place is how a command finds its node: a configuration file, and what of it is
// overridden.
type place struct {
	cmd      *cobra.Command
	config   string
	root     string
	stateDir string
	logLevel string
}

func (p *place) flags(cmd *cobra.Command) {
	p.cmd = cmd
	cmd.Flags().StringVar(&p.config, "config", defaultConfig, "configuration file")
	cmd.Flags().StringVar(&p.root, "root", "", "file system to look for sys, proc and etc in, instead of the configured one")
	cmd.Flags().StringVar(&p.stateDir, "state-dir", "", "state directory, instead of the configured one")
}

// load reads the configuration and lays the flags over it.
func (p *place) load() (agent.Config, error) {
	cfg, err := agent.LoadConfig(p.config)
	if err != nil {
		return agent.Config{}, err
	}
	cfg.Root, cfg.StateDir = cmp.Or(p.root, cfg.Root), cmp.Or(p.stateDir, cfg.StateDir)
	cfg.LogLevel = cmp.Or(p.logLevel, cfg.LogLevel)
	return cfg, cfg.Validate()
}

// state is the state directory; a flag alone is enough, without a configuration.
func (p *place) state() (string, error) {
	if p.stateDir != "" {
		return p.stateDir, nil
	}
	cfg, err := p.load()
	return cfg.StateDir, err
}

// named tells whether the operator named a configuration file.
func (p *place) named() bool { return p.cmd != nil && p.cmd.Flags().Changed("config") }

// site is what a command that only looks can build on: each part may be missing.
type site struct {
	// cfg is nil without a configuration.
	cfg *agent.Config
	// root is the path of the node's file system.
	root string
	// stateDir is empty when nobody has named one.
	stateDir string
	// status is the running agent's answer, nil when none answers.
	status *headroomv1.GetAgentStatusResponse
}

// find looks for the configuration, the root and the running agent. A machine
// without a configuration is looked at as it stands, from "/"; a root that the
// operator names is looked at for itself, unless the configuration is about it.
func (p *place) find(ctx context.Context) (site, error) {
	s, err := p.settle()
	if err != nil {
		return site{}, err
	}
	s.status = answering(ctx, s.stateDir)
	if s.status != nil && s.cfg == nil && p.root == "" {
		s.root = status.Root(s.status.GetTree()) // the agent's machine, not the one that the command runs on
	}
	return s, nil
}

func (p *place) settle() (site, error) {
	cfg, err := agent.LoadConfig(p.config)
	_, missing := os.Stat(p.config)
	bare := site{root: cmp.Or(p.root, "/"), stateDir: p.stateDir}
	switch {
	case err != nil && p.named():
		return site{}, err
	case err != nil && errors.Is(missing, os.ErrNotExist):
		if p.root == "" && p.stateDir == "" {
			bare.stateDir = agent.Defaults().StateDir
		}
		return bare, nil
	case err != nil && (p.root != "" || p.stateDir != ""):
		return bare, nil // the flags are about another node than the file that cannot be used
	case err != nil:
		return site{}, err
	case !p.named() && p.root != "" && !samePath(p.root, cfg.Root):
		return bare, nil
	}
	cfg.Root, cfg.StateDir = cmp.Or(p.root, cfg.Root), cmp.Or(p.stateDir, cfg.StateDir)
	return site{cfg: &cfg, root: cfg.Root, stateDir: cfg.StateDir}, nil
}

func samePath(a, b string) bool {
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return errX == nil && errY == nil && x == y
}

// answering is the answer of the agent of a state directory, nil when there is none.
func answering(ctx context.Context, dir string) *headroomv1.GetAgentStatusResponse {
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(agent.SocketPath(dir)); err != nil {
		return nil
	}
	s, err := fetchStatus(ctx, dir)
	if err != nil {
		return nil
	}
	return s
}

// watchMin is the shortest interval of a watch: a screen that changes faster
// tells nobody more, and energy counters are not for high rates.
const watchMin = 250 * time.Millisecond

// watching are the flags of commands that can repeat themselves.
type watching struct {
	on       bool
	interval time.Duration
}

func (w *watching) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.on, "watch", "w", w.on, "go on, and print again at each interval")
	w.pace(cmd, "with --watch: how often, at least 250ms")
}

// pace adds --interval alone, for commands that always repeat.
func (w *watching) pace(cmd *cobra.Command, usage string) {
	cmd.Flags().DurationVar(&w.interval, "interval", time.Second, usage)
}

// run prints once, or again and again until interrupted.
func (w *watching) run(cmd *cobra.Command, once func() error) error {
	if !w.on {
		return once()
	}
	if w.interval < watchMin {
		return cli.Usage("--interval is %v; it must be at least %v", w.interval, watchMin)
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		if isTerminal(cmd.OutOrStdout()) {
			if _, err := io.WriteString(cmd.OutOrStdout(), clearScreen); err != nil {
				return err
			}
		}
		if err := once(); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-tick.C:
		}
	}
}

// clearScreen brings the cursor home and clears what is below it.
const clearScreen = "\x1b[H\x1b[2J"

// isTerminal tells whether w is a terminal that a person may be looking at.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printer prints one answer: JSON (one line of it in a watch) or text.
type printer struct {
	out   cli.Output
	watch watching
}

func (p *printer) print(cmd *cobra.Command, v any, text func(io.Writer) error) error {
	switch {
	case p.out.IsJSON() && p.watch.on:
		return p.out.JSONLine(cmd.OutOrStdout(), v)
	case p.out.IsJSON():
		return p.out.JSON(cmd.OutOrStdout(), v)
	}
	return text(cmd.OutOrStdout())
}

// listJSON is the envelope of every list.
type listJSON[T any] struct {
	Kind  string `json:"kind"`
	API   string `json:"api"`
	AsOf  string `json:"as_of"`
	Items []T    `json:"items"`
}

func list[T any](kind string, items []T) listJSON[T] {
	return listJSON[T]{Kind: kind, API: "v1", AsOf: utcNow(), Items: append([]T{}, items...)}
}

func utcNow() string { return time.Now().UTC().Format(time.RFC3339Nano) }
