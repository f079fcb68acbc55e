package coordinator

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/recovery"
	"headroom/coordinator/traces"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/each"
	"headroom/internal/secure"
	"headroom/ledger"
	"headroom/units"
)

// Config is coordinator.yaml.
type Config struct {
	// ID of this server, one of Servers.
	ID string `yaml:"id"`
	// StateDir holds the log, the vote and the snapshots.
	StateDir string `yaml:"state_dir"`
	// Servers is the first membership of the cluster, the same list on each server: 1, 3 or 5.
	// With Join it lists this server only.
	Servers []ServerConfig `yaml:"servers"`
	// Join are RPC addresses of servers of a cluster that this one is to be added to:
	// with an empty state_dir it waits for that, instead of founding a cluster.
	Join []string `yaml:"join"`
	// TLS is this server's identity; every connection requires one. "off" is
	// for a single machine: then every address must be loopback.
	TLS secure.Config `yaml:"tls"`
	// Socket is a unix socket for root and this server's user; empty means
	// state_dir/coordinator.sock.
	Socket string `yaml:"socket"`
	// Gossip is how nodes and servers discover each other.
	Gossip GossipConfig `yaml:"gossip"`
	// BMC is the account that queries the BMCs of lost nodes.
	BMC BMCConfig `yaml:"bmc"`
	// Brake has the keys to verify a brake and to set one.
	Brake BrakeConfig `yaml:"brake"`
	// Site is the power tree that an empty cluster starts with; afterwards budgets change through the command line only.
	Site []DomainConfig `yaml:"site"`
	// Lease is the lease duration of a new cluster; 10s if absent. From then on the log
	// has it, and coordinator lease set changes it.
	Lease config.Duration `yaml:"lease"`
	// Metrics is the endpoint for Prometheus.
	Metrics MetricsConfig `yaml:"metrics"`
	// Debug configures diagnostics.
	Debug DebugConfig `yaml:"debug"`
	// OTel sends traces to an OpenTelemetry collector.
	OTel traces.Config `yaml:"otel"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`
}

// ServerConfig is one coordinator server.
type ServerConfig struct {
	ID string `yaml:"id"`
	// RPC is host:port for nodes, schedulers and operators.
	RPC string `yaml:"rpc"`
	// Raft is host:port between the servers.
	Raft string `yaml:"raft"`
}

// GossipConfig is the gossip section.
type GossipConfig struct {
	// Bind is host:port; empty turns gossip off.
	Bind string `yaml:"bind"`
	// Join are addresses of any members.
	Join []string `yaml:"join"`
	// KeyFile holds keys of 32 bytes in base64, one a line.
	KeyFile string `yaml:"key_file"`
}

// MetricsConfig is the metrics section.
type MetricsConfig struct {
	// Listen is host:port; empty: no metrics.
	Listen string `yaml:"listen"`
}

// DebugConfig is the debug section.
type DebugConfig struct {
	// FlightRecorder keeps a trace of the last seconds of the process in memory, and writes it
	// to state_dir/debug when a tick was missed.
	FlightRecorder bool `yaml:"flight_recorder"`
}

// BrakeConfig is the brake section.
type BrakeConfig struct {
	// PublicKeyFile holds the public keys that verify a brake, the same file
	// as on the nodes; empty: no brake is accepted.
	PublicKeyFile string `yaml:"public_key_file"`
	// PrivateKeyFile holds the key that signs a brake; empty: this server cannot set one.
	PrivateKeyFile string `yaml:"private_key_file"`
}

// DomainConfig is one domain of the power tree.
type DomainConfig struct {
	Name      string      `yaml:"name"`
	Parent    string      `yaml:"parent"`
	Budget    units.Power `yaml:"budget"`
	Unmanaged units.Power `yaml:"unmanaged"`
	// RatedMax is the highest rating accepted from the declaration of a node below;
	// 0 W if absent: as in the domain above.
	RatedMax units.Power `yaml:"rated_max"`
	// Rating is what the breaker or feeder carries; 0 W when absent: not stated, and then
	// no budget is refused as too high.
	Rating units.Power `yaml:"rating"`
	// Margin is the part of the rating that no budget may use.
	Margin config.Fraction `yaml:"margin,omitempty"`
}

