// Claims: every method of every service is open to those who may use it and to
// nobody else, and a method that nobody has thought of fails this test before it
// is open to anyone; whatever is sent to a method, by whomever, nothing ends the
// server, nothing is changed by who may not change it, the answer says what was
// wrong, and neither time nor memory grows without bound.
package coordinator

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/access"
	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

// methods are all methods of the contract, by procedure ("/headroom.v1.Service/Method").
func methods() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("headroom.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				out[fmt.Sprintf("/%s/%s", s.FullName(), m.Name())] = m
			}
		}
		return true
	})
	return out
}

// served are the methods of the services that a coordinator offers, sorted.
func served() []string {
	var out []string
	for procedure := range methods() {
		service, _, _ := strings.Cut(strings.TrimPrefix(procedure, "/headroom.v1."), "/")
		if !slices.Contains(elsewhere(), service) {
			out = append(out, procedure)
		}
	}
	slices.Sort(out)
	return out
}

// elsewhere are the services that other programs offer.
func elsewhere() []string {
	return []string{"AgentService", "SchedulerService", "WorkerService", "MasterService", "SlotService"}
}

// outcome is what a handler made of a request.
type outcome struct {
	status int
	code   string // Connect's code; empty where there is no error
	text   string
}

// send puts a body to a method of a server, as who.
func send(ctx context.Context, s *server, who rpc.Caller, header http.Header, procedure string, body []byte) outcome {
	m := methods()[procedure]
	stream := m.IsStreamingClient() || m.IsStreamingServer()
	kind := "application/proto"
	if stream {
		kind = "application/connect+proto"
	}
	r := httptest.NewRequestWithContext(rpc.WithCaller(ctx, who), http.MethodPost, "http://c1"+procedure, bytes.NewReader(body))
	maps.Copy(r.Header, header)
	r.Header.Set("Content-Type", kind)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return read(w, stream)
}

// read is what a handler has answered.
func read(w *httptest.ResponseRecorder, stream bool) outcome {
	out := outcome{status: w.Code}
	said := w.Body.Bytes()
	if stream {
		said = trailer(said)
	}
	var e struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Error   *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if (stream || w.Code != http.StatusOK) && json.Unmarshal(said, &e) == nil {
		out.code, out.text = e.Code, e.Message
		if e.Error != nil {
			out.code, out.text = e.Error.Code, e.Error.Message
		}
	}
	return out
}

// trailer is the end of a stream of envelopes.
func trailer(data []byte) []byte {
	for len(data) >= 5 {
		n := int(binary.BigEndian.Uint32(data[1:]))
		if data[0]&2 != 0 {
			return data[5 : 5+n]
		}
		data = data[5+n:]
	}
	return nil
}

