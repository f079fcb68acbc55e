package record

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/internal/rpc"
	"headroom/internal/secure"
)

// Bounds of the flags.
const (
	intervalLeast = 100 * time.Millisecond
	lookWait      = 3 * time.Second
)

// options are the flags of `powerlab record`.
type options struct {
	addr     string
	files    secure.Files
	out      string
	length   time.Duration
	interval time.Duration
}

// NewCommand is `powerlab record`.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Plot power, containers and job progress of a running cluster",
		Long: `Reads a running cluster through its coordinators at a fixed interval and plots it: power under the
budget, the containers of each job, map tasks done or dropped, and each job's predicted end with and
without a cap. It changes nothing in the cluster. It stops after --for, or with Ctrl-C.

The plot is replaced atomically at each sample, so it can be opened at any time.`,
		Example: "  powerlab record --addr 127.0.0.1:7400 --out run.svg --for 60s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := o.open()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), w, cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.addr, "addr", os.Getenv("HEADROOM_ADDR"), "RPC addresses of servers, comma-separated (HEADROOM_ADDR)")
	f.StringVar(&o.files.CA, "ca", os.Getenv("HEADROOM_CA"), "CA certificate file of the cluster (HEADROOM_CA)")
	f.StringVar(&o.files.Cert, "cert", os.Getenv("HEADROOM_CERT"), "client certificate file (HEADROOM_CERT)")
	f.StringVar(&o.files.Key, "key", os.Getenv("HEADROOM_KEY"), "client key file (HEADROOM_KEY)")
	f.StringVar(&o.out, "out", "run.svg", "SVG file of the plot")
	f.DurationVar(&o.length, "for", 60*time.Second, "duration; 0: until Ctrl-C")
	f.DurationVar(&o.interval, "interval", time.Second, "time between samples")
	return cmd
}

// open checks the flags and returns the connection to the cluster.
func (o *options) open() (*window, error) {
	switch {
	case o.interval < intervalLeast:
		return nil, cli.Usage("--interval %v: must be at least %v", o.interval, intervalLeast)
	case o.length < 0:
		return nil, cli.Usage("--for %v: must be a duration, or 0 for no end", o.length)
	case o.out == "":
		return nil, cli.Usage("--out: file name is empty")
	}
	w := &window{peers: rpc.PlainPeers(), wait: lookWait}
	for a := range strings.FieldsFuncSeq(cmp.Or(strings.Trim(o.addr, ", "), "127.0.0.1:7400"), func(r rune) bool { return r == ',' || r == ' ' }) {
		w.addrs = append(w.addrs, a)
	}
	if o.files != (secure.Files{}) {
		k, err := secure.Open(o.files)
		if err != nil {
			return nil, &cli.Error{Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(), Hint: "set --ca, --cert and --key to three files; coordinator tls inspect shows what a file contains"}
		}
		w.peers = rpc.SecurePeers(k, secure.Server)
	}
	return w, nil
}

// looker sees a cluster.
type looker interface {
	look(ctx context.Context) (look, error)
}

// run looks and draws until its time is over. The first look must succeed; a later
// one that does not is a gap, logged once.
func (o *options) run(ctx context.Context, w looker, stderr io.Writer) error {
	began := time.Now()
	first, err := w.look(ctx)
	if err != nil {
		return rpc.AsCLI(err, "record", o.addr)
	}
	var looks []look
	keep := func(l look) error {
		looks = append(looks, l)
		picture, err := draw(looks)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return durable.Replace(durable.OS{}, o.out, picture, 0o644)
	}
	if err := keep(first); err != nil {
		return err
	}
	gap := false
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for o.length == 0 || time.Since(began) < o.length {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		at := time.Since(began)
		l, err := w.look(ctx)
		if err != nil && ctx.Err() == nil && !gap {
			cli.Notef(stderr, "%.0f s: no answer, retrying: %v\n", at.Seconds(), err)
		}
		if gap = err != nil; gap {
			l = look{}
		}
		if ctx.Err() != nil {
			return nil
		}
		l.at = at
		if err := keep(l); err != nil {
			return err
		}
	}
	cli.Notef(stderr, "%d samples in %s\n", len(looks), o.out)
	return nil
}
