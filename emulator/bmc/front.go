package bmc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"net"
	"slices"
	"time"

	"headroom/ipmi/rmcp"
)

// session is one RMCP+ session, from Open Session on; IPMI v2.0, 13.15.
type session struct {
	suite     rmcp.Suite
	console   [4]byte // the other end's id
	id        [4]byte // ours
	theirs    [16]byte
	ours      [16]byte
	who       []byte // role, length of the name, name
	most      byte   // privilege that the role asks for
	privilege byte
	keys      *rmcp.Keys // nil until RAKP message 3 was right
	sequence  uint32
	used      time.Time
}

const (
	maxDatagram = 1024
	// maxSessions bounds the sessions, as real BMCs do; sessionLife ends an idle one.
	maxSessions = 16
	sessionLife = time.Minute
	// maxLate bounds the answers that a slow BMC has not sent yet.
	maxLate = 64
	maxName = 16
	keyLen  = 20 // of the password; 13.31
)

// The status codes of the session set-up; IPMI v2.0, table 13-15.
const (
	statusNoResources  = 0x01
	statusSession      = 0x02
	statusPrivilege    = 0x0a
	statusName         = 0x0d
	statusWrongCode    = 0x0f
	statusNoSuite      = 0x11
	statusOK           = 0x00
	systemGUID         = "headroom-bmc-001"
	lenOpen            = 32
	lenRAKP1           = 28
	lenRAKP3           = 8
	roleMask           = 0x0f
	algorithmMask      = 0x3f
	algorithmAES       = 0x01
	algorithmLen       = 8
	firstAlgorithmByte = 12
)

// receive reads the socket until it is closed. A BMC that hangs drops everything.
func (b *BMC) receive(ctx context.Context) {
	late := make(chan struct{}, maxLate)
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := b.socket.ReadFrom(buf)
		if err != nil {
			return
		}
		answer, slow := b.handle(time.Now(), buf[:n])
		switch {
		case answer == nil:
		case slow == 0:
			b.send(answer, from)
		default:
			select {
			case late <- struct{}{}:
				b.wait.Go(func() { b.sendLate(ctx, answer, from, slow, late) })
			default: // as many as it can hold: the rest is lost
			}
		}
	}
}

func (b *BMC) send(answer []byte, to net.Addr) {
	_, _ = b.socket.WriteTo(answer, to) // UDP may lose it
}

func (b *BMC) sendLate(ctx context.Context, answer []byte, to net.Addr, slow time.Duration, late <-chan struct{}) {
	wait := time.NewTimer(slow)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
		b.send(answer, to)
	}
	<-late
}

// handle is the answer to one datagram, nil for none, and how long to hold it up.
func (b *BMC) handle(now time.Time, datagram []byte) ([]byte, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault.Hang {
		return nil, 0
	}
	for id, s := range b.sessions {
		if now.Sub(s.used) > sessionLife {
			delete(b.sessions, id)
		}
	}
	if id, ok := rmcp.Protected(datagram); ok {
		return b.inSession(now, id, datagram), b.fault.Slow
	}
	if p, err := rmcp.Unpack(datagram, nil); err == nil {
		return b.before(now, p), b.fault.Slow
	}
	return b.oldFrame(now, datagram), b.fault.Slow
}

// inSession serves a command; a session that was forgotten is not answered at all.
func (b *BMC) inSession(now time.Time, id uint32, datagram []byte) []byte {
	s := b.sessions[id]
	if s == nil || s.keys == nil {
		return nil
	}
	p, err := rmcp.Unpack(datagram, s.keys)
	if err != nil || p.Kind != rmcp.PayloadIPMI {
		return nil
	}
	s.used = now
	msg, ok := b.dispatch(now, s, p.Payload)
	if !ok {
		return nil
	}
	s.sequence++
	return pack(rmcp.Packet{Kind: rmcp.PayloadIPMI, Session: binary.LittleEndian.Uint32(s.console[:]), Sequence: s.sequence, Payload: msg}, s.keys)
}

