package emulator

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"headroom/lab/emulator/bmc"
)

// controller is a node's BMC: what it measures is the plant's wall power, and a limit
// that is active in it acts on the plant, slowly.
type controller struct {
	*bmc.BMC
	node         *Node
	passwordFile string
}

// boardUser is the BMC's only account.
const boardUser = "headroom"

// startController starts the node's BMC on loopback. Its address and password are kept
// in the node's folder, so that a powerd.yaml of an earlier start still holds.
func startController(dir string, node *Node) (*controller, error) {
	b := &controller{node: node, passwordFile: filepath.Join(dir, "run", "bmc.password")}
	password, err := keptPassword(b.passwordFile)
	if err != nil {
		return nil, err
	}
	config := bmc.Config{Listen: "127.0.0.1:0", User: boardUser, Password: password, Watts: node.Wall}
	place := filepath.Join(dir, "run", "bmc.address")
	if before, err := os.ReadFile(place); err == nil {
		config.Listen = strings.TrimSpace(string(before))
	}
	if b.BMC, err = bmc.Start(config); err != nil && config.Listen != "127.0.0.1:0" {
		config.Listen = "127.0.0.1:0" // another process has the old port
		b.BMC, err = bmc.Start(config)
	}
	if err != nil {
		return nil, fmt.Errorf("emulator: BMC: %w", err)
	}
	return b, os.WriteFile(place, []byte(b.Addr()+"\n"), 0o644)
}

// keptPassword is the password in the file at path, which is made if need be.
func keptPassword(path string) (string, error) {
	if have, err := os.ReadFile(path); err == nil && len(have) > 1 {
		return strings.TrimSpace(string(have)), nil
	}
	password := rand.Text()[:16] // the longest that every cipher suite takes
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("emulator: BMC password: %w", err)
	}
	return password, nil
}

// act has the BMC's limit, or that there is none, reach the plant.
func (b *controller) act() {
	if b == nil {
		return
	}
	limit, active := b.Limit()
	if !active {
		limit = 0
	}
	b.node.setWallLimit(limit)
}

// close ends the BMC; where there is none (nil) it does nothing.
func (b *controller) close() {
	if b != nil {
		b.Close()
	}
}

// String describes the BMC's address for the operator.
func (b *controller) String() string {
	if b == nil {
		return "none"
	}
	return fmt.Sprintf("IPMI over LAN at %s, user %s, password in %s", b.Addr(), boardUser, b.passwordFile)
}
