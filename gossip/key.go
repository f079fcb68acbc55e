package gossip

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"headroom/internal/cli"
)

// KeySize is the size of the gossip key in bytes: AES-256.
const KeySize = 32

// maxKeyFile bounds what is read of a key file; 44 characters are expected.
const maxKeyFile = 4096

// NewKey makes a gossip key: the content of a key file, 32 random bytes in
// base64, without a line end. All members of a cluster share one.
func NewKey() (string, error) {
	key := make([]byte, KeySize)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("gossip: make a key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// LoadKey reads the gossip key from a file. Its errors are *cli.Error, name the
// file and say how to make a key; they never show what the file holds.
func LoadKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, keyError(path, "cannot be read: "+plainCause(err), err)
	}
	if info.IsDir() || info.Size() > maxKeyFile {
		return nil, keyError(path, "is not a key file", ErrKey)
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, keyError(path, "cannot be read: "+plainCause(err), err)
	}
	key, err := parseKey(string(text))
	if err != nil {
		return nil, keyError(path, err.Error(), ErrKey)
	}
	return key, nil
}

func parseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, fmt.Errorf("is empty")
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("is not base64")
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("holds %d bytes, a key has %d", len(key), KeySize)
	}
	return key, nil
}

func keyError(path, what string, err error) error {
	return &cli.Error{
		Code:    "usage",
		Exit:    cli.ExitUsage,
		Message: fmt.Sprintf("gossip key %s %s", path, what),
		Hint:    fmt.Sprintf("copy the file from another member, or make the first one: head -c %d /dev/urandom | base64 > %s", KeySize, path),
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
