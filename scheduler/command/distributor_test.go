// Claim: the port of a distributor asks who is there: programs hand tasks over with the certificate of a scheduler, for themselves
// only; others are refused, and whoever shows none does not get in.

package command

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

func TestDistributorAsksForCertificates(t *testing.T) {
	t.Parallel()
	c, certs := newCluster(t, 1), testkit.NewCertificates(t)
	sched, own := certs.Files(secure.Scheduler, "s1"), certs.Files(secure.Scheduler, "d1")
	config := c.write("distributor.yaml", fmt.Sprintf("listen: 127.0.0.1:1\ndir: %s\ncoordinators: [\"127.0.0.1:1\"]\nclasses: [high]\ntls: {ca: %s, cert: %s, key: %s}\ndispatch: {groups: {rack/r1: [\"127.0.0.1:1\"]}}\n",
		filepath.Join(c.dir, "state"), sched.CA, sched.Cert, sched.Key))
	c.start(append([]string{"distributor", "--config", config, "--name", "d1", "--listen", c.address}, flagsOf(own)...)...)
	place := func(peers rpc.Peers, name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		st := headroomv1connect.NewMasterServiceClient(peers.HTTP(), peers.URL(c.address), peers.Options()...).Place(ctx)
		defer st.CloseResponse() //nolint:errcheck // only its answer counts
		_ = st.Send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Hello{Hello: &headroomv1.PlaceHello{Distributor: name, Incarnation: 1}}})
		_, err := st.Receive()
		return err
	}
	shown := func(role, name string) rpc.Peers {
		peers := rpc.SecurePeers(testkit.Need(secure.Open(certs.Files(role, name)))(t), secure.Scheduler)
		t.Cleanup(peers.Close)
		return peers
	}
	program := shown(secure.Scheduler, "program")
	testkit.Eventually(t, patience, "a program hands tasks over", func() bool { return place(program, "program") == nil })
	for name, err := range map[string]error{
		"as another program":         place(program, "other"),
		"a submitter":                place(shown(secure.Submitter, "mia"), "mia"),
		"a worker":                   place(shown(secure.Worker, "n01"), "n01"),
		"an administrator":           place(shown(secure.Admin, "ann"), "ann"),
		"without any certificate":    place(plain(t), "program"),
		"of an authority of its own": place(stranger(t, own.CA), "program"),
	} {
		if code := connect.CodeOf(err); err == nil || name != "without any certificate" && name != "of an authority of its own" && code != connect.CodePermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func plain(t *testing.T) rpc.Peers {
	t.Helper()
	peers := rpc.PlainPeers()
	t.Cleanup(peers.Close)
	return peers
}

// stranger shows a certificate of another authority and believes this one.
func stranger(t *testing.T, ca string) rpc.Peers {
	t.Helper()
	files := testkit.NewCertificates(t).Files(secure.Scheduler, "program")
	files.CA = ca
	peers := rpc.SecurePeers(testkit.Need(secure.Open(files))(t), secure.Scheduler)
	t.Cleanup(peers.Close)
	return peers
}
