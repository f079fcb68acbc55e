package gossip

import (
	"encoding/binary"
	"fmt"
	"net"

	"headroom/gossip/brake"
)

const (
	// metaV1 is the version of the description that a member gossips: the
	// version, the role, the start as an unsigned varint in ms since 1970, then
	// name and RPC address, each behind its length in one byte.
	metaV1 = 1

	// maxName and maxRPC are lengths in bytes; with the rest they stay below
	// memberlist's 512 bytes for a description.
	maxName = 128
	maxRPC  = 255
)

// meta is how a member describes itself.
type meta struct {
	role    string
	name    string
	rpc     string
	started uint64 // ms since 1970, by the member's own clock; only ever compared with the same member's
}

func roleByte(role string) (byte, bool) {
	switch role {
	case RoleCoordinator:
		return 'c', true
	case RoleNode:
		return 'n', true
	}
	return 0, false
}

func roleName(b byte) (string, bool) {
	switch b {
	case 'c':
		return RoleCoordinator, true
	case 'n':
		return RoleNode, true
	}
	return "", false
}

// check refuses what a member may not call itself.
func (m meta) check() error {
	if _, ok := roleByte(m.role); !ok {
		return fmt.Errorf("role %q: %w", m.role, errMeta)
	}
	if m.name == "" || len(m.name) > maxName || !brake.Printable(m.name) {
		return fmt.Errorf("name of %d bytes: %w", len(m.name), errMeta)
	}
	if len(m.rpc) > maxRPC || !brake.Printable(m.rpc) {
		return fmt.Errorf("address of %d bytes: %w", len(m.rpc), errMeta)
	}
	if m.rpc == "" && m.role == RoleNode {
		return nil
	}
	if _, _, err := net.SplitHostPort(m.rpc); err != nil {
		return fmt.Errorf("address %q: %w", m.rpc, errMeta)
	}
	return nil
}

// encode makes the bytes of a checked description.
func (m meta) encode() []byte {
	role, _ := roleByte(m.role)
	out := []byte{metaV1, role}
	out = binary.AppendUvarint(out, m.started)
	out = appendText(out, m.name)
	return appendText(out, m.rpc)
}

func appendText(out []byte, s string) []byte {
	out = append(out, byte(min(len(s), maxRPC)))
	return append(out, s[:min(len(s), maxRPC)]...)
}

// decodeMeta reads what another member says of itself. It accepts exactly what
// encode makes of a description that passes check.
func decodeMeta(b []byte) (meta, error) {
	if len(b) < 2 || b[0] != metaV1 {
		return meta{}, fmt.Errorf("version: %w", errMeta)
	}
	role, ok := roleName(b[1])
	if !ok {
		return meta{}, fmt.Errorf("role: %w", errMeta)
	}
	started, n := binary.Uvarint(b[2:])
	if n <= 0 {
		return meta{}, fmt.Errorf("start: %w", errMeta)
	}
	name, rest, ok := cutText(b[2+n:])
	if !ok {
		return meta{}, fmt.Errorf("name: %w", errMeta)
	}
	rpc, rest, ok := cutText(rest)
	if !ok || len(rest) != 0 {
		return meta{}, fmt.Errorf("address: %w", errMeta)
	}
	m := meta{role: role, name: name, rpc: rpc, started: started}
	return m, m.check()
}

func cutText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	end := 1 + int(b[0])
	return string(b[1:end]), b[end:], true
}
