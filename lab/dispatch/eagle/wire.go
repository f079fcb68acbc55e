package eagle

import (
	"iter"
	"math/bits"
)

// ViewOf returns a View of these workers with long tasks, for one that came in a message.
func ViewOf(sequence uint64, long []int32) *View {
	v := &View{Sequence: sequence}
	for _, w := range long {
		for int(w)/bits.UintSize >= len(v.words) {
			v.words = append(v.words, 0)
		}
		v.words[w/bits.UintSize] |= 1 << (w % bits.UintSize)
	}
	return v
}

// All yields the workers that had long tasks, in their order.
func (v *View) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		if v == nil {
			return
		}
		for i, word := range v.words {
			for ; word != 0; word &= word - 1 {
				if !yield(int32(i*bits.UintSize + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}
