package emulator

import "testing"

// Names that cannot be a folder, a host or a log field are refused.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{"n01": true, "rack-2.node-7": true, "": false, "../x": false, "a b": false, "-x": false, "a/b": false} {
		if nodeName.MatchString(name) != good {
			t.Errorf("name %q: good is %v", name, !good)
		}
	}
}
