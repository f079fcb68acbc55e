// Package brakes is what a coordinator server knows of the brake, and how it sets one.
//
// The one idea: the brake alone waits for no leader. Any server with a private key signs
// one above every generation that it knows, gossip brings it to every node, and the next
// leader commits it before it grants anything. Generations only rise; the newest signed
// brake is kept beside the log (Store), so that a restart neither forgets it nor uses its
// generation again. Watcher takes in what gossip and nodes bring.
//
// What it never does: believe a generation that nobody has signed, or keep a brake from
// the nodes because a disk hangs.
package brakes
