// Package brake is the signed message that lowers a whole cluster to its fail-safe
// caps, with or without a leader.
//
// The one idea: a brake is accepted for its signature and nothing else. It is
// signed with a key that only coordinators have; the gossip key, which every node
// has, is not enough. It carries a generation that only rises, so that a repeated
// old message has no effect.
//
// Guarantees: Open accepts exactly the bytes that Sign made with one of the keys.
// Accepted text is bounded and printable. A message of another kind or version is
// refused as a whole.
//
// The package sends nothing and stores nothing; gossip and its members do.
package brake

import (
	"crypto"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// version of the message: one byte at its start.
	version = 1
	// MaxActor is the length of who sets a brake, bytes.
	MaxActor = 128
	// MaxReason is the length of why, bytes; with the rest a message stays well below
	// one packet.
	MaxReason = 255
	// head is the version, the generation and the time.
	head = 1 + 8 + 8
	// MaxSize is the size of the longest message, bytes.
	MaxSize = head + 1 + MaxActor + 1 + MaxReason + ed25519.SignatureSize
	// signContext keeps a signature made for anything else from being one of a brake.
	signContext = "headroom brake 1"
)

var (
	// ErrMalformed means that the bytes are no brake of a version that is known here.
	ErrMalformed = errors.New("no brake message")
	// ErrForged means that no key of this member's has made the signature.
	ErrForged = errors.New("brake message with a signature of another key")
	// errMessage means that a message cannot be signed as it stands.
	errMessage = errors.New("bad brake message")
)

// Message is one setting of the brake.
type Message struct {
	// Generation of the brake, above 0: a higher one wins, and is lifted by itself.
	Generation uint64
	// At is the signing server's wall clock, to the microsecond; for people only.
	At time.Time
	// Actor and Reason say who set it and why, at most MaxActor and MaxReason
	// bytes, printable.
	Actor, Reason string
}

// Signed is a message with the bytes that prove it. The zero Signed, of
// generation 0, stands for no brake. It is made by Sign and Open only.
type Signed struct {
	Message

	raw string
}

// Bytes are the message as it travels.
func (s Signed) Bytes() []byte { return []byte(s.raw) }

// Is reports whether data are the bytes of this very message.
func (s Signed) Is(data []byte) bool { return s.raw != "" && s.raw == string(data) }

// Sign makes the message believable. Its error is ErrMessage.
func (k PrivateKey) Sign(m Message) (Signed, error) {
	if err := m.check(); err != nil {
		return Signed{}, err
	}
	body := m.encode()
	signature, err := k.key.Sign(nil, body, options())
	if err != nil {
		return Signed{}, fmt.Errorf("%w: %w", errMessage, err)
	}
	m.At = time.UnixMicro(m.At.UnixMicro()).UTC()
	return Signed{Message: m, raw: string(append(body, signature...))}, nil
}

// Generation is what data claim to be the generation, unproven; false when they are
// no message at all.
func Generation(data []byte) (uint64, bool) {
	if len(data) > MaxSize || len(data) < head || data[0] != version {
		return 0, false
	}
	return binary.BigEndian.Uint64(data[1:]), true
}

// Open believes a message that one of the keys has signed. Its errors are
// ErrMalformed and ErrForged.
func (k Keys) Open(data []byte) (Signed, error) {
	if len(data) > MaxSize || len(data) <= ed25519.SignatureSize {
		return Signed{}, fmt.Errorf("%d bytes: %w", len(data), ErrMalformed)
	}
	body, signature := data[:len(data)-ed25519.SignatureSize], data[len(data)-ed25519.SignatureSize:]
	m, err := decode(body)
	if err != nil {
		return Signed{}, err
	}
	for _, key := range k.keys {
		if ed25519.VerifyWithOptions(key, body, signature, options()) == nil {
			return Signed{Message: m, raw: string(data)}, nil
		}
	}
	return Signed{}, fmt.Errorf("generation %d: %w", m.Generation, ErrForged)
}

func options() *ed25519.Options { return &ed25519.Options{Hash: crypto.Hash(0), Context: signContext} }

func (m Message) check() error {
	switch {
	case m.Generation == 0:
		return fmt.Errorf("generation 0: %w", errMessage)
	case len(m.Actor) > MaxActor || !Printable(m.Actor):
		return fmt.Errorf("actor of %d bytes: %w", len(m.Actor), errMessage)
	case len(m.Reason) > MaxReason || !Printable(m.Reason):
		return fmt.Errorf("reason of %d bytes: %w", len(m.Reason), errMessage)
	}
	return nil
}

// Printable reports whether a text of a gossip message may stand in logs and on
// screens: valid UTF-8 without control characters.
func Printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Fit cuts a text to most bytes of what a message may carry: whole characters,
// printable ones only.
func Fit(text string, most int) string {
	out := make([]rune, 0, len(text))
	size := 0
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			continue
		case !unicode.IsPrint(r):
			r = ' '
		}
		if size += utf8.RuneLen(r); size > most {
			break
		}
		out = append(out, r)
	}
	return string(out)
}

// encode makes the bytes of a checked message that are signed.
func (m Message) encode() []byte {
	out := make([]byte, 0, MaxSize)
	out = append(out, version)
	out = binary.BigEndian.AppendUint64(out, m.Generation)
	out = binary.BigEndian.AppendUint64(out, uint64(m.At.UnixMicro()))
	out = append(out, byte(len(m.Actor)))
	out = append(out, m.Actor...)
	out = append(out, byte(len(m.Reason)))
	return append(out, m.Reason...)
}

// decode reads exactly what encode makes of a message that passes check.
func decode(b []byte) (Message, error) {
	if len(b) < head || b[0] != version {
		return Message{}, fmt.Errorf("version: %w", ErrMalformed)
	}
	m := Message{
		Generation: binary.BigEndian.Uint64(b[1:]),
		At:         time.UnixMicro(int64(binary.BigEndian.Uint64(b[9:]))).UTC(),
	}
	actor, rest, ok := cut(b[head:])
	if !ok {
		return Message{}, fmt.Errorf("actor: %w", ErrMalformed)
	}
	reason, rest, ok := cut(rest)
	if !ok || len(rest) > 0 {
		return Message{}, fmt.Errorf("reason: %w", ErrMalformed)
	}
	m.Actor, m.Reason = actor, reason
	if err := m.check(); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

func cut(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	end := 1 + int(b[0])
	return string(b[1:end]), b[end:], true
}
