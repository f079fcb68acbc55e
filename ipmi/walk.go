package ipmi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// maxRecords bounds the walk through the sensor records, which a BMC may make endless.
	maxRecords = 1024
	// skipMost is how many ids after an unreadable record are tried for the next one.
	skipMost = 8
	// pieceLen is asked for at a time: many BMCs refuse more.
	pieceLen = 16
	// reserveTries bounds how often the walk starts again because the records changed.
	reserveTries = 3
	// walkTime bounds the walk as a whole.
	walkTime   = 2 * time.Minute
	lastRecord = 0xffff
)

var errCancelled = errors.New("ipmi: the sensor records changed while they were read")

// records is what the sensor data records of a BMC say.
type records struct {
	watts []sensor // watt sensors, each number once
	note  string   // records that could not be read
	doubt string   // why records may be missing; empty if they were all seen
}

// listSensors walks the sensor data records and keeps the watts sensors. It is done once
// per login: a whole scan takes some BMCs half a minute.
func listSensors(ctx context.Context, l link) (*records, error) {
	ctx, cancel := context.WithTimeout(ctx, walkTime)
	defer cancel()
	for range reserveTries {
		if all, err := walkSensors(ctx, l); !errors.Is(err, errCancelled) {
			return all, err
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrRefused, errCancelled)
}

func walkSensors(ctx context.Context, l link) (*records, error) {
	code, data, err := l.ask(ctx, command{NetFn: netFnStorage, ID: 0x22}, nil)
	switch {
	case err != nil:
		return nil, err
	case code.missing():
		return &records{}, nil
	case code != codeOK:
		return nil, refused("reserve sensor records", code)
	case len(data) < 2:
		return nil, fmt.Errorf("%w: reservation of %d bytes", ErrMalformed, len(data))
	}
	w := &walk{link: l, reservation: binary.LittleEndian.Uint16(data), asked: map[uint16]bool{}, own: map[uint16]bool{}}
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	total := 0 // as the BMC counts its records, where it does; 33.9
	code, data, err = l.ask(ctx, command{NetFn: netFnStorage, ID: 0x20}, nil)
	if err == nil && code == codeOK && len(data) >= 3 {
		total = int(binary.LittleEndian.Uint16(data[1:]))
	}
	return w.result(total), err
}

// walk follows the records from one to the next. BMCs are known whose list loops, has records that
// cannot be read, names records that do not exist, or answers with another record.
type walk struct {
	link        link
	reservation uint16
	asked       map[uint16]bool // ids that were asked for
	own         map[uint16]bool // ids that records have by their own header
	watts       []sensor
	lost        []string // records that the BMC names and does not show, in words
	foreign     int      // records that were answered in place of others
	ended       bool     // neither a loop nor the bound ended the walk
}

// run is over when the list ends or loops, or at the bound.
func (w *walk) run(ctx context.Context) error {
	id, skipped := uint16(0), 0
	for range maxRecords {
		w.asked[id] = true
		next, body, code, err := w.record(ctx, id)
		switch {
		case err != nil:
			return err
		case code == codeOK:
			w.take(id, body)
			skipped = 0
		case code == codeNoData && id == 0: // no records
			next = lastRecord
		default:
			if skipped == 0 || code != codeNoData { // named by the record before; those that follow are guesses
				w.lost = append(w.lost, fmt.Sprintf("%d %v", id, code))
			}
			if next = id + 1; skipped == skipMost { // nothing follows
				next = lastRecord
			}
			skipped++
		}
		if w.ended = next == lastRecord; w.ended || w.asked[next] {
			return nil
		}
		id = next
	}
	return nil
}

// take adds what a record says. Its header may name another id: that is a copy of another record
// if that one was seen.
func (w *walk) take(id uint16, body []byte) {
	header := binary.LittleEndian.Uint16(body)
	if w.own[header] && header != id || w.own[id] && id != 0 {
		w.foreign++
	}
	w.own[header] = true
	if id == 0 { // the first record by another name
		w.asked[header] = true
	}
	if s, ok := decodeSensor(body); ok && !slices.ContainsFunc(w.watts, func(o sensor) bool { return o.number == s.number }) {
		w.watts = append(w.watts, s)
	}
}

// result judges the walk; total is how many records the BMC says it has, 0 for unknown.
func (w *walk) result(total int) *records {
	out := &records{watts: w.watts}
	seen := len(w.own) + len(w.lost)
	switch {
	case w.foreign > 0:
		out.doubt = fmt.Sprintf("the BMC answers with another sensor record (%d times)", w.foreign)
	case total > seen:
		out.doubt = fmt.Sprintf("only %d of %d sensor records could be found", seen, total)
	case total == 0 && !w.ended:
		out.doubt = "the list of sensor records has no end"
	}
	if n := len(w.lost); n > 0 {
		out.note = fmt.Sprintf("sensor records not readable: %d, the first is record %s", n, w.lost[0])
	}
	out.note = joinWords(out.note, out.doubt)
	return out
}

// record reads one record piece by piece; records of other kinds than full sensors stop at the
// header. A code other than codeOK says why it could not be read.
func (w *walk) record(ctx context.Context, id uint16) (next uint16, body []byte, code completion, err error) {
	want := recordHeaderLen
	for len(body) < want {
		count := min(pieceLen, want-len(body))
		var data []byte
		code, data, err = w.link.ask(ctx, command{NetFn: netFnStorage, ID: 0x23}, recordRequest(w.reservation, id, len(body), count))
		switch {
		case err != nil:
			return 0, nil, code, err
		case code == codeCancelled:
			return 0, nil, code, errCancelled
		case code == codeBusy:
			return 0, nil, code, refused("sensor record", code)
		case code != codeOK:
			return 0, nil, code, nil
		}
		follows, piece, ok := decodeRecord(data, count)
		if !ok || len(body) > 0 && follows != next { // too short, or a piece of another record
			return 0, nil, codeUnspecified, nil
		}
		next, body = follows, append(body, piece...)
		if len(body) == recordHeaderLen && body[3] == recordFull {
			want = min(recordHeaderLen+int(body[4]), maxRecordLen)
		}
	}
	return next, body, codeOK, nil
}
