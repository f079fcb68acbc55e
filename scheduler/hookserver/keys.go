package hookserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Tokens are derived from a key by HMAC-SHA256, so that verifying one needs no state: docs/hooks.md has their form. The
// key gives users' tokens, and a user's token gives those of this user's jobs. So a token for a job can be created
// without a request, and no other job's token can be derived from it.
const (
	userKind, jobKind, sharesKind = "headroom-user-1", "headroom-job-1", "headroom-shares-1"
	// labels separate the purposes of hashes.
	userLabel, jobLabel, sharesLabel = "headroom hooks user 1\n", "headroom hooks job 1\n", "headroom hooks shares 1\n"
	// nameMax bounds the name of a user or a job, in bytes.
	nameMax = 256
	// keyMin is the least length of a key: 32 random bytes in base64 have 44.
	keyMin = 32
	// keysMax bounds the keys of a file: the one in use and those before it.
	keysMax = 4
)

var (
	// errName is returned for a name that does not fit into a token.
	errName = errors.New("a name must have 1 to 256 printable characters")
	// errNoUserToken is returned for a text that is not a user token.
	errNoUserToken = errors.New("not a user token")
)

// Keys create the tokens of users, and verify those of jobs and of the ResourceManager. It is safe for concurrent use.
type Keys struct{ file *secrets }

// OpenKeys reads the keys in a file, one per line: the first creates tokens, the others are still accepted.
func OpenKeys(path string) (*Keys, error) {
	file, err := openSecrets(path, keysMax, keyMin)
	if err != nil {
		return nil, fmt.Errorf("%w; a key needs at least %d, and at most %d keys are allowed", err, keyMin, keysMax)
	}
	return &Keys{file}, nil
}

func sum(key []byte, label string, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(label + strings.Join(parts, "\n"))) // never fails
	return h.Sum(nil)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode accepts only the one encoding of each value: a token has one form.
func decode(s string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(s) }

func named(name string) error {
	if name == "" || len(name) > nameMax || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%.64q: %w", name, errName)
	}
	return nil
}

// User returns the token of a user, from which the tokens of the user's jobs are derived.
func (k *Keys) User(user string, ends time.Time) (string, error) {
	if err := named(user); err != nil {
		return "", err
	}
	end := strconv.FormatInt(ends.Unix(), 10)
	return strings.Join([]string{userKind, encode([]byte(user)), end, encode(sum([]byte(k.file.now()[0]), userLabel, user, end))}, "."), nil
}

// Shares returns the token of the ResourceManager's plug-in, which can only read shares.
func (k *Keys) Shares(ends time.Time) string {
	end := strconv.FormatInt(ends.Unix(), 10)
	return strings.Join([]string{sharesKind, end, encode(sum([]byte(k.file.now()[0]), sharesLabel, end))}, ".")
}

// JobToken returns the token of a user's job. The hooks do the same.
func JobToken(user, job string) (string, error) {
	parts := strings.Split(user, ".")
	if len(parts) != 4 || parts[0] != userKind {
		return "", errNoUserToken
	}
	own, err := decode(parts[3])
	if err != nil || len(own) != sha256.Size {
		return "", errNoUserToken
	}
	return strings.Join([]string{jobKind, parts[1], parts[2], encode(sum(own, jobLabel, job))}, "."), nil
}

// owner returns the user from whose token this one was derived.
func (k *Keys) owner(now time.Time, token, job string) (user string, err error) {
	name, err := claimed(token)
	if err != nil {
		return "", err
	}
	parts := strings.Split(token, ".")
	for _, key := range k.file.now() {
		if own := sum([]byte(key), userLabel, name, parts[2]); same(sum(own, jobLabel, job), parts[3]) {
			return name, inTime(now, parts[2])
		}
	}
	return "", errWrong
}

// claimed returns the user whom a job's token names, without a proof.
func claimed(token string) (user string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 4 || parts[0] != jobKind {
		return "", errWrong
	}
	name, err := decode(parts[1])
	if err != nil || named(string(name)) != nil {
		return "", errWrong
	}
	return string(name), nil
}

// shares verifies the token of the ResourceManager's plug-in.
func (k *Keys) shares(now time.Time, token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] != sharesKind {
		return errWrong
	}
	for _, key := range k.file.now() {
		if same(sum([]byte(key), sharesLabel, parts[1]), parts[2]) {
			return inTime(now, parts[1])
		}
	}
	return errWrong
}

func same(want []byte, text string) bool {
	got, err := decode(text)
	return err == nil && subtle.ConstantTimeCompare(want, got) == 1
}

// inTime checks the expiry of a genuine token.
func inTime(now time.Time, end string) error {
	if seconds, err := strconv.ParseInt(end, 10, 64); err != nil || now.Unix() >= seconds {
		return errExpired
	}
	return nil
}
