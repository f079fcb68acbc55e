// Package members looks after the servers of the group: which there are, what they say of
// themselves, how they do, and what is left to do about them.
//
// The one idea: which servers there are to be stands in the ledger, with their addresses
// and whether they are to vote or to leave; raft has a list of its own, of those there
// are. The leader makes raft's list like the ledger's, one step at a time. So a change that
// has begun is finished by whoever leads next.
//
// A server that hears no leader asks the others whether it still belongs to the group, and
// ends when a leader says that it does not (ErrExpelled).
//
// What it never does: decide about watts, or take in a server that has a log of its own.
package members