// enveloped is a message as a stream carries it.
func enveloped(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// body is a message as the method takes it.
func body(procedure string, messages ...proto.Message) []byte {
	m := methods()[procedure]
	var out []byte
	for _, x := range messages {
		data, err := proto.MarshalOptions{AllowPartial: true}.Marshal(x)
		if err != nil {
			panic(err)
		}
		if m.IsStreamingClient() || m.IsStreamingServer() {
			data = enveloped(data)
		}
		out = append(out, data...)
	}
	return out
}

// strangers are callers of every role, and of none.
func strangers() map[string]rpc.Caller {
	return map[string]rpc.Caller{
		"nobody": {}, "another user": {Local: true, UID: 65534},
		"node": shown("node", "n01"), "observer": shown("observer", "olga"), "operator": shown("operator", "mia"), "admin": shown("admin", "root"), "server": shown("server", "c1"),
		"scheduler": shown("scheduler", "s1"), "master": shown("master", "m1"), "worker": shown("worker", "n01"), "submitter": shown("submitter", "mia"),
	}
}

// open are the roles that each method is open to. Everybody who adds a method
// says here whom it is for.
func open() map[string]string {
	const (
		nodes    = "node admin"
		readers  = "observer operator admin server"
		changers = "operator admin server"
		admins   = "admin"
		servers  = "admin server"
		jobs     = changers + " scheduler"
		known    = "node scheduler master worker submitter " + readers
	)
	return map[string]string{
		"NodeService/Exchange": nodes, "NodeService/Release": nodes,
		"ClusterService/GetStatus": readers, "ClusterService/ListDomains": "node " + readers, "ClusterService/SetBudget": changers,
		"ClusterService/AwaitBudget": readers, "ClusterService/ListNodes": readers + " master", "ClusterService/ListMembers": readers,
		"ClusterService/ListEvents": readers, "ClusterService/Change": changers, "ClusterService/Rollback": changers,
		"ClusterService/ListChanges": readers, "ClusterService/ListSchedules": readers, "ClusterService/ListSprints": readers,
		"ClusterService/ListPolicies": readers, "ClusterService/ExplainNode": readers, "ClusterService/ReportMeter": changers,
		"ClusterService/ListAlarms": readers, "ClusterService/ListTokens": admins, "ClusterService/GetSelf": readers,
		"ClusterService/ListDenied": known,
		"BrakeService/SetBrake":     changers, "BrakeService/LiftBrake": changers, "BrakeService/SkipBrake": changers, "BrakeService/AwaitBrake": readers, "BrakeService/GetBrake": readers,
		"DebugService/CollectBundle": admins, "DebugService/CollectTrace": admins,
		"JobService/CommitJob": jobs, "JobService/FinishJob": jobs, "JobService/DropTasks": jobs, "JobService/DeflateJob": jobs,
		"JobService/HoldScheduler": admins + " scheduler",
		"JobService/ListJobs":      readers + " scheduler", "JobService/ExplainJob": readers + " scheduler", "JobService/Direct": jobs,
		"MemberService/DescribeServer": readers, "MemberService/GetMemberHealth": readers, "MemberService/AddMember": admins,
		"MemberService/PromoteMember": admins, "MemberService/RemoveMember": admins, "MemberService/TransferLead": admins,
		"MemberService/SaveSnapshot": admins, "MemberService/LastWords": servers,
	}
}

func short(procedure string) string { return strings.TrimPrefix(procedure, "/headroom.v1.") }

// founded is a group of one server with one node that holds a lease.
func founded(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 1, 700*units.Watt)
	private, keys, err := brake.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c.server("c1").brakes.Use(keys, &private, func([]byte) error { return nil })
	c.addNodes(1)
	c.leader()
	c.allHeld(6 * time.Second)
	c.seated("c1")
	c.watch.end() // what is sent here may break what the judge takes for granted of its nodes
	return c
}

func TestEveryMethodAndEveryRole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		all, first := open(), map[string][]byte{ // a node and a server may speak for themselves only
			headroomv1connect.NodeServiceReleaseProcedure:     body(headroomv1connect.NodeServiceReleaseProcedure, &headroomv1.ReleaseRequest{Node: "n01"}),
			headroomv1connect.MemberServiceLastWordsProcedure: body(headroomv1connect.MemberServiceLastWordsProcedure, &headroomv1.LastWordsRequest{Id: "c1"}),
		}
		for _, procedure := range served() {
			roles, ok := all[short(procedure)]
			if !ok {
				t.Errorf("%s: whom is it open to? say so in open()", short(procedure))
			}
			delete(all, short(procedure))
			for role, who := range strangers() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				got := send(ctx, s, who, nil, procedure, first[procedure])
				cancel()
				want := slices.Contains(strings.Fields(roles), role)
				if let := got.code != "permission_denied" && got.code != "unauthenticated"; let != want || got.status == http.StatusNotFound && got.code == "" {
					t.Errorf("%s as %s: %+v", short(procedure), role, got)
				}
			}
		}
		for name := range all {
			t.Errorf("%s is no method", name)
		}
	})
}

// A server tells the end of no other.
func TestLastWordsOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		const procedure = headroomv1connect.MemberServiceLastWordsProcedure
		got := send(t.Context(), s, shown("server", "c9"), nil, procedure, body(procedure, &headroomv1.LastWordsRequest{Id: "c1", Text: "my disk is gone"}))
		if got.code != "permission_denied" || strings.Contains(s.lines.Text(), "ended itself") {
			t.Errorf("%+v, in the log: %s", got, s.lines.Text())
		}
	})
}

