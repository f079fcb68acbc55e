package command

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"headroom/agent/config"
	"headroom/agent/status"
	"headroom/internal/cli"

	headroomv1 "headroom/api/headroom/v1"
)

// defaultConfig is where powerd looks for its configuration.
const defaultConfig = "/etc/headroom/powerd.yaml"

// place holds the flags that select the node of a command.
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
	cmd.Flags().StringVar(&p.root, "root", "", "directory with sys, proc and etc (default: root in the configuration)")
	cmd.Flags().StringVar(&p.stateDir, "state-dir", "", "state directory (default: state_dir in the configuration)")
}

// load reads the configuration and applies the flags.
func (p *place) load() (config.Config, error) {
	cfg, err := config.Load(p.config)
	if err != nil {
		return config.Config{}, err
	}
	cfg.Root, cfg.StateDir = cmp.Or(p.root, cfg.Root), cmp.Or(p.stateDir, cfg.StateDir)
	cfg.LogLevel = cmp.Or(p.logLevel, cfg.LogLevel)
	return cfg, cfg.Validate()
}

// state returns the state directory; with the flag no configuration is needed.
func (p *place) state() (string, error) {
	if p.stateDir != "" {
		return p.stateDir, nil
	}
	cfg, err := p.load()
	return cfg.StateDir, err
}

// named reports whether the operator gave --config.
func (p *place) named() bool { return p.cmd != nil && p.cmd.Flags().Changed("config") }

// site is what a read-only command knows of its node; each part may be missing.
type site struct {
	// cfg is nil without a configuration.
	cfg *config.Config
	// root is the path of the node's file system.
	root string
	// stateDir is empty if none is configured.
	stateDir string
	// status is that of the running powerd, nil if none runs.
	status *headroomv1.GetAgentStatusResponse
}

// find is ask for commands that read the machine themselves where powerd does not answer,
// and say so.
func (p *place) find(ctx context.Context) (site, error) {
	s, why, err := p.ask(ctx)
	switch {
	case err != nil || s.status != nil || s.stateDir == "":
	case why != nil:
		cli.Notef(p.cmd.ErrOrStderr(), "note: powerd does not answer (%s); the figures are read from the machine itself", oneLine(why))
	default:
		cli.Notef(p.cmd.ErrOrStderr(), "note: no powerd runs on %s; the figures are read from the machine itself", s.stateDir)
	}
	return s, err
}

// ask looks for the configuration, the root and the running powerd. Without a
// configuration the root is "/". With --root the configuration counts only if its root
// is the same. why is the reason why a running powerd gave no status.
func (p *place) ask(ctx context.Context) (s site, why, err error) {
	if s, err = p.settle(); err != nil {
		return site{}, nil, err
	}
	s.status, why = answering(ctx, s.stateDir)
	if s.status != nil && s.cfg == nil && p.root == "" {
		s.root = status.Root(s.status.GetTree()) // the machine that powerd reads, not the one of this command
	}
	return s, why, nil
}

func (p *place) settle() (site, error) {
	cfg, err := config.Load(p.config)
	_, missing := os.Stat(p.config)
	bare := site{root: cmp.Or(p.root, "/"), stateDir: p.stateDir}
	switch {
	case err != nil && p.named():
		return site{}, err
	case err != nil && errors.Is(missing, os.ErrNotExist):
		if p.root == "" && p.stateDir == "" {
			bare.stateDir = config.Defaults().StateDir
		}
		return bare, nil
	case err != nil && (p.root != "" || p.stateDir != ""):
		return bare, nil // the flags select another node than the unusable file
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