func pack(p rmcp.Packet, k *rmcp.Keys) []byte {
	out, err := p.Pack(k)
	if err != nil {
		return nil
	}
	return out
}

// before serves what comes outside of a session: its set-up, and a few commands.
func (b *BMC) before(now time.Time, p rmcp.Packet) []byte {
	switch p.Kind {
	case rmcp.PayloadOpen:
		return pack(rmcp.Packet{Kind: rmcp.PayloadOpened, Payload: b.open(now, p.Payload)}, nil)
	case rmcp.PayloadRAKP1:
		return pack(rmcp.Packet{Kind: rmcp.PayloadRAKP2, Payload: b.rakp1(p.Payload)}, nil)
	case rmcp.PayloadRAKP3:
		return pack(rmcp.Packet{Kind: rmcp.PayloadRAKP4, Payload: b.rakp3(p.Payload)}, nil)
	case rmcp.PayloadIPMI:
		if msg, ok := b.dispatch(now, nil, p.Payload); ok {
			return pack(rmcp.Packet{Kind: rmcp.PayloadIPMI, Payload: msg}, nil)
		}
	}
	return nil
}

// oldFrame serves a command in an IPMI v1.5 frame without authentication, in which
// clients ask for the channel's abilities first; 13.6.
func (b *BMC) oldFrame(now time.Time, d []byte) []byte {
	const head = 14 // RMCP header, type, sequence, session, length
	if len(d) < head || d[0] != 0x06 || d[3] != 0x07 || d[4] != 0 || len(d) < head+int(d[13]) {
		return nil
	}
	msg, ok := b.dispatch(now, nil, d[head:head+int(d[13])])
	if !ok {
		return nil
	}
	out := append([]byte{0x06, 0x00, 0xff, 0x07, 0x00, 0, 0, 0, 0, 0, 0, 0, 0}, byte(len(msg)))
	return append(out, msg...)
}

// open answers Open Session: tag, status, privilege, both ids, algorithms; 13.17, 13.18.
func (b *BMC) open(now time.Time, req []byte) []byte {
	if len(req) < lenOpen {
		return nil
	}
	refuse := func(status byte) []byte { return append([]byte{req[0], status, 0, 0}, req[4:8]...) }
	suite, ok := b.suiteOf(req[firstAlgorithmByte]&algorithmMask, req[firstAlgorithmByte+algorithmLen]&algorithmMask,
		req[firstAlgorithmByte+2*algorithmLen]&algorithmMask)
	switch {
	case !ok:
		return refuse(statusNoSuite)
	case len(b.sessions) >= maxSessions:
		return refuse(statusNoResources)
	}
	s := &session{suite: suite, console: [4]byte(req[4:8]), used: now}
	if random(s.id[:]) != nil || random(s.ours[:]) != nil {
		return refuse(statusNoResources)
	}
	s.id[0] |= 1 // never 0, which means no session
	b.sessions[binary.LittleEndian.Uint32(s.id[:])] = s
	out := append([]byte{req[0], statusOK, asAdmin, 0}, s.console[:]...)
	return append(append(out, s.id[:]...), req[8:lenOpen]...)
}

func random(to []byte) error {
	_, err := rand.Read(to)
	return err
}

func (b *BMC) suiteOf(auth, integrity, secrecy byte) (rmcp.Suite, bool) {
	for _, s := range rmcp.Suites() {
		if s.Auth == auth && s.Integrity == integrity && secrecy == algorithmAES && b.accepts(s.ID) {
			return s, true
		}
	}
	return rmcp.Suite{}, false
}

func (b *BMC) accepts(id byte) bool {
	return len(b.cfg.CipherSuites) == 0 || slices.Contains(b.cfg.CipherSuites, id)
}

// of finds the session that a message of the set-up names.
func (b *BMC) of(req []byte) *session { return b.sessions[binary.LittleEndian.Uint32(req[4:])] }