// What nobody sends who means well is refused with the bound, and leaves nothing behind.
func TestRequestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		long := strings.Repeat("x", access.LongestText+1)
		nan := math.NaN()
		for name, c := range map[string]struct {
			procedure string
			m         proto.Message
			code, say string
		}{
			"a reason without end": {
				headroomv1connect.ClusterServiceSetBudgetProcedure,
				&headroomv1.SetBudgetRequest{BudgetUw: 600e6, Change: &headroomv1.Change{Reason: long}}, "invalid_argument", "reason has 16385 bytes, the maximum is 16384",
			},
			"a name in a list": {
				headroomv1connect.ClusterServiceChangeProcedure,
				&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_GrantSprint{GrantSprint: &headroomv1.GrantSprint{Nodes: []string{"n01", long}}}}, "invalid_argument", "nodes has",
			},
			"a label": {
				headroomv1connect.ClusterServiceChangeProcedure,
				&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetNode{SetNode: &headroomv1.SetNode{Settings: &headroomv1.NodeSettings{Labels: map[string]string{"a": long}}}}},
				"invalid_argument", "value has",
			},
			"more nodes than there can be": {
				headroomv1connect.ClusterServiceChangeProcedure,
				&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_GrantSprint{GrantSprint: &headroomv1.GrantSprint{Nodes: make([]string, access.MostItems+1)}}},
				"invalid_argument", "nodes has 20001 entries, the maximum is 20000",
			},
			"a margin that is no number": {
				headroomv1connect.ClusterServiceChangeProcedure,
				&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetDomain{SetDomain: &headroomv1.SetDomain{Name: "rack/r1", Margin: &nan}}}, "invalid_argument", "margin is NaN",
			},
			"a request too big": {
				headroomv1connect.JobServiceCommitJobProcedure,
				&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "j1", Spec: make([]byte, access.LongestRequest+1)}}, "resource_exhausted", "larger than configured max",
			},
			"a job's file too big": {
				headroomv1connect.JobServiceCommitJobProcedure,
				&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "j1", Spec: make([]byte, ledger.MaxJobSpec+1)}}, "invalid_argument", "spec has 65537 bytes",
			},
			"a report too big": {
				headroomv1connect.NodeServiceExchangeProcedure,
				&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Hello{Hello: &headroomv1.Hello{Node: strings.Repeat("n", access.LongestReport)}}}, "resource_exhausted", "larger than configured max",
			},
		} {
			_, before := stateOf(t, s)
			got := send(t.Context(), s, shown("admin", "root"), nil, c.procedure, body(c.procedure, c.m))
			if got.code != c.code || !strings.Contains(got.text, c.say) {
				t.Errorf("%s: %.300v", name, got)
			}
			if _, after := stateOf(t, s); string(before) != string(after) {
				t.Errorf("%s changed something", name)
			}
		}
	})
}

// Jobs that nobody finishes do not fill the log.
func TestJobsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		s.machine.Edit(func(st *ledger.State) {
			for i := range 10_500 { // as many as the log keeps, ended ones included
				id := fmt.Sprint("j", i)
				st.Jobs[id] = ledger.Job{ID: id, State: ledger.JobAccepted}
			}
		})
		for id, want := range map[string]string{"one more": "resource_exhausted", "j7": ""} {
			p := headroomv1connect.JobServiceCommitJobProcedure
			if got := send(t.Context(), s, shown("operator", "mia"), nil, p, body(p, &headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: id}})); got.code != want {
				t.Errorf("%s: %+v", id, got)
			}
		}
	})
}

// talk opens a stream that stays open: say sends a message on it, and done tells
// how it ended.
func talk(ctx context.Context, s *server, who rpc.Caller, header http.Header, procedure string) (say func(proto.Message), done chan outcome) {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) }) // as a connection that is gone
	done = make(chan outcome, 1)
	go func() {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(rpc.WithCaller(ctx, who), http.MethodPost, "http://c1"+procedure, in)
		maps.Copy(r.Header, header)
		r.Header.Set("Content-Type", "application/connect+proto")
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		s.handler().ServeHTTP(w, r)
		_ = in.Close()
		done <- read(w, true)
	}()
	return func(m proto.Message) { _, _ = out.Write(body(procedure, m)) }, done
}

