package brakes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"headroom/coordinator/alarms"
	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/ledger"
)

const (
	// brakeFile is beside the log: the newest signed brake, so that a restart neither
	// forgets it nor uses its generation again.
	brakeFile = "brake.signed"
	// storeWait bounds how long a brake waits for its file before it is sent anyway: a
	// disk that hangs must not delay it.
	storeWait = 200 * time.Millisecond
	// contestWindow is how long after it was set a brake is set again, once, if
	// members turn out to have one with precedence over it.
	contestWindow = 10 * time.Second
)

var (
	// ErrNoKey is returned by a server without a private key.
	ErrNoKey  = errors.New("this server has no private key for the brake")
	errNoMore = errors.New("no brake generation left")
)

// Store keeps the newest brake of this server, and sets new ones. It is safe for concurrent use.
type Store struct {
	logger *slog.Logger
	dirty  chan struct{} // the newest brake is not on disk yet

	mu       sync.Mutex
	keys     brake.Keys
	private  *brake.PrivateKey // nil: this server cannot set a brake
	save     func([]byte) error
	newest   brake.Signed
	claimed  uint64 // generation of a file whose signature no longer verifies
	stored   uint64 // generation that is on disk
	storeErr error
	mine     setting
	unproven map[string]uint64 // by node: generations reported without a proof
}

// setting is the last brake that this server set.
type setting struct {
	request string
	signed  brake.Signed
	at      time.Time
	again   bool // it was set again
}

// New returns a store without a brake.
func New(logger *slog.Logger) *Store {
	return &Store{logger: logger, dirty: make(chan struct{}, 1), save: func([]byte) error { return nil }, unproven: map[string]uint64{}}
}

// Files names the brake's files on a server.
type Files struct {
	// PublicKey holds the keys that verify a brake; empty: no brake is accepted.
	PublicKey string
	// PrivateKey holds the key that signs a brake; empty: this server cannot set one.
	PrivateKey string
	// StateDir is where the newest brake is stored, beside the log.
	StateDir string
	// Disk is the file system of StateDir; nil is the real one. Tests set one that forgets.
	Disk durable.FS
}

// Load reads the keys: the public ones, and the private one or nil if there is none.
func (f Files) Load() (brake.Keys, *brake.PrivateKey, error) {
	keys, err := brake.LoadKeys(f.PublicKey)
	if err != nil || f.PrivateKey == "" {
		return keys, nil, err
	}
	private, err := brake.LoadPrivateKey(f.PrivateKey)
	if err != nil {
		return brake.Keys{}, nil, err
	}
	if !keys.Match(private) {
		return brake.Keys{}, nil, &cli.Error{
			Code: "config", Exit: cli.ExitUsage, Message: fmt.Sprintf("brake.private_key_file %s is not the pair of any key in %s", f.PrivateKey, f.PublicKey),
			Hint: "no node would accept this server's brake; name the two files that coordinator brake key create made",
		}
	}
	return keys, &private, nil
}

// Open reads the configured keys, and the newest brake that this server
// has stored.
func (b *Store) Open(f Files) error {
	if f.PublicKey == "" {
		return nil
	}
	keys, private, err := f.Load()
	if err != nil {
		return err
	}
	path, disk := filepath.Join(f.StateDir, brakeFile), cmp.Or[durable.FS](f.Disk, durable.OS{})
	b.Use(keys, private, func(data []byte) error { return durable.Write(disk, path, data, 0o600) })
	data, err := disk.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.logger.Warn("stored brake unreadable; learning it from the log and gossip", slog.Any("error", err))
	}
	b.recall(data)
	return nil
}

// Use sets keys and file.
func (b *Store) Use(keys brake.Keys, private *brake.PrivateKey, save func([]byte) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.private, b.save = keys, private, save
}

// recall reads the file of an earlier process.
func (b *Store) recall(data []byte) {
	if len(data) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.keys.Open(data)
	if err != nil {
		b.claimed, _ = brake.Generation(data)
		b.logger.Warn("stored brake's signature not verified", slog.Any("error", err))
		return
	}
	b.newest, b.stored = s, s.Generation
}

// Known returns the newest brake; generation 0 for none.
func (b *Store) Known() brake.Signed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest
}

// Keys returns the keys that verify a brake on this server.
func (b *Store) Keys() brake.Keys {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys
}

// CanSet reports whether this server has a private key.
func (b *Store) CanSet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.private != nil
}

// hear records a verified brake, and reports whether it is new.
func (b *Store) hear(s brake.Signed) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Generation <= b.newest.Generation {
		return false
	}
	b.newest = s
	b.touch()
	return true
}

