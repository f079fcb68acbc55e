package secure

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"headroom/internal/durable"
)

// errDenied means a certificate that the cluster has denied before its end.
var errDenied = errors.New("secure: the certificate is denied")

// Denial takes certificates back before they end: the one with a serial number, or
// all that an identity was given until a moment. Who is given a new one after that
// is let in again with it.
type Denial struct {
	// Identity is ROLE/NAME; empty where Serial is set.
	Identity string `json:"identity,omitempty"`
	// Serial is the certificate's number in hexadecimal, lower case.
	Serial string `json:"serial,omitempty"`
	// At is when it was denied, microseconds since the Unix epoch.
	At int64 `json:"at_us"`
	// Actor and Reason say who did it, and why.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Key is what is denied, without when: an identity that is denied again is denied later.
func (d Denial) Key() string { return cmp.Or(d.Identity, d.Serial) }

// ParseDenial reads ROLE/NAME, or a serial number in hexadecimal.
func ParseDenial(text string) (Denial, error) {
	if role, name, ok := strings.Cut(text, "/"); ok {
		who := Identity{Role: role, Name: name}
		return Denial{Identity: who.String()}, who.Validate()
	}
	serial := strings.TrimLeft(strings.ToLower(strings.ReplaceAll(text, ":", "")), "0")
	if serial == "" || len(serial) > 40 || strings.Trim(serial, "0123456789abcdef") != "" {
		return Denial{}, fmt.Errorf("%w: %.60q is neither ROLE/NAME nor a serial number in hexadecimal", ErrIdentity, text)
	}
	return Denial{Serial: serial}, nil
}

// SerialOf is a certificate's serial number as denials name it.
func SerialOf(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// Denials are all denials that a process knows. They only grow. It is safe for use
// by many goroutines.
type Denials struct {
	mu  sync.RWMutex
	all map[string]Denial
}

// NewDenials knows none.
func NewDenials() *Denials { return &Denials{all: map[string]Denial{}} }

// Add takes in denials, and reports whether any was news. Of one identity the latest counts.
func (d *Denials) Add(more ...Denial) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range more {
		if old, known := d.all[x.Key()]; x.Key() != "" && (!known || x.At > old.At) {
			d.all[x.Key()], news = x, true
		}
	}
	return news
}

// All are the denials, sorted by what they deny.
func (d *Denials) All() []Denial {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]Denial, 0, len(d.all))
	for _, x := range d.all {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Denial) int { return cmp.Compare(a.Key(), b.Key()) })
	return out
}

// Check refuses a certificate that is denied: ErrDenied. Without denials, nil, it refuses none.
func (d *Denials) Check(c *x509.Certificate) error {
	if d == nil || c == nil {
		return nil
	}
	who, _ := IdentityOf(c) // who has none is refused for that
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, key := range []string{SerialOf(c), who.String()} {
		x, denied := d.all[key]
		if !denied || x.Identity != "" && c.NotBefore.Add(skew).After(time.UnixMicro(x.At)) {
			continue
		}
		return fmt.Errorf("%w: %s, serial %s, by %s on %s: %s", errDenied, who, SerialOf(c), cmp.Or(x.Actor, "?"),
			time.UnixMicro(x.At).UTC().Format(time.RFC3339), cmp.Or(x.Reason, "no reason given"))
	}
	return nil
}

// ReadDenials reads the file that WriteDenials makes. None is no error.
func ReadDenials(path string) ([]Denial, error) { return ReadDenialsIn(durable.OS{}, path) }

// ReadDenialsIn is ReadDenials on another file system.
func ReadDenialsIn(fsys durable.FS, path string) ([]Denial, error) {
	data, err := fsys.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("secure: %w", err)
	}
	var out []Denial
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("secure: %s: %w", path, err)
	}
	return out, nil
}

// WriteDenials replaces the file of denials, and returns once it would survive a power cut.
func WriteDenials(path string, all []Denial) error {
	return WriteDenialsIn(durable.OS{}, path, all)
}

// WriteDenialsIn is WriteDenials on another file system.
func WriteDenialsIn(fsys durable.FS, path string, all []Denial) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	if err := durable.Write(fsys, path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("secure: %w", err)
	}
	return nil
}
