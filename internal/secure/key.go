package secure

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"headroom/internal/durable"
)

// KeySize is the length in bytes of a key that proves what its holder has given: that of SHA-256.
const KeySize = 32

// ErrKey means a file that holds no key.
var ErrKey = errors.New("secure: not a key")

// OpenKey reads a program's own key, or creates one that only its user can read.
func OpenKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		key = make([]byte, KeySize)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("secure: create a key: %w", err)
		}
		return key, durable.Write(durable.OS{}, path, key, 0o600)
	case err != nil:
		return nil, fmt.Errorf("secure: read the key: %w", err)
	case len(key) != KeySize:
		return nil, fmt.Errorf("%w: %s has %d bytes instead of %d", ErrKey, path, len(key), KeySize)
	}
	return key, nil
}
