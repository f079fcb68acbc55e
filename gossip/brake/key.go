package brake

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"headroom/internal/cli"
)

const (
	// maxKeyFile bounds what is read of a key file; a key takes some 120 bytes.
	maxKeyFile = 8 << 10
	// maxKeys bounds the public keys of one file: two are enough to change keys.
	maxKeys = 4
	// othersRead are the permissions that a private key's file may not have: any
	// for everybody, and writing for the group.
	othersRead = 0o027

	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// errKey means that a key file cannot be used.
var errKey = errors.New("bad brake key")

// PrivateKey sets the brake. Only coordinators have it.
type PrivateKey struct{ key ed25519.PrivateKey }

// Keys are the public keys that a member believes; the zero Keys believe nothing.
type Keys struct{ keys []ed25519.PublicKey }

// Known reports whether there is any key.
func (k Keys) Known() bool { return len(k.keys) > 0 }

// Match reports whether the keys verify what private signs.
func (k Keys) Match(private PrivateKey) bool {
	return slices.ContainsFunc(k.keys, func(key ed25519.PublicKey) bool { return key.Equal(private.key.Public()) })
}

// NewKey makes a pair.
func NewKey() (PrivateKey, Keys, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKey{}, Keys{}, fmt.Errorf("brake: make a key: %w", err)
	}
	return PrivateKey{private}, Keys{[]ed25519.PublicKey{public}}, nil
}

// WriteKey makes a pair and writes its two files as PEM, the private one for its
// owner alone. It never writes over a file; its errors are *cli.Error.
func WriteKey(privatePath, publicPath string) error {
	private, keys, err := NewKey()
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private.key)
	if err != nil {
		return fmt.Errorf("brake: encode a key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(keys.keys[0])
	if err != nil {
		return fmt.Errorf("brake: encode a key: %w", err)
	}
	if err := create(privatePath, 0o600, &pem.Block{Type: privateBlock, Bytes: secret}); err != nil {
		return err
	}
	if err := create(publicPath, 0o644, &pem.Block{Type: publicBlock, Bytes: public}); err != nil {
		return errors.Join(err, os.Remove(privatePath)) // a key that nobody could believe
	}
	return nil
}

func create(path string, mode os.FileMode, block *pem.Block) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return &cli.Error{
			Code: "exists", Exit: cli.ExitConflict, Err: err, Message: path + " is there already and stays as it is",
			Hint: "name another file; a key that is in use is replaced by adding the new public key to every member's file first",
		}
	}
	if err == nil {
		err = errors.Join(pem.Encode(f, block), f.Sync(), f.Close())
	}
	if err != nil {
		return &cli.Error{Code: "key-file", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot write %s: %s", path, plainCause(err)), Hint: "name a file in a folder that you may write"}
	}
	return nil
}

// LoadKeys reads the public keys of a file, one to four PEM blocks. Its errors
// are *cli.Error and name the file.
func LoadKeys(path string) (Keys, error) {
	text, _, err := read(path, "public")
	if err != nil {
		return Keys{}, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return Keys{}, keyError(path, "public", err.Error(), errKey)
	}
	return keys, nil
}

// fingerprintBytes of a public key's SHA-256 are shown, as many as of a gossip key.
const fingerprintBytes = 8

// FileFingerprints returns the fingerprints of the keys in a file, of public keys or of
// one private key; signs reports whether it is the private key. A pair has one fingerprint.
func FileFingerprints(path string) (prints []string, signs bool, err error) {
	text, _, err := read(path, "public")
	if err != nil {
		return nil, false, err
	}
	var keys Keys
	if block, _ := pem.Decode(text); block != nil && block.Type == privateBlock {
		private, err := LoadPrivateKey(path)
		if err != nil {
			return nil, true, err
		}
		public, _ := private.key.Public().(ed25519.PublicKey)
		keys, signs = Keys{[]ed25519.PublicKey{public}}, true
	} else if keys, err = LoadKeys(path); err != nil {
		return nil, false, err
	}
	for _, key := range keys.keys {
		sum := sha256.Sum256(key)
		prints = append(prints, hex.EncodeToString(sum[:fingerprintBytes]))
	}
	return prints, signs, nil
}

// parseKeys reads the content of a file of public keys.
func parseKeys(text []byte) (Keys, error) {
	var out Keys
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != publicBlock {
			return Keys{}, fmt.Errorf("holds a %s; every member has this file, so it holds public keys only", block.Type)
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := key.(ed25519.PublicKey)
		if err != nil || !ok {
			return Keys{}, errors.New("holds a key that is not Ed25519")
		}
		out.keys = append(out.keys, public)
		text = rest
	}
	switch {
	case len(out.keys) == 0:
		return Keys{}, errors.New("holds no public key")
	case len(out.keys) > maxKeys:
		return Keys{}, fmt.Errorf("holds %d keys, at most %d are believed", len(out.keys), maxKeys)
	case len(bytes.TrimSpace(text)) > 0:
		return Keys{}, errors.New("holds something behind its keys")
	}
	return out, nil
}

// LoadPrivateKey reads a private key. Its errors are *cli.Error, name the file
// and never show what it holds.
func LoadPrivateKey(path string) (PrivateKey, error) {
	text, mode, err := read(path, "private")
	if err != nil {
		return PrivateKey{}, err
	}
	if mode&othersRead != 0 {
		e := keyError(path, "private", fmt.Sprintf("has mode %04o: others may read or change it", mode), errKey)
		e.Hint = "chmod 600 " + path + "; whoever has it can stop the whole cluster"
		return PrivateKey{}, e
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock {
		return PrivateKey{}, keyError(path, "private", "holds no private key", errKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return PrivateKey{}, keyError(path, "private", "holds a key that is not Ed25519", errKey)
	}
	return PrivateKey{private}, nil
}

func read(path, which string) ([]byte, os.FileMode, error) {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxKeyFile) {
		return nil, 0, keyError(path, which, "is not a key file", errKey)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(filepath.Clean(path))
	}
	if err != nil {
		return nil, 0, keyError(path, which, "cannot be read: "+plainCause(err), err)
	}
	return text, info.Mode().Perm(), nil
}

func keyError(path, which, what string, err error) *cli.Error {
	return &cli.Error{
		Code: "usage", Exit: cli.ExitUsage, Message: fmt.Sprintf("brake.%s_key_file %s %s", which, path, what), Err: err,
		Hint: "copy the file from another member, or make the first pair with coordinator brake key create",
	}
}

// plainCause is the system's reason without the operation and the path.
func plainCause(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
