// Package config reads and validates powerd.yaml.
//
// Load returns a valid configuration, or an error with position, rule and hint. The package
// also derives settings from the configuration: which controls may be written, how the BMC
// and the coordinators are reached, and how to react to writes of other programs. It reads
// only the files that the configuration names, and touches no device.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/dvfs"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/ipmi"
	"headroom/units"
)

// Config is powerd.yaml.
type Config struct {
	// Node is the name of the node, unique in the cluster; by default the host's.
	Node string `yaml:"node"`
	// Domain that the node draws from, e.g. rack/r1.
	Domain string `yaml:"domain"`
	// Root is the file system that sys, proc and etc are looked for in.
	Root string `yaml:"root"`
	// StateDir holds the journal and what else outlives the process.
	StateDir string `yaml:"state_dir"`
	// Enforce false means observe only: decide and show what would be written, never write.
	Enforce bool `yaml:"enforce"`
	// Power of the node, all but Other at the wall.
	Power Power `yaml:"power"`
	// Weight is the node's share of the budget against others; above 0.
	Weight float64 `yaml:"weight"`
	// Coordinators are RPC addresses, in addition to those found by gossip.
	Coordinators []string `yaml:"coordinators"`
	// TLS is this node's identity. Without files every address must be loopback.
	TLS secure.Config `yaml:"tls"`
	// Gossip finds the coordinators.
	Gossip Gossip `yaml:"gossip"`
	// Brake has the keys that verify a brake received by gossip.
	Brake Brake `yaml:"brake"`
	// RAPL is where package power is measured and limited.
	RAPL RAPL `yaml:"rapl"`
	// Controls selects which of the controls found may be written.
	Controls Controls `yaml:"controls"`
	// Rivals is the reaction to other programs that write this node's controls:
	// fight, tolerate or yield.
	Rivals string `yaml:"rivals"`
	// IPMI is the way to the node's BMC.
	IPMI IPMI `yaml:"ipmi"`
	// CPUFreq reports whether the frequency rung may be used.
	CPUFreq bool `yaml:"cpufreq"`
	// Frequency has the frequency settings beside the cap.
	Frequency Frequency `yaml:"frequency"`
	// Bandwidth is the last rung of software.
	Bandwidth Bandwidth `yaml:"bandwidth"`
	// Sprint reports whether this node may draw more than its base cap for a while.
	Sprint Sprint `yaml:"sprint"`
	// Metrics is the endpoint for Prometheus.
	Metrics Metrics `yaml:"metrics"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`
}

