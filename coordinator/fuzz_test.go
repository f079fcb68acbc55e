package coordinator

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/leading"
	"headroom/ledger"
)

// nonsense makes messages of any kind: names that exist, and names that do not,
// numbers at every edge, texts of every length.
type nonsense struct{ *rand.Rand }

func (n nonsense) text() string {
	if n.IntN(40) == 0 {
		return strings.Repeat("headroom ", 1<<n.IntN(17))
	}
	words := []string{
		"", "n01", "n02", "site/lab", "rack/r1", "rack/r2", "c1", "c9", "rpc-c1", "t1", "j1", "s1", "node", "observer", "operator", "admin", "demand", "equal",
		"min", "labels", "fail-safe", "machine-n01", "boot-n01", "node-lost/n01", "* * * * *", "0 0 30 2 *", "UTC", "Europe/Berlin", "../../etc/passwd", "a\nb", "\x00", "ü", "-1",
		strings.Repeat("ab", 32),
	}
	return words[n.IntN(len(words))]
}

// fitting are values that make sense for a field, by the end of its name: most
// messages are to get past the first check.
func fitting() map[string][]string {
	return map[string][]string{
		"node": {"n01"}, "nodes": {"n01"}, "domain": {"rack/r1", "site/lab"}, "to": {"rack/r1", "site/lab"}, "parent": {"site/lab", "rack/r1"},
		"cron": {"* * * * *", "0 0 30 2 *", "@every 1s"}, "zone": {"UTC", "Europe/Berlin"}, "role": {"node", "admin"}, "hash": {strings.Repeat("ab", 32)},
		"policy": {"demand", "equal", "progress", "weighted"}, "id": {"c1", "j1", "s1", "t1"}, "machine_id": {"machine-n01"}, "clear": {"min", "labels"},
		"sprint": {"s1"}, "schedule": {"sch1"}, "name": {"rack/r2", "sch1", "t1"}, "lost_charge": {"rated", "fail-safe"}, "token": {"t1"}, "alarm": {"node-lost/n01"},
	}
}

func (n nonsense) textFor(f protoreflect.FieldDescriptor) string {
	name := string(f.Name())
	for end, values := range fitting() {
		if (name == end || strings.HasSuffix(name, "_"+end)) && n.IntN(4) > 0 {
			return values[n.IntN(len(values))]
		}
	}
	return n.text()
}

func (n nonsense) numberFor(f protoreflect.FieldDescriptor) int64 {
	switch name := string(f.Name()); {
	case n.IntN(4) == 0:
	case strings.HasSuffix(name, "_uw"):
		return []int64{1, 60e6, 80e6, 200e6, 250e6, 600e6, 700e6}[n.IntN(7)]
	case strings.HasSuffix(name, "_uj"):
		return []int64{1e6, 1e9, 1e12}[n.IntN(3)]
	case strings.HasSuffix(name, "_ms"):
		return []int64{1, 1000, 60_000}[n.IntN(3)]
	case name == "number", name == "process_id", name == "seq":
		return n.Int64N(2000)
	}
	return n.number()
}

func (n nonsense) number() int64 {
	edges := []int64{0, 1, -1, 2, 1000, 80e6, 200e6, 700e6, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, time.Now().UnixMicro(), time.Now().Add(time.Hour).UnixMicro()}
	if n.IntN(4) == 0 {
		return n.Int64N(1e9)
	}
	return edges[n.IntN(len(edges))]
}

func (n nonsense) realFor(f protoreflect.FieldDescriptor) float64 {
	switch name := string(f.Name()); {
	case n.IntN(4) == 0:
	case name == "theta":
		return []float64{0.1, 0.2, 0.5}[n.IntN(3)]
	case name == "floor":
		return []float64{0.25, 0.5, 1}[n.IntN(3)]
	case name == "deadline_s", name == "runtime_s":
		return []float64{0.5, 60, 3600}[n.IntN(3)]
	}
	return n.real()
}

func (n nonsense) real() float64 {
	edges := []float64{0, 1, -1, 0.5, 1e300, -1e300, math.Inf(1), math.Inf(-1), math.NaN(), math.SmallestNonzeroFloat64}
	return edges[n.IntN(len(edges))]
}

// Message fills a message in, nested at most depth deep.
func (n nonsense) message(d protoreflect.MessageDescriptor, depth int) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	m := t.New()
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		rare := f.Name() == "check_revision" || f.Name() == "dry_run"
		if n.IntN(4) == 0 || rare && n.IntN(4) > 0 || f.Message() != nil && depth == 0 {
			continue
		}
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() && one.Fields().Get(n.IntN(one.Fields().Len())) != f && m.WhichOneof(one) != nil {
			continue
		}
		switch {
		case f.IsMap():
			for range n.IntN(4) {
				m.Mutable(f).Map().Set(n.value(m, f.MapKey(), depth).MapKey(), n.value(m, f.MapValue(), depth))
			}
		case f.IsList():
			for range n.IntN(4) {
				m.Mutable(f).List().Append(n.value(m, f, depth))
			}
		default:
			m.Set(f, n.value(m, f, depth))
		}
	}
	return m.Interface()
}

