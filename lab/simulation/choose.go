package simulation

// choose breaks a rule by name, and reports whether this build can: only one with
// sabotages can, which takes this file's place.
func choose(string) bool { return false }
