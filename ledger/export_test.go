package ledger

// Taken carries out a command and takes it back again, whatever it answers.
func (s *State) Taken(c Command) error {
	t := begin(s)
	err := t.dispatch(c)
	t.rollback()
	return err
}
