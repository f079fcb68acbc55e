// Claims: controls.allow and controls.deny match by pattern, and a bad pattern is refused.
package config

import "testing"

func TestDenied(t *testing.T) {
	t.Parallel()
	names := []string{"package-1", "rapl"}
	for _, c := range []struct {
		allow, deny []string
		denied      bool
	}{
		{nil, nil, false},
		{nil, []string{"package-0"}, false},
		{nil, []string{"package-*"}, true},
		{nil, []string{"package-?"}, true},
		{nil, []string{"rapl"}, true},
		{nil, []string{"package"}, false},
		{[]string{"package-*"}, nil, false},
		{[]string{"rapl"}, nil, false},
		{[]string{"policy*", "epp"}, nil, true},
		{[]string{"package-*"}, []string{"package-1"}, true},
		{[]string{"*"}, []string{"*"}, true},
	} {
		why := Controls{Allow: c.allow, Deny: c.deny}.Denied(names)
		if (why != "") != c.denied {
			t.Errorf("allow %v, deny %v: %q, want denied %v", c.allow, c.deny, why, c.denied)
		}
	}
	for _, bad := range []string{"", "package-[", "[]a"} {
		if err := (Controls{Deny: []string{bad}}).validate(); err == nil || HintOf(err) == "" {
			t.Errorf("pattern %q: %v, want a refusal with a way out", bad, err)
		}
	}
}
