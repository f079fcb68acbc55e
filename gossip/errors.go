package gossip

import "errors"

// errKey means that the gossip key is not 32 bytes in base64.
var errKey = errors.New("bad gossip key")

// errConfig means that the configuration cannot work on any machine.
var errConfig = errors.New("bad gossip configuration")

// errBind means that the gossip address cannot be listened on.
var errBind = errors.New("cannot listen for gossip")

// errMeta means that a member describes itself in a way this version does not
// know.
var errMeta = errors.New("unknown member description")