// A stream ends with what let its caller in: a token that is revoked or ends, a
// certificate that ends. It is not let in anew either.
func TestStreamsEndWithTheirKey(t *testing.T) {
	const procedure = headroomv1connect.JobServiceDirectProcedure
	hello := &headroomv1.SchedulerMessage{Message: &headroomv1.SchedulerMessage_Hello{Hello: &headroomv1.SchedulerHello{Id: "s1"}}}
	for name, c := range map[string]struct {
		ends   time.Duration // of the token or the certificate; 0: never
		cert   bool
		revoke bool
	}{
		"a revoked token": {revoke: true}, "an old token": {ends: time.Minute}, "an old certificate": {ends: time.Minute, cert: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := founded(t).leader().server
				token := &headroomv1.Token{Id: "t1", Name: "sched", Role: "operator", Hash: ledger.TokenHash("secret")}
				who, header := rpc.Caller{}, http.Header{"Authorization": {"Bearer t1.secret"}}
				if c.ends > 0 {
					token.ExpiresUs = time.Now().Add(c.ends).UnixMicro()
				}
				if c.cert {
					who, header = shown("operator", "sched"), nil
					who.Ends = time.Now().Add(c.ends)
				}
				operate := func(r *headroomv1.ChangeRequest) {
					if _, err := (clusterService{s}).Change(t.Context(), connect.NewRequest(r)); err != nil {
						t.Fatal(err)
					}
				}
				operate(&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_CreateToken{CreateToken: token}})
				say, done := talk(t.Context(), s, who, header, procedure)
				say(hello)
				time.Sleep(30 * time.Second)
				say(hello)
				synctest.Wait()
				if len(done) > 0 {
					t.Fatalf("it ended before: %+v", <-done)
				}
				if c.revoke {
					operate(&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_RevokeToken{RevokeToken: "t1"}})
				}
				time.Sleep(time.Minute)
				say(hello)
				if got := <-done; got.code != "unauthenticated" {
					t.Errorf("the stream ended with %+v", got)
				}
				if got := send(t.Context(), s, who, header, procedure, body(procedure, hello)); got.code != "unauthenticated" {
					t.Errorf("the next one: %+v", got)
				}
			})
		})
	}
}

// One caller holds no more streams open than it may, whoever else holds some.
func TestStreamsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		const procedure = headroomv1connect.JobServiceDirectProcedure
		ctx, cancel := context.WithCancel(t.Context())
		hello := &headroomv1.SchedulerMessage{Message: &headroomv1.SchedulerMessage_Hello{Hello: &headroomv1.SchedulerHello{Id: "s1"}}}
		var all []chan outcome
		for range access.StreamsPerCaller {
			say, done := talk(ctx, s, shown("operator", "greedy"), nil, procedure)
			say(hello)
			all = append(all, done)
		}
		synctest.Wait()
		if got := send(t.Context(), s, shown("operator", "greedy"), nil, procedure, body(procedure, hello)); got.code != "resource_exhausted" {
			t.Errorf("one more: %+v", got)
		}
		if got := send(t.Context(), s, shown("operator", "mia"), nil, procedure, body(procedure, hello)); got.code != "" {
			t.Errorf("another: %+v", got)
		}
		cancel()
		for _, done := range all {
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("a stream outlives its context")
			}
		}
		if got := send(t.Context(), s, shown("operator", "greedy"), nil, procedure, body(procedure, hello)); got.code != "" || s.guard.Open() != 0 {
			t.Errorf("afterwards: %+v, open %v", got, s.guard.Open())
		}
	})
}

// A node that says it was granted by a leadership that cannot be is not listened
// to: a restored group would try for ever to come after it.
func TestImpossibleLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		s.machine.Edit(func(st *ledger.State) { st.Restored = true })
		const procedure = headroomv1connect.NodeServiceExchangeProcedure
		say, done := talk(t.Context(), s, shown("node", "n02"), nil, procedure)
		say(&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Hello{Hello: declared("n02")}})
		say(&headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: &headroomv1.Heartbeat{
			Number: 1, Highest: &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: math.MaxUint64, Term: 1}},
		}}})
		if got := <-done; got.code != "invalid_argument" {
			t.Errorf("%+v", got)
		}
		before, _ := stateOf(t, s)
		time.Sleep(20 * time.Second)
		if after, _ := stateOf(t, s); after.Epoch != before.Epoch || after.Restored || !s.requests.leads() {
			t.Errorf("epoch %v to %v, restored %v", before.Epoch, after.Epoch, after.Restored)
		}
	})
}

