// Package each makes lists from lists: what a function returns for each element, or the elements that pass a test.
//
// The one idea: what the standard package slices lacks, and nothing else.
//
// Guarantees: elements keep their order; the list that is given stays as it is.
package each

// Of returns what f returns for each element; nil for none.
func Of[A, B any](all []A, f func(A) B) []B {
	if len(all) == 0 {
		return nil
	}
	return List(all, f)
}

// List returns what f returns for each element, and never nil: a list of JSON.
func List[A, B any](all []A, f func(A) B) []B {
	out := make([]B, 0, len(all))
	for _, x := range all {
		out = append(out, f(x))
	}
	return out
}

// Where returns the elements for which is holds; nil for none.
func Where[A any](all []A, is func(A) bool) (out []A) {
	for _, x := range all {
		if is(x) {
			out = append(out, x)
		}
	}
	return out
}
