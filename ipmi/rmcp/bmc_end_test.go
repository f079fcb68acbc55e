package rmcp

import (
	"encoding/binary"
	"fmt"
)

// The other end of the wire, as a BMC has it: what the claims need, and nothing else.

// protected tells by the header alone whether a datagram belongs to a session, and which.
func protected(b []byte) (session uint32, ok bool) {
	if len(b) < headerLen || b[4] != rmcpPlus || b[5]&(flagEncrypted|flagSigned) == 0 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[6:]), true
}

// answerTo frames the answer to a request: completion code and data.
func answerTo(cmd Command, sequence, code byte, data []byte) []byte {
	return message([]byte{addressRemote, (cmd.NetFn | 1) << 2}, []byte{addressBMC, sequence << 2, cmd.ID, code}, data)
}

// parseRequest opens the message of a request.
func parseRequest(msg []byte) (cmd Command, sequence byte, data []byte, err error) {
	if len(msg) < minMessage || checksum(msg[:3]) != 0 || checksum(msg[3:]) != 0 {
		return Command{}, 0, nil, fmt.Errorf("%w: no IPMI message", errMalformed)
	}
	return Command{NetFn: msg[1] >> 2, ID: msg[5]}, msg[4] >> 2, msg[6 : len(msg)-1], nil
}
