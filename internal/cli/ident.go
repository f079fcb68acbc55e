package cli

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/each"
)

// crockford is the base-32 alphabet without letters that read like digits.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Request ids: 48 bits of milliseconds, then 50 random bits. Two commands of the
// same millisecond meet with a probability of 1e-15.
const (
	requestTimeChars   = 10
	requestRandomChars = 10
)

// RequestID is a new idempotency key: 20 characters, later ones sort behind
// earlier ones.
func RequestID() string { return requestID(time.Now(), rand.Read) }

func requestID(now time.Time, random func([]byte) (int, error)) string {
	var id [requestTimeChars + requestRandomChars]byte
	ms := uint64(now.UnixMilli())
	for i := requestTimeChars - 1; i >= 0; i-- {
		id[i] = crockford[ms%32]
		ms /= 32
	}
	tail := id[requestTimeChars:]
	if _, err := random(tail); err != nil {
		// crypto/rand never fails on Linux; the time alone still sorts.
		clear(tail)
	}
	for i, b := range tail {
		tail[i] = crockford[b%32]
	}
	return string(id[:])
}

// maxFoldDigits keeps numbers of names inside an int64.
const maxFoldDigits = 18

// foldName is a name cut at its last run of digits.
type foldName struct {
	prefix, suffix string
	number         int64
	digits         int // 0: no number to fold by
}

// NodeSet folds names for a screen: n03, n01, n02, n05 become "n[01-03,05]".
// The order and repetition of names do not matter. Names are folded only when
// prefix, suffix and number of digits agree, so n1 and n01 stay apart.
func NodeSet(names []string) string {
	cuts := each.List(names, cut)
	slices.SortFunc(cuts, compareFold)
	cuts = slices.Compact(cuts)
	var parts []string
	for i := 0; i < len(cuts); {
		end := i + 1
		for end < len(cuts) && cuts[i].digits > 0 && sameGroup(cuts[i], cuts[end]) {
			end++
		}
		parts = append(parts, foldGroup(cuts[i:end]))
		i = end
	}
	return strings.Join(parts, ",")
}

func compareFold(a, b foldName) int {
	return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.suffix, b.suffix),
		cmp.Compare(a.digits, b.digits), cmp.Compare(a.number, b.number))
}

// foldGroup is the text of sorted names that differ in their number only.
func foldGroup(names []foldName) string {
	first := names[0]
	if len(names) == 1 {
		return first.prefix + pad(first) + first.suffix
	}
	var ranges []string
	for i := 0; i < len(names); {
		from, last := names[i], names[i]
		for i++; i < len(names) && names[i].number == last.number+1; i++ {
			last = names[i]
		}
		ranges = append(ranges, rangeText(from, last))
	}
	return first.prefix + "[" + strings.Join(ranges, ",") + "]" + first.suffix
}

func rangeText(from, last foldName) string {
	if from.number == last.number {
		return pad(from)
	}
	return pad(from) + "-" + pad(last)
}

// pad is the number with its leading zeros, or nothing for a name without one.
func pad(n foldName) string {
	if n.digits == 0 {
		return ""
	}
	s := strconv.FormatInt(n.number, 10)
	return strings.Repeat("0", n.digits-len(s)) + s
}

func sameGroup(a, b foldName) bool {
	return a.prefix == b.prefix && a.suffix == b.suffix && a.digits == b.digits
}

func cut(name string) foldName {
	end := strings.LastIndexFunc(name, isDigit) + 1
	start := end
	for start > 0 && isDigit(rune(name[start-1])) {
		start--
	}
	if start == end || end-start > maxFoldDigits {
		return foldName{prefix: name}
	}
	n, err := strconv.ParseInt(name[start:end], 10, 64)
	if err != nil {
		return foldName{prefix: name}
	}
	return foldName{prefix: name[:start], suffix: name[end:], number: n, digits: end - start}
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
