package view

// Plain is an error without the names of the packages it passed through.
func Plain(err error) string {
	text := err.Error()
	for _, prefix := range []string{"coordinator: propose: ", "consensus: ", "ledger: ", "budget: "} {
		if len(text) > len(prefix) && text[:len(prefix)] == prefix {
			text = text[len(prefix):]
		}
	}
	return text
}
