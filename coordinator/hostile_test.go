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
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
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
func elsewhere() []string { return []string{"AgentService", "SchedulerService", "WorkerService"} }

// answered is what a handler made of a request.
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
		"node": by("node", "n01"), "observer": by("observer", "olga"), "operator": by("operator", "mia"), "admin": by("admin", "root"), "server": by("server", "c9"),
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
	)
	return map[string]string{
		"NodeService/Exchange": nodes, "NodeService/Release": nodes,
		"ClusterService/GetStatus": readers, "ClusterService/ListDomains": readers, "ClusterService/SetBudget": changers,
		"ClusterService/AwaitBudget": readers, "ClusterService/ListNodes": readers, "ClusterService/ListMembers": readers,
		"ClusterService/ListEvents": readers, "ClusterService/Change": changers, "ClusterService/Rollback": changers,
		"ClusterService/ListChanges": readers, "ClusterService/ListSchedules": readers, "ClusterService/ListSprints": readers,
		"ClusterService/ListPolicies": readers, "ClusterService/ExplainNode": readers, "ClusterService/ReportMeter": changers,
		"ClusterService/ListAlarms": readers, "ClusterService/ListTokens": admins, "ClusterService/GetSelf": readers,
		"DebugService/CollectBundle": admins,
		"JobService/CommitJob":       changers, "JobService/FinishJob": changers, "JobService/ListJobs": readers, "JobService/Direct": changers,
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
	c.addNodes(1)
	c.leader()
	c.allHeld(6 * time.Second)
	c.seated("c1")
	return c
}

func TestEveryMethodAndEveryRole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := founded(t).leader().server
		all, first := open(), map[string][]byte{ // a node and a server may speak for themselves only
			headroomv1connect.NodeServiceReleaseProcedure: body(headroomv1connect.NodeServiceReleaseProcedure, &headroomv1.ReleaseRequest{Node: "n01"}),
			headroomv1connect.MemberServiceLastWordsProcedure: body(headroomv1connect.MemberServiceLastWordsProcedure, &headroomv1.LastWordsRequest{Id: "c9"}),
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
		got := send(t.Context(), s, by("server", "c9"), nil, procedure, body(procedure, &headroomv1.LastWordsRequest{Id: "c1", Text: "my disk is gone"}))
		if got.code != "permission_denied" || len(s.keeper.words) != 0 {
			t.Errorf("%+v, kept %v", got, s.keeper.words)
		}
	})
}
