// Package rmcp encodes and decodes IPMI over LAN: RMCP+ packets, their encryption and
// signature, and the IPMI messages inside.
//
// The one idea: bytes in, bytes out, for the client side of a session (package ipmi).
//
// Guarantees: no input from the network causes a panic; a protected packet is decoded only
// after its signature has been verified. The package does no I/O and knows no command.
package rmcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // cipher suite 3 is RAKP-HMAC-SHA1 by IPMI v2.0, table 22-20
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// errMalformed is returned for bytes that are no valid packet or message.
var errMalformed = errors.New("rmcp: malformed")

// Suite is one cipher suite: what RAKP authenticates with, and how packets are signed.
// Confidentiality is AES-CBC-128 in both.
type Suite struct {
	ID              byte
	Auth, Integrity byte
	Hash            func() hash.Hash
	Sign            int // bytes of the hash that a packet and RAKP message 4 carry
}

// Suites are those that both ends know, in the order in which they are tried. Asking the
// BMC first (Get Channel Cipher Suites) costs seconds where it does not answer before a
// session.
func Suites() []Suite {
	return []Suite{
		{ID: 3, Auth: 1, Integrity: 1, Hash: sha1.New, Sign: 12},
		{ID: 17, Auth: 3, Integrity: 4, Hash: sha256.New, Sign: 16},
	}
}

// MAC is the keyed hash over the parts, whole.
func (s Suite) MAC(key []byte, parts ...[]byte) []byte {
	h := hmac.New(s.Hash, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// Keys protect the packets of one session.
type Keys struct {
	Suite  Suite
	k1, k2 []byte
}

// DeriveKeys makes K1 and K2 of the session integrity key; IPMI v2.0, 13.32.
func DeriveKeys(s Suite, sik []byte) Keys {
	constant := func(b byte) []byte {
		out := make([]byte, 20)
		for i := range out {
			out[i] = b
		}
		return out
	}
	return Keys{Suite: s, k1: s.MAC(sik, constant(1)), k2: s.MAC(sik, constant(2))}
}

// The payload types in use; IPMI v2.0, table 13-16.
const (
	PayloadIPMI     = 0x00
	PayloadOpen     = 0x10
	PayloadOpened   = 0x11
	PayloadRAKP1    = 0x12
	PayloadRAKP2    = 0x13
	PayloadRAKP3    = 0x14
	PayloadRAKP4    = 0x15
	flagEncrypted   = 0x80
	flagSigned      = 0x40
	payloadTypeMask = 0x3f
)

const (
	rmcpLen    = 4
	headerLen  = rmcpLen + 12
	rmcpPlus   = 0x06 // authentication type of RMCP+
	nextHeader = 0x07
	ivLen      = aes.BlockSize
)

// Packet is one datagram, opened.
type Packet struct {
	Kind     byte   // payload type
	Session  uint32 // the receiver's id; 0 outside of a session
	Sequence uint32 // 0 outside of a session
	Payload  []byte
}

// Pack makes the datagram of p; with keys it is encrypted and signed.
func (p Packet) Pack(k *Keys) ([]byte, error) {
	kind, payload := p.Kind, p.Payload
	if k != nil {
		kind |= flagEncrypted | flagSigned
		sealed, err := seal(payload, k.k2)
		if err != nil {
			return nil, err
		}
		payload = sealed
	}
	out := make([]byte, 0, headerLen+len(payload)+32)
	out = append(out, 0x06, 0x00, 0xff, 0x07, rmcpPlus, kind)
	out = binary.LittleEndian.AppendUint32(out, p.Session)
	out = binary.LittleEndian.AppendUint32(out, p.Sequence)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(payload)))
	out = append(out, payload...)
	if k == nil {
		return out, nil
	}
	pad := 0
	for (len(out)-rmcpLen+2)%4 != 0 {
		out = append(out, 0xff)
		pad++
	}
	out = append(out, byte(pad), nextHeader)
	return append(out, k.Suite.MAC(k.k1, out[rmcpLen:])[:k.Suite.Sign]...), nil
}

