package hookserver

import (
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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
	// tokenEvery is the minimum interval of reading the token file.
	tokenEvery = 10 * time.Second
)

// errToken is returned for a file without a usable token.
var errToken = errors.New("a token must have 16 to 4096 printable characters without spaces, and be readable only by owner and group")

// Secure wraps l in TLS for hooks, which pin the CA of the keeper's certificate. Hooks authenticate with a token;
// connections without one share few places.
func Secure(l net.Listener, k *secure.Keeper) net.Listener {
	bounded := listen.New(l, listen.Defaults())
	return secured{tls.NewListener(bounded, k.Server("http/1.1")), bounded}
}

// secured is a TLS port that still counts refused connections.
type secured struct {
	net.Listener
	bounded *listen.Listener
}

// TurnedOut returns the number of connections that were closed because they did not authenticate.
func (s secured) TurnedOut() uint64 { return s.bounded.TurnedOut() }

// secrets are the words of a file that only its owner and group can read. It is read again when it changes. It is safe
// for concurrent use.
type secrets struct {
	path string
	// most words, each at least so long.
	most, shortest int

	mu     sync.Mutex
	looked time.Time
	words  []string
}

func openSecrets(path string, most, shortest int) (*secrets, error) {
	s := &secrets{path: path, most: most, shortest: shortest}
	words, err := s.read()
	if err != nil {
		return nil, err
	}
	s.looked, s.words = time.Now(), words
	return s, nil
}

func (s *secrets) read() ([]string, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 || info.Size() > tokenMax+1 {
		return nil, fmt.Errorf("read token: %s: mode %04o, %d bytes: %w", s.path, info.Mode().Perm(), info.Size(), errToken)
	}
	data, err := config.ReadFile(s.path, tokenMax+1)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	words := strings.Fields(string(data))
	for _, text := range words {
		if len(text) < s.shortest || len(text) > tokenMax || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			words = nil
			break
		}
	}
	if len(words) == 0 || len(words) > s.most {
		return nil, fmt.Errorf("read token: %s: %w", s.path, errToken)
	}
	return words, nil
}

// now returns the words of the file; if it is unreadable, the previous words stay in force.
func (s *secrets) now() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := time.Now(); at.Sub(s.looked) >= tokenEvery {
		s.looked = at
		if words, err := s.read(); err == nil {
			s.words = words
		}
	}
	return s.words
}

// Token is the shared token of all hooks of a cluster. It is safe for concurrent use.
type Token struct{ file *secrets }

// OpenToken reads the token in a file.
func OpenToken(path string) (*Token, error) {
	file, err := openSecrets(path, 1, tokenMin)
	if err != nil {
		return nil, err
	}
	return &Token{file}, nil
}

// is reports whether shown is the token.
func (t *Token) is(shown string) bool {
	return t != nil && subtle.ConstantTimeCompare([]byte(shown), []byte(t.file.now()[0])) == 1
}
