package hookserver

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"headroom/internal/listen"
)

var (
	// errWrong refuses a request; it tells nobody what the token should have been.
	errWrong = errors.New("hook token missing, wrong, or issued for another purpose")
	// errExpired refuses a token that was right.
	errExpired = errors.New("hook token expired")
)

// Caller is whom a hook speaks for.
type Caller struct {
	// All: the hooks of the whole cluster, by the one token that they share.
	All bool
	// User is whose job it is, where the job has a token of its own.
	User string
}

// May reports whether the caller may speak for a job of this user.
func (c Caller) May(user string) bool { return c.All || c.User != "" && c.User == user }

// Guard decides which hooks are answered. A nil Guard answers all of them: connections in
// the clear, on loopback.
type Guard struct {
	// Token is the cluster's; nil where it is not accepted.
	Token *Token
	// Keys check the tokens of jobs and of the ResourceManager; nil where there are none.
	Keys *Keys
}

// Shares reports whether a request may read shares.
func (g *Guard) Shares(r *http.Request) error {
	if g == nil {
		return nil
	}
	shown := bearer(r)
	err := errWrong
	switch {
	case g.Token.is(shown):
		err = nil
	case g.Keys != nil:
		err = g.Keys.shares(time.Now(), shown)
	}
	if err == nil {
		listen.Prove(r.Context(), listen.Guest{})
	}
	return err
}

// Job is whom a request about a job speaks for. Whether the job is this user's is for the
// engine to check.
func (g *Guard) Job(r *http.Request, job string) (Caller, error) {
	if g == nil {
		return Caller{All: true}, nil
	}
	shown := bearer(r)
	if g.Token.is(shown) {
		listen.Prove(r.Context(), listen.Guest{}) // all hooks have one token
		return Caller{All: true}, nil
	}
	if g.Keys == nil {
		return Caller{}, errWrong
	}
	user, err := g.Keys.owner(time.Now(), shown, job)
	if err != nil {
		return Caller{}, err
	}
	listen.Prove(r.Context(), listen.Guest{Name: "user " + user}) // one user's jobs take no more than their share of the places
	return Caller{User: user}, nil
}

// bearer is the token that a request shows; "" for none.
func bearer(r *http.Request) string {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return shown
}
