package gossip

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/each"
)

// KeySize is the size of a gossip key in bytes: AES-256.
const KeySize = 32

const (
	// maxKeyFile bounds what is read of a key file; 44 characters a key are expected.
	maxKeyFile = 4096
	// maxKeysKept bounds the keys of a file: every packet under an unknown key is
	// tried with each.
	maxKeysKept = 8
	// fingerprintBytes of a key's hash tell it from others without telling it.
	fingerprintBytes = 4
)

// Keys are the keys that a member believes, never none; it sends with the first.
type Keys [][]byte

// NewKey makes a gossip key: a line of a key file, 32 random bytes in base64,
// without a line end. All members of a cluster share one.
func NewKey() (string, error) {
	key := make([]byte, KeySize)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("gossip: make a key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// LoadKeys reads the keys of a file: one a line, the first to send with. Empty
// lines and those that begin with # are passed over. Its errors are *cli.Error,
// name the file and say how to make a key; they never show what the file holds.
func LoadKeys(path string) (Keys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, keyError(path, "cannot be read: "+plainCause(err), err)
	}
	if info.IsDir() || info.Size() > maxKeyFile {
		return nil, keyError(path, "is not a key file", errKey)
	}
	text, err := config.ReadFile(path, maxKeyFile)
	if err != nil {
		return nil, keyError(path, "cannot be read: "+plainCause(err), err)
	}
	keys, err := ParseKeys(string(text))
	if err != nil {
		return nil, keyError(path, err.Error(), errKey)
	}
	return keys, nil
}

// ParseKeys reads the content of a key file.
func ParseKeys(text string) (Keys, error) {
	var keys Keys
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseKey(line)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			return nil, fmt.Errorf("holds the key %s twice", fingerprint(key))
		}
		keys = append(keys, key)
	}
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("is empty")
	case len(keys) > maxKeysKept:
		return nil, fmt.Errorf("holds %d keys, at most %d are of use", len(keys), maxKeysKept)
	}
	return keys, nil
}

func parseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("is not base64")
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("holds %d bytes, a key has %d", len(key), KeySize)
	}
	return key, nil
}

// Text is the content of a file with these keys.
func (k Keys) Text() string {
	var b strings.Builder
	for _, key := range k {
		b.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	}
	return b.String()
}

// Fingerprints name the keys without telling them, the first first: 8 hexadecimal
// digits of each key's SHA-256.
func (k Keys) Fingerprints() []string {
	return each.List(k, fingerprint)
}

func fingerprint(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:fingerprintBytes])
}

// check refuses what cannot be used: no key, or one of another size.
func (k Keys) check() error {
	message := "there is no gossip key"
	if i := slices.IndexFunc(k, func(key []byte) bool { return len(key) != KeySize }); i >= 0 {
		message = fmt.Sprintf("the gossip key has %d bytes, not %d", len(k[i]), KeySize)
	} else if len(k) > 0 {
		return nil
	}
	return &cli.Error{Code: "usage", Exit: cli.ExitUsage, Message: message, Hint: "coordinator gossip key create FILE makes one", Err: errKey}
}

func keyError(path, what string, err error) error {
	return &cli.Error{
		Code:    "usage",
		Exit:    cli.ExitUsage,
		Message: fmt.Sprintf("gossip key %s %s", path, what),
		Hint:    fmt.Sprintf("copy the file from another member, or make the first one: coordinator gossip key create %s", path),
		Err:     err,
	}
}

// plainCause is the system's reason without the operation and the path, which
// the message has already.
func plainCause(err error) string {
	if p, ok := err.(*os.PathError); ok { //nolint:errorlint // os returns it bare, and anything else is printed whole.
		return p.Err.Error()
	}
	return err.Error()
}
