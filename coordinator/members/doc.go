// Package members manages the servers of the cluster: which there are, what they report, their
// health, and the membership changes that are left to do.
//
// The one idea: the ledger has the wanted servers, with their addresses and whether each is
// to vote or to leave; raft has a list of the present ones. The leader changes raft's list to
// match the ledger's, one step at a time. So the next leader finishes a change that was begun.
//
// A server without a leader asks the others whether it is still a member, and exits if a
// leader answers that it is not (ErrExpelled).
//
// What it never does: decide about power, or add a server that has a log of its own.
package members
