// Package vocabulary makes the words of generated texts: numbers spelled in syllables, so
// that counts can be read, and topics that prefer other words than the rest.
//
// Guarantees: a number always gives the same word, and no two the same.
package vocabulary

// Append appends the word with this number.
func Append(line []byte, n uint64) []byte {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	const syllables = uint64(len(consonants) * len(vowels))
	for {
		s := n % syllables
		line = append(line, consonants[s/uint64(len(vowels))], vowels[s%uint64(len(vowels))])
		if n /= syllables; n == 0 {
			return line
		}
		n--
	}
}

// OfTopic is the number of the word that has this rank in a topic, of so many topics over
// so many words: each topic has another part of the vocabulary at its head.
func OfTopic(rank uint64, topic, topics, words int) uint64 {
	shift := uint64(topic%topics+1) * uint64(words) / uint64(topics+1)
	return (rank + shift) % uint64(words)
}
