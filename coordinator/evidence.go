package coordinator

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/ipmi"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// BMCConfig is how the BMCs of lost nodes are asked; one account for all of them,
// which needs no more than the privilege of a user.
type BMCConfig struct {
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

const (
	// bmcEvery is how often the BMCs of lost nodes are asked.
	bmcEvery = 15 * time.Second
	// bmcAtOnce bounds how many are asked at the same time.
	bmcAtOnce = 16
	// bmcWait bounds one question: a BMC that hangs answers nothing at all.
	bmcWait = 5 * time.Second
)

// witness asks the BMCs of lost nodes whether their machines are off, beside the
// desk. What is off is charged nothing; a BMC that does not answer tells nothing.
type witness struct {
	// off asks one BMC.
	off    func(ctx context.Context, address string) (bool, error)
	asking bool
	next   time.Duration // leader's monotonic time
}

// newWitness reads the account, and answers a witness that never asks without one.
func newWitness(c BMCConfig) (witness, error) {
	if c.User == "" {
		return witness{}, nil
	}
	text, err := config.ReadFile(c.PasswordFile, 4096)
	if err != nil {
		return witness{}, &cli.Error{
			Code: "bmc", Exit: cli.ExitUsage, Err: err, Message: "bmc: password_file: " + err.Error(),
			Hint: "put the password of the BMCs' account into a file with mode 0600, or leave bmc.user empty",
		}
	}
	password := strings.TrimRight(string(text), "\r\n")
	return witness{off: func(ctx context.Context, address string) (bool, error) {
		return ipmi.PoweredOff(ctx, ipmi.Config{Address: address, User: c.User, Password: password, Timeout: bmcWait})
	}}, nil
}

// askBMCs asks for evidence, when there are lost nodes and it is time.
func (d *desk) askBMCs(ctx context.Context) {
	w := &d.witness
	if w.off == nil || w.asking || d.now() < w.next {
		return
	}
	var lost map[string]string
	d.machine.View(func(s *ledger.State) { lost = d.lead.Suspects(s, d.moment()) })
	if len(lost) == 0 {
		return
	}
	w.asking = true
	go func() {
		off := w.ask(ctx, lost, d.logger)
		_ = d.post(ctx, func() { // a desk that has closed leaves it to the next leader
			w.asking, w.next = false, d.now()+bmcEvery
			d.step(ctx, func(s *ledger.State, now leader.Moment) []leader.Output { return d.lead.Evidence(s, now, off) })
		})
	}()
}

// ask asks every BMC, some at once, and answers the nodes that are off.
func (w *witness) ask(ctx context.Context, lost map[string]string, log *slog.Logger) []string {
	found := make(chan string)
	slots := make(chan struct{}, bmcAtOnce)
	for node, address := range lost {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			off, err := w.off(ctx, address)
			if err != nil {
				log.Debug("BMC of a lost node tells nothing", slog.String("node", node), slog.Any("error", err))
			}
			if !off {
				node = ""
			}
			found <- node
		}()
	}
	var out []string
	for range lost {
		if node := <-found; node != "" {
			out = append(out, node)
		}
	}
	return out
}