// rakp1 answers with our random number and the proof that we know the password; 13.20, 13.21.
func (b *BMC) rakp1(req []byte) []byte {
	if len(req) < lenRAKP1 || int(req[27]) > maxName || len(req) < lenRAKP1+int(req[27]) {
		return nil
	}
	s := b.of(req)
	refuse := func(status byte, console [4]byte) []byte {
		return append([]byte{req[0], status, 0, 0}, console[:]...)
	}
	if s == nil {
		return refuse(statusSession, [4]byte{})
	}
	name := req[lenRAKP1 : lenRAKP1+int(req[27])]
	s.most = req[24] & roleMask
	switch {
	case string(name) != b.cfg.User:
		return refuse(statusName, s.console)
	case s.most > b.privilege():
		return refuse(statusPrivilege, s.console)
	}
	s.theirs = [16]byte(req[8:24])
	s.who = append([]byte{req[24], req[27]}, name...)
	out := append([]byte{req[0], statusOK, 0, 0}, s.console[:]...)
	out = append(append(out, s.ours[:]...), systemGUID...)
	return append(out, s.suite.MAC(b.secret(), s.console[:], s.id[:], s.theirs[:], s.ours[:], []byte(systemGUID), s.who)...)
}

func (b *BMC) privilege() byte {
	if b.cfg.Privilege == 0 {
		return asAdmin
	}
	return b.cfg.Privilege
}

func (b *BMC) secret() []byte {
	out := make([]byte, keyLen)
	copy(out, b.cfg.Password)
	return out
}

// rakp3 checks the other end's proof and opens the session; 13.22, 13.23.
func (b *BMC) rakp3(req []byte) []byte {
	if len(req) < lenRAKP3 {
		return nil
	}
	s := b.of(req)
	switch {
	case s == nil || s.who == nil:
		return []byte{req[0], statusSession, 0, 0, 0, 0, 0, 0}
	case !hmac.Equal(req[lenRAKP3:], s.suite.MAC(b.secret(), s.ours[:], s.console[:], s.who)):
		delete(b.sessions, binary.LittleEndian.Uint32(s.id[:]))
		return append([]byte{req[0], statusWrongCode, 0, 0}, s.console[:]...)
	}
	sik := s.suite.MAC(b.secret(), s.theirs[:], s.ours[:], s.who)
	keys := rmcp.DeriveKeys(s.suite, sik)
	s.keys, s.privilege = &keys, min(asUser, s.most)
	out := append([]byte{req[0], statusOK, 0, 0}, s.console[:]...)
	return append(out, s.suite.MAC(sik, s.theirs[:], s.id[:], []byte(systemGUID))[:s.suite.Sign]...)
}

// deviceID is a device with sensors and records, IPMI 2.0; 20.1.
func deviceID(time.Time, *session, []byte) ([]byte, byte) {
	return []byte{0x20, 0x01, 0x01, 0x00, 0x02, 0x03, 0x57, 0x01, 0x00, 0x01, 0x00}, codeOK
}

// channelAuthentication says that only RMCP+ with a user name is taken; 22.13.
func channelAuthentication(_ time.Time, _ *session, _ []byte) ([]byte, byte) {
	return []byte{lanChannel, 0x80, 0x04, 0x02, 0, 0, 0, 0}, codeOK
}

// cipherSuites lists the suites as records of five bytes; 22.15.
func (b *BMC) cipherSuites(_ time.Time, _ *session, req []byte) ([]byte, byte) {
	out := []byte{lanChannel}
	if req[2]&algorithmMask != 0 {
		return out, codeOK // all fit in the first part
	}
	for _, s := range rmcp.Suites() {
		if b.accepts(s.ID) {
			out = append(out, 0xc0, s.ID, s.Auth, 0x40|s.Integrity, 0x80|algorithmAES)
		}
	}
	return out, codeOK
}

func setPrivilege(_ time.Time, s *session, req []byte) ([]byte, byte) {
	level := req[0] & roleMask
	switch {
	case level > s.most:
		return nil, 0x81
	case level > 0:
		s.privilege = level
	}
	return []byte{s.privilege}, codeOK
}

// closeSession ends the sender's session: it times out at once.
func closeSession(_ time.Time, s *session, _ []byte) ([]byte, byte) {
	s.used = time.Time{}
	return nil, codeOK
}
