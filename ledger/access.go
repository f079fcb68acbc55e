package ledger

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// Role is what somebody may do.
type Role string

// Roles, each with the rights of those before it but for RoleNode, which stands apart.
const (
	// RoleNode: report and be granted leases, as the one node that it names.
	RoleNode Role = "node"
	// RoleObserver: read.
	RoleObserver Role = "observer"
	// RoleOperator: change budgets, nodes, sprints, schedules; set and lift the brake; submit jobs.
	RoleOperator Role = "operator"
	// RoleAdmin: change the group, tokens, snapshots.
	RoleAdmin Role = "admin"
)

// ParseRole reads a role's name.
func ParseRole(text string) (Role, error) {
	switch r := Role(text); r {
	case RoleNode, RoleObserver, RoleOperator, RoleAdmin:
		return r, nil
	}
	return "", fmt.Errorf("%w: %q is not one of node, observer, operator, admin", ErrRole, text)
}

// May reports whether the role has the rights of another.
func (r Role) May(need Role) bool {
	rank := map[Role]int{RoleObserver: 1, RoleOperator: 2, RoleAdmin: 3}
	if need == RoleNode || r == RoleNode {
		return r == need
	}
	return rank[need] > 0 && rank[r] >= rank[need]
}

// Token lets its bearer in. The log keeps a hash of it, never the token.
type Token struct {
	ID string `json:"id"`
	// Name of whom it is for: the actor of what is done with it.
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Hash is SHA-256 of the secret, in hex.
	Hash string `json:"hash"`
	// Created and Expires in microseconds since the Unix epoch; Expires 0: never.
	Created int64 `json:"created_us"`
	Expires int64 `json:"expires_us,omitempty"`
}

// TokenHash is what the log keeps of a token's secret.
func TokenHash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Bearer finds the token with this secret that is valid at the moment at
// (microseconds since the Unix epoch), in time that does not depend on the secret.
func (s *State) Bearer(id, secret string, at int64) (Token, bool) {
	t, ok := s.Tokens[id]
	same := subtle.ConstantTimeCompare([]byte(TokenHash(secret)), []byte(t.Hash)) == 1
	return t, ok && same && (t.Expires == 0 || at < t.Expires)
}

