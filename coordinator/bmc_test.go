// Claim: a BMC tells whether its machine is off to whoever has its account; one that is dead,
// or asked with a wrong password, tells nothing.
package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/internal/testkit/emulated"
)

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPoweredOff(t *testing.T) {
	t.Parallel()
	start := func() *emulated.BMC {
		return emulated.StartBMC(t, emulated.BMCOptions{User: "reader", Password: "secret", Update: time.Second, Watts: 100 * w})
	}
	on, off, dead := start(), start(), start()
	if err := off.SetPower(false); err != nil {
		t.Fatal(err)
	}
	gone := dead.Addr()
	dead.Close()
	ask := func(c BMCConfig) func(context.Context, string) (bool, error) {
		poweredOff, err := c.poweredOff()
		if err != nil {
			t.Fatal(err)
		}
		return poweredOff
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	right, wrong := ask(BMCConfig{User: "reader", PasswordFile: passwordFile(t, "secret\n")}), ask(BMCConfig{User: "reader", PasswordFile: passwordFile(t, "guessed")})
	for name, x := range map[string]struct {
		asked      func(context.Context, string) (bool, error)
		address    string
		off, fails bool
	}{
		"on": {right, on.Addr(), false, false}, "off": {right, off.Addr(), true, false}, "dead": {right, gone, false, true}, "wrong password": {wrong, off.Addr(), false, true},
	} {
		if off, err := x.asked(ctx, x.address); off != x.off || (err != nil) != x.fails {
			t.Errorf("%s: off is %v, %v", name, off, err)
		}
	}
	if _, err := (BMCConfig{User: "reader", PasswordFile: "/no/such/file"}).poweredOff(); err == nil {
		t.Error("a missing password file was taken")
	}
	if ask(BMCConfig{}) != nil {
		t.Error("without an account BMCs are asked")
	}
}
