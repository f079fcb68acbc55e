package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"headroom/lab/emulator"
	"headroom/units"
)

// Domain is the power domain of a Site, above those of its racks. It has the site's budget.
const Domain = "site/lab"

// Config describes a site.
type Config struct {
	// Dir is the site's folder, which is made, Bin the folder of Headroom's four programs.
	Dir, Bin string
	// Coordinators is their number: 1 or 3.
	Coordinators int
	// Nodes is how many emulated nodes there are, n1 and up. They own three quarters of the host's CPUs together.
	Nodes int
	// Racks is the number of racks that the nodes are divided among, the first ones in the first rack; 0 means 1.
	Racks int
	// Workers runs a scheduler's worker on each node, with so many slots; 0 for none.
	Workers int
}

// Site is a small cluster of Headroom. Its methods may be called from any goroutine.
type Site struct {
	*Servers

	config Config
	group  *Group
	nodes  []string

	mu       sync.Mutex
	programs []*Program
}

const (
	// stopGrace is how long a program may take to stop: a node stops its powerd first.
	stopGrace = 10 * time.Second
	// weight keeps for the nodes the CPUs that they own, whatever else the host does.
	weight = 50
	// keeper is the name of the scheduler's process.
	keeper = "scheduler"
)

// NewSite lays a site out; nothing is started yet but the guard, which Close ends.
func NewSite(config Config) (*Site, error) {
	dir, err1 := filepath.Abs(config.Dir)
	bin, err2 := filepath.Abs(config.Bin)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("cluster: folder of the site: %w", err)
	}
	config.Bin, config.Racks = bin, max(1, config.Racks)
	s := &Site{config: config}
	err := CheckPrograms(bin)
	if err != nil {
		return nil, err
	}
	if s.Servers, err = NewServers(dir, config.Coordinators, 1); err != nil {
		return nil, err
	}
	for i := range config.Nodes {
		s.nodes = append(s.nodes, "n"+strconv.Itoa(i+1))
	}
	if s.group, err = NewGroup(s.Path("logs")); err != nil {
		return nil, err
	}
	if err := s.Configure(Domain, s.Full(), s.Racks()...); err != nil {
		return nil, errors.Join(err, s.group.Close())
	}
	return s, nil
}

// Rated is the most that one node draws, in whole watts, as powerd declares it.
func Rated() units.Power {
	return units.FromWatts(math.Ceil(emulator.DefaultSpec().Rated().Watts()))
}

// Full is the budget at which every node may run at full speed; the site starts with it.
func (s *Site) Full() units.Power { return Rated() * units.Power(s.config.Nodes) }

// Racks are the names of the power domains of the racks.
func (s *Site) Racks() (names []string) {
	for i := range s.config.Racks {
		names = append(names, "rack/r"+strconv.Itoa(i+1))
	}
	return names
}

// rackOf is the rack of a node, which counts from 0.
func (s *Site) rackOf(node int) string { return s.Racks()[node*s.config.Racks/len(s.nodes)] }

// Nodes are the names of the emulated nodes.
func (s *Site) Nodes() []string { return slices.Clone(s.nodes) }

// Start starts the coordinators and the nodes.
func (s *Site) Start() error {
	for _, m := range s.Members {
		if err := s.StartCoordinator(m.ID); err != nil {
			return err
		}
	}
	for i, name := range s.nodes {
		argv := s.Node(s.config.Bin, name, s.rackOf(i), len(s.nodes), "--weight", strconv.Itoa(weight))
		if s.config.Workers > 0 {
			argv = append(argv, "--scheduler", s.Scheduler(), "--slots", strconv.Itoa(s.config.Workers))
		} else {
			argv = append(argv, "--no-worker")
		}
		if err := s.start(name, argv...); err != nil {
			return err
		}
	}
	return nil
}

// StartCoordinator starts the coordinator of this name, c1 and up, again where it was killed.
func (s *Site) StartCoordinator(name string) error {
	return s.start(name, filepath.Join(s.config.Bin, "coordinator"), "run", "--config", s.Config(Member{ID: name}))
}

// StartScheduler starts the scheduler, again where it was killed; more is added to its
// configuration file, such as the section yarn, or classes instead of high and low.
func (s *Site) StartScheduler(more string) error {
	text := fmt.Sprintf("dev: true\nlisten: %q\ndir: %q\ncoordinators: [\"%s\"]\n", s.Scheduler(), s.Path("scheduler"), strings.Join(s.Addresses(), `", "`))
	if !strings.Contains("\n"+more, "\nclasses:") {
		text += "classes: [high, low]\n"
	}
	if err := os.WriteFile(s.Path("scheduler.yaml"), []byte(text+more), 0o644); err != nil {
		return fmt.Errorf("cluster: write configuration: %w", err)
	}
	return s.start(keeper, filepath.Join(s.config.Bin, "scheduler"), "run", "--config", s.Path("scheduler.yaml"))
}

// KillScheduler ends the scheduler as kill -9 does; what it has started goes on.
func (s *Site) KillScheduler() { s.Kill(keeper) }

// Kill ends the program of this name as kill -9 does, and returns its process id, 0 where none runs.
func (s *Site) Kill(name string) (pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs = slices.DeleteFunc(s.programs, func(p *Program) bool {
		if p.Name == name {
			pid = p.Pid()
			p.Kill()
		}
		return p.Name == name
	})
	return pid
}

// Scheduler is the scheduler's address, host:port.
func (s *Site) Scheduler() string { return s.spare[0] }

func (s *Site) start(name string, argv ...string) error {
	p, err := s.group.Start(name, nil, argv...)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.programs = append(s.programs, p)
	}
	return err
}

// Running is nil, or names the program that has ended without being stopped.
func (s *Site) Running() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.programs {
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Revive starts each program again that has ended without being stopped, as an init system does, and returns their names.
func (s *Site) Revive() (names []string, err error) {
	s.mu.Lock()
	var ended []*Program
	s.programs = slices.DeleteFunc(s.programs, func(p *Program) bool {
		if p.Ended() != nil {
			ended = append(ended, p)
		}
		return p.Ended() != nil
	})
	s.mu.Unlock()
	for _, p := range ended {
		err = errors.Join(err, s.start(p.Name, p.cmd.Args...))
		names = append(names, p.Name)
	}
	return names, err
}

// Close stops everything, the nodes while their coordinators still answer, and waits for it. The folder stays.
func (s *Site) Close() error {
	s.mu.Lock()
	programs := slices.Clone(s.programs)
	s.mu.Unlock()
	for _, nodes := range []bool{true, false} {
		var all sync.WaitGroup
		for _, p := range programs {
			if slices.Contains(s.nodes, p.Name) == nodes {
				all.Go(func() { p.Stop(stopGrace) })
			}
		}
		all.Wait()
	}
	return s.group.Close()
}

// drawnTries is how often a node's view is read: its file may be renewed meanwhile.
const drawnTries = 5

// Drawn is the energy at the wall of all nodes since their boot, by the counters that their physics keep; they are
// renewed ten times a second.
func (s *Site) Drawn() (units.Energy, error) {
	var sum units.Energy
	for _, name := range s.nodes {
		v, err := View(filepath.Join(s.NodeDir(), name))
		if err != nil {
			return 0, fmt.Errorf("cluster: energy of node %s: %w", name, err)
		}
		sum += units.FromJoules(v.EnergyJ)
	}
	return sum, nil
}

// View is what the physics of the emulated node in the folder dir show.
func View(dir string) (v emulator.View, err error) {
	for range drawnTries {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(dir, "run", "plant.json")); err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err == nil {
			break
		}
	}
	return v, err
}
