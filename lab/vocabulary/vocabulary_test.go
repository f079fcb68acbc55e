package vocabulary

import "testing"

// No two numbers give the same word.
func TestWordsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]uint64{}
	for n := range uint64(20_000) {
		w := string(Append(nil, n))
		if old, twice := seen[w]; twice {
			t.Fatalf("%d and %d are both %q", old, n, w)
		}
		seen[w] = n
	}
}

// A topic is a permutation of the vocabulary, and topics have other words at their heads.
func TestTopics(t *testing.T) {
	t.Parallel()
	const topics, words = 4, 100
	heads := map[uint64]bool{}
	for topic := range topics {
		seen := map[uint64]bool{}
		for rank := range uint64(words) {
			seen[OfTopic(rank, topic, topics, words)] = true
		}
		if len(seen) != words {
			t.Fatalf("topic %d has %d of %d words", topic, len(seen), words)
		}
		heads[OfTopic(0, topic, topics, words)] = true
	}
	if len(heads) != topics {
		t.Fatalf("%d topics have %d heads", topics, len(heads))
	}
}
