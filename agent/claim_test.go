// Claims: one powerd writes a machine's controls, whatever its state directory; a lock that
// any user can take on what everybody may read keeps no powerd from starting.
package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"headroom/agent/statedir"
	"headroom/internal/cli"
)

// machineRoot is an empty machine with a sys folder.
func machineRoot(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sys"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func TestStrangersLockKeepsNoPowerdOut(t *testing.T) {
	t.Parallel()
	root, dir := machineRoot(t)
	stranger, err := os.Open(filepath.Join(dir, "sys")) // what any user may open
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	if err := unix.Flock(int(stranger.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	held, err := statedir.Claim(root)
	if err != nil || held == nil {
		t.Fatalf("no claim beside a stranger's lock on sys: %v", err)
	}
	defer func() { _ = statedir.Unlock(held) }()
	if info, err := os.Stat(filepath.Join(dir, statedir.ClaimDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("strangers may open what is locked: %v, %v", info.Mode(), err)
	}
}

func TestOneClaimOfAMachine(t *testing.T) {
	t.Parallel()
	root, dir := machineRoot(t)
	// A folder that was left open to others is closed.
	if err := os.MkdirAll(filepath.Join(dir, statedir.ClaimDir), 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := statedir.Claim(root)
	if err != nil || first == nil {
		t.Fatal(err)
	}
	_, err = statedir.Claim(root)
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitConflict {
		t.Fatalf("a second claim: %v", err)
	}
	if err := statedir.Unlock(first); err != nil {
		t.Fatal(err)
	}
	again, err := statedir.Claim(root)
	if err != nil || again == nil {
		t.Fatalf("no claim after the first ended: %v", err)
	}
	if err := statedir.Unlock(again); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, statedir.ClaimDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("strangers may open what is locked: %v, %v", info.Mode(), err)
	}
}
