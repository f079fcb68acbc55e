// Claims: a server that takes connections and does not serve them, because it is
// stopped or cannot end, is one that cannot be reached: the next one is asked.
package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"headroom/internal/cli"
)

func TestTakenButNotServed(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Listener){
		"stopped": func(net.Listener) {}, // the kernel takes the connection
		"hangs up": func(l net.Listener) {
			if c, err := l.Accept(); err == nil {
				_ = c.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() { defer close(done); serve(l) }()
			defer func() { _ = l.Close(); <-done }()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			var asked []string
			at, err := ToLeader(t.Context(), []string{l.Addr().String(), "leader"}, time.Minute, func(addr string) error {
				if asked = append(asked, addr); addr == "leader" {
					return nil
				}
				_, err := dialer{dial: (&net.Dialer{}).DialContext, config: &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "c1"}}.tls(ctx, "tcp", addr)
				if e := AsCLI(err, "node release", addr); e == nil || e.Exit != cli.ExitUnreachable {
					t.Errorf("%v from %v", e, err)
				}
				return err
			})
			if err != nil || at != "leader" || len(asked) != 2 {
				t.Errorf("asked %v: %v", asked, err)
			}
		})
	}
}
