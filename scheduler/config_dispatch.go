package scheduler

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch/pigeon"
	"headroom/scheduler/distributor"
	"headroom/scheduler/jobfile"
)

// Dispatch is the dispatch section: the groups of workers whose masters dispatch the tasks of jobs that ask for it.
type Dispatch struct {
	// Groups are the groups; none: jobs with dispatch: pigeon are refused.
	Groups []DispatchGroup `yaml:"groups"`
	// Cutoff parts short jobs from long ones by the time of their tasks.
	Cutoff config.Duration `yaml:"cutoff"`
	// Spread is power, level or even.
	Spread string `yaml:"spread"`
	// Placement is round-robin or block.
	Placement string `yaml:"placement"`
	// MaxTasks bounds the tasks of such jobs that have not ended.
	MaxTasks int `yaml:"max_tasks"`
}

// DispatchGroup is a group with the addresses of its masters.
type DispatchGroup struct {
	Name    string   `yaml:"name"`
	Masters []string `yaml:"masters"`
}

const (
	groupsMax = 1000
	// mastersMax is the active master and its standby.
	mastersMax = 2
	// maxTasksMost is about what fits into the memory of one scheduler: a task costs some 250 bytes while it waits.
	maxTasksMost = 10_000_000
)

// On reports whether there are groups.
func (d Dispatch) On() bool { return len(d.Groups) > 0 }

// dispatchDefaults are five of the largest jobs, and the cutoff of the papers' shortest trace.
func dispatchDefaults() Dispatch {
	return Dispatch{Cutoff: config.Duration(10 * time.Second), Spread: "power", Placement: "round-robin", MaxTasks: 300_000}
}

func spreads() map[string]pigeon.Spread {
	return map[string]pigeon.Spread{"power": pigeon.Weighted, "level": pigeon.Level, "even": pigeon.Even}
}

func placements() map[string]pigeon.Placement {
	return map[string]pigeon.Placement{"round-robin": pigeon.RoundRobin, "block": pigeon.Block}
}

func (d Dispatch) check() *cli.Error {
	_, spread := spreads()[d.Spread]
	_, placement := placements()[d.Placement]
	switch {
	case !spread:
		return config.Bad("one of power, level, even", "dispatch.spread %q is unknown", d.Spread)
	case !placement:
		return config.Bad("one of round-robin, block", "dispatch.placement %q is unknown", d.Placement)
	case d.Cutoff <= 0:
		return config.Bad("cutoff: 10s is the default", "dispatch.cutoff is %v; it must be above 0", d.Cutoff)
	case d.MaxTasks < 1 || d.MaxTasks > maxTasksMost:
		return config.Bad("max_tasks: 300000 is the default", "dispatch.max_tasks is %d; it must be from 1 to %d", d.MaxTasks, maxTasksMost)
	case len(d.Groups) > groupsMax:
		return config.Bad("a group has 50 to 100 workers", "%d dispatch.groups; the most is %d", len(d.Groups), groupsMax)
	}
	var names, addresses []string
	for i, g := range d.Groups {
		at := fmt.Sprintf("dispatch.groups[%d]", i)
		switch {
		case !jobfile.ValidName(strings.ReplaceAll(g.Name, "/", "-")):
			return config.Bad("the name of a domain of the power tree, for example rack/r1", "%s: name %q is no name of a group", at, g.Name)
		case slices.Contains(names, g.Name):
			return config.Bad("give each group a name of its own", "%s: another group is named %s", at, g.Name)
		case len(g.Masters) < 1 || len(g.Masters) > mastersMax:
			return config.Bad(`masters: ["10.0.1.1:7414", "10.0.1.2:7414"] are the two masters of a group`, "%s: %s has %d masters; it must have 1 or %d", at, g.Name, len(g.Masters), mastersMax)
		}
		names = append(names, g.Name)
		for _, a := range g.Masters {
			if _, _, err := net.SplitHostPort(a); err != nil {
				return config.Bad("write host:port, for example 10.0.1.1:7414", "%s: %q is not an address", at, a)
			}
			if slices.Contains(addresses, a) {
				return config.Bad("a master serves one group", "%s: %s is named twice", at, a)
			}
			addresses = append(addresses, a)
		}
	}
	return nil
}

// masters are the addresses of all masters.
func (d Dispatch) masters() (all []string) {
	for _, g := range d.Groups {
		all = append(all, g.Masters...)
	}
	return all
}

// settings are what a distributor takes of the section.
func (d Dispatch) settings() distributor.Config {
	c := distributor.Config{Spread: spreads()[d.Spread], Placement: placements()[d.Placement]}
	for _, g := range d.Groups {
		c.Groups = append(c.Groups, distributor.Group{Name: g.Name, Masters: g.Masters})
	}
	return c
}
