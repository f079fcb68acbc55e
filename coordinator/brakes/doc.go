// Package brakes keeps the brake as a coordinator server has it, and sets it.
//
// The one idea: only the brake needs no leader. Any server with a private key signs a generation
// above every one that it has seen, gossip carries it to every node, and the next leader commits
// it before it grants anything. Generations only rise; the newest signed brake is stored beside
// the log (Store), so that a restart neither forgets it nor uses its generation again. Watcher
// receives brakes from gossip and nodes.
//
// What it never does: accept an unsigned generation, or delay a brake because a disk hangs.
package brakes
