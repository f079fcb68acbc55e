package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"headroom/units"
)

// tickKey begins the tick in an entry that has fields before it. It cannot stand inside of
// a JSON string, in which quotes are escaped.
const tickKey = `,"tick":{"elapsed_ns":`

// readTick reads the entry of a usual second, which is most of the log: a tick of nothing
// but read-backs and targets, written as Encode writes it. encoding/json is the reference,
// and takes several times as long, on every server. False is no error: any other entry, and
// whatever is written in another way, is for encoding/json.
func readTick(data []byte) (Command, bool) {
	at := bytes.Index(data, []byte(tickKey))
	if at < 0 {
		return Command{}, false
	}
	head := append(bytes.Clone(data[:at]), '}')
	c, err := strict(head)
	if err != nil || !json.Valid(head) || c.Rules == 0 || c.parts() != 0 {
		return Command{}, false
	}
	r := &reader{rest: string(data[at:])}
	r.want(tickKey)
	c.Tick = &Tick{Elapsed: time.Duration(r.number())}
	if r.has(`,"acks":[`) {
		c.Tick.Acks = list(r, r.ack)
	}
	if r.has(`,"targets":[`) {
		c.Tick.Targets = list(r, r.target)
	}
	r.want(`}}`)
	return c, !r.failed && r.rest == ""
}

// errTextAfter means an entry with more than one JSON value.
var errTextAfter = errors.New("unexpected text after the JSON value")

// strict reads a command by encoding/json: no unknown field, no text after the end.
func strict(data []byte) (Command, error) {
	var c Command
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, err
	}
	if d.More() {
		return c, errTextAfter
	}
	return c, nil
}

// IsTick reports whether an encoded command is a tick, without decoding it. No text in a command
// can hold the key: its quotes would be escaped.
func IsTick(data []byte) bool { return bytes.Contains(data, []byte(tickKey)) }

// reader reads a text piece by piece. Once a piece was not what was wanted it has failed,
// and what it returns means nothing.
type reader struct {
	rest   string
	failed bool
}

func (r *reader) ack() Ack {
	return Ack{
		Node: r.text(`{"node":"`), Process: r.after(`,"process":`), Number: r.after(`,"number":`), Seq: r.after(`,"seq":`),
		Effective: units.Power(r.after(`,"effective_uw":`)), Stored: units.Power(r.after(`,"stored_uw":`)),
	}
}

func (r *reader) target() Target {
	return Target{Node: r.text(`{"node":"`), Cap: units.Power(r.after(`,"cap_uw":`))}
}

// list reads objects up to the end of their list. one reads an object but for its last bracket.
func list[T any](r *reader, one func() T) []T {
	out := make([]T, 0, strings.Count(r.rest[:max(0, strings.IndexByte(r.rest, ']'))], "{"))
	for !r.failed {
		out = append(out, one())
		r.want(`}`)
		if r.has(`]`) {
			return out
		}
		r.want(`,`)
	}
	return nil
}

// has reads the piece if it comes next.
func (r *reader) has(piece string) bool {
	rest, ok := strings.CutPrefix(r.rest, piece)
	r.rest = rest
	return ok
}

// want reads the piece, which must come next.
func (r *reader) want(piece string) { r.failed = !r.has(piece) || r.failed }

// text reads a piece and the string that it opens, of printable ASCII without escapes.
func (r *reader) text(piece string) string {
	r.want(piece)
	end := 0
	for end < len(r.rest) && r.rest[end] != '"' {
		c := r.rest[end]
		r.failed = r.failed || c < ' ' || c > '~' || c == '\\'
		end++
	}
	text := r.rest[:end]
	r.rest = r.rest[end:]
	r.want(`"`)
	return text
}

// numberDigits bounds the numbers that are read here: all of them fit into 63 bits.
const numberDigits = 18

// after reads a piece and the number behind it.
func (r *reader) after(piece string) uint64 {
	r.want(piece)
	return r.number()
}

// number reads a whole number without sign, exponent or leading zeros.
func (r *reader) number() uint64 {
	v, n := uint64(0), 0
	for n < len(r.rest) && '0' <= r.rest[n] && r.rest[n] <= '9' && n <= numberDigits {
		v = 10*v + uint64(r.rest[n]-'0')
		n++
	}
	r.failed = r.failed || n == 0 || n > numberDigits || n > 1 && r.rest[0] == '0'
	r.rest = r.rest[n:]
	return v
}
