// Claim: the JSON of the API refuses what it does not know by name, and a field that is there
// twice; it writes every field, 0 too, and leaves out what is unknown. A request id is bounded.
package rpc_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
)

type echo struct {
	headroomv1connect.UnimplementedClusterServiceHandler

	asked int
}

func (e *echo) SetBudget(context.Context, *connect.Request[headroomv1.SetBudgetRequest]) (*connect.Response[headroomv1.SetBudgetResponse], error) {
	e.asked++
	return connect.NewResponse(&headroomv1.SetBudgetResponse{Before: &headroomv1.Domain{}, Meta: &headroomv1.Meta{}}), nil
}

func TestJSONOfTheAPI(t *testing.T) {
	t.Parallel()
	e := &echo{}
	_, h := headroomv1connect.NewClusterServiceHandler(e, rpc.HandlerOptions()...)
	post := func(kind, body string) (int, string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, headroomv1connect.ClusterServiceSetBudgetProcedure, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		data, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(data)
	}
	for name, c := range map[string]struct{ body, want string }{
		"unknown":             {`{"domain":"site/lab","dryrun":true}`, `unknown field \"dryrun\"`},
		"unknown inside":      {`{"change":{"resaon":"x"}}`, `unknown field \"resaon\"`},
		"twice":               {`{"domain":"a","domain":"b"}`, `duplicate field \"domain\"`},
		"twice, by two names": {`{"budgetUw":"1","budget_uw":"2"}`, `duplicate field \"budget_uw\"`},
		"not JSON":            {`{bad`, "invalid value bad"},
		"long key":            {`{"change":{"requestId":"` + strings.Repeat("x", 10<<10) + `"}}`, "request_id has 10240 bytes, the maximum is 256"},
	} {
		for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
			if code, text := post(kind, c.body); code != http.StatusBadRequest || !strings.Contains(text, c.want) || !strings.Contains(text, `"invalid_argument"`) {
				t.Errorf("%s, %s: %d %s", name, kind, code, text)
			}
		}
	}
	if e.asked != 0 {
		t.Errorf("%d refused requests reached the handler", e.asked)
	}
	code, text := post("application/json", `{"domain":"site/lab","budget_uw":1,"dryRun":true}`)
	text = strings.ReplaceAll(text, " ", "")
	for _, want := range []string{`"already":false`, `"moves":[]`, `"budgetUw":"0"`, `"name":""`} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%d, no %s in %s", code, want, text)
		}
	}
	for _, unknown := range []string{"powerUw", "ageMs", "epoch", "after"} {
		if strings.Contains(text, `"`+unknown+`"`) {
			t.Errorf("unknown %s in %s", unknown, text)
		}
	}
}