// ExampleConfig is a coordinator.yaml with every key, as `coordinator config example` prints it.
const ExampleConfig = `# coordinator.yaml: one coordinator server.

id: c1                                # this server's id in the list below
state_dir: /var/lib/headroom/coordinator # log, vote and snapshots; one server only

# The initial servers, the same list on each: 1, 3 or 5. Later "coordinator member"
# changes the membership.
servers:
  - id: c1                            # name of the server, as in its certificate
    rpc: 127.0.0.1:7400               # host:port for nodes, schedulers and operators
    raft: 127.0.0.1:7401              # host:port between the servers

# A server that is added to a running cluster lists only itself above, and servers of
# the cluster here. With an empty state_dir it waits for "coordinator member add", and
# then learns the other servers.
join: []                              # RPC addresses of servers of the cluster, e.g. ["10.0.0.11:7400", "10.0.0.12:7400"]

# This server's certificate, made by "coordinator tls ca create" and
# "coordinator tls cert create server/c1". Nodes, schedulers and operators have their own.
tls:
  mode: on                            # on, or off: no encryption and no authentication, on loopback only
  ca: /etc/headroom/ca.crt                     # certificate authority of the cluster
  cert: /etc/headroom/coordinator/server.crt   # certificate server/ID; reloaded when the file changes
  key: /etc/headroom/coordinator/server.key    # its key, readable only by this server's user

# A unix socket where root and this server's user need no certificate.
socket: ""                            # empty: coordinator.sock in state_dir

# Gossip: nodes and servers find each other through any member.
gossip:
  bind: 127.0.0.1:7402                # host:port for TCP and UDP; empty: no gossip
  join: []                            # gossip addresses of any members; the first server needs none
  key_file: /etc/headroom/gossip.key  # one key a line, the first is used to send (coordinator gossip key); reloaded at SIGHUP

# BMC account, used to check over LAN whether the machine of a lost node is off.
# "coordinator node set NODE --bmc HOST" sets the address.
bmc:
  user: ""                            # account with user privilege; empty: no BMC is used
  password_file: ""                   # file with the password only

# Metrics for Prometheus at http://ADDRESS/metrics.
metrics:
  listen: ""                          # host:port, e.g. 127.0.0.1:7403; empty: off. No authentication: use loopback or a trusted network

debug:
  flight_recorder: false              # true: keep the last seconds of a runtime trace in memory (8 MB), and write them to state_dir/debug after a late tick

# OpenTelemetry spans of ticks, heartbeats, changes and forwarded requests.
otel:
  endpoint: ""                        # OTLP over HTTP, e.g. http://127.0.0.1:4318/v1/traces; beyond this machine https only; empty: off
  sample: 1                           # ratio of recorded spans, above 0 and at most 1; 1000 nodes make 1000 spans a second

# The brake: "coordinator brake set" drives every node to its fail-safe cap, even without
# a leader. "coordinator brake key create" makes the key pair.
brake:
  public_key_file: ""                 # e.g. /etc/headroom/brake.pub; the same file on every server and node; empty: no brake
  private_key_file: ""                # e.g. /etc/headroom/coordinator/brake.key; on servers only

# The initial power tree of an EMPTY cluster. Later it is in the replicated log, and
# "coordinator budget set" and "coordinator domain set" change it.
site:
  - name: site/lab                    # level/name, unique
    budget: 3200W                     # what the domain may draw, above 0 W
    rating: 4kW                       # what the breaker or feeder carries; a budget above it, less the margin, is refused; default: no limit, with a warning
    margin: 20%                       # part of the rating that no budget may use, at most 90%; only with a rating; default 0%
    unmanaged: 240W                   # power of machines without powerd; default 0W
    rated_max: 500W                   # highest rating that a node may declare; a higher one waits for coordinator node set NODE --rated; default: the first one declared is accepted
  - name: rack/r1
    parent: site/lab                  # parent domain; the root has none
    budget: 2400W
    rating: 3kW                       # margin 0%: the whole rating

lease: 10s                            # length of leases in a new cluster, 3s to 2m; later: coordinator lease set
log_level: info                       # debug, info, warn, error
`

// Defaults returns the values of keys that coordinator.yaml does not have.
func Defaults() Config {
	return Config{Lease: config.Duration(ledger.DefaultTiming().Lease), OTel: traces.Config{Sample: 1}, LogLevel: "info"}
}

// LoadConfig reads and checks a coordinator.yaml. Errors are *cli.Error with the position.
func LoadConfig(path string) (Config, error) {
	c := Defaults()
	if err := config.Load(path, &c); err != nil {
		return Config{}, err
	}
	if err := c.check(); err != nil {
		return Config{}, &cli.Error{
			Code: "config", Exit: cli.ExitUsage, Message: fmt.Sprintf("%s: %v", filepath.Base(path), err),
			Hint: "coordinator config example prints a complete file",
		}
	}
	return c, nil
}

