package ipmi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"headroom/ipmi/rmcp"
)

// session is a logged-in RMCP+ session (IPMI v2.0, 13.15). It is used by one goroutine.
//
// A session is small and ours because the client of the library that the in-band way
// uses opens answers without checking their signature, on goroutines of its own: one bad
// datagram could end the agent.
type session struct {
	conn net.Conn
	cfg  Config

	keys     *rmcp.Keys
	suite    byte   // of the keys
	id       uint32 // the BMC's name for the session
	sequence uint32 // of the last packet sent
	seen     uint32 // highest sequence received
	message  byte   // number of the last request, 6 bits
	tag      byte   // of the last message of the handshake
}

// resends is how many times one question is sent before its time is up: UDP loses some.
const resends = 4

// mask6 keeps the six bits of an algorithm or of a request number.
const mask6 = 0x3f

// maxDatagram bounds what is read; an IPMI answer has less than 300 bytes.
const maxDatagram = 1024

// privileges are asked for in this order: a limit needs operator by DCMI v1.5, and
// administrator on some BMCs; a reading needs user.
func privileges() []byte { return []byte{4, 3, 2} }

// The status codes of RMCP+ that lead to another attempt; IPMI v2.0, table 13-15.
func otherSuite(status byte) bool {
	switch status {
	case 0x04, 0x05, 0x06, 0x07, 0x10, 0x11:
		return true
	default:
		return false
	}
}

func otherPrivilege(status byte) bool { return status == 0x09 || status == 0x0a || status == 0x0b }

// statusFull is the answer of a BMC whose sessions are all in use: it passes.
const statusFull = 0x01

// statusError is a refusal in the handshake.
type statusError byte

func (e statusError) Error() string {
	return fmt.Sprintf("session setup failed with status %#02x", byte(e))
}

// login opens the session with the first suite and privilege that the BMC takes.
func (s *session) login(ctx context.Context) error {
	var err error
	for _, su := range rmcp.Suites() {
		for _, privilege := range privileges() {
			var status statusError
			err = s.handshake(ctx, su, privilege)
			if !errors.As(err, &status) {
				return err
			}
			if !otherPrivilege(byte(status)) {
				break
			}
		}
		var status statusError
		if !errors.As(err, &status) || !otherSuite(byte(status)) {
			break
		}
	}
	var status statusError
	if errors.As(err, &status) && byte(status) == statusFull {
		return fmt.Errorf("%w: %s: no free session", ErrRefused, s.cfg.Address)
	}
	return fmt.Errorf("%w: %s: %w", ErrDenied, s.cfg.Address, err)
}

// handshake is Open Session, RAKP 1 to 4, Set Session Privilege Level.
func (s *session) handshake(ctx context.Context, su rmcp.Suite, privilege byte) error {
	s.keys, s.id, s.sequence, s.seen = nil, 0, 0, 0
	var console [4]byte
	var nonce [16]byte
	if _, err := rand.Read(console[:]); err != nil {
		return fmt.Errorf("ipmi: %w", err)
	}
	if _, err := rand.Read(nonce[:]); err != nil {
		return fmt.Errorf("ipmi: %w", err)
	}
	opened, err := s.step(ctx, rmcp.PayloadOpen, rmcp.PayloadOpened, console, openRequest(su, console))
	if err != nil {
		return err
	}
	managed, err := openAnswer(opened, su)
	if err != nil {
		return err
	}

	role := privilege | 0x10 // look the user up by name only
	user := []byte(s.cfg.User)
	who := append([]byte{role, byte(len(user))}, user...)
	rakp1 := append(append(append([]byte{}, managed...), nonce[:]...), role, 0, 0, byte(len(user)))
	answer, err := s.step(ctx, rmcp.PayloadRAKP1, rmcp.PayloadRAKP2, console, append(rakp1, user...))
	if err != nil {
		return err
	}
	if len(answer) < 40+su.Hash().Size() {
		return fmt.Errorf("%w: RAKP message 2 of %d bytes", ErrMalformed, len(answer))
	}
	theirs, guid, code := answer[8:24], answer[24:40], answer[40:40+su.Hash().Size()]
	secret := make([]byte, maxPassword)
	copy(secret, s.cfg.Password)
	if !hmac.Equal(code, su.MAC(secret, console[:], managed, nonce[:], theirs, guid, who)) {
		return fmt.Errorf("%w: %s: wrong password", ErrDenied, s.cfg.Address)
	}

	sik := su.MAC(secret, nonce[:], theirs, who)
	rakp3 := append(append([]byte{}, managed...), su.MAC(secret, theirs, console[:], who)...)
	answer, err = s.step(ctx, rmcp.PayloadRAKP3, rmcp.PayloadRAKP4, console, rakp3)
	if err != nil {
		return err
	}
	if len(answer) < 8+su.Sign || !hmac.Equal(answer[8:8+su.Sign], su.MAC(sik, nonce[:], managed, guid)[:su.Sign]) {
		return fmt.Errorf("%w: %s: password not accepted", ErrDenied, s.cfg.Address)
	}
	s.keys, s.suite, s.id = new(rmcp.DeriveKeys(su, sik)), su.ID, binary.LittleEndian.Uint32(managed)
	return s.raise(ctx, privilege)
}

