// Claim: of the lists of classes that JVMs write, what the class path holds is taken, and a
// last line that a killed JVM has cut is not.
package hadoop

import (
	"slices"
	"testing"
)

func TestListedClasses(t *testing.T) {
	const text = "# NOTE: Do not modify this file.\n" +
		"java/lang/Object id: 0\n" +
		"org/apache/hadoop/conf/Configuration id: 7\n" +
		"headroom/Generated id: 8 super: 0 source: __ClassLoader__\n" +
		"@lambda-proxy org/apache/hadoop/conf/Configuration run ()V\n" +
		"org/apache/hadoop/util/RunJ"
	want := []string{"java/lang/Object", "org/apache/hadoop/conf/Configuration", "@lambda-proxy org/apache/hadoop/conf/Configuration run ()V"}
	if got := listed(text); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
