// Claims: none of its own; what other tests look at and no program needs.
package emulator

// Dir is the node's folder.
func (n *Node) Dir() string { return n.dir }