// raise asks for the highest privilege that the BMC gives, up to most: a session starts
// as user, which is enough to read.
func (s *session) raise(ctx context.Context, most byte) error {
	for _, privilege := range privileges() {
		if privilege > most {
			continue
		}
		if code, _, err := s.ask(ctx, command{NetFn: netFnApp, ID: 0x3b}, []byte{privilege}); err != nil || code == codeOK {
			return err
		}
	}
	return nil
}

// openRequest is the body of Open Session; table 13-9.
func openRequest(su rmcp.Suite, console [4]byte) []byte {
	out := append([]byte{}, console[:]...)
	for kind, algorithm := range []byte{su.Auth, su.Integrity, 1} {
		out = append(out, byte(kind), 0, 0, 8, algorithm, 0, 0, 0)
	}
	return out
}

// openAnswer is the BMC's name for the session. The algorithms must be those asked for.
func openAnswer(answer []byte, su rmcp.Suite) ([]byte, error) {
	if len(answer) < 36 {
		return nil, fmt.Errorf("%w: open session answer of %d bytes", ErrMalformed, len(answer))
	}
	if answer[16]&mask6 != su.Auth || answer[24]&mask6 != su.Integrity || answer[32]&mask6 != 1 {
		return nil, statusError(0x11)
	}
	return answer[8:12], nil
}

// step sends one message of the handshake and returns its answer, whose first eight bytes
// are tag, status, two more, and our own session id.
func (s *session) step(ctx context.Context, kind, want byte, console [4]byte, body []byte) ([]byte, error) {
	s.tag++
	payload := append([]byte{s.tag, 0, 0, 0}, body...)
	send := func() ([]byte, error) { return rmcp.Packet{Kind: kind, Payload: payload}.Pack(nil) }
	var answer []byte
	err := s.exchange(ctx, send, func(b []byte) bool {
		p, err := rmcp.Unpack(b, nil)
		if err != nil || p.Kind != want || len(p.Payload) < 8 || p.Payload[0] != s.tag || [4]byte(p.Payload[4:8]) != console {
			return false
		}
		answer = p.Payload
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case answer[1] != 0:
		return nil, statusError(answer[1])
	}
	return answer, nil
}

// ask sends a command inside the session. Only a packet with a right signature, a new
// sequence number and the number of this request counts as its answer.
func (s *session) ask(ctx context.Context, cmd command, data []byte) (completion, []byte, error) {
	s.message = (s.message + 1) & mask6
	msg := rmcp.Request(cmd, s.message, data)
	send := func() ([]byte, error) {
		s.sequence++
		return rmcp.Packet{Kind: rmcp.PayloadIPMI, Session: s.id, Sequence: s.sequence, Payload: msg}.Pack(s.keys)
	}
	var code completion
	var answer []byte
	err := s.exchange(ctx, send, func(b []byte) bool {
		p, err := rmcp.Unpack(b, s.keys)
		if err != nil || p.Kind != rmcp.PayloadIPMI || p.Sequence <= s.seen {
			return false
		}
		s.seen = p.Sequence
		var c byte
		c, answer, err = rmcp.ParseAnswer(p.Payload, cmd, s.message)
		code = completion(c)
		return err == nil
	})
	return code, answer, err
}

// exchange sends until an answer is taken or the time is up; datagrams that are not
// taken are dropped. A cancelled context ends it at once.
func (s *session) exchange(ctx context.Context, send func() ([]byte, error), take func([]byte) bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }) // a closed socket ends the read by itself
	defer stop()

	buf := make([]byte, maxDatagram)
	for range resends {
		b, err := send()
		if err != nil {
			return err
		}
		if _, err := s.conn.Write(b); err != nil {
			return s.silent(ctx, err)
		}
		if err := s.listen(ctx, buf, take); err == nil || !errors.Is(err, errWaited) {
			return err
		}
	}
	return s.silent(ctx, context.DeadlineExceeded)
}

// errWaited is the end of one listen without an answer.
var errWaited = errors.New("no answer yet")

// listen reads until an answer is taken, for one resend's share of the time.
func (s *session) listen(ctx context.Context, buf []byte, take func([]byte) bool) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.cfg.Timeout / resends)); err != nil {
		return s.silent(ctx, err)
	}
	for {
		if ctx.Err() != nil { // the deadline that ended the context may have come before ours
			return s.silent(ctx, ctx.Err())
		}
		n, err := s.conn.Read(buf)
		var timeout net.Error
		switch {
		case err == nil && take(buf[:n]):
			return nil
		case err == nil:
		case errors.As(err, &timeout) && timeout.Timeout():
			if ctx.Err() != nil {
				return s.silent(ctx, ctx.Err())
			}
			return errWaited
		default:
			return s.silent(ctx, err)
		}
	}
}

// silent is the error of a BMC that cannot be reached.
func (s *session) silent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("%w: %s: %w", ErrNoAnswer, s.cfg.Address, err)
}

// close tells the BMC that the session is over, without waiting for its answer.
func (s *session) close() {
	if s.keys != nil {
		s.sequence++
		s.message = (s.message + 1) & mask6
		msg := rmcp.Request(command{NetFn: netFnApp, ID: 0x3c}, s.message, binary.LittleEndian.AppendUint32(nil, s.id))
		if b, err := (rmcp.Packet{Session: s.id, Sequence: s.sequence, Payload: msg}).Pack(s.keys); err == nil {
			_, _ = s.conn.Write(b) // it also ends by itself after a minute
		}
	}
	_ = s.conn.Close() // nothing was written that could be lost
}
