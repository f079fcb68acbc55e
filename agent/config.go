package agent

import (
	"fmt"
	"log/slog"
	"net"
	"regexp"

	"headroom/capping"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/units"
)

// Config is powerd.yaml.
type Config struct {
	// Node is the name of the node, unique in the cluster.
	Node string `yaml:"node"`
	// Domain that the node draws from, e.g. rack/r1.
	Domain string `yaml:"domain"`
	// Root is the file system that sys, proc and etc are looked for in.
	Root string `yaml:"root"`
	// StateDir holds the journal and what else outlives the process.
	StateDir string `yaml:"state_dir"`
	// Enforce false: observe only, never write.
	Enforce bool `yaml:"enforce"`
	// Power of the node, all but Other at the wall.
	Power PowerConfig `yaml:"power"`
	// Weight is the node's share of the budget against others; above 0.
	Weight float64 `yaml:"weight"`
	// Coordinators are RPC addresses, beside those that gossip finds.
	Coordinators []string `yaml:"coordinators"`
	// Gossip finds the coordinators.
	Gossip GossipConfig `yaml:"gossip"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`
}

// PowerConfig is the power section.
type PowerConfig struct {
	// Rated is what the node draws with no cap at all.
	Rated units.Power `yaml:"rated"`
	// Floor is the least cap that it can really hold.
	Floor units.Power `yaml:"floor"`
	// Max is the most that it can use.
	Max units.Power `yaml:"max"`
	// FailSafe is what it falls to by itself.
	FailSafe units.Power `yaml:"fail_safe"`
	// Other is drawn behind the supply by what is neither package nor DRAM.
	Other units.Power `yaml:"other"`
	// SupplyEfficiency is (package + DRAM + other) / wall.
	SupplyEfficiency float64 `yaml:"supply_efficiency"`
}

// GossipConfig is the gossip section.
type GossipConfig struct {
	// Bind is host:port, the port may be 0; empty: no gossip.
	Bind string `yaml:"bind"`
	// Join are addresses of any members.
	Join []string `yaml:"join"`
	// KeyFile holds 32 bytes in base64.
	KeyFile string `yaml:"key_file"`
}

// Defaults are the values of keys that powerd.yaml does not have.
func Defaults() Config {
	return Config{
		Root: "/", StateDir: "/var/lib/headroom/powerd", Weight: 1, LogLevel: "info",
		Power: PowerConfig{SupplyEfficiency: 0.9},
	}
}

// ExampleConfig is a powerd.yaml with every key, as `powerd config example` prints it.
const ExampleConfig = `# powerd.yaml: the agent of one node.

node: n01                             # unique in the cluster
domain: rack/r1                       # the domain whose budget it draws from
root: /                               # where sys, proc and etc are looked for
state_dir: /var/lib/headroom/powerd   # saved originals, highest stamp, socket
enforce: false                        # true: hold caps; false: observe only, charged its rated watts

power:
  rated: 250W                         # draw with no cap at all, at the wall
  floor: 70W                          # least cap that the node can really hold
  max: 220W                           # most that it can use
  fail_safe: 95W                      # what it falls to by itself, without a lease
  other: 22W                          # fans, disks, board: all behind the supply that is not package or DRAM
  supply_efficiency: 0.92             # wall = (package + dram + other) / efficiency

weight: 1.0                           # share of the budget against other nodes

# Where the coordinators are: fixed RPC addresses, or any one member of the gossip.
coordinators: []                      # e.g. ["10.0.0.11:7400"]
gossip:
  bind: ""                            # e.g. 0.0.0.0:7402; empty: no gossip
  join: []                            # any one member
  key_file: /etc/headroom/gossip.key

log_level: info                       # debug, info, warn or error
`

