// Claims: docs/api.md has every call of the JSON API with the roles that may make it, and
// api/openapi.yaml has every call and every field of the messages, as the proto files have them.
package headroom_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	coordinator "headroom/coordinator/access"
	"headroom/internal/secure"
	"headroom/ledger"
	scheduler "headroom/scheduler/access"
)

// services are those of the API, by name.
func services() []protoreflect.ServiceDescriptor {
	byName := map[protoreflect.FullName]protoreflect.ServiceDescriptor{}
	pkg := headroomv1.File_headroom_v1_cluster_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			byName[f.Services().Get(i).FullName()] = f.Services().Get(i)
		}
		return true
	})
	var out []protoreflect.ServiceDescriptor
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// rolesOf are the roles that may make a call, and the program that answers it.
func rolesOf(service, path string) (program, roles string) {
	switch service {
	case "AgentService":
		return "powerd, on its socket", "root"
	case "SchedulerService", "SlotService", "WorkerService", "MasterService":
		return "scheduler", strings.Join(scheduler.Needs(path), ", ")
	}
	var may []string
	for _, r := range []ledger.Role{ledger.RoleNode, ledger.RoleObserver, ledger.RoleOperator, ledger.RoleAdmin} {
		if need := coordinator.Needs(path); r.May(need) || need == ledger.RoleNode && r == ledger.RoleAdmin {
			may = append(may, string(r))
		}
	}
	if service == "JobService" {
		may = append(may, secure.Scheduler)
	}
	if path == headroomv1connect.ClusterServiceListNodesProcedure {
		may = append(may, secure.Master)
	}
	return "coordinator", strings.Join(may, ", ")
}

func callTable() string {
	var b strings.Builder
	b.WriteString("| call | answered by | roles | changes something |\n| --- | --- | --- | --- |\n")
	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			path := fmt.Sprintf("/%s/%s", s.FullName(), m.Name())
			program, roles := rolesOf(string(s.Name()), path)
			note := ""
			if m.Input().Fields().ByName("change") != nil {
				note = "yes"
			}
			if m.IsStreamingClient() || m.IsStreamingServer() {
				note = strings.TrimPrefix(note+", a stream of Headroom's programs: not JSON", ", ")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, program, roles, note)
		}
	}
	return b.String()
}

func TestAPIPage(t *testing.T) {
	t.Parallel()
	checkParts(t, "docs/api.md", "TestAPIPage", callTable())
}

// schema is the fields of a message: those of its own, and those of which one is there.
type schema struct {
	Properties            map[string]any
	AllOf                 []*schema `yaml:"allOf"`
	OneOf                 []*schema `yaml:"oneOf"`
	UnevaluatedProperties any       `yaml:"unevaluatedProperties"`
}

func (s *schema) fields() []string {
	if s == nil {
		return nil
	}
	out := slices.Collect(maps.Keys(s.Properties))
	for _, part := range append(slices.Clone(s.AllOf), s.OneOf...) {
		out = append(out, part.fields()...)
	}
	return out
}

// The file is made by `make generate`; here it is compared with the messages that are linked.
func TestOpenAPIIsFresh(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]any
		Components struct {
			Schemas map[string]*schema
		}
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	calls, seen := 0, map[protoreflect.FullName]bool{}
	var compare func(m protoreflect.MessageDescriptor)
	compare = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || m.IsMapEntry() {
			return
		}
		seen[m.FullName()] = true
		x := doc.Components.Schemas[string(m.FullName())]
		if x == nil || x.UnevaluatedProperties != false {
			t.Errorf("%s: no schema that refuses other fields", m.FullName())
		}
		var has []string
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			has = append(has, f.JSONName())
			if f.Message() != nil && !f.IsMap() {
				compare(f.Message())
			}
		}
		slices.Sort(has)
		if of := slices.Sorted(slices.Values(x.fields())); !slices.Equal(of, has) {
			t.Errorf("%s has the fields %v, openapi.yaml has %v", m.FullName(), has, of)
		}
	}
	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			calls++
			if path := fmt.Sprintf("/%s/%s", s.FullName(), m.Name()); doc.Paths[path] == nil {
				t.Errorf("%s is not in openapi.yaml", path)
			}
			if !m.IsStreamingClient() && !m.IsStreamingServer() {
				compare(m.Input())
				compare(m.Output())
			}
		}
	}
	if len(doc.Paths) != calls || calls < 40 {
		t.Errorf("openapi.yaml has %d calls, the services have %d", len(doc.Paths), calls)
	}
}