func (c Config) check() error {
	if c.StateDir == "" {
		return fmt.Errorf("state_dir is missing")
	}
	if n := len(c.Servers); len(c.Join) > 0 && n != 1 {
		return fmt.Errorf("servers has %d entries, must list only this server if join is set", n)
	} else if n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("servers has %d entries, must have 1, 3 or 5", n)
	}
	if _, ok := c.Self(); !ok {
		return fmt.Errorf("id %q is not among the servers", c.ID)
	}
	used := map[string]string{}
	for _, s := range c.Servers {
		if s.ID == "" || s.RPC == "" || s.Raft == "" {
			return fmt.Errorf("each of the servers needs id, rpc and raft")
		}
		for _, name := range []string{"id " + s.ID, "address " + s.RPC, "address " + s.Raft} {
			if by, twice := used[name]; twice {
				return fmt.Errorf("servers: %s and %s have the same %s", by, s.ID, name)
			}
			used[name] = s.ID
		}
	}
	addrs := slices.Clone(c.Join)
	for _, addr := range c.Join {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("join: %q is not host:port", addr)
		}
	}
	for _, s := range c.Servers {
		addrs = append(addrs, s.RPC, s.Raft)
	}
	if err := c.TLS.Check(true, addrs...); err != nil {
		return err
	}
	if c.Gossip.Bind != "" && c.Gossip.KeyFile == "" {
		return fmt.Errorf("gossip: key_file is missing")
	}
	if _, _, err := net.SplitHostPort(c.Metrics.Listen); c.Metrics.Listen != "" && err != nil {
		return fmt.Errorf("metrics.listen: %q is not host:port", c.Metrics.Listen)
	}
	if c.Brake.PrivateKeyFile != "" && c.Brake.PublicKeyFile == "" {
		return fmt.Errorf("brake: public_key_file is missing: no node would accept what the private key signs")
	}
	if err := c.OTel.Check(); err != nil {
		return err
	}
	if err := new(slog.Level).UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("log_level is %q; it must be debug, info, warn or error", c.LogLevel)
	}
	if l := time.Duration(c.Lease); l < 3*time.Second || l > 2*time.Minute {
		return fmt.Errorf("lease is %v; it must be between 3s and 2m", l)
	}
	if len(c.Join) > 0 && len(c.Site) == 0 {
		return nil // the cluster has its power tree
	}
	if _, err := budget.NewTree(c.domains()); err != nil {
		return fmt.Errorf("site: %w", err)
	}
	for _, d := range c.founding() {
		if err := d.Validate(); err != nil {
			return fmt.Errorf("site: %w", err)
		}
	}
	return nil
}

// socket returns the path of the unix socket for root and the server's user.
func (c Config) socket() string {
	return cmp.Or(c.Socket, filepath.Join(c.StateDir, "coordinator.sock"))
}

// Self returns this server's own entry.
func (c Config) Self() (ServerConfig, bool) { return c.server(c.ID) }

func (c Config) server(id string) (ServerConfig, bool) {
	for _, s := range c.Servers {
		if s.ID == id {
			return s, true
		}
	}
	return ServerConfig{}, false
}

func (c Config) domains() []budget.Domain {
	out := make([]budget.Domain, 0, len(c.Site))
	for _, d := range c.Site {
		out = append(out, budget.Domain{Name: d.Name, Parent: d.Parent, Budget: d.Budget, Unmanaged: d.Unmanaged})
	}
	return out
}

// founding returns the domains of an empty cluster.
func (c Config) founding() []ledger.Domain {
	out := ledger.PlainDomains(c.domains())
	for i, d := range c.Site {
		out[i].RatedMax, out[i].Rating, out[i].Margin = d.RatedMax, d.Rating, float64(d.Margin)
	}
	return out
}

func (c Config) peers() []consensus.Server {
	return each.List(c.Servers, func(s ServerConfig) consensus.Server { return consensus.Server{ID: s.ID, Address: s.Raft} })
}

// Stopped returns this server for recovery, which requires that it does not run.
func (c Config) Stopped() recovery.Server {
	self, _ := c.Self()
	return recovery.Server{ID: c.ID, StateDir: c.StateDir, Raft: self.Raft, Founders: c.peers()}
}

func (c Config) timing() ledger.Timing {
	t := ledger.DefaultTiming()
	t.Lease = time.Duration(c.Lease)
	return t
}