// LoadConfig reads and checks the file at path. Errors are *cli.Error, exit 2.
func LoadConfig(path string) (Config, error) {
	cfg := Defaults()
	if err := config.Load(path, &cfg); err != nil {
		return Config{}, err
	}
	if err := cfg.Validate(); err != nil {
		e := cli.Usage("%s: %w", path, err)
		e.Code = "config"
		e.Hint = hintOf(err)
		return Config{}, e
	}
	return cfg, nil
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

// Validate is nil when the configuration makes sense; what was decoded by
// LoadConfig has been checked.
func (c *Config) Validate() error {
	p := c.Power
	switch {
	case !nameForm.MatchString(c.Node):
		return badConfig(fmt.Sprintf("node: %q is no node name", c.Node), "use letters, digits, '-' and '.', at most 63 of them, a letter or digit first")
	case c.Domain == "":
		return badConfig("domain: is missing", "name the domain that the node draws from, for example rack/r1")
	case c.StateDir == "" || c.Root == "":
		return badConfig("root and state_dir must not be empty", "leave the keys out for / and /var/lib/headroom/powerd")
	case p.Floor <= 0:
		return badConfig("power.floor: is missing", "give the least cap that the node can really hold, for example 70W")
	case p.FailSafe < p.Floor:
		return badConfig(fmt.Sprintf("power.fail_safe: %v is below power.floor %v", p.FailSafe, p.Floor), "a node cannot fall to less than it can hold")
	case p.Max < p.FailSafe:
		return badConfig(fmt.Sprintf("power.max: %v is below power.fail_safe %v", p.Max, p.FailSafe), "max is the most that the node can use")
	case p.Rated < p.Max:
		return badConfig(fmt.Sprintf("power.rated: %v is below power.max %v", p.Rated, p.Max), "rated is what the node draws with no cap at all")
	case !(p.SupplyEfficiency > 0 && p.SupplyEfficiency <= 1):
		return badConfig(fmt.Sprintf("power.supply_efficiency: %v is not above 0 and at most 1", p.SupplyEfficiency), "0.92 is usual")
	case p.Other < 0 || p.Other.Watts() >= p.Floor.Watts()*p.SupplyEfficiency:
		return badConfig(fmt.Sprintf("power.other: %v leaves nothing of the floor %v to the processor", p.Other, p.Floor),
			"other is behind the supply and a part of every cap; it must be below floor x supply_efficiency")
	case !(c.Weight > 0):
		return badConfig(fmt.Sprintf("weight: %v is not above 0", c.Weight), "1 is usual")
	}
	if _, err := c.level(); err != nil {
		return badConfig(fmt.Sprintf("log_level: %q", c.LogLevel), "one of debug, info, warn, error")
	}
	return c.validateAddresses()
}

func (c *Config) validateAddresses() error {
	for _, a := range c.Coordinators {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return badConfig(fmt.Sprintf("coordinators: %q is not an address", a), "write host:port")
		}
	}
	switch {
	case c.Gossip.Bind == "" && len(c.Gossip.Join) > 0:
		return badConfig("gossip.bind: is missing", "give host:port to listen on, for example 0.0.0.0:7402")
	case c.Gossip.Bind != "" && c.Gossip.KeyFile == "":
		return badConfig("gossip.key_file: is missing", "name the key file that all members share")
	}
	return nil
}

// level is LogLevel for slog.
func (c *Config) level() (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(c.LogLevel))
	return l, err
}

// alone says that no coordinator is configured: the node keeps its fail-safe cap
// and needs nobody's consent to put its originals back.
func (c *Config) alone() bool { return len(c.Coordinators) == 0 && c.Gossip.Bind == "" }

// law is the node as the control law sees it.
func (c *Config) law(m *machine) capping.Config {
	dc := c.Power.Floor.Watts()*c.Power.SupplyEfficiency - c.Power.Other.Watts()
	return capping.Config{
		Other: c.Power.Other, Efficiency: c.Power.SupplyEfficiency,
		// Half of what the floor leaves to packages and memory: less is never needed
		// for a cap that the node can hold, and would only starve it.
		PackageMin: units.FromWatts(dc / 2),
		PackageMax: m.packageMax(),
		HasDRAM:    len(m.drams) > 0,
	}
}

func hintOf(err error) string {
	if e, ok := err.(*cli.Error); ok { //nolint:errorlint // made a line above, never wrapped
		return e.Hint
	}
	return ""
}
