// Claims: the error of thousands of policies is one line, and what it is stays to be asked.
package dvfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrorOfManyPoliciesIsOneLine(t *testing.T) {
	t.Parallel()
	report := make(Report, 0, 2048)
	for i := range 2048 { // every second one refuses
		r := Result{Policy: fmt.Sprintf("policy%d", i), State: Held}
		if i%2 == 1 {
			r.State, r.Err = Failed, &WriteError{Policy: r.Policy, Want: 1000, Err: unix.EROFS}
		}
		report = append(report, r)
	}
	err := report.Err()
	var refused *WriteError
	if !errors.As(err, &refused) || !errors.Is(err, unix.EROFS) || refused.Policy != "policy1" {
		t.Errorf("%v", err)
	}
	if text := err.Error(); len(text) > 200 || strings.Contains(text, "\n") || !strings.HasSuffix(text, "(and 1023 more)") {
		t.Errorf("%q", text)
	}
	if err := Several([]error{nil, nil}); err != nil {
		t.Errorf("no error: %v", err)
	}
}
