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

	headroomv1 "headroom/api/headroom/v1"
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
func (p *place) load() (config.Config, error) {
	cfg, err := config.Load(p.config)
	if err != nil {
		return config.Config{}, err
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
	cfg *config.Config
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