// prove records a signed brake reported by a node, and reports whether it is new.
func (b *Store) prove(data []byte) (brake.Signed, bool) {
	if g, ok := brake.Generation(data); !ok || g <= b.Known().Generation {
		return brake.Signed{}, false
	}
	s, err := b.Keys().Open(data)
	return s, err == nil && b.hear(s)
}

// believed returns the generation that a node reports, or 0 if it is not
// proven: otherwise a single node could disable the brake for ever by reporting the highest number.
// So it is only a hint, also on a server without keys, which can verify
// nothing: the node obeys the brake by itself, and its read-backs show it.
func (b *Store) believed(node string, generation, inLog uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation <= max(b.newest.Generation, inLog) {
		delete(b.unproven, node)
		return generation
	}
	if len(b.unproven) < ledger.MaxNodes {
		b.unproven[node] = generation
	}
	return 0
}

// Set signs a brake above every generation known to this server and above atLeast. The same
// request is carried out once.
func (b *Store) Set(actor, reason, request string, atLeast uint64, at time.Time) (s brake.Signed, already bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if request != "" && request == b.mine.request {
		return b.mine.signed, true, nil
	}
	if s, err = b.sign(actor, reason, atLeast, at); err == nil {
		b.mine = setting{request: request, signed: s, at: at}
	}
	return s, false, err
}

// Next returns the generation that Set would use.
func (b *Store) Next(atLeast uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.newest.Generation, b.claimed, atLeast) + 1
}

// sign signs the next brake and makes it the newest. The caller holds the lock.
func (b *Store) sign(actor, reason string, atLeast uint64, at time.Time) (brake.Signed, error) {
	top := max(b.newest.Generation, b.claimed, atLeast)
	switch {
	case b.private == nil:
		return brake.Signed{}, ErrNoKey
	case top == math.MaxUint64:
		return brake.Signed{}, errNoMore
	}
	s, err := b.private.Sign(brake.Message{
		Generation: top + 1, At: at, Actor: brake.Fit(actor, brake.MaxActor), Reason: brake.Fit(reason, brake.MaxReason),
	})
	if err != nil {
		return brake.Signed{}, err
	}
	b.newest = s
	b.touch()
	return s, nil
}

// again sets this server's last brake again, above the one with precedence over it:
// members that had the other one did not obey it. This is done once, so that
// two servers do not outbid each other, and not for a brake that was in the log.
func (b *Store) again(at time.Time, inLog uint64) (brake.Signed, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mine.signed
	if m.Generation <= inLog || b.mine.again || at.Sub(b.mine.at) > contestWindow {
		return brake.Signed{}, false
	}
	s, err := b.sign(m.Actor, m.Reason, 0, at)
	if err != nil {
		return brake.Signed{}, false
	}
	b.mine.again, b.mine.signed = true, s
	return s, true
}

// touch requests storing the newest brake. The caller holds the lock.
func (b *Store) touch() {
	select {
	case b.dirty <- struct{}{}:
	default:
	}
}

// Keep stores every new brake until ctx ends. Nothing else waits for
// the disk.
func (b *Store) Keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.dirty:
		}
		b.mu.Lock()
		s, save := b.newest, b.save
		b.mu.Unlock()
		err := save(s.Bytes())
		if err != nil {
			b.logger.Error("brake not stored; after a restart it must be learned from others", slog.Any("error", err))
		}
		b.mu.Lock()
		if b.storeErr = err; err == nil {
			b.stored = s.Generation
		}
		b.mu.Unlock()
	}
}

// AwaitStored waits briefly until a generation is on disk, and returns an error if it is not.
func (b *Store) AwaitStored(generation uint64) string {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(storeWait); ; {
		b.mu.Lock()
		stored, err := b.stored >= generation, b.storeErr
		b.mu.Unlock()
		switch {
		case stored:
			return ""
		case err != nil:
			return err.Error()
		case !time.Now().Before(until):
			return "the disk does not answer"
		}
		<-look.C
	}
}

// Alarms returns the nodes that report a brake without a proof.
func (b *Store) Alarms() []alarms.Alarm {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []alarms.Alarm
	for _, node := range slices.Sorted(maps.Keys(b.unproven)) {
		out = append(out, alarms.New(
			"brake-unproven", alarms.Warn, node,
			fmt.Sprintf("%s reports brake generation %d, which is not signed by a key of this cluster; only %s obeys it", node, b.unproven[node], node),
			fmt.Sprintf("compare its brake.public_key_file with the servers'; if no operator set that brake: coordinator brake skip %d; a node of another cluster needs a new state directory", b.unproven[node]),
		))
	}
	return out
}

// Tells reports whether a node reports a generation without a proof.
func (b *Store) Tells(generation uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.unproven {
		if g == generation {
			return true
		}
	}
	return false
}