// Unpack opens a datagram. With keys only a signed and encrypted packet is taken, and
// its signature is checked before anything in it is looked at.
func Unpack(b []byte, k *Keys) (Packet, error) {
	if len(b) < headerLen || b[0] != 0x06 || b[3]&0x9f != 0x07 || b[4] != rmcpPlus {
		return Packet{}, fmt.Errorf("%w: no RMCP+ packet", errMalformed)
	}
	le := binary.LittleEndian
	p := Packet{Kind: b[5] & payloadTypeMask, Session: le.Uint32(b[6:]), Sequence: le.Uint32(b[10:])}
	size := int(le.Uint16(b[14:]))
	if len(b) < headerLen+size {
		return Packet{}, fmt.Errorf("%w: %d bytes of payload announced, %d came", errMalformed, size, len(b)-headerLen)
	}
	p.Payload = b[headerLen : headerLen+size]
	if k == nil {
		if b[5]&(flagEncrypted|flagSigned) != 0 {
			return Packet{}, fmt.Errorf("%w: protected packet outside of a session", errMalformed)
		}
		return p, nil
	}
	if b[5]&(flagEncrypted|flagSigned) != flagEncrypted|flagSigned {
		return Packet{}, fmt.Errorf("%w: unprotected packet inside a session", errMalformed)
	}
	signed := len(b) - k.Suite.Sign
	if signed < headerLen+size+2 || !hmac.Equal(b[signed:], k.Suite.MAC(k.k1, b[rmcpLen:signed])[:k.Suite.Sign]) {
		return Packet{}, fmt.Errorf("%w: wrong signature", errMalformed)
	}
	plain, err := unseal(p.Payload, k.k2)
	p.Payload = plain
	return p, err
}

// seal encrypts with AES-CBC-128 under the first half of K2; IPMI v2.0, 13.29.
func seal(plain, k2 []byte) ([]byte, error) {
	block, err := aes.NewCipher(k2[:aes.BlockSize])
	if err != nil {
		return nil, fmt.Errorf("ipmi: %w", err)
	}
	pad := (aes.BlockSize - (len(plain)+1)%aes.BlockSize) % aes.BlockSize
	out := make([]byte, ivLen, ivLen+len(plain)+pad+1)
	if _, err := rand.Read(out); err != nil {
		return nil, fmt.Errorf("ipmi: %w", err)
	}
	out = append(out, plain...)
	for i := range pad {
		out = append(out, byte(i+1))
	}
	out = append(out, byte(pad))
	cipher.NewCBCEncrypter(block, out[:ivLen]).CryptBlocks(out[ivLen:], out[ivLen:])
	return out, nil
}

func unseal(sealed, k2 []byte) ([]byte, error) {
	if len(sealed) < 2*aes.BlockSize || len(sealed)%aes.BlockSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes are no encrypted payload", errMalformed, len(sealed))
	}
	block, err := aes.NewCipher(k2[:aes.BlockSize])
	if err != nil {
		return nil, fmt.Errorf("ipmi: %w", err)
	}
	plain := make([]byte, len(sealed)-ivLen)
	cipher.NewCBCDecrypter(block, sealed[:ivLen]).CryptBlocks(plain, sealed[ivLen:])
	keep := len(plain) - 1 - int(plain[len(plain)-1])
	if keep < 0 {
		return nil, fmt.Errorf("%w: wrong padding", errMalformed)
	}
	return plain[:keep], nil
}

// Command is an IPMI command, by network function (even: of the request) and number.
type Command struct {
	NetFn, ID byte
}

const (
	addressBMC    = 0x20
	addressRemote = 0x81 // software id of a remote console
	minMessage    = 7    // a request without data
	sequenceMask  = 0x3f
)

// Request frames a command as an IPMI message (13.8); only 6 bits of sequence count.
func Request(cmd Command, sequence byte, data []byte) []byte {
	return message([]byte{addressBMC, cmd.NetFn << 2}, []byte{addressRemote, sequence << 2, cmd.ID}, data)
}

func message(head, body, data []byte) []byte {
	out := append(append(head, checksum(head)), body...)
	out = append(out, data...)
	return append(out, checksum(out[3:]))
}

// ParseAnswer opens the message that answers a request; the answer to another one is
// an error.
func ParseAnswer(msg []byte, cmd Command, sequence byte) (code byte, data []byte, err error) {
	if len(msg) < minMessage+1 || checksum(msg[:3]) != 0 || checksum(msg[3:]) != 0 {
		return 0, nil, fmt.Errorf("%w: no IPMI message", errMalformed)
	}
	if msg[1]>>2 != cmd.NetFn|1 || msg[4]>>2 != sequence&sequenceMask || msg[5] != cmd.ID {
		return 0, nil, fmt.Errorf("%w: the answer to another request", errMalformed)
	}
	return msg[6], msg[7 : len(msg)-1], nil
}

// checksum makes the sum of all bytes and itself 0.
func checksum(b []byte) byte {
	var sum byte
	for _, c := range b {
		sum += c
	}
	return -sum
}