func (n nonsense) value(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n.IntN(2) == 0)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(n.textFor(f))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(n.text()))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n.IntN(8) - 1))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n.numberFor(f)))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n.numberFor(f)))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n.numberFor(f))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n.numberFor(f)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n.real()))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(n.realFor(f))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return protoreflect.ValueOfMessage(n.message(f.Message(), depth-1).ProtoReflect())
	}
	panic("a kind of field that is not known: " + f.Kind().String() + " in " + string(m.Descriptor().FullName()))
}

// call makes one call that is allowed to be anything.
func (n nonsense) call(procedure string) []byte {
	m := methods()[procedure]
	messages := []proto.Message{n.message(m.Input(), 4)}
	if m.IsStreamingClient() {
		for range n.IntN(4) {
			messages = append(messages, n.message(m.Input(), 4))
		}
		if n.IntN(3) > 0 { // as one that gets past the first message
			messages[0] = n.opening(procedure)
		}
	}
	return body(procedure, messages...)
}

// opening is a first message of a stream that is as it should be.
func (n nonsense) opening(procedure string) proto.Message {
	if strings.Contains(procedure, "NodeService") {
		h := declared([]string{"n01", "n02", "n03"}[n.IntN(3)])
		return &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Hello{Hello: h}}
	}
	return &headroomv1.SchedulerMessage{Message: &headroomv1.SchedulerMessage_Hello{Hello: &headroomv1.SchedulerHello{Id: "s1"}}}
}

// aboutJobs is a method that takes a job through its life, or tells of it.
func (n nonsense) aboutJobs() string {
	return []string{
		headroomv1connect.JobServiceCommitJobProcedure, headroomv1connect.JobServiceDeflateJobProcedure,
		headroomv1connect.JobServiceFinishJobProcedure, headroomv1connect.JobServiceExplainJobProcedure,
	}[n.IntN(4)]
}

const (
	// longestCall is how long a call may take: longer than the deadline of an entry; what waits on request waits a minute.
	longestCall, longestWait = 6 * time.Second, time.Minute + time.Second
	// mostKept is how much one call may add to the state, bytes: a job's file as the snapshot has it, and what names it.
	mostKept = 256 << 10
)

// stateOf is what only commands change; ticks that find nothing to do leave it alone.
func stateOf(t *testing.T, s *server) (st ledger.State, data []byte) {
	t.Helper()
	s.machine.View(func(now *ledger.State) { st = *now.Clone() })
	st.Elapsed = 0
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return st, data
}

// tried makes a call and holds what comes of it against the claims.
func tried(t *testing.T, s *server, role, procedure string, body []byte) {
	t.Helper()
	before, was := stateOf(t, s)
	began := time.Now()
	got := send(t.Context(), s, strangers()[role], http.Header{}, procedure, body)
	took := time.Since(began)
	after, is := stateOf(t, s)
	var err error
	if n := len(after.Events); got.code == "permission_denied" && n > len(before.Events) && strings.HasPrefix(after.Events[n-1].What, "refused: ") {
		after.Events, after.Revision = after.Events[:n-1], after.Revision-1 // the one line about a refused call is all that it may leave
		if is, err = json.Marshal(after); err != nil {
			t.Fatal(err)
		}
	}

	limit := longestCall
	if strings.Contains(procedure, "/Await") {
		limit = longestWait
	}
	if took > limit {
		t.Errorf("%s as %s took %v", procedure, role, took)
	}
	if slices.Contains([]string{"internal", "unknown", "data_loss"}, got.code) || got.status >= 500 && got.code == "" {
		t.Errorf("%s as %s: %+v", procedure, role, got)
	}
	if len(is) > len(was)+mostKept {
		t.Errorf("%s as %s: the state grew from %d to %d bytes", procedure, role, len(was), len(is))
	}
	roles := strings.Fields(open()[short(procedure)])
	changes := slices.Contains(roles, role) && role != "observer" && role != "node" || role == "node" && strings.HasPrefix(short(procedure), "NodeService")
	if !changes && took == 0 && string(was) != string(is) {
		t.Errorf("%s as %s changed\n%s\nto\n%s", procedure, role, was, is)
	}
	if role != "admin" && (!equalJSON(before.Tokens, after.Tokens) || !equalJSON(before.Servers, after.Servers)) {
		t.Errorf("%s as %s changed tokens or servers: %v, %v", procedure, role, after.Tokens, after.Servers)
	}
	if role == "node" {
		for name, n := range before.Nodes {
			if now := after.Nodes[name]; name != "n01" && took == 0 && !equalJSON(n, now) {
				t.Errorf("%s as n01 changed %s: %+v to %+v", procedure, name, n, now)
			}
		}
	}
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// roles are those that the fuzz targets call as, in an order that stays.
func roles() []string {
	return []string{"nobody", "another user", "node", "observer", "operator", "admin", "server"}
}

// FuzzBytes sends any bytes to any method, as anybody.
func FuzzBytes(f *testing.F) {
	all, admin := served(), slices.Index(roles(), "admin")
	for i, procedure := range all {
		n := nonsense{rand.New(rand.NewPCG(1, uint64(i)))}
		f.Add(uint8(i), uint8(i), n.call(procedure))
		f.Add(uint8(i), uint8(admin), n.call(procedure))
		f.Add(uint8(i), uint8(admin), [][]byte{{0, 0, 0, 0, 1, 0xff}, {0xff, 0xff, 0xff, 0xff, 0xff}, {2, 0, 0, 0, 2, '{', '}'}}[i%3])
	}
	f.Fuzz(func(t *testing.T, method, role uint8, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := founded(t).leader().server
			tried(t, s, roles()[int(role)%len(roles())], all[int(method)%len(all)], body)
		})
	})
}