// Power is the power section.
type Power struct {
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

// Values of rapl.source.
const (
	sourceAuto     = "auto"     // the kernel's powercap tree
	sourcePowercap = "powercap" // the same, by name
	SourceMSR      = "msr"      // registers, past the kernel: only when asked for
	SourceOff      = "off"      // neither: as on a machine without RAPL
)

// RAPL is the rapl section.
type RAPL struct {
	// Source is auto, powercap, msr or off.
	Source string `yaml:"source"`
}

// Values of rivals.
const (
	RivalsFight    = "fight"    // write again at once
	RivalsTolerate = "tolerate" // warn and write again, at most once in tolerance
	RivalsYield    = "yield"    // warn and leave it: the node is charged what reads back
)

// Values of ipmi.mode.
const (
	IPMIOff    = "off"
	IPMIAuto   = "auto"    // in-band where the kernel has a BMC device
	IPMIInBand = "in-band" // through the kernel
	IPMILAN    = "lan"     // over the network
)

// IPMI is the ipmi section.
type IPMI struct {
	// Mode is off, auto, in-band or lan.
	Mode string `yaml:"mode"`
	// Address of the BMC, host or host:port; lan only.
	Address string `yaml:"address"`
	// User on the BMC; lan only.
	User string `yaml:"user"`
	// PasswordFile holds the user's password and nothing else; lan only.
	PasswordFile string `yaml:"password_file"`
	// Source of wall power: auto, dcmi, sensors, or the name of a watt sensor of the BMC.
	Source string `yaml:"source"`
	// Limit keeps the BMC's own limit a little above the cap.
	Limit bool `yaml:"limit"`
}

// ChoosesSource reports whether the operator selected the source of wall power.
func (i IPMI) ChoosesSource() bool { return i.Source != "" && i.Source != ipmi.ChoiceAuto }

// Values of frequency.turbo.
const (
	TurboLeave  = "leave"
	TurboOff    = "off"
	TurboSprint = "sprint" // off but during a sprint
)

// Frequency is the frequency section: what is set beside the cap while a cap is
// held, and never decides whether it is.
type Frequency struct {
	// Preference is the energy preference of every policy; empty: left alone.
	Preference string `yaml:"preference"`
	// SprintPreference stands in for it during a sprint; empty: it does not.
	SprintPreference string `yaml:"sprint_preference"`
	// Turbo is leave, off or sprint.
	Turbo string `yaml:"turbo"`
}

// Prefers reports whether preferences are written at all.
func (c Frequency) Prefers() bool { return c.Preference != "" || c.SprintPreference != "" }

// Switches reports whether the turbo switch is written.
func (c Frequency) Switches() bool { return c.Turbo == TurboOff || c.Turbo == TurboSprint }

// Used reports whether anything is set beside the cap.
func (c Frequency) Used() bool { return c.Prefers() || c.Switches() }

// WantedPreference is the preference that is wanted now, and whether any is.
func (c Frequency) WantedPreference(sprinting bool) (preference int64, wanted bool) {
	text := c.Preference
	if sprinting && c.SprintPreference != "" {
		text = c.SprintPreference
	}
	e, err := dvfs.ParseEPP(text)
	return int64(e), err == nil
}

func (c Frequency) validate() error {
	const hint = "use performance, balance_performance, balance_power or power; empty: unchanged"
	switch {
	case !preferable(c.Preference):
		return badConfig(fmt.Sprintf("frequency.preference: %q", c.Preference), hint)
	case !preferable(c.SprintPreference):
		return badConfig(fmt.Sprintf("frequency.sprint_preference: %q", c.SprintPreference), hint)
	case !slices.Contains([]string{TurboLeave, TurboOff, TurboSprint}, c.Turbo):
		return badConfig(fmt.Sprintf("frequency.turbo: %q", c.Turbo), "one of leave, off, sprint")
	}
	return nil
}

// preferable reports whether text names a preference, or none. The default is the
// firmware's own and reads back by another name; numbers are known to few drivers.
func preferable(text string) bool {
	e, err := dvfs.ParseEPP(text)
	return text == "" || err == nil && e >= dvfs.EPPPerformance
}

// Bandwidth is the bandwidth section.
type Bandwidth struct {
	// Slices of low priority whose CPU bandwidth may be bounded, e.g. batch.slice.
	Slices []string `yaml:"slices"`
}

// Sprint is the sprint section.
type Sprint struct {
	// Allow false: no sprint is ever started, and the node reports that.
	Allow bool `yaml:"allow"`
	// TempMax in degrees Celsius ends a sprint; 0: only the hardware's own trips do.
	TempMax float64 `yaml:"temp_max"`
}

// Metrics is the metrics section.
type Metrics struct {
	// Listen is host:port; empty: no metrics.
	Listen string `yaml:"listen"`
}

// Gossip is the gossip section.
type Gossip struct {
	// Bind is host:port, the port may be 0; empty: no gossip.
	Bind string `yaml:"bind"`
	// Join are addresses of any members.
	Join []string `yaml:"join"`
	// KeyFile holds keys of 32 bytes in base64, one a line.
	KeyFile string `yaml:"key_file"`
}

// Brake is the brake section.
type Brake struct {
	// PublicKeyFile holds the public keys of the coordinators; empty: a brake
	// reaches this node through a leader only.
	PublicKeyFile string `yaml:"public_key_file"`
}

// Defaults are the values of keys that powerd.yaml does not have.
func Defaults() Config {
	return Config{
		Root: "/", StateDir: "/var/lib/headroom/powerd", Weight: 1, LogLevel: "info",
		Power: Power{SupplyEfficiency: 0.9},
		RAPL:  RAPL{Source: sourceAuto}, Rivals: RivalsTolerate, IPMI: IPMI{Mode: IPMIAuto, Source: ipmi.ChoiceAuto}, CPUFreq: true,
		Frequency: Frequency{Turbo: TurboLeave},
		Sprint:    Sprint{Allow: true, TempMax: 90},
	}
}

// Example is a powerd.yaml with every key, as `powerd config example` prints it.
const Example = `# powerd.yaml: configuration of powerd on one node.

node: n01                             # unique in the cluster; default: the name of the host
domain: rack/r1                       # power domain of the node
root: /                               # directory with sys, proc and etc
state_dir: /var/lib/headroom/powerd   # saved original limits, stored lease, socket
enforce: false                        # true: enforce caps; false: observe only, charged rated power

power:                                # how to find these figures: docs/calibration.md
  rated: 250W                         # power without a cap, at the wall
  floor: 70W                          # lowest cap that the node can hold
  max: 220W                           # most power that the node can use
  fail_safe: 95W                      # cap without a lease
  other: 22W                          # fans, disks, board: power behind the supply that is not package or DRAM
  supply_efficiency: 0.92             # wall = (package + dram + other) / efficiency

weight: 1                             # share of the budget relative to other nodes

# Coordinators: fixed RPC addresses, or gossip.
coordinators: []                      # e.g. ["10.0.0.11:7400"]
tls:                                  # this node's certificate: coordinator tls cert create node/NAME
  mode: ""                            # on or off; empty: on if files are set, otherwise loopback only
  ca: ""                              # /etc/headroom/ca.crt
  cert: ""                            # /etc/headroom/powerd/node.crt
  key: ""                             # /etc/headroom/powerd/node.key
gossip:
  bind: ""                            # e.g. 0.0.0.0:7402; empty: no gossip
  join: []                            # address of any member
  key_file: /etc/headroom/gossip.key  # keys shared by all members, the first is used to send; reloaded on SIGHUP
brake:
  public_key_file: ""                 # e.g. /etc/headroom/brake.pub: accept a brake by gossip; empty: only from a leader

# Sensors and controls: the first control that works enforces the cap.
rapl:
  source: auto                        # auto (the powercap tree of the kernel), powercap, msr (registers), off
controls:                             # controls that may be written: package-0 (or rapl), policy0 (cpufreq), slice:NAME (bandwidth), epp, turbo, bmc
  allow: []                           # patterns, e.g. ["package-*"]; empty: all
  deny: []                            # patterns of controls that are never written, e.g. ["epp", "bmc"]
rivals: tolerate                      # if another program changes a control: fight (write at once), tolerate (write at most every 10 s), yield (do not write)
ipmi:
  mode: auto                          # off, auto (in-band if /dev/ipmi0 exists), in-band, lan
  address: ""                         # lan: host or host:port (default port 623)
  user: ""                            # lan
  password_file: ""                   # lan: file readable by its owner only
  source: auto                        # wall power: auto (the first that is plausible), dcmi, sensors, or the name of a watt sensor
  limit: false                        # true: keep the limit of the BMC a little above the cap, as a last line
cpufreq: true                         # frequency may be used to enforce the cap
frequency:                            # set while a cap is enforced
  preference: ""                      # energy preference: performance, balance_performance, balance_power, power; empty: unchanged
  sprint_preference: ""               # energy preference during a sprint; empty: the same
  turbo: leave                        # leave (unchanged), off, sprint (off except during a sprint)
bandwidth:
  slices: []                          # low-priority slices whose CPU bandwidth may be limited, e.g. [batch.slice]
sprint:
  allow: true                         # accept sprints above the base cap
  temp_max: 90                        # temperature in degrees Celsius that ends a sprint; 0: only the trip points of the hardware
metrics:
  listen: ""                          # host:port for Prometheus; empty: off

log_level: info                       # debug, info, warn or error
`

// Load reads and checks the file at path. Without node the node has the name of the
// host. Errors are *cli.Error, exit 2.
func Load(path string) (Config, error) {
	cfg := Defaults()
	if err := config.Load(path, &cfg); err != nil {
		return Config{}, err
	}
	var host error
	if cfg.Node == "" {
		cfg.Node, _ = os.Hostname() // Validate refuses an empty name
		host = checkHost(cfg.Node)
	}
	if err := cmp.Or(host, cfg.Validate()); err != nil {
		e := cli.Usage("%s: %w", path, err)
		e.Code = "config"
		e.Hint = HintOf(err)
		return Config{}, e
	}
	return cfg, nil
}

// checkHost explains why a host's name cannot be the node's, and names one that can.
func checkHost(host string) error {
	if nameForm.MatchString(host) {
		return nil
	}
	like := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(host, "-"), "-.")
	return badConfig(fmt.Sprintf("node: the name of this host, %q, is no node name", host),
		fmt.Sprintf("set it, for example node: %s; names have at most 63 letters, digits, '-' and '.'", cmp.Or(nameForm.FindString(like), "n01")))
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

// Validate is nil when the configuration makes sense; what was decoded by
// LoadConfig has been checked.
func (c *Config) Validate() error {
	p := c.Power
	switch {
	case !nameForm.MatchString(c.Node):
		return badConfig(fmt.Sprintf("node: invalid name %q", c.Node), "use at most 63 letters, digits, '-' and '.', beginning with a letter or digit")
	case c.Domain == "":
		return badConfig("domain: is missing", "set the power domain of the node, for example rack/r1")
	case c.StateDir == "" || c.Root == "":
		return badConfig("root and state_dir must not be empty", "remove the keys to use / and /var/lib/headroom/powerd")
	case p.Floor <= 0:
		return badConfig("power.floor: is missing", "set the lowest cap that the node can hold, for example 70W (see docs/calibration.md)")
	case p.FailSafe < p.Floor:
		return badConfig(fmt.Sprintf("power.fail_safe: %v is below power.floor %v", p.FailSafe, p.Floor), "fail_safe must be at least floor")
	case p.Max < p.FailSafe:
		return badConfig(fmt.Sprintf("power.max: %v is below power.fail_safe %v", p.Max, p.FailSafe), "max is the most power that the node can use, at least fail_safe")
	case p.Rated < p.Max:
		return badConfig(fmt.Sprintf("power.rated: %v is below power.max %v", p.Rated, p.Max), "rated is the power without a cap, at least max")
	case !(p.SupplyEfficiency > 0 && p.SupplyEfficiency <= 1):
		return badConfig(fmt.Sprintf("power.supply_efficiency: %v is not above 0 and at most 1", p.SupplyEfficiency), "0.92 is usual")
	case p.Other < 0 || p.Other.Watts() >= p.Floor.Watts()*p.SupplyEfficiency:
		return badConfig(fmt.Sprintf("power.other: %v leaves no power for the processor at floor %v", p.Other, p.Floor),
			"other must be below floor x supply_efficiency")
	case !(c.Weight > 0):
		return badConfig(fmt.Sprintf("weight: %v is not above 0", c.Weight), "1 is usual")
	}
	if _, err := c.level(); err != nil {
		return badConfig(fmt.Sprintf("log_level: %q", c.LogLevel), "one of debug, info, warn, error")
	}
	if err := c.validateDevices(); err != nil {
		return err
	}
	return c.validateAddresses()
}

// sliceForm is a slice's unit name as systemd takes it.
var sliceForm = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.slice$`)

// unitNameMax is the longest name of a unit (systemd.unit(5)).
const unitNameMax = 255

// slicesMax bounds the slices of the last rung: each is a call a step.
const slicesMax = 16

// tempMost is the highest temperature that makes sense for a processor.
const tempMost = 150

// validateDevices checks what the node is measured and held with.
func (c *Config) validateDevices() error {
	switch {
	case !slices.Contains([]string{sourceAuto, sourcePowercap, SourceMSR, SourceOff}, c.RAPL.Source):
		return badConfig(fmt.Sprintf("rapl.source: %q", c.RAPL.Source), "one of auto, powercap, msr, off")
	case !slices.Contains([]string{RivalsFight, RivalsTolerate, RivalsYield}, c.Rivals):
		return badConfig(fmt.Sprintf("rivals: %q", c.Rivals), "one of fight, tolerate, yield")
	case !(c.Sprint.TempMax >= 0 && c.Sprint.TempMax <= tempMost):
		return badConfig(fmt.Sprintf("sprint.temp_max: %v is not a processor temperature", c.Sprint.TempMax), "use degrees Celsius, usually 90; 0: none")
	case len(c.Bandwidth.Slices) > slicesMax:
		return badConfig(fmt.Sprintf("bandwidth.slices: %d slices", len(c.Bandwidth.Slices)), fmt.Sprintf("at most %d", slicesMax))
	}
	for i, s := range c.Bandwidth.Slices {
		switch {
		case !sliceForm.MatchString(s) || len(s) > unitNameMax:
			return badConfig(fmt.Sprintf("bandwidth.slices: %q is not a slice", s), "use the name of the unit, for example batch.slice")
		case s == "-.slice" || s == "system.slice":
			return badConfig(fmt.Sprintf("bandwidth.slices: %s contains powerd itself", s), "use low-priority slices only, none that contains powerd or a coordinator")
		case slices.Contains(c.Bandwidth.Slices[:i], s):
			return badConfig(fmt.Sprintf("bandwidth.slices: %s is listed twice", s), "list each slice once")
		}
	}
	if err := c.Frequency.validate(); err != nil {
		return err
	}
	if err := c.Controls.validate(); err != nil {
		return err
	}
	return c.validateIPMI()
}

func (c *Config) validateIPMI() error {
	i := c.IPMI
	switch {
	case !slices.Contains([]string{IPMIOff, IPMIAuto, IPMIInBand, IPMILAN}, i.Mode):
		return badConfig(fmt.Sprintf("ipmi.mode: %q", i.Mode), "one of off, auto, in-band, lan")
	case i.Mode == IPMILAN && i.Address == "":
		return badConfig("ipmi.address: is missing", "mode lan needs the BMC's host or host:port")
	case i.Mode != IPMILAN && (i.Address != "" || i.User != "" || i.PasswordFile != ""):
		return badConfig(fmt.Sprintf("ipmi.address, user and password_file have no effect with mode %s", i.Mode), "set ipmi.mode: lan, or remove them")
	case !ipmi.ValidSource(i.Source):
		return badConfig(fmt.Sprintf("ipmi.source: %q", i.Source), "one of auto, dcmi, sensors, or the name of a watt sensor as ipmitool sdr elist shows it (at most 16 characters)")
	case i.ChoosesSource() && i.Mode == IPMIOff:
		return badConfig("ipmi.source: needs a BMC, but ipmi.mode is off", "set ipmi.mode, or remove source")
	case i.Limit && i.Mode == IPMIOff:
		return badConfig("ipmi.limit: needs a BMC, but ipmi.mode is off", "set ipmi.mode, or remove limit")
	}
	return nil
}

func (c *Config) validateAddresses() error {
	for _, a := range c.Coordinators {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return badConfig(fmt.Sprintf("coordinators: %q is not an address", a), "write host:port")
		}
	}
	if c.Metrics.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Metrics.Listen); err != nil {
			return badConfig(fmt.Sprintf("metrics.listen: %q is not an address", c.Metrics.Listen), "write host:port, for example 127.0.0.1:9402")
		}
	}
	addrs := c.Coordinators
	if c.Gossip.Bind != "" {
		addrs = append(slices.Clone(addrs), c.Gossip.Bind)
	}
	if err := c.TLS.Check(false, addrs...); err != nil {
		return badConfig(err.Error(), "coordinator tls cert create node/"+c.Node+" creates this node's certificate; set its files under tls: in powerd.yaml")
	}
	switch {
	case c.Gossip.Bind == "" && len(c.Gossip.Join) > 0:
		return badConfig("gossip.bind: is missing", "set host:port to listen on, for example 0.0.0.0:7402")
	case c.Gossip.Bind != "" && c.Gossip.KeyFile == "":
		return badConfig("gossip.key_file: is missing", "set the key file that all members share")
	case c.Gossip.Bind == "" && c.Brake.PublicKeyFile != "":
		return badConfig("brake.public_key_file: has no effect without gossip", "set gossip.bind, or remove it")
	}
	return nil
}

// Certificate is this node's.
func (c *Config) Certificate() config.Certificate {
	return config.Certificate{Files: c.TLS.Files(), Of: secure.Identity{Role: secure.Node, Name: c.Node}}
}

// CheckCertificate returns what is wrong with this node's certificate now, as a *cli.Error. It reads files.
func (c *Config) CheckCertificate() error {
	if c.TLS.Off() {
		return nil
	}
	_, err := c.Certificate().Open(time.Now())
	return err
}

// Peers returns how this node connects to coordinators; a certificate that none would accept is an error. The
// error is a *cli.Error.
func (c *Config) Peers() (rpc.Peers, error) {
	if c.TLS.Off() {
		return rpc.PlainPeers(), nil
	}
	k, err := c.Certificate().Read(time.Now())
	if err != nil {
		return rpc.Peers{}, err
	}
	p := rpc.SecurePeers(k, secure.Server)
	denials := secure.NewDenials()
	if c.StateDir != "" {
		known, err := secure.ReadDenials(filepath.Join(c.StateDir, statedir.DeniedFile))
		if err != nil {
			return rpc.Peers{}, badConfig(err.Error(), "move the file aside; the coordinators send the denials again")
		}
		denials.Add(known...)
	}
	p.Deny(denials)
	return p, nil
}

// level is LogLevel for slog.
func (c *Config) level() (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(c.LogLevel))
	return l, err
}

// Alone reports whether no coordinator is configured: the node keeps its fail-safe cap
// and needs nobody's consent to put its originals back.
func (c *Config) Alone() bool { return len(c.Coordinators) == 0 && c.Gossip.Bind == "" }

// Model is the node as the control law sees it: the packages take packageMax at most, and
// hasDRAM reports whether memory counts by itself.
func (c *Config) Model(packageMax units.Power, hasDRAM bool) capping.Config {
	dc := c.Power.Floor.Watts()*c.Power.SupplyEfficiency - c.Power.Other.Watts()
	return capping.Config{
		Other: c.Power.Other, Efficiency: c.Power.SupplyEfficiency,
		// Half of what the floor leaves to packages and memory: less is never needed
		// for a cap that the node can hold, and would only starve it.
		PackageMin: units.FromWatts(dc / 2),
		PackageMax: packageMax,
		HasDRAM:    hasDRAM,
	}
}

// HintOf returns the way out that an error of this package has, "" for another error.
func HintOf(err error) string {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Hint
	}
	return ""
}

// Fights reports whether a value that another program has changed is written over now, where it
// does not hold the cap; last is when that was done last, 0 for never.
func (c *Config) Fights(now, last time.Duration) bool {
	switch c.Rivals {
	case RivalsFight:
		return true
	case RivalsYield:
		return false
	}
	return last == 0 || now-last >= tolerance
}

// tolerance is the interval at which a node overwrites another writer's change if it
// tolerates such changes.
const tolerance = 10 * time.Second

func badConfig(problem, hint string) error {
	return &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: problem, Hint: hint}
}
