// Claim: a lost node whose BMC says that the machine is off is charged nothing,
// and one whose BMC is on, dead or lies about nothing stays charged.
package coordinator

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"headroom/lab/emulator/bmc"
	"headroom/units"
)

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWitness(t *testing.T) {
	t.Parallel()
	start := func() *bmc.BMC {
		b, err := bmc.Start(bmc.Config{
			Listen: "127.0.0.1:0", User: "reader", Password: "secret", Update: time.Second, Watts: func() units.Power { return 100 * w },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	on, off, dead := start(), start(), start()
	if err := off.SetPower(false); err != nil {
		t.Fatal(err)
	}
	gone := dead.Addr()
	dead.Close()
	witness, err := newWitness(BMCConfig{User: "reader", PasswordFile: passwordFile(t, "secret\n")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := witness.ask(ctx, map[string]string{"on": on.Addr(), "off": off.Addr(), "gone": gone}, slog.New(slog.DiscardHandler))
	if !slices.Equal(found, []string{"off"}) {
		t.Errorf("off are %v", found)
	}
	wrong, err := newWitness(BMCConfig{User: "reader", PasswordFile: passwordFile(t, "guessed")})
	if err != nil {
		t.Fatal(err)
	}
	if found := wrong.ask(ctx, map[string]string{"off": off.Addr()}, slog.New(slog.DiscardHandler)); len(found) != 0 {
		t.Errorf("with a wrong password %v are off", found)
	}
	if _, err := newWitness(BMCConfig{User: "reader", PasswordFile: "/no/such/file"}); err == nil {
		t.Error("a missing password file was taken")
	}
}
