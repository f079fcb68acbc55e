package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// SetKeys puts others in place of the keys in force, while the gossip goes on: it
// sends with the first from now on, believes all of them and none else. What is in
// force already is left alone. Its errors are *cli.Error; then nothing is changed.
func (g *Gossip) SetKeys(keys Keys) error {
	if err := keys.check(); err != nil {
		return err
	}
	g.changes.Lock()
	defer g.changes.Unlock()
	old := g.Keys()
	for _, key := range keys {
		if err := g.ring.AddKey(key); err != nil {
			return fmt.Errorf("gossip: believe a key: %w", err)
		}
	}
	if err := g.ring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("gossip: send with a key: %w", err)
	}
	for _, key := range old {
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			continue
		}
		if err := g.ring.RemoveKey(key); err != nil {
			return fmt.Errorf("gossip: drop a key: %w", err)
		}
	}
	now := g.Keys().Fingerprints()
	if slices.Equal(now, old.Fingerprints()) {
		return nil
	}
	g.foreign.forget() // who was refused may be believed now, and is heard again if not
	g.log.Info("gossip keys", slog.String("sends_with", now[0]), slog.Any("accepts", now[1:]), slog.Any("before", old.Fingerprints()))
	return nil
}

// Reload is SetKeys with what the file at path holds now.
func (g *Gossip) Reload(path string) error {
	keys, err := LoadKeys(path)
	if err != nil {
		return err
	}
	return g.SetKeys(keys)
}

// Keys are the keys in force, the one that this member sends with first.
func (g *Gossip) Keys() Keys { return g.ring.GetKeys() }

// Foreign is who was last refused because it gossips with a key that this member
// does not have, and when: host:port as it came in, empty and the zero time for nobody.
func (g *Gossip) Foreign() (from string, at time.Time) {
	g.foreign.mu.Lock()
	defer g.foreign.mu.Unlock()
	return g.foreign.from, g.foreign.at
}