// TokensByName are the tokens sorted by name, then id.
func (s *State) TokensByName() []Token {
	return slices.SortedFunc(maps.Values(s.Tokens), func(a, b Token) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

func (t *tx) setToken(c Command, x Token) error {
	if _, err := ParseRole(string(x.Role)); err != nil {
		return err
	}
	_, known := t.Tokens[x.ID]
	switch {
	case x.ID == "" || x.Name == "" || max(len(x.ID), len(x.Name)) > maxName || len(x.Hash) != 2*sha256.Size:
		return fmt.Errorf("%w: it needs an id and a name, at most %d bytes each, and a hash of %d", ErrToken, maxName, 2*sha256.Size)
	case known:
		return fmt.Errorf("%w: id %q is in use", ErrToken, x.ID)
	case len(t.Tokens) >= maxNamed:
		return fmt.Errorf("token %q: %d tokens: %w", x.Name, len(t.Tokens), ErrFull)
	}
	put(t, t.Tokens, x.ID, x)
	t.record(c, fmt.Sprintf("token %s created for %s, role %s", x.ID, x.Name, x.Role))
	return nil
}

func (t *tx) revokeToken(c Command, id string) error {
	x, ok := t.Tokens[id]
	if !ok {
		return fmt.Errorf("token %q: %w", id, ErrUnknownToken)
	}
	drop(t, t.Tokens, id)
	t.record(c, fmt.Sprintf("token %s of %s revoked", id, x.Name))
	return nil
}

// Denial takes certificates back before they end: those of an identity that were
// made until At, or the one with a serial number.
type Denial struct {
	// Identity is ROLE/NAME, and Serial a number in hexadecimal; one of them is empty.
	Identity string `json:"identity,omitempty"`
	Serial   string `json:"serial,omitempty"`
	// At in microseconds since the Unix epoch; 0 in a command: when it was written.
	At     int64  `json:"at_us,omitempty"`
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Key is what is denied.
func (d Denial) Key() string { return cmp.Or(d.Identity, d.Serial) }

// DeniedByKey are the denials sorted by what they deny.
func (s *State) DeniedByKey() []Denial {
	return slices.SortedFunc(maps.Values(s.Denied), func(a, b Denial) int { return cmp.Compare(a.Key(), b.Key()) })
}

// maxDenied bounds the denials. None is ever forgotten: what is denied would be let in again.
const maxDenied = 10_000

// deny takes a certificate back. A denial that the log has already, or a later one, changes nothing.
func (t *tx) deny(c Command, x Denial) error {
	old, known := t.Denied[x.Key()]
	x.At, x.Actor, x.Reason = cmp.Or(x.At, c.At), cmp.Or(x.Actor, c.Actor), cmp.Or(x.Reason, c.Reason)
	switch {
	case (x.Identity == "") == (x.Serial == "") || len(x.Key()) > maxName || max(len(x.Actor), len(x.Reason)) > maxText:
		return fmt.Errorf("%w: it needs an identity or a serial number, at most %d bytes", ErrDenial, maxName)
	case known && (x.Serial != "" || x.At <= old.At):
		return nil
	case !known && len(t.Denied) >= maxDenied:
		return fmt.Errorf("%d denials: %w", len(t.Denied), ErrFull)
	}
	put(t, t.Denied, x.Key(), x)
	t.record(c, "certificate denied: "+x.Key())
	return nil
}

// dropTokens forgets the tokens that nobody names, by id or name: a snapshot does
// not know which were revoked after it. It refuses a name that no token has.
func (t *tx) dropTokens(c Command, keep []string) error {
	kept, dropped, named := 0, 0, map[string]bool{}
	for _, x := range t.TokensByName() {
		if slices.Contains(keep, x.Name) || slices.Contains(keep, x.ID) {
			named[x.Name], named[x.ID] = true, true
			kept++
			continue
		}
		drop(t, t.Tokens, x.ID)
		dropped++
	}
	for _, name := range keep {
		if !named[name] {
			return fmt.Errorf("token %q: %w", name, ErrUnknownToken)
		}
	}
	if kept+dropped > 0 {
		t.record(c, fmt.Sprintf("%d tokens dropped, %d kept", dropped, kept))
	}
	return nil
}

// Server is one coordinator server as the others reach it, and what it is to be.
// The leader makes the group so, one step at a time, whoever led when it was asked.
type Server struct {
	ID string `json:"id"`
	// RPC and Raft are host:port.
	RPC  string `json:"rpc"`
	Raft string `json:"raft"`
	// Voter: it is to vote once it is stable.
	Voter bool `json:"voter,omitempty"`
	// Leaving: it is to be taken out of the group, and forgotten then.
	Leaving bool `json:"leaving,omitempty"`
}

// Words is the server as the audit log has it.
func (x Server) Words() string {
	text := fmt.Sprintf("server %s at %s (log %s)", x.ID, x.RPC, x.Raft)
	switch {
	case x.Leaving:
		return text + " is to leave"
	case x.Voter:
		return text + " votes"
	}
	return text
}

// ServersByID are the servers sorted by id.
func (s *State) ServersByID() []Server {
	return slices.SortedFunc(maps.Values(s.Servers), func(a, b Server) int { return cmp.Compare(a.ID, b.ID) })
}

func (t *tx) setServer(c Command, x Server) error {
	old, known := t.Servers[x.ID]
	switch {
	case x.ID == "" || x.RPC == "" || x.Raft == "" || max(len(x.ID), len(x.RPC), len(x.Raft)) > maxName:
		return fmt.Errorf("server %.40q: %w: it needs an id and two addresses, at most %d bytes each", x.ID, ErrServer, maxName)
	case !known && len(t.Servers) >= maxNamed:
		return fmt.Errorf("server %q: %d servers: %w", x.ID, len(t.Servers), ErrFull)
	case old == x:
		return nil
	}
	put(t, t.Servers, x.ID, x)
	t.record(c, x.Words())
	return nil
}

func (t *tx) removeServer(c Command, id string) error {
	if _, ok := t.Servers[id]; !ok {
		return fmt.Errorf("server %q: %w", id, ErrUnknownServer)
	}
	drop(t, t.Servers, id)
	t.record(c, "server "+id+" removed")
	return nil
}

// AlarmAck notes that somebody has seen an alarm.
type AlarmAck struct {
	// Key is the alarm's code and what it is about, e.g. "node-lost/n16".
	Key   string `json:"key"`
	Actor string `json:"actor"`
	// At in microseconds since the Unix epoch; an alarm that began later is a new one.
	At int64 `json:"at_us"`
}

func (t *tx) ackAlarm(c Command, key string) error {
	if key == "" || len(key) > maxName {
		return fmt.Errorf("alarm %.40q: %w", key, ErrUnknownAlarm)
	}
	if _, known := t.Acked[key]; !known && len(t.Acked) >= maxNamed { // the oldest was seen long ago
		oldest := slices.MinFunc(slices.Collect(maps.Values(t.Acked)), func(a, b AlarmAck) int {
			return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Key, b.Key))
		})
		drop(t, t.Acked, oldest.Key)
	}
	put(t, t.Acked, key, AlarmAck{Key: key, Actor: c.Actor, At: c.At})
	t.record(c, "alarm "+key+" acknowledged")
	return nil
}
