package cli

import "strconv"

// Count is a number of things with its noun: "1 warning", "2 warnings". The
// plural adds an s, or es or ies where English does.
func Count(n int, singular string) string {
	if n == 1 {
		return "1 " + singular
	}
	return strconv.Itoa(n) + " " + plural(singular)
}

// plural is the regular plural of an English noun.
func plural(noun string) string {
	last := len(noun) - 1
	if last < 1 {
		return noun + "s"
	}
	switch noun[last] {
	case 's', 'x', 'z':
		return noun + "es"
	case 'y':
		switch noun[last-1] {
		case 'a', 'e', 'i', 'o', 'u':
		default:
			return noun[:last] + "ies"
		}
	}
	return noun + "s"
}
