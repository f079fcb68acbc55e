package hookserver

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"headroom/internal/listen"
)

var (
	// errWrong refuses a request without revealing the right token.
	errWrong = errors.New("hook token missing, wrong, or issued for another purpose")
	// errExpired refuses a token that was valid before.
	errExpired = errors.New("hook token expired")
)

// Caller is the authenticated caller.
type Caller struct {
	// All is the hooks of the whole cluster, by their shared token.
	All bool
	// User is the owner of the job, if the job has its own token.
	User string
}

// May reports whether the caller may act for a job of this user.
func (c Caller) May(user string) bool { return c.All || c.User != "" && c.User == user }

// Guard decides which hooks are answered. A nil Guard answers all of them: connections without TLS, on loopback.
type Guard struct {
	// Token is the cluster's; nil if it is not accepted.
	Token *Token
	// Keys verify the tokens of jobs and of the ResourceManager; nil for none.
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
		listen.Prove(r.Context(), listen.Guest{First: g.Keys != nil && !g.Token.is(shown)})
	}
	return err
}

// Job returns the caller of a request about a job. The engine must check that the job is this user's.
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
	who := Caller{User: user}
	listen.Prove(r.Context(), who.Guest()) // one user's jobs use at most their share of the places
	return who, nil
}

// Guest returns whose place the requests of the caller take.
func (c Caller) Guest() listen.Guest {
	if c.User == "" {
		return listen.Guest{} // all hooks have one token
	}
	return listen.Guest{Name: "user " + c.User}
}

// unknown is the name of all those whose token is for a job that is not known before the body is read.
const unknown = "unknown"

// Before returns whose place a request takes whose body names the job, before that is read: the token must be for one of
// the jobs, or of a form that may be for another one. The body is then checked with Job.
func (g *Guard) Before(r *http.Request, jobs func(user string) []string) (listen.Guest, error) {
	switch shown := bearer(r); {
	case g == nil, g.Token.is(shown):
		return listen.Guest{}, nil
	case g.Keys == nil:
		return listen.Guest{}, errWrong
	default:
		user, err := claimed(shown)
		if err != nil {
			return listen.Guest{}, err
		}
		for _, job := range jobs(user) {
			if who, err := g.Job(r, job); err == nil {
				return who.Guest(), nil
			}
		}
		return listen.Guest{Name: unknown}, nil
	}
}

// bearer returns the token of a request; "" for none.
func bearer(r *http.Request) string {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return shown
}