// jobsOf makes calls about jobs with messages of any contents, holds what the log keeps against what was promised, and tells
// how many jobs run on a part of their tasks, and how many have ended.
func jobsOf(t *testing.T, seed uint64) (deflated, ended int) {
	c := founded(t)
	n := nonsense{rand.New(rand.NewPCG(3, seed))}
	half := &headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "j1", Floor: 0.5}}
	tried(t, c.leader().server, "operator", headroomv1connect.JobServiceCommitJobProcedure, body(headroomv1connect.JobServiceCommitJobProcedure, half))
	for range 30 {
		procedure := n.aboutJobs()
		tried(t, c.leader().server, "operator", procedure, n.call(procedure))
	}
	c.leader().machine.View(func(s *ledger.State) {
		for _, j := range s.Jobs {
			if x := j.Deflation; x != nil {
				deflated++
				if x.Theta > ledger.MostTheta(j.Floor)+1e-9 {
					t.Errorf("job %q runs with a drop ratio of %v, its floor is %v", j.ID, x.Theta, j.Floor)
				}
			}
			if j.State != ledger.JobAccepted {
				ended++
			}
		}
	})
	time.Sleep(2 * lookEvery) // the job loop looks at them
	if _, err := (clusterService{c.leader().server}).requests.read(context.Background(), false, func(*ledger.State, *leading.Known) {}); err != nil {
		t.Errorf("the server answers no more: %v", err)
	}
	return deflated, ended
}

// FuzzJobs takes jobs through their lives with messages of any contents: no drop ratio is beyond a floor.
func FuzzJobs(f *testing.F) {
	for i := range uint64(12) {
		f.Add(i)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { jobsOf(t, seed) })
	})
}

// What FuzzJobs sends is not all refused at the door: jobs are deflated and end.
func TestNonsenseReachesJobs(t *testing.T) {
	deflated, ended := 0, 0
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			d, e := jobsOf(t, seed)
			deflated, ended = deflated+d, ended+e
		})
	}
	if deflated == 0 || ended == 0 {
		t.Errorf("%d jobs were deflated, %d ended", deflated, ended)
	}
}

// FuzzMessages makes a few calls with messages of any contents, each as anybody,
// and looks in the end whether the server still does its work.
func FuzzMessages(f *testing.F) {
	all := served()
	for i := range uint64(60) {
		f.Add(i)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			c := founded(t)
			n := nonsense{rand.New(rand.NewPCG(2, seed))}
			for range 6 {
				time.Sleep(time.Duration(n.IntN(2000)) * time.Millisecond)
				procedure, role := all[n.IntN(len(all))], roles()[n.IntN(len(roles()))]
				switch n.IntN(6) {
				case 0, 1: // most of what can be changed stands in one method
					procedure, role = headroomv1connect.ClusterServiceChangeProcedure, "admin"
				case 2:
					procedure, role = n.aboutJobs(), "operator"
				}
				tried(t, c.leader().server, role, procedure, n.call(procedure))
			}
			time.Sleep(3 * time.Second)
			before := c.newest().Elapsed
			time.Sleep(3 * time.Second)
			if c.newest().Elapsed == before {
				t.Error("the server ticks no more")
			}
			if _, err := (clusterService{c.leader().server}).requests.read(context.Background(), false, func(*ledger.State, *leading.Known) {}); err != nil {
				t.Errorf("the server answers no more: %v", err)
			}
		})
	})
}