// Who asks without end is told to wait, and lets others in.
func TestCallsArePaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		const procedure = headroomv1connect.ClusterServiceGetSelfProcedure
		for i := range access.CallBurst + 1 {
			want := map[bool]string{true: "", false: "resource_exhausted"}[i < access.CallBurst]
			if got := send(t.Context(), s, shown("observer", "loop"), nil, procedure, nil); got.code != want {
				t.Fatalf("call %d: %+v", i, got)
			}
		}
		if got := send(t.Context(), s, shown("observer", "mia"), nil, procedure, nil); got.code != "" {
			t.Errorf("another: %+v", got)
		}
	})
}

// A node's certificate lets in as that node, and as no other: neither on a stream
// nor for a release, and what it says of another leaves no trace.
func TestCertificateOfAnotherNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		thief := shown("node", "n02")
		exchange, release := headroomv1connect.NodeServiceExchangeProcedure, headroomv1connect.NodeServiceReleaseProcedure
		_, before := stateOf(t, s)
		hello := &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Hello{Hello: declared("n01")}}
		beat := &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Heartbeat{Heartbeat: &headroomv1.Heartbeat{Number: math.MaxUint64}}}
		for name, got := range map[string]outcome{
			"stream":  send(t.Context(), s, thief, nil, exchange, body(exchange, hello, beat)),
			"release": send(t.Context(), s, thief, nil, release, body(release, &headroomv1.ReleaseRequest{Node: "n01", MachineId: "machine-n01"})),
		} {
			if got.code != "permission_denied" || !strings.Contains(got.text, "the certificate names n02, the report names n01") {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if _, after := stateOf(t, s); string(before) != string(after) {
			t.Errorf("it changed\n%s\nto\n%s", before, after)
		}
	})
}

// Budgets that cannot be met are refused with the numbers, or force them and an
// alarm names what is missing; they come into force nowhere by mistake.
func TestBudgetsThatCannotBeMet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(4) // fail-safe 80 W each, 40 W unmanaged: 360 W at least
		c.leader()
		c.allHeld(10 * time.Second)
		ask := func(r *headroomv1.SetBudgetRequest) error {
			_, err := (clusterService{c.leader().server}).SetBudget(t.Context(), connect.NewRequest(r))
			return err
		}
		add := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetDomain{SetDomain: &headroomv1.SetDomain{
			Name: "rack/r2", Parent: "site/lab", BudgetUw: int64(701 * units.Watt),
		}}}
		_, added := (clusterService{c.leader().server}).Change(t.Context(), connect.NewRequest(add))
		for name, x := range map[string]struct {
			err  error
			says []string
		}{
			"below the floor":  {ask(&headroomv1.SetBudgetRequest{BudgetUw: int64(300 * units.Watt)}), []string{"300.0 W", "360.0 W"}},
			"above the parent": {ask(&headroomv1.SetBudgetRequest{Domain: "rack/r1", BudgetUw: int64(800 * units.Watt)}), []string{"800.0 W", "700.0 W", "site/lab"}},
			"a new one above":  {added, []string{"701.0 W", "700.0 W"}},
		} {
			e := rpc.AsCLI(x.err, "test", "addr")
			if e == nil || e.Exit != cli.ExitRefused || e.Hint == "" {
				t.Errorf("%s: %+v", name, e)
				continue
			}
			for _, text := range x.says {
				if !strings.Contains(e.Message, text) {
					t.Errorf("%s: no %q in %q", name, text, e.Message)
				}
			}
		}
		if s := c.newest(); s.Domains["site/lab"].Budget != 700*units.Watt || s.Domains["rack/r1"].Budget != 700*units.Watt || len(s.Domains) != 2 {
			t.Errorf("something came into force: %+v", s.Domains)
		}
		c.watch.end() // the judge knows of no budget below the floor
		if err := ask(&headroomv1.SetBudgetRequest{BudgetUw: int64(300 * units.Watt), Force: true}); err != nil {
			t.Fatal(err)
		}
		c.until("every node is at its fail-safe cap", 5*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.look().effective > 80*units.Watt })
		})
		time.Sleep(3 * time.Second)
		if text := c.alarmed("shortfall"); !strings.Contains(text, "60.0 W short") || !strings.Contains(text, "budget 300.0 W") {
			t.Errorf("alarm %q", text)
		}
	})
}
