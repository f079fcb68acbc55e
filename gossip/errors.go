package gossip

import "errors"

// ErrKey means that the gossip key is not 32 bytes in base64.
var ErrKey = errors.New("bad gossip key")

// ErrConfig means that the configuration cannot work on any machine.
var ErrConfig = errors.New("bad gossip configuration")

// ErrBind means that the gossip address cannot be listened on.
var ErrBind = errors.New("cannot listen for gossip")

// errMeta means that a member describes itself in a way this version does not
// know.
var errMeta = errors.New("unknown member description")
