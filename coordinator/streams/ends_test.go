package streams

// Claim: the end of the certificate that a node showed is known after the node is gone; a newer
// certificate replaces it.

import (
	"testing"
	"time"
)

func TestCertificateEndsOutliveTheStream(t *testing.T) {
	t.Parallel()
	n := newNodes()
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	s, _ := n.Open(Origin{Node: "n1", Machine: "m", Boot: "b", CertificateEnds: first})
	n.Close(s)
	if got := n.CertificateEnds()["n1"]; !got.Equal(first) {
		t.Errorf("%v after the stream", got)
	}
	n.Open(Origin{Node: "n1", Machine: "m", Boot: "b", CertificateEnds: second})
	if got := n.CertificateEnds()["n1"]; !got.Equal(second) {
		t.Errorf("%v after a renewal", got)
	}
	n.Open(Origin{Node: "n1", Machine: "m", Boot: "b"})
	if got, known := n.CertificateEnds()["n1"]; known {
		t.Errorf("%v without TLS", got)
	}
}
