package hookserver

import (
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"headroom/internal/config"
	"headroom/internal/listen"
	"headroom/internal/secure"
)

const (
	// tokenMin and tokenMax bound a token, in bytes: shorter ones can be guessed.
	tokenMin = 16
	tokenMax = 4096
	// tokenEvery is how often the file of a token is read again, at most.
	tokenEvery = 10 * time.Second
)

var (
	// errToken means a file that holds no usable token.
	errToken = errors.New("a token is 16 to 4096 printable characters without blanks, readable by its owner and group only")
	// errNoToken refuses a request; it tells nobody what the token is like.
	errNoToken = errors.New("the token of the cluster's hooks is missing or wrong")
)

// Secure has hooks that connect to l shake hands by TLS: they pin the authority of the
// keeper's certificate. Who they are is for a token to prove; whoever has not shown one
// yet shares few places.
func Secure(l net.Listener, k *secure.Keeper) net.Listener {
	bounded := listen.New(l, listen.Defaults())
	return secured{tls.NewListener(bounded, k.Server("http/1.1")), bounded}
}

// secured is a port of TLS that still tells how many it has turned out.
type secured struct {
	net.Listener
	bounded *listen.Listener
}

// TurnedOut is the number of connections that were closed because they had not proved themselves.
func (s secured) TurnedOut() uint64 { return s.bounded.TurnedOut() }

// Token is what the hooks of a cluster prove themselves by. The file is read again when
// it changes. It is safe for concurrent use.
type Token struct {
	path string

	mu     sync.Mutex
	looked time.Time
	text   string
}

// OpenToken reads the token in a file.
func OpenToken(path string) (*Token, error) {
	text, err := readToken(path)
	if err != nil {
		return nil, err
	}
	return &Token{path: path, looked: time.Now(), text: text}, nil
}

func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 || info.Size() > tokenMax+1 {
		return "", fmt.Errorf("read token: %s: mode %04o, %d bytes: %w", path, info.Mode().Perm(), info.Size(), errToken)
	}
	data, err := config.ReadFile(path, tokenMax+1)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if len(text) < tokenMin || len(text) > tokenMax || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("read token: %s: %w", path, errToken)
	}
	return text, nil
}

// now is the token as the file has it; a file that cannot be read leaves the old one in force.
func (t *Token) now() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := time.Now(); at.Sub(t.looked) >= tokenEvery {
		t.looked = at
		if text, err := readToken(t.path); err == nil {
			t.text = text
		}
	}
	return t.text
}

// Require passes on to h only what carries the token, as "Authorization: Bearer TOKEN".
func (t *Token) Require(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer || subtle.ConstantTimeCompare([]byte(shown), []byte(t.now())) != 1 {
			Refuse(w, http.StatusUnauthorized, errNoToken)
			return
		}
		listen.Prove(r.Context(), listen.Guest{}) // all hooks have one token
		h.ServeHTTP(w, r)
	})
}
