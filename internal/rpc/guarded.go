package rpc

import "connectrpc.com/connect"

// Guarded is a stream that asks, at each message it receives, whether its sender would
// still be let in: a stream lives for weeks, and a certificate ends meanwhile.
type Guarded struct {
	connect.StreamingHandlerConn
	// Still is nil for a sender who would be let in, else why not.
	Still func() error
}

// Receive implements connect.StreamingHandlerConn.
func (c Guarded) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return c.Still()
}
