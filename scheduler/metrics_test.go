package scheduler

// Claims: connections that strangers hold until they are turned out are counted for each
// port, and told to Prometheus; ports in the clear bound nobody and tell nothing.

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/listen"
	"headroom/internal/rpc"
	"headroom/internal/scrape"
	"headroom/internal/secure"
	"headroom/internal/testkit"
	"headroom/scheduler/hookserver"
)

func TestTurnedOutConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	open := func() net.Listener {
		l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	k := testkit.Need(secure.Open(testkit.NewCertificates(t).Files(secure.Scheduler, "s1")))(t)
	impatient := listen.New(open(), listen.Limits{Strangers: 4, All: 8, Turn: time.Minute, Patience: 20 * time.Millisecond})
	for range 3 { // they connect and say nothing
		c := testkit.Need(net.Dial("tcp", impatient.Addr().String()))(t)
		defer func() { _ = c.Close() }()
		if _, err := impatient.Accept(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("it stays")
		}
	}
	all := counts{map[string]net.Listener{
		portRPC: impatient, portYarn: hookserver.Secure(open(), k), portSpark: open(), "tls": rpc.SecureListener(open(), k),
	}, newTally(), func() []*headroomv1.DispatchGroup {
		return []*headroomv1.DispatchGroup{{Name: "rack/r1", Waiting: 7, Masters: []*headroomv1.DispatchMaster{{State: "active"}, {State: "lost"}}}}
	}, metricsTable().Descs()}
	served := open()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- scrape.Serve(ctx, served, scrape.Handler(scrape.Gatherer(all), slog.New(slog.DiscardHandler)))
	}()
	r := testkit.Need(http.Get("http://" + served.Addr().String() + scrape.Path))(t)
	text, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for line, there := range map[string]bool{
		`headroom_connections_turned_out_total{port="rpc"} 3`: true, `headroom_connections_turned_out_total{port="yarn-hooks"} 0`: true,
		`headroom_scheduler_group_tasks{group="rack/r1",state="waiting"} 7`: true, `headroom_scheduler_group_masters{group="rack/r1",state="standby"} 0`: true,
		`headroom_connections_turned_out_total{port="tls"} 0`: true, `port="spark-hooks"`: false,
	} {
		if strings.Contains(string(text), line) != there {
			t.Errorf("%s (want: %v) in\n%s", line, there, text)
		}
	}
}
